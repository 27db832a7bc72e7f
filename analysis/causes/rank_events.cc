#include "analysis/causes/rank_events.h"

#include <algorithm>
#include <utility>

#include "core/printed.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint32_t kNone = schema::kNone;
constexpr std::uint8_t kInputCategory = schema::Category::kInput;
// Python's way from one launch to the next is tens of microseconds; what takes longer does something.
constexpr std::int64_t kLaunchGapNs = 100'000;
constexpr std::size_t kMostPaths = 16;

std::size_t At(const std::vector<gpu::RankView::Step>& stretches, std::int64_t time_ns) {
  const auto after = std::upper_bound(stretches.begin(), stretches.end(), time_ns,
                                      [](std::int64_t t, const gpu::RankView::Step& s) { return t < s.window.begin; });
  if (after == stretches.begin() || time_ns >= after[-1].window.end) return kNowhere;
  return static_cast<std::size_t>(after - stretches.begin()) - 1;
}

}  // namespace

RankEvents::RankEvents(const Context& context, const tables::ViewIndex& index, std::int32_t rank,
                       schema::RankTables tables)
    : view_(tables::MakeRankView(index, rank, std::move(tables), {})),
      nest_(std::make_unique<gpu::RangeNest>(view_.tables)) {
  std::vector<std::int64_t> usable;
  for (const std::size_t row : context.usable_steps()) usable.push_back(context.tables().steps.index[row]);
  const auto counts = [&](std::int64_t step) { return std::binary_search(usable.begin(), usable.end(), step); };
  for (const gpu::RankView::Step& step : view_.steps)
    if (counts(step.index) && step.window.begin < step.window.end) stretches_.push_back(step);
  per_step_ = !stretches_.empty();
  const auto& marked = view_.tables.steps;
  for (std::size_t i = 0; i < marked.rows(); ++i)
    if (marked.complete[i] && counts(marked.index[i]))
      host_stretches_.push_back({marked.index[i], {marked.begin_ns[i], marked.end_ns[i]}});
  // Steps that nobody marked were found by their collectives.
  if (host_stretches_.empty()) host_stretches_ = stretches_;
  std::sort(host_stretches_.begin(), host_stretches_.end(),
            [](const auto& a, const auto& b) { return a.window.begin < b.window.begin; });

  const auto& ranges = view_.tables.ranges;
  std::vector<Interval> input;
  for (std::uint32_t row = 0; row < ranges.rows(); ++row)
    if (ranges.category[row] == kInputCategory)
      input.push_back({ranges.begin_ns[row], ranges.begin_ns[row] + ranges.duration_ns[row]});
  input_ = Normalize(std::move(input));

  if (view_.tables.kernels.rows() > 0) {
    activity_ = std::make_unique<gpu::DeviceActivity>(view_);
    gaps_ = gpu::FindGaps(*activity_);
    calls_ = gpu::ClassifyHostCalls(view_.tables);
    std::int64_t most = -1;
    for (const gpu::DeviceGaps::Device& device : gaps_.devices)
      if (device.window_ns - device.idle_ns > most) {
        most = device.window_ns - device.idle_ns;
        device_ = device.device;
      }
  }
  if (!per_step_) {
    stretches_.clear();
    for (const Interval& window : gpu() ? activity_->windows : view_.windows) stretches_.push_back({-1, window});
    host_stretches_ = stretches_;
  }
  if (!gpu()) return;
  finder_ = std::make_unique<gpu::CriticalPathFinder>(*activity_);
  const std::size_t n = stretches_.size(), paths = std::min(n, kMostPaths);
  for (std::size_t i = 0; i < paths; ++i) {
    const std::size_t stretch = i * n / paths;
    paths_.push_back({stretch, finder_->Find(stretches_[stretch].window)});
  }
}

std::size_t RankEvents::StretchAt(std::int64_t time_ns) const { return At(stretches_, time_ns); }

std::size_t RankEvents::HostStretchAt(std::int64_t time_ns) const { return At(host_stretches_, time_ns); }

std::size_t RankEvents::FirstEndingAfter(std::int64_t time_ns) const {
  return static_cast<std::size_t>(
      std::upper_bound(stretches_.begin(), stretches_.end(), time_ns,
                       [](std::int64_t t, const gpu::RankView::Step& s) { return t < s.window.end; }) -
      stretches_.begin());
}

IdleKind RankEvents::KindOf(const gpu::Gap& gap) const {
  const auto frees = [](std::string_view name) { return name.find("Free") != std::string_view::npos; };
  switch (gap.cause) {
    case gpu::GapCause::kInput:
      return IdleKind::kInput;
    case gpu::GapCause::kSync:
      return gap.blocking != kNone && frees(gpu::BlockingName(view_, gaps_.blocking[gap.blocking]))
                 ? IdleKind::kAllocator
                 : IdleKind::kSync;
    case gpu::GapCause::kLatency:
      return gap.at.end - gap.at.begin < kLaunchGapNs ? IdleKind::kLaunch : IdleKind::kOther;
    case gpu::GapCause::kHost:
      if (gap.host_call != kNone && calls_[gap.host_call] == gpu::HostCall::kMemory) return IdleKind::kAllocator;
      return gap.at.end - gap.at.begin < kLaunchGapNs ? IdleKind::kLaunch : IdleKind::kHostWork;
    default:
      return IdleKind::kOther;
  }
}

std::uint8_t RankEvents::PhaseOf(std::uint32_t range) const {
  const auto& ranges = view_.tables.ranges;
  for (; range != kNone; range = nest_->Parent(range))
    if (ranges.category[range] != schema::Category::kNone) return ranges.category[range];
  return 0;
}

std::string_view RankEvents::RangeName(std::uint32_t range) const {
  return range == kNone ? std::string_view() : view_.Text(view_.tables.ranges.name[range]);
}

std::string ShortName(std::string_view name, std::size_t most) {
  // Of C++ what comes before the arguments and template arguments.
  if (name.starts_with("void ")) name.remove_prefix(5);
  std::size_t end = name.find_first_of("<(");
  if (end == 0 || end == std::string_view::npos) end = name.size();
  std::string text(name.substr(0, end));
  if (const std::size_t colons = text.rfind("::");
      text.size() > most && colons != std::string::npos && colons + 2 < text.size())
    text = text.substr(colons + 2);
  if (text.size() > most) text = std::string(BeginOf(text, most - 3)) + "...";
  return text;
}

}  // namespace lockstep::analysis
