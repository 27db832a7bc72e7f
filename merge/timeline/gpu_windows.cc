#include "merge/timeline/gpu_windows.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Correlation -> time of the launching call, sorted for lookup.
std::vector<std::pair<std::uint64_t, std::int64_t>> Launches(const schema::Api& api) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> launches;
  for (std::size_t i = 0; i < api.rows(); ++i)
    if (api.correlation[i] != 0) launches.emplace_back(api.correlation[i], api.begin_ns[i]);
  if (!std::is_sorted(launches.begin(), launches.end())) std::sort(launches.begin(), launches.end());
  return launches;
}

template <typename Table>
void Extend(const Table& table, bool& any, Interval& extent) {
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const Interval event{table.begin_ns[i], table.begin_ns[i] + table.duration_ns[i]};
    if (!any) extent = event;
    extent.begin = std::min(extent.begin, event.begin);
    extent.end = std::max(extent.end, event.end);
    any = true;
  }
}

}  // namespace

Interval GpuExtent(const schema::RankTables& events) {
  Interval extent{0, 0};
  bool any = false;
  Extend(events.kernels, any, extent);
  Extend(events.copies, any, extent);
  return extent;
}

std::vector<RankStep> GpuWindows(std::vector<RankStep> steps, const schema::RankTables& events) {
  if (steps.empty()) return steps;
  // (launch, start) of every kernel; without a launch record a kernel counts where it ran.
  const auto launches = Launches(events.api);
  std::vector<std::pair<std::int64_t, std::int64_t>> kernels;
  kernels.reserve(events.kernels.rows());
  for (std::size_t i = 0; i < events.kernels.rows(); ++i) {
    const std::uint64_t correlation = events.kernels.correlation[i];
    std::int64_t launched = events.kernels.begin_ns[i];
    if (correlation != 0) {
      const auto at = std::lower_bound(launches.begin(), launches.end(), std::pair(correlation, schema::kNoTime));
      if (at != launches.end() && at->first == correlation) launched = at->second;
    }
    kernels.emplace_back(launched, events.kernels.begin_ns[i]);
  }
  if (!std::is_sorted(kernels.begin(), kernels.end())) std::sort(kernels.begin(), kernels.end());
  const Interval extent = GpuExtent(events);

  // Start of the first kernel launched at or after a host time.
  const auto first_launched = [&](std::int64_t host_ns) {
    const auto at = std::lower_bound(kernels.begin(), kernels.end(), std::pair(host_ns, schema::kNoTime));
    return at == kernels.end() ? extent.end : at->second;
  };
  // Latest end of what was launched before a host time.
  std::vector<std::pair<std::int64_t, std::int64_t>> ends;
  const auto last_ended = [&](std::int64_t host_ns, std::int64_t least) {
    if (ends.empty()) {
      for (std::size_t i = 0; i < events.kernels.rows(); ++i) {
        const std::uint64_t correlation = events.kernels.correlation[i];
        const auto at = std::lower_bound(launches.begin(), launches.end(), std::pair(correlation, schema::kNoTime));
        const bool known = correlation != 0 && at != launches.end() && at->first == correlation;
        ends.emplace_back(known ? at->second : events.kernels.begin_ns[i],
                          events.kernels.begin_ns[i] + events.kernels.duration_ns[i]);
      }
      std::sort(ends.begin(), ends.end());
      for (std::size_t i = 1; i < ends.size(); ++i) ends[i].second = std::max(ends[i].second, ends[i - 1].second);
    }
    const auto at = std::lower_bound(ends.begin(), ends.end(), std::pair(host_ns, schema::kNoTime));
    return at == ends.begin() ? least : std::max(least, at[-1].second);
  };
  std::int64_t before = schema::kNoTime;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Interval& window = steps[i].window;
    const std::int64_t host_end = window.end;
    const std::int64_t next = i + 1 < steps.size() ? steps[i + 1].window.begin : host_end;
    window.begin = std::max(first_launched(window.begin), before);
    // Where recording went off in between, the next kernel is another window's.
    const bool gap = next > host_end && steps[i + 1].index > steps[i].index + 1;
    window.end = gap ? last_ended(host_end, window.begin) : std::max(first_launched(next), window.begin);
    before = window.end;
  }
  return steps;
}

}  // namespace lockstep
