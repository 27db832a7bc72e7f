#pragma once
// The graph (graph.h) of a run's steps, with what its operations stand for. Made from what was
// recorded (recorded_run.h); questions change it or what it is made from.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/replay/graph/graph.h"
#include "analysis/replay/graph/simulate.h"

namespace lockstep::replay {

enum class Role : std::uint8_t {
  kOther,   // Without a name: starting offsets, cuts.
  kWork,    // The thread's own time between two MPI calls.
  kCall,    // A call that communicates with nobody here, or whose partner is not in the graph.
  kPost,    // Enqueues a collective.
  kWait,    // Waits for collectives posted before.
  kMember,  // One rank's part of a collective.
  kExit,    // What a rank needs to be through a collective that another rank is through.
  kStepEnd,
  kKernel,   // GPU kernels that follow each other on a stream, gaps between them included; of one rank, not
             // communication.
  kCopy,     // GPU copies.
  kLaunch,   // Host work (and launch latency) until the GPU can run what is launched; runs beside the thread's kWork.
  kSync,     // A host thread waits for the GPU; its duration is what the call takes once the GPU is done.
  kMessage,  // A call that returns once messages or their receivers of other ranks are there: what it takes then.
};
inline constexpr std::size_t kRoles = static_cast<std::size_t>(Role::kMessage) + 1;
// Durations that are a rank's own doing: what questions about slow ranks compare and change.
constexpr bool IsOwnWork(Role role) {
  return role == Role::kWork || role == Role::kKernel || role == Role::kCopy || role == Role::kLaunch;
}

struct JobOperation {
  Role role = Role::kOther;
  std::uint32_t rank = kNone;  // Position in RecordedRun::ranks.
  std::uint32_t step = kNone;  // Position in RecordedRun::steps.
  // n-th of its role, rank and step (on GPU ranks over all threads and streams): the same work on other ranks.
  std::uint32_t position = 0;
  std::uint32_t collective = kNone;  // Of RecordedRun::collectives.
  // Of kernels: differs where their names and shapes do (stages of a pipeline do other work at the same position).
  std::uint32_t likeness = 0;
  // Of calls that wait for messages: of RecordedRun::messages the one that was there last, whose transfer is what they
  // still take then.
  std::uint32_t message = kNone;
};

struct Job {
  Graph graph;
  std::vector<JobOperation> operations;               // Beside the graph's.
  std::vector<std::uint32_t> starts;                  // [rank]: ends when the rank begins the first step.
  std::vector<std::vector<std::uint32_t>> step_ends;  // [step][rank]: operation of role kStepEnd.
  std::uint64_t posted = 0, moved_in_wait = 0;        // Members of non-blocking collectives; those only a wait moved.

  // The mean over ranks of a step's end minus that of the rank's step before, of the first minus its begin: as the
  // timeline has the recorded ones (merge/timeline/step_length.h).
  std::vector<std::int64_t> StepLengths(const Schedule& schedule) const;
  // What ends the last step, on the rank that ends it last; kNone if no rank does.
  std::uint32_t LastEnd(const Schedule& schedule) const;
};

// Step lengths without the first, which lacks what the step before would have left to it, unless it is the only one.
std::vector<std::int64_t> Comparable(std::vector<std::int64_t> step_lengths);

struct JobOptions {
  bool wait_for_overlap = true;  // False: what is posted moves only when it is waited for.
  // Durations are made what they would be alone, so that a replay under this interference gives the recorded ones.
  Interference interference;
  // What is posted moves at once, also where the recording saw it move only while it was waited for (CPU ranks).
  bool progress = false;
};

}  // namespace lockstep::replay
