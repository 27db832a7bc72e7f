#pragma once
// One rank's own events as the causes use them: its windows, and for a GPU its operations and its idle gaps.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/context.h"
#include "analysis/core/idle_kinds.h"
#include "analysis/gpu/critical_path.h"
#include "analysis/gpu/device_gaps.h"
#include "analysis/gpu/model_ranges.h"
#include "analysis/tables/engine/view_index.h"
#include "core/interval.h"

namespace lockstep::analysis {

// Some of a rank's stretches, one after the other: what is examined at once of a rank that recorded much
// (rank_blocks.h).
struct StretchBlock {
  std::size_t first = 0, count = 0;                      // Of all stretches of the rank.
  std::int64_t lowest = INT64_MIN, highest = INT64_MAX;  // Numbers of the steps, as the host marked them, inclusive.
  Interval held{0, 0};                                   // The tables contain all events of this time, rank clock.
  bool gpu = false;                                      // The rank has kernels, here or elsewhere,
  std::uint16_t device = 0;                              // all of them on this device.
};

class RankEvents {
 public:
  // Takes the tables of a CPU rank or a GPU rank. Context and index must outlive this object. `block`: the tables are
  // those around a part of the stretches, which alone are examined; null: all of them.
  RankEvents(const Context& context, const tables::ViewIndex& index, std::int32_t rank, schema::RankTables tables,
             const StretchBlock* block = nullptr);
  RankEvents(const RankEvents&) = delete;
  RankEvents& operator=(const RankEvents&) = delete;

  const gpu::RankView& view() const { return view_; }
  bool gpu() const { return activity_ != nullptr; }
  const gpu::RangeNest& nest() const { return *nest_; }

  // The steps that count (without the warm-up); in runs without steps the windows, with index -1. In order.
  const std::vector<gpu::RankView::Step>& stretches() const { return stretches_; }
  bool per_step() const { return per_step_; }
  // What happened then is examined with an earlier block.
  bool ExaminedBefore(std::int64_t time_ns) const;
  // The begin of the rank's windows, from which times are told.
  std::int64_t origin_ns() const { return origin_ns_; }
  std::size_t StretchAt(std::int64_t time_ns) const;  // kNowhere if it is in none.
  // The same for what the host did, and for GPU work by the time of the call that launched it.
  std::size_t HostStretchAt(std::int64_t time_ns) const;

  // For GPU ranks. The device is the busiest one.
  const gpu::DeviceActivity& activity() const { return *activity_; }
  const gpu::DeviceGaps& gaps() const { return gaps_; }
  std::uint16_t device() const { return device_; }
  // Collectives and messages without a kernel, recorded or known from ranges, in which the GPU's idle time is exposed
  // communication.
  const IntervalSet& host_communication() const { return host_communication_; }
  static IdleKind KindOf(const gpu::Gap& gap, const gpu::GapPart& part);
  // Splits the parts of a gap by stretch: f(stretch, part, ns). The time within recorded communication of the rank's
  // host is exposed communication and not idle time (docs/definitions.md), and is left out.
  template <typename F>
  void ForEachPart(const gpu::Gap& gap, F&& f) const {
    for (std::size_t i = FirstEndingAfter(gap.at.begin); i < stretches_.size(); ++i) {
      const Interval& stretch = stretches_[i].window;
      if (stretch.begin >= gap.at.end) break;
      for (const gpu::GapPart& part : gaps_.PartsOf(gap))
        if (const Interval at{std::max(part.at.begin, stretch.begin), std::min(part.at.end, stretch.end)};
            at.begin < at.end)
          if (const std::int64_t ns = at.end - at.begin - TotalWithin(host_communication_, at); ns > 0) f(i, part, ns);
    }
  }
  // What the host was in at that time: the call, the operator, the function or the range; "" if nothing but a step of
  // the profiler.
  std::string NameOf(const gpu::GapPart& part) const;
  // Whether the range contains the model's run (analysis/gpu/model_ranges.h).
  bool Encloses(std::uint32_t range) const { return range != schema::kNone && model_->Encloses(range); }
  // The critical path of some stretches, evenly chosen.
  struct Path {
    std::size_t stretch;
    gpu::CriticalPath path;
  };
  const std::vector<Path>& paths() const { return paths_; }
  const gpu::CriticalPathFinder& path_finder() const { return *finder_; }

  // The phase (ranges.category) of the innermost range around this one that has one, 0 none.
  std::uint8_t PhaseOf(std::uint32_t range) const;
  std::string_view RangeName(std::uint32_t range) const;  // "" for kNone.

 private:
  std::size_t FirstEndingAfter(std::int64_t time_ns) const;

  gpu::RankView view_;
  std::unique_ptr<gpu::RangeNest> nest_;
  std::vector<gpu::RankView::Step> stretches_, host_stretches_;
  std::vector<gpu::RankView::Step> earlier_;  // Stretches before those of the block.
  std::int64_t origin_ns_ = 0;
  bool per_step_ = false;
  std::unique_ptr<gpu::DeviceActivity> activity_;
  gpu::DeviceGaps gaps_;
  std::uint16_t device_ = 0;
  IntervalSet host_communication_;
  std::unique_ptr<gpu::ModelRanges> model_;
  std::unique_ptr<gpu::CriticalPathFinder> finder_;
  std::vector<Path> paths_;
};

// Shortens names of ranges to a familiar form that fits on a line: "Optimizer.step#SGD.step".
std::string ShortName(std::string_view name, std::size_t most = 48);

}  // namespace lockstep::analysis
