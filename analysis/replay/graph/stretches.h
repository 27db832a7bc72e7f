#pragma once
// One rank's part of a run on CPU ranks: what its threads' time is cut into. Cluster time.

#include <cstdint>
#include <vector>

#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

// One rank's part of a collective that can be replayed.
struct RankCollective {
  std::uint32_t row = 0;         // Of the rank's collectives; kNone if it never was (a question's own).
  std::uint32_t collective = 0;  // Of HostRun::collectives.
  std::uint32_t thread = 0;
  bool posted = false;   // Non-blocking or persistent.
  bool in_wait = false;  // Moved in its wait only.
  // It ended between `end_low_ns` and `end_ns`, when the call returned that saw it complete.
  std::int64_t begin_ns = 0, wait_begin_ns = 0, end_ns = 0, end_low_ns = 0;
  // Of another thread's: when the training thread gave it away, if it says so ("ddp bucket"), and how long after it
  // could have begun it did.
  std::int64_t ready_ns = kNotSaid, late_ns = 0;
  bool by_test = false;               // Posted, and seen complete by a call that does not wait.
  bool waits = true, awaited = true;  // For the others; by the others (merge/match/awaited.h).
  static constexpr std::int64_t kNotSaid = INT64_MIN;
};

// What a thread's time is cut into.
struct Stretch {
  enum Kind : std::uint8_t {
    kCall,      // In MPI, nothing below.
    kPost,      // Posts `collectives`.
    kWait,      // Ends when `collectives` have.
    kBlocking,  // Is collectives[0].
    kStepEnd,   // A point: the step `step` ends.
    kFeed,      // A point: another thread's collectives[0] can begin.
  };
  Kind kind;
  std::int64_t begin_ns, end_ns;
  std::vector<std::uint32_t> collectives;  // Of RankStretches::collectives.
  std::uint32_t step = 0;
  // Messages (host_messages.h): ends that this call's begin makes available to other ranks, ends of other ranks without
  // which it cannot return, and how long it takes once all of those are there (-1: awaits none).
  std::vector<std::uint32_t> offers = {}, awaits = {};
  std::int64_t after_ns = -1;
  std::uint32_t last_awaited = 0;  // Of `awaits`, the one that was there last.
};

struct OtherThread {
  std::uint32_t thread = 0;
  std::vector<std::uint32_t> collectives;  // Blocking ones, by begin.
  std::vector<bool> fed;                   // Each: the training thread's point at its begin lets it begin.
};

struct RankStretches {
  std::int64_t begin_ns = 0;  // Of the first step.
  std::vector<RankCollective> collectives;
  std::vector<Stretch> training;  // By begin; points before what begins at the same time.
  std::vector<OtherThread> others;
  std::vector<std::int64_t> step_cpu_ns;  // CPU time of the training thread by step of the window, -1 unknown; or none.
};

struct RankWindow {
  std::int64_t begin_ns = 0;
  std::vector<std::int64_t> step_ends_ns;  // Ascending.
};

// `collectives`: those of the rank that can be replayed. Window and collectives in cluster time.
RankStretches CutIntoStretches(const schema::RankTables& tables, const merge::RankClockMap& clock,
                               const RankWindow& window, std::vector<RankCollective> collectives);

}  // namespace lockstep::replay
