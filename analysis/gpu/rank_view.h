#pragma once
// One rank's events and the windows in which they count.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "merge/timeline/charges.h"
#include "merge/timeline/kernel_class.h"
#include "merge/timeline/p2p_partners.h"
#include "merge/timeline/timeline.h"

namespace lockstep::gpu {

// One rank's events within the window that is asked for, as tables and causes need them.
// Times: rank clock.
struct RankView {
  std::int32_t rank = -1;
  schema::RankTables tables;                // All events of the file, not clipped.
  std::vector<merge::KernelClass> classes;  // Per row of kernels.
  std::vector<Interval> windows;            // In order, disjoint: the analysis window or the steps asked for.
  struct Step {
    std::int64_t index;
    Interval window;  // As step_ranks has it: of GPU ranks the GPU's.
  };
  std::vector<Step> steps;                         // In order: complete steps within `windows`; empty without steps.
  const Step* StepAt(std::int64_t time_ns) const;  // The step whose window holds the time, null without one.
  bool hta = false;                                // `classes` are HTA's: every kernel keeps the device busy.
  std::int64_t ClockSlackNs() const;               // By how much host and GPU times may contradict each other.
  std::string_view Text(std::uint32_t id) const;   // Of `strings`, "" for kNone.
  // GPU events that begin, or host events that begin, in one of `windows`.
  bool InWindow(std::int64_t begin_ns) const;
  // Host events, and GPU work by the host call that launched it: the host runs ahead of
  // the GPU, so its part of the window lies elsewhere. Without steps: all that was recorded.
  std::vector<Interval> host_windows;
  bool InHostWindow(std::int64_t begin_ns) const;
  bool whole = false;  // `windows` is all that the rank has of GPU events, or of anything.
  const merge::Timeline* timeline = nullptr;
  std::span<const std::uint32_t> members;  // The rank's rows of timeline.tables.collective_ranks.
  // Of tables that ask for them.
  const merge::RankP2pPartners* partners = nullptr;  // Null: nobody knows.
  const merge::Charges* charges = nullptr;
};

}  // namespace lockstep::gpu
