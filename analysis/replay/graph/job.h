#pragma once
// The graph (graph.h) of a run's steps, with a description of each of its operations. It is made from the recording
// (recorded_run.h); questions change it, or the recording from which it is made.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/replay/graph/graph.h"
#include "analysis/replay/graph/simulate.h"

namespace lockstep::replay {

enum class Role : std::uint8_t {
  kOther,   // Operations without a category: starting offsets, cuts.
  kWork,    // The thread's own time between two MPI calls.
  kCall,    // A call that communicates with none of the ranks replayed, or whose partner is not in the graph.
  kPost,    // Enqueues a collective.
  kWait,    // Waits for collectives posted before, and for no message of a rank that is in the graph.
  kMember,  // One rank's part of a collective.
  kExit,    // The time that a rank needs to leave a collective after another rank has left it.
  kStepEnd,
  // GPU kernels that follow each other on a stream, with the gaps between them; of one rank, without communication.
  kKernel,
  kCopy,  // GPU copies.
  // Host work (and launch latency) until the GPU can run what is launched; runs in parallel with the thread's kWork.
  kLaunch,
  kSync,  // A host thread waits for the GPU; its duration is that of the call after the GPU has finished.
  // A call that returns after messages or their receivers of other ranks are there: the time that it takes then.
  kMessage,
};
inline constexpr std::size_t kRoles = static_cast<std::size_t>(Role::kMessage) + 1;
// Durations that depend only on their rank: questions about slow ranks compare and change these.
constexpr bool IsOwnWork(Role role) {
  return role == Role::kWork || role == Role::kKernel || role == Role::kCopy || role == Role::kLaunch;
}

struct JobOperation {
  Role role = Role::kOther;
  std::uint32_t rank = kNone;  // Index in RecordedRun::ranks.
  std::uint32_t step = kNone;  // Index in RecordedRun::steps.
  // The number within its role, rank and step (on GPU ranks over all threads and streams): equal for the same work on
  // other ranks.
  std::uint32_t position = 0;
  std::uint32_t collective = kNone;  // Index in RecordedRun::collectives.
  // For kernels: differs if their names and shapes do (stages of a pipeline do other work at the same position). For
  // collectives and calls of one message: differs if what is communicated with whom does, relative to the own rank.
  std::uint32_t likeness = 0;
  // For calls that wait for messages: the index in RecordedRun::messages of the last one to arrive; the remaining time
  // is its transfer.
  std::uint32_t message = kNone;
  // Of kMessage: it waits for receivers only. Whether a send does depends on who comes first; elsewhere it is a kCall.
  bool only_sends = false;
};

struct Job {
  Graph graph;
  std::vector<JobOperation> operations;  // Parallel to the graph's.
  std::vector<std::uint32_t> starts;     // [rank]: the operation that ends when the rank begins the first step.
  std::vector<std::vector<std::uint32_t>> step_ends;  // [step][rank]: operation of role kStepEnd.
  // Members of non-blocking collectives; those that made progress only in a wait.
  std::uint64_t posted = 0, moved_in_wait = 0;

  // The mean over ranks of a step's end minus that of the rank's previous step, for the first minus its begin: the
  // timeline defines the recorded lengths in the same way (merge/timeline/step_length.h).
  std::vector<std::int64_t> StepLengths(const Schedule& schedule) const;
  // The operation that ends the last step, on the rank that ends it last; kNone if no rank does.
  std::uint32_t LastEnd(const Schedule& schedule) const;
};

// Step lengths without the first, unless it is the only one: it lacks the work that the step before leaves to it.
std::vector<std::int64_t> Comparable(std::vector<std::int64_t> step_lengths);

struct JobOptions {
  bool wait_for_overlap = true;  // False: posted operations move data only when they are waited for.
  // Durations are converted to those without interference, so that a replay with this interference gives the recorded
  // ones.
  Interference interference;
  // Posted operations move data at once, even if in the recording they moved only while they were waited for (CPU
  // ranks).
  bool progress = false;
  bool sends_wait = true;  // False: no send waits until its message is received.
};

}  // namespace lockstep::replay
