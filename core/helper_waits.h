#pragma once
// Computes when the training thread of a CPU rank waited for collectives that other threads of its process made (gloo,
// and PyTorch over MPI, reduce buckets in threads of their own). No call of the training thread shows it: it sleeps on
// a condition variable. Both the trace (merge/timeline/helper_waits.h) and the live figures (runtime/agent/live) use
// this one rule.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/interval.h"

namespace lockstep {

// The name of the ranges of PyTorch's hook in which the training thread hands over a bucket; other programs may use it
// too.
inline constexpr std::string_view kGivesBucketAway = "ddp bucket";

// The largest distance between the end of a wait of `waited_ns` and the recorded end of the awaited operation.
std::int64_t EndToleranceNs(std::int64_t waited_ns);

// What is known of the training thread and of the threads beside it, on one clock, everything in any order.
struct HelperEvidence {
  struct Step {
    Interval window;
    std::int64_t cpu_ns;        // Of the training thread.
    std::int64_t run_delay_ns;  // Ready to run without a core; negative: not sampled.
  };
  struct Collective {
    Interval carried;             // By the other thread.
    std::int64_t handed_over_ns;  // By the training thread; kNotSaid.
    static constexpr std::int64_t kNotSaid = INT64_MIN;
  };
  std::vector<Step> steps;              // Complete steps whose CPU time is known.
  std::vector<Collective> collectives;  // Blocking collectives that other threads made.
  std::vector<std::int64_t> signs;  // When the training thread did something that was recorded, except step boundaries.
  std::vector<std::int64_t> given;  // When it had handed over a bucket.
  std::vector<Interval> input;      // Its ranges marked as input.
};

// Waiting is time in which other threads were in collectives and the training thread,
// - in steps in which it handed over buckets: had handed over the last one, until the last of their collectives ended;
// - in other steps: had no recorded event (begin or end of a range, MPI call) between some event and about the end of
//   such a collective; a thread that it wakes has its next event soon after it, or before an end that was recorded
//   late. That is since the collective began, or, where it is known, since it was handed over: what stood before it in
//   the other thread's queue held it up.
// In both cases at most the last B of each step count, where B is the time for which it was blocked: the step's length
// minus its CPU time, its time on the run queue (if that was sampled) and its ranges marked as input. A thread that
// waits by spinning counts as computing.
IntervalSet HelperWaits(HelperEvidence evidence);

}  // namespace lockstep
