#include "ingest/map/launches.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "merge/parallel.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {

std::int64_t Shifted(std::int64_t ns, std::int64_t base_ns) {
  std::int64_t sum;
  if (!__builtin_add_overflow(ns, base_ns, &sum)) return sum;
  return base_ns > 0 ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int64_t>::min() + 1;
}

void TieLaunches(MappedTrace& trace) {
  schema::RankTables& t = trace.tables;
  std::vector<std::uint8_t> is_async(t.strings.rows(), 2);  // Per name, 2: not looked at yet.
  std::vector<std::uint64_t> launches;
  std::vector<std::pair<std::uint64_t, bool>> copies;
  launches.reserve(t.api.rows());
  for (std::size_t i = 0; i < t.api.rows(); ++i) {
    const std::uint64_t correlation = t.api.correlation[i];
    if (correlation == 0) continue;
    launches.push_back(correlation);
    if (t.api.kind[i] != schema::ApiKind::kCopy) continue;
    std::uint8_t& async = is_async[t.api.name[i]];
    if (async == 2) async = lockstep::trace::TextOf(t, t.api.name[i]).find("Async") != std::string_view::npos;
    copies.emplace_back(correlation, async != 0);
  }
  if (!std::is_sorted(launches.begin(), launches.end())) std::sort(launches.begin(), launches.end());
  if (!std::is_sorted(copies.begin(), copies.end())) std::sort(copies.begin(), copies.end());
  for (std::size_t i = 0; i < t.copies.rows(); ++i) {
    const auto at = std::lower_bound(copies.begin(), copies.end(), std::pair(t.copies.correlation[i], false));
    if (at != copies.end() && at->first == t.copies.correlation[i]) t.copies.asynchronous[i] = at->second;
  }
  // Neighbours in the file were mostly launched one after the other: each search starts where the last ended.
  const auto missing = [&](const std::vector<std::uint64_t>& correlations) {
    std::uint64_t count = 0;
    std::size_t hint = 0;
    for (const std::uint64_t correlation : correlations) {
      for (int step = 0; step < 8 && hint + 1 < launches.size() && launches[hint + 1] <= correlation; ++step) ++hint;
      if (hint < launches.size() && launches[hint] == correlation) continue;
      const auto at = std::lower_bound(launches.begin(), launches.end(), correlation);
      if (at != launches.end() && *at == correlation) {
        hint = static_cast<std::size_t>(at - launches.begin());
        continue;
      }
      ++count;
    }
    return count;
  };
  trace.launch_missing = missing(t.kernels.correlation) + missing(t.copies.correlation);
}

// Nesting on each thread. Times were cut to what the trace gives, so a child may
// seem to end after its parent: it counts as inside as long as it begins there.
void SetDepths(schema::RankTables& tables, unsigned jobs) {
  schema::Ranges& ranges = tables.ranges;
  std::vector<std::vector<std::uint32_t>> by_thread(tables.threads.rows());
  for (std::uint32_t row = 0; row < ranges.rows(); ++row)
    if (ranges.thread[row] < by_thread.size()) by_thread[ranges.thread[row]].push_back(row);
  merge::ParallelFor(jobs, by_thread.size(), [&](std::size_t thread) {
    auto& rows = by_thread[thread];
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(ranges.begin_ns[a], -ranges.duration_ns[a], a) <
             std::tuple(ranges.begin_ns[b], -ranges.duration_ns[b], b);
    };
    if (!std::is_sorted(rows.begin(), rows.end(), before)) std::sort(rows.begin(), rows.end(), before);
    std::vector<std::int64_t> open;  // Ends.
    for (const std::uint32_t row : rows) {
      while (!open.empty() && open.back() <= ranges.begin_ns[row]) open.pop_back();
      ranges.depth[row] = static_cast<std::uint16_t>(std::min<std::size_t>(open.size(), 65535));
      open.push_back(Shifted(ranges.begin_ns[row], ranges.duration_ns[row]));
    }
    std::vector<std::uint32_t>().swap(rows);
  });
}

}  // namespace lockstep::ingest
