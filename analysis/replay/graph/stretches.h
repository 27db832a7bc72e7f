#pragma once
// Divides the time of the threads of one rank of a run on CPU ranks. Cluster time.

#include <cstdint>
#include <vector>

#include "core/schema.h"
#include "merge/match/awaited.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

// One rank's part of a collective that can be replayed.
struct RankCollective {
  std::uint32_t row = 0;         // In the rank's collectives; kNone if it was not recorded (a question added it).
  std::uint32_t collective = 0;  // Index in HostRun::collectives.
  std::uint32_t thread = 0;
  bool posted = false;   // Non-blocking or persistent.
  bool in_wait = false;  // It made progress only in its wait.
  // It ended between `end_low_ns` and `end_ns`, the return of the call that found it complete.
  std::int64_t begin_ns = 0, wait_begin_ns = 0, end_ns = 0, end_low_ns = 0;
  // For collectives of another thread: when the training thread handed it over, if that is recorded ("ddp bucket"), and
  // the delay between the earliest possible begin and the begin.
  std::int64_t ready_ns = kNotSaid, late_ns = 0;
  bool by_test = false;  // Posted, and found complete by a call that does not wait.
  // Whether it waits for the others; whether the others wait for it (merge/match/awaited.h).
  bool waits = true, awaited = true;
  // Where members wait for some of the others: what says for whom, and its own number in the group; else kNone.
  merge::Exchange exchange = {};
  std::uint32_t number = schema::kNone;
  static constexpr std::int64_t kNotSaid = INT64_MIN;
};

// A part of a thread's time.
struct Stretch {
  enum Kind : std::uint8_t {
    kCall,      // In MPI, none of the following.
    kPost,      // Posts `collectives`.
    kWait,      // Ends when `collectives` have ended.
    kBlocking,  // Is collectives[0].
    kStepEnd,   // A point: the step `step` ends.
    kFeed,      // A point: another thread's collectives[0] can begin.
  };
  Kind kind;
  std::int64_t begin_ns, end_ns;
  std::vector<std::uint32_t> collectives;  // Indices in RankStretches::collectives.
  std::uint32_t step = 0;
  // Messages (host_messages.h): ends that this call's begin makes available to other ranks, ends of other ranks without
  // which it cannot return, and its duration after all of those are there (-1: it awaits none).
  std::vector<std::uint32_t> offers = {}, awaits = {};
  std::int64_t after_ns = -1;
  std::uint32_t last_awaited = 0;  // The one of `awaits` that arrived last.
  // If it awaits none: a message that it waits to hand over, whose receiver was in the call that takes it before. The
  // whole call is that message's transfer.
  std::uint32_t hands_over = schema::kNone;
};

struct OtherThread {
  std::uint32_t thread = 0;
  std::vector<std::uint32_t> collectives;  // Blocking ones, sorted by begin.
  std::vector<bool> fed;  // For each: whether the training thread's point at its begin allows it to begin.
};

struct RankStretches {
  std::int64_t begin_ns = 0;  // Of the first step.
  std::vector<RankCollective> collectives;
  std::vector<Stretch> training;  // Sorted by begin; points before stretches that begin at the same time.
  std::vector<OtherThread> others;
  // CPU time of the training thread by step of the window, -1 unknown; or empty.
  std::vector<std::int64_t> step_cpu_ns;
  // Time for which it was runnable and had no core, likewise.
  std::vector<std::int64_t> step_without_core_ns;
};

struct RankWindow {
  std::int64_t begin_ns = 0;
  std::vector<std::int64_t> step_ends_ns;  // Ascending.
};

// `collectives`: the rank's collectives that can be replayed. Window and collectives in cluster time.
RankStretches CutIntoStretches(const schema::RankTables& tables, const merge::ClockMap& clock, const RankWindow& window,
                               std::vector<RankCollective> collectives);

}  // namespace lockstep::replay
