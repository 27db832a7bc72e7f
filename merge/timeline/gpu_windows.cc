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
  std::int64_t before = schema::kNoTime;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Interval& window = steps[i].window;
    const std::int64_t next = i + 1 < steps.size() ? steps[i + 1].window.begin : window.end;
    window.begin = std::max(first_launched(window.begin), before);
    window.end = std::max(first_launched(next), window.begin);
    before = window.end;
  }
  return steps;
}

}  // namespace lockstep
