#pragma once
// Collects what one rank does step by step, from its records as the agent takes them: the input of `lockstep run
// --live`. It decodes only what the live figures need and keeps it only until the next sample; trace/decode decodes the
// trace afterwards, completely.

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/interval.h"
#include "core/mpi_ops.h"
#include "core/record.h"
#include "core/ring_layout.h"
#include "core/torch_records.h"
#include "runtime/agent/live/live_helpers.h"

namespace lockstep::agent {

class RecordReader;

// A collective of an MPI communicator or of one of PyTorch's process groups (gloo), as one rank saw it.
struct LiveOperation {
  std::uint64_t key;      // The same on all members, and different for every other collective.
  std::int64_t begin_ns;  // Arrival: the post; for works of PyTorch's backends, their begin in the backend's thread.
  // Earliest and latest possible end: entry and return of the call that completed it; for blocking calls both are the
  // return.
  std::int64_t end_low_ns, end_ns;
  std::uint32_t members;  // The size of the communicator.
  std::uint32_t splits;   // 1: every member waits for every other (definitions: split kinds).
};

// Times on the rank's clock.
struct LiveStep {
  std::int64_t index;
  Interval window;
  // The training thread's calls that communicate, and its waits for other threads' collectives
  // (core/awaited_operation.h).
  // Empty on GPU ranks.
  IntervalSet in_comm;
  std::vector<LiveOperation> operations;
  std::int64_t gpu_exposed_ns;  // Communication kernels while no other kernel ran; -1: no GPU was seen.
};

// Thread: one.
class LiveSteps {
 public:
  using NsOfTicks = LiveHelpers::NsOfTicks;

  // Takes complete records of one ring, its oldest first; `parts` may cut a record between two slots.
  void Take(std::uint32_t ring, const RingEntry& entry, std::span<const iovec> parts);

  // Returns the complete steps that ended before `until_ticks` and begin after those of the last call. If these are
  // more than `most_steps` or contain more than `most_entries` calls and operations, it returns those whose index is a
  // multiple of the smallest sufficient power of two, so that ranks that sample independently sample the same steps.
  std::vector<LiveStep> Sample(std::uint64_t until_ticks, std::size_t most_steps, std::size_t most_entries,
                               const NsOfTicks& ns_of_ticks);

  // The step that has begun and not ended; index -1 if there is none.
  struct Open {
    std::int64_t index = -1;
    std::uint64_t begin_ticks = 0;
  };
  Open open() const;
  std::int64_t steps() const { return steps_; }  // The number that ended so far.
  // Of all threads' shares of the time since the last call in communicating MPI calls the largest; -1: no MPI call.
  double MpiShare(std::uint64_t now_ticks);

 private:
  using Ticks = LiveTicks;
  struct Operation {
    std::uint64_t key;
    Ticks ticks;
    std::uint64_t end_low;  // Ticks.
    std::uint32_t members, splits;
    std::uint32_t ring, tid;  // Of the thread that made it.
    bool blocking;            // Made by a call that returns when it has ended.
  };
  struct Calls {
    Ticks ticks;
    bool queries;  // One or a run of several that found nothing.
  };
  struct Kernel {
    Ticks ticks;
    bool communicates;
  };
  struct Comm {
    std::uint64_t global_id;
    std::uint32_t size;
  };
  struct Persistent {
    MpiRecord init;
    std::uint32_t starts;
  };
  struct Ring {
    std::uint32_t generation = 0, tid = 0;
    MpiRecord call{};                                // The call whose completions follow.
    std::unordered_set<std::uint32_t> comm_kernels;  // Ids of the names.
    std::unordered_set<std::uint32_t> calls;         // Ids of names of ranges: calls of torch.distributed.
    std::uint64_t mpi_ticks = 0;                     // In communicating MPI calls since the last MpiShare.
  };
  void OnRecord(std::uint32_t index, Ring& ring, const RecordHead& head, const RecordReader& reader, std::size_t at);
  void OnStep(std::uint32_t ring, const StepRecord& record);
  void OnMpi(std::uint32_t index, Ring& ring, const MpiRecord& record, bool completions_follow);
  void CountCalls(std::uint32_t index, Ring& ring, MpiClass cls, const Calls& calls);
  void OnPoll(std::uint32_t index, Ring& ring, const PollRecord& record);
  void OnCompletion(std::uint32_t index, Ring& ring, const CompletionRecord& record);
  void OnComm(const CommRecord& record);
  void OnRange(const Ring& ring, const RangeRecord& record);
  void OnTorchBegin(std::uint32_t index, const TorchBeginRecord& record);
  void OnTorchEnd(const TorchEndRecord& record);
  void Post(std::uint64_t handle, std::int64_t operation, std::uint64_t at_ticks);
  void Start(std::uint32_t ring, const MpiRecord& call, std::uint64_t handle, std::uint64_t nth);
  void Complete(std::uint64_t handle, const MpiRecord& call);
  // Returns its number; -1 if the communicator cannot be identified on other ranks.
  std::int64_t Add(std::uint32_t ring, const MpiRecord& record, std::uint32_t start, Ticks ticks);
  // Whether another thread made it for the one that marks steps.
  bool OfHelper(const Operation& one) const {
    return one.blocking && static_cast<std::int64_t>(one.ring) != step_ring_;
  }
  void KeepWithin();
  void Forget(std::uint64_t before_ticks);
  LiveStep Make(std::int64_t index, Ticks window, const IntervalSet& helped, bool queries,
                const NsOfTicks& ns_of_ticks) const;
  std::size_t Entries(Ticks window, bool queries) const;
  void Reset(std::uint32_t process);

  std::int64_t process_ = -1, step_ring_ = -1;
  std::unordered_map<std::uint32_t, Ring> rings_;
  std::unordered_map<std::uint32_t, Comm> comms_;
  std::unordered_map<std::uint64_t, Persistent> persistent_;
  std::deque<StepRecord> boundaries_;
  std::deque<Calls> calls_;
  std::deque<Operation> operations_;
  std::int64_t first_operation_ = 0;  // The number of operations_[0].
  std::deque<Kernel> kernels_;
  std::uint64_t last_kernel_ticks_ = 0;
  bool gpu_ = false;
  // By handle, the oldest first: operations posted and not completed, and completions whose post arrives later (from
  // another ring).
  std::unordered_map<std::uint64_t, std::vector<std::int64_t>> posted_;
  std::unordered_map<std::uint64_t, std::vector<Ticks>> completed_early_;  // The completing calls.
  // Works of PyTorch's backends by number: those in progress, and ends whose begin arrives later (from another ring).
  std::unordered_map<std::uint64_t, std::int64_t> works_;
  std::unordered_map<std::uint64_t, std::uint64_t> ended_early_;
  LiveHelpers helpers_;
  bool helped_ = false;  // Collectives of other threads were seen: from then on it keeps the thread's input.
  std::uint64_t whole_from_ticks_ = 0, share_from_ticks_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace lockstep::agent
