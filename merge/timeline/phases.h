#pragma once
// What the application says it did: time of the training thread in ranges that have
// a category, per step.

#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "merge/steps/steps.h"

namespace lockstep {

// Values of step_phases.phase beyond ranges.category.
inline constexpr std::uint8_t kPhaseUnrecordedComm = 128;

// Disjoint stretches of one category, by time.
struct PhaseStretch {
  Interval window;
  std::uint8_t category;
};

// Where ranges overlap, the one that began last counts (of those that began at once,
// the one listed last); where it has ended, the one before it. Sorted by begin.
std::vector<PhaseStretch> Innermost(const std::vector<PhaseStretch>& ranges);

// Rows of the table for one rank: each step's, then those of `total` with index -1.
// `events` holds ranges; texts are in `head`.
schema::TlStepPhases PhasesOf(const schema::RankTables& head, const schema::RankTables& events, std::uint32_t thread,
                              const std::vector<RankStep>& steps, Interval total, std::int32_t rank);

}  // namespace lockstep
