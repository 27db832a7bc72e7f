#include "merge/timeline/helper_waits.h"

#include <utility>
#include <vector>

#include "core/collective.h"
#include "core/counter_curve.h"
#include "merge/timeline/gpu_windows.h"
#include "trace/file/strings.h"

namespace lockstep::merge {
namespace {

constexpr schema::Columns<schema::Ranges> kHelperRangeColumns(&schema::Ranges::begin_ns, &schema::Ranges::duration_ns,
                                                              &schema::Ranges::thread, &schema::Ranges::category,
                                                              &schema::Ranges::name);
constexpr schema::Columns<schema::MpiCalls> kHelperCallColumns(&schema::MpiCalls::begin_ns,
                                                               &schema::MpiCalls::duration_ns,
                                                               &schema::MpiCalls::thread);
constexpr schema::Columns<schema::CpuSamples> kHelperSampleColumns(&schema::CpuSamples::time_ns,
                                                                   &schema::CpuSamples::thread,
                                                                   &schema::CpuSamples::run_delay_ns);
template <auto kAsked, typename Each>
void ForEachEvent(ingest::EventReader& events, Each&& each) {
  ingest::RowCursor<typename decltype(kAsked)::Of, kAsked> cursor(events);
  lockstep::merge::ForEachRow(cursor, each);
}

bool OfHelper(const schema::Collectives& c, std::size_t row, std::uint32_t training) {
  return c.mode[row] == schema::Code(CollectiveMode::kBlocking) && c.thread[row] != training &&
         c.end_ns[row] > c.begin_ns[row];
}

// The training thread handed over the collectives that a library's thread carries out.
std::int64_t HandedOver(const schema::Collectives& c, std::size_t row) {
  const bool said = row < c.enqueue_begin_ns.size() && c.enqueue_begin_ns[row] != schema::kNoTime;
  return said ? c.enqueue_begin_ns[row] : HelperEvidence::Collective::kNotSaid;
}

void AddSteps(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training,
              HelperEvidence& evidence) {
  std::vector<Interval> windows;
  for (std::size_t s = 0; s < head.steps.rows(); ++s) {
    if (head.steps.thread[s] != training || head.steps.cpu_ns[s] < 0 || head.steps.complete[s] == 0) continue;
    windows.push_back({head.steps.begin_ns[s], head.steps.end_ns[s]});
    evidence.steps.push_back({windows.back(), head.steps.cpu_ns[s], -1});
  }
  if (windows.empty()) return;
  CounterCurve delay(windows);
  ForEachEvent<kHelperSampleColumns>(events, [&](const auto& rows, std::size_t i) {
    if (rows.thread[i] == training && rows.run_delay_ns[i] >= 0) delay.Add(rows.time_ns[i], rows.run_delay_ns[i]);
  });
  for (std::size_t s = 0; s < windows.size(); ++s) evidence.steps[s].run_delay_ns = delay.Within(s);
}

void AddSigns(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training,
              HelperEvidence& evidence) {
  std::vector<bool> gives(head.strings.rows());
  for (std::uint32_t s = 0; s < gives.size(); ++s)
    gives[s] = trace::TextOf(head.strings, head.string_bytes, s).starts_with(kGivesBucketAway);
  ForEachEvent<kHelperRangeColumns>(events, [&](const auto& rows, std::size_t i) {
    if (rows.thread[i] != training) return;
    const Interval range{rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]};
    evidence.signs.insert(evidence.signs.end(), {range.begin, range.end});
    if (rows.category[i] == schema::Category::kInput) evidence.input.push_back(range);
    if (rows.name[i] < gives.size() && gives[rows.name[i]]) evidence.given.push_back(range.end);
  });
  for (const HelperEvidence::Collective& collective : evidence.collectives)
    if (collective.handed_over_ns != HelperEvidence::Collective::kNotSaid)
      evidence.signs.push_back(collective.handed_over_ns);
  ForEachEvent<kHelperCallColumns>(events, [&](const auto& rows, std::size_t i) {
    if (rows.thread[i] == training)
      evidence.signs.insert(evidence.signs.end(), {rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]});
  });
}

}  // namespace

IntervalSet HelperWaits(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training) {
  HelperEvidence evidence;
  for (std::size_t i = 0; i < head.collectives.rows(); ++i)
    if (OfHelper(head.collectives, i, training))
      evidence.collectives.push_back(
          {{head.collectives.begin_ns[i], head.collectives.end_ns[i]}, HandedOver(head.collectives, i)});
  if (evidence.collectives.empty()) return {};
  AddSteps(head, events, training, evidence);
  if (evidence.steps.empty()) return {};
  AddSigns(head, events, training, evidence);
  return lockstep::HelperWaits(std::move(evidence));
}

IntervalSet HelperWaits(const schema::RankTables& tables, std::uint32_t training) {
  return HelperWaits(tables, *ingest::ReadFromMemory(tables), training);
}

}  // namespace lockstep::merge
