#include "analysis/gpu/rank_view.h"

#include <algorithm>

#include "core/rules/common.h"
#include "trace/file/strings.h"

namespace lockstep::gpu {
namespace {

bool Holds(const std::vector<Interval>& windows, std::int64_t at) {
  const auto after = std::upper_bound(windows.begin(), windows.end(), at,
                                      [](std::int64_t t, const Interval& window) { return t < window.begin; });
  return after != windows.begin() && at < after[-1].end;
}

}  // namespace

std::string_view RankView::Text(std::uint32_t id) const { return trace::TextOf(tables, id); }

std::int64_t RankView::ClockSlackNs() const {
  return std::max(rules::kGpuClockSlackNs,
                  timeline == nullptr ? 0 : timeline->MetaNumber("gpu_clock_contradicts_ns", 0));
}

// The last event of the whole may have no duration and begin at its very end.
const RankView::Step* RankView::StepAt(std::int64_t time_ns) const {
  const auto after = std::upper_bound(steps.begin(), steps.end(), time_ns,
                                      [](std::int64_t t, const Step& step) { return t < step.window.begin; });
  return after != steps.begin() && time_ns < after[-1].window.end ? &after[-1] : nullptr;
}

bool RankView::InWindow(std::int64_t begin_ns) const {
  return Holds(windows, begin_ns) || (whole && !windows.empty() && begin_ns == windows.back().end);
}
bool RankView::InHostWindow(std::int64_t begin_ns) const { return Holds(host_windows, begin_ns); }

}  // namespace lockstep::gpu
