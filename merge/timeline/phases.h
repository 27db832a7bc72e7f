#pragma once
// What the application declared in ranges with a category: time of the training thread in them, per step.

#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "merge/steps/steps.h"

namespace lockstep::merge {

// Values of step_phases.phase beyond ranges.category.
inline constexpr std::uint8_t kPhaseUnrecordedComm = schema::Phase::kTorchUnrecorded;

// Disjoint stretches of one category, by time.
struct PhaseStretch {
  Interval window;
  std::uint8_t category;
};

// Where ranges overlap, the one that began last counts (of those that began at once,
// the one listed last); where it has ended, the one before it. Sorted by begin.
std::vector<PhaseStretch> Innermost(const std::vector<PhaseStretch>& ranges);

// Ranges of one thread with a category, collected piece by piece.
class PhaseRanges {
 public:
  // `unrecorded`: in communication that no source records (unrecorded_calls.h).
  PhaseRanges(std::uint32_t thread, IntervalSet unrecorded) : thread_(thread), unrecorded_(std::move(unrecorded)) {}
  void Add(const schema::Ranges& rows);
  // Rows of the table for one rank: each step's, then those of `total` with index -1.
  schema::TlStepPhases Table(const std::vector<RankStep>& steps, Interval total, std::int32_t rank);

 private:
  std::uint32_t thread_;
  std::vector<PhaseStretch> ranges_;
  IntervalSet unrecorded_;
};

}  // namespace lockstep::merge
