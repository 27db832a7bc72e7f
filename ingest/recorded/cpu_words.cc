#include "ingest/recorded/cpu_words.h"

#include <cmath>
#include <utility>

namespace lockstep::recorded {
namespace {

constexpr std::int64_t kLeastNs = 1'000'000'000, kSpanNs = 10'000'000'000;

}  // namespace

std::string CpuWords(ingest::EventReader& reader, const schema::RankTables& head, std::int64_t end_ns,
                     hang::RankFacts& facts) {
  schema::CpuSamples::Row first{}, last{};
  bool any = false;
  ingest::RowCursor<schema::CpuSamples> cursor(reader);
  while (const schema::CpuSamples* piece = cursor.Next()) {
    for (std::size_t i = 0; i < piece->rows(); ++i) {
      const std::uint32_t thread = piece->thread[i];
      if (thread >= head.threads.rows() || head.threads.training[thread] == 0 || piece->cpu_ns[i] < 0) continue;
      last = piece->Get(i);
      if (last.time_ns < end_ns - kSpanNs || std::exchange(any, true)) continue;
      first = last;
    }
  }
  if (!any || last.time_ns - first.time_ns < kLeastNs) return "";
  const auto percent = [&](std::int64_t part_ns) {
    return std::lround(100 * static_cast<double>(part_ns) / static_cast<double>(last.time_ns - first.time_ns));
  };
  const bool delay_known = first.run_delay_ns >= 0 && last.run_delay_ns >= 0;
  const long used = percent(last.cpu_ns - first.cpu_ns);
  const long lacked = delay_known ? percent(last.run_delay_ns - first.run_delay_ns) : 0;
  facts.cpu_share = static_cast<double>(used + lacked) / 100;
  // A thread that gets no core is not asleep.
  std::string text = used + lacked >= 50 ? "computing" : used + lacked >= 5 ? "mostly asleep" : "asleep";
  text += " (CPU " + std::to_string(used) + " %";
  if (!facts.asleep_in.empty() && used + lacked < 50)
    text += ", in " + facts.asleep_in + (facts.asleep_on.empty() ? "" : " of " + facts.asleep_on);
  if (lacked >= 10) text += ", " + std::to_string(lacked) + " % without a core";
  return text + ")";
}

}  // namespace lockstep::recorded
