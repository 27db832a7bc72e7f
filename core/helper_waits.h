#pragma once
// When the training thread of a CPU rank waited for collectives that other threads of its process made (gloo, and
// PyTorch over MPI, reduce buckets in threads of their own). No call of the training thread shows it: it sleeps on a
// condition variable. The one rule for it, of the trace (merge/timeline/helper_waits.h) and of the live figures
// (runtime/agent/live).

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/interval.h"

namespace lockstep {

// What PyTorch's hook names the ranges in which the training thread gives a bucket away; other programs may as well.
inline constexpr std::string_view kGivesBucketAway = "ddp bucket";

// How far apart the end of waiting, `waited_ns` long, and the noted end of what was waited for may lie.
std::int64_t EndToleranceNs(std::int64_t waited_ns);

// What is known of the training thread and of those beside it, on one clock, everything in any order.
struct HelperEvidence {
  struct Step {
    Interval window;
    std::int64_t cpu_ns;        // Of the training thread.
    std::int64_t run_delay_ns;  // It had no core for; negative: not sampled.
  };
  std::vector<Step> steps;            // Whole ones whose CPU time is known.
  std::vector<Interval> collectives;  // That other threads made, blocking.
  std::vector<std::int64_t> signs;    // When the training thread did something that was recorded, boundaries aside.
  std::vector<std::int64_t> given;    // When it had given a bucket away.
  std::vector<Interval> input;        // Its ranges marked as input.
};

// Waiting is time in which others were in collectives and the training thread,
// - in steps in which it gave buckets away: had given the last one, until the last of their collectives ended;
// - in other steps: did nothing that is recorded (a range's begin or end, a call of MPI's) between something and about
//   the end of such a collective, as who is woken by it does: soon after it, or before an end that was noted late;
// of both at most the last B of each step, where B is the time it was blocked: the step's length minus its CPU time,
// its time on the run queue (where that was sampled) and its ranges marked as input. Who waits by spinning is
// computing.
IntervalSet HelperWaits(HelperEvidence evidence);

}  // namespace lockstep
