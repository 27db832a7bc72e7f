#include "analysis/causes/rank_events.h"

#include <algorithm>
#include <utility>

#include "analysis/core/step_names.h"
#include "analysis/rules/causes.h"
#include "core/collective.h"
#include "core/function_name.h"
#include "core/printed.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/unrecorded_calls.h"

namespace lockstep::analysis {
namespace {

using schema::kNone;

std::size_t At(const std::vector<gpu::RankView::Step>& stretches, std::int64_t time_ns) {
  const auto after = std::upper_bound(stretches.begin(), stretches.end(), time_ns,
                                      [](std::int64_t t, const gpu::RankView::Step& s) { return t < s.window.begin; });
  if (after == stretches.begin() || time_ns >= after[-1].window.end) return kNowhere;
  return static_cast<std::size_t>(after - stretches.begin()) - 1;
}

void AddHostOperations(const auto& table, std::vector<Interval>& to) {
  for (std::size_t i = 0; i < table.rows(); ++i)
    if (table.mode[i] != schema::Code(CollectiveMode::kGpu) && table.end_ns[i] != schema::kNoTime)
      to.push_back({table.begin_ns[i], table.end_ns[i]});
}

}  // namespace

RankEvents::RankEvents(const Context& context, const tables::ViewIndex& index, std::int32_t rank,
                       schema::RankTables tables, const StretchBlock* block)
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
  const std::size_t all_stretches = stretches_.size();
  if (block != nullptr) {
    const auto from = stretches_.begin() + static_cast<std::ptrdiff_t>(block->first);
    earlier_.assign(stretches_.begin(), from);
    stretches_ = std::vector<gpu::RankView::Step>(from, from + static_cast<std::ptrdiff_t>(block->count));
    origin_ns_ = view_.windows.front().begin;
    view_.windows = Clip(view_.windows, block->held);
  }
  // Steps that were not marked are found by their collectives.
  if (host_stretches_.empty())
    host_stretches_ = stretches_;
  else if (block != nullptr)
    std::erase_if(host_stretches_,
                  [&](const auto& step) { return step.index < block->lowest || step.index > block->highest; });
  std::sort(host_stretches_.begin(), host_stretches_.end(),
            [](const auto& a, const auto& b) { return a.window.begin < b.window.begin; });

  if (view_.tables.kernels.rows() > 0 || (block != nullptr && block->gpu)) {
    activity_ = std::make_unique<gpu::DeviceActivity>(view_);
    gaps_ = gpu::FindGaps(*activity_);
    model_ = std::make_unique<gpu::ModelRanges>(view_, activity_->timeline, *nest_, activity_->windows);
    std::int64_t most = -1;
    for (const gpu::DeviceGaps::Device& device : gaps_.devices)
      if (device.window_ns - device.idle_ns > most) {
        most = device.window_ns - device.idle_ns;
        device_ = device.device;
      }
    if (block != nullptr) device_ = block->device;
  }
  if (!per_step_) {
    stretches_.clear();
    for (const Interval& window : gpu() ? activity_->windows : view_.windows) stretches_.push_back({-1, window});
    host_stretches_ = stretches_;
  }
  if (block == nullptr) {
    const std::vector<Interval>& windows = gpu() ? activity_->windows : view_.windows;
    if (!windows.empty()) origin_ns_ = windows.front().begin;
  }
  if (!gpu()) return;
  std::vector<Interval> operations;
  AddHostOperations(view_.tables.collectives, operations);
  AddHostOperations(view_.tables.p2p, operations);
  host_communication_ =
      Unite(Normalize(std::move(operations)),
            merge::FindUnrecordedComm(view_.tables, merge::TrainingThread(view_.tables), true).AwaitedOperations());
  finder_ = std::make_unique<gpu::CriticalPathFinder>(*activity_);
  // Evenly chosen from all stretches, those of other blocks included.
  const std::size_t n = block != nullptr ? all_stretches : stretches_.size(),
                    paths = std::min(n, rules::kCriticalPathsPerRank);
  for (std::size_t i = 0; i < paths; ++i) {
    const std::size_t stretch = i * n / paths;
    if (stretch >= earlier_.size() && stretch - earlier_.size() < stretches_.size())
      paths_.push_back({stretch - earlier_.size(), finder_->Find(stretches_[stretch - earlier_.size()].window)});
  }
}

std::size_t RankEvents::StretchAt(std::int64_t time_ns) const { return At(stretches_, time_ns); }

bool RankEvents::ExaminedBefore(std::int64_t time_ns) const { return At(earlier_, time_ns) != kNowhere; }

std::size_t RankEvents::HostStretchAt(std::int64_t time_ns) const { return At(host_stretches_, time_ns); }

std::size_t RankEvents::FirstEndingAfter(std::int64_t time_ns) const {
  return static_cast<std::size_t>(
      std::upper_bound(stretches_.begin(), stretches_.end(), time_ns,
                       [](std::int64_t t, const gpu::RankView::Step& s) { return t < s.window.end; }) -
      stretches_.begin());
}

IdleKind RankEvents::KindOf(const gpu::Gap& gap, const gpu::GapPart& part) {
  const bool short_gap = gap.at.end - gap.at.begin < rules::kLaunchGapNs;
  switch (part.kind) {
    case gpu::PartKind::kInput:
      return IdleKind::kInput;
    case gpu::PartKind::kBeforeForward:
      // Every step contains a short gap of this kind.
      return short_gap ? IdleKind::kLaunch : IdleKind::kInput;
    case gpu::PartKind::kSync:
      return IdleKind::kSync;
    case gpu::PartKind::kMemory:
      return IdleKind::kAllocator;
    case gpu::PartKind::kCopy:
      return IdleKind::kCopy;
    case gpu::PartKind::kStart:
      return IdleKind::kLaunch;
    case gpu::PartKind::kLaunch:
      return part.at.end - part.at.begin < rules::kLaunchGapNs ? IdleKind::kLaunch : IdleKind::kHostWork;
    case gpu::PartKind::kLoad:
      return IdleKind::kHostWork;
    case gpu::PartKind::kCall:
    case gpu::PartKind::kOperator:
    case gpu::PartKind::kBetween:
      return short_gap ? IdleKind::kLaunch : IdleKind::kHostWork;
    case gpu::PartKind::kHostUnknown:
      return short_gap ? IdleKind::kLaunch : IdleKind::kUnexplained;
    case gpu::PartKind::kNotStarted:
    case gpu::PartKind::kLaunchUnknown:
    case gpu::PartKind::kEdge:
      return IdleKind::kUnexplained;
    case gpu::PartKind::kCommunication:
      return IdleKind::kCommunication;
    case gpu::PartKind::kStreamWait:
      return IdleKind::kOtherDevice;
  }
  return IdleKind::kUnexplained;
}

std::string RankEvents::NameOf(const gpu::GapPart& part) const {
  if (part.blocking != kNone) return ShortName(gpu::BlockingName(view_, gaps_.blocking[part.blocking]));
  std::uint32_t range = part.range;
  if (part.kind == gpu::PartKind::kInput) {
    // The outermost range names the loader.
    for (std::uint32_t outer = range; outer != kNone; outer = nest_->Parent(outer))
      if (view_.tables.ranges.category[outer] == schema::Category::kInput) range = outer;
  } else if (part.call != kNone) {
    return ShortName(view_.Text(view_.tables.api.name[part.call]));
  }
  const std::string_view name = RangeName(range);
  return IsProfilerStep(name) ? std::string() : ShortName(name);
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
  // PyTorch's iterators: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__".
  if (const std::size_t who = name.find(")#"); who != std::string_view::npos && who + 2 < name.size())
    name.remove_prefix(who + 2);
  // Of a C++ function, without its namespaces, arguments and what many kernels share. Operators ("aten::add") are none.
  std::string text = name.find_first_of("<(") == std::string_view::npos ? std::string(name) : TellingFunction(name);
  if (const std::size_t colons = text.rfind("::");
      text.size() > most && colons != std::string::npos && colons + 2 < text.size())
    text = text.substr(colons + 2);
  if (text.size() > most) text = std::string(BeginOf(text, most - 3)) + "...";
  return text;
}

}  // namespace lockstep::analysis
