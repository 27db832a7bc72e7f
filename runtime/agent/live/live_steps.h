#pragma once
// What one rank does step by step, from its records as the agent takes them: the raw
// material of `lockstep run --live`. Nothing is decoded that the live figures do not
// need, and nothing is kept for longer than until the next sample; the trace is
// decoded afterwards, by trace/decode, which knows far more.

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/interval.h"
#include "core/record.h"
#include "core/ring_layout.h"

namespace lockstep::agent {

// A collective of an MPI communicator, as one rank saw it.
struct LiveOperation {
  std::uint64_t key;      // The same on all members, and for no other collective.
  std::int64_t begin_ns;  // Arrival: the post.
  // Earliest and latest possible end: entry and return of the call that completed it; of blocking calls both the
  // return.
  std::int64_t end_low_ns, end_ns;
  std::uint32_t members;  // Of the communicator.
  std::uint32_t splits;   // 1: every member waits for every other (definitions: split kinds).
};

// Times on the rank's clock.
struct LiveStep {
  std::int64_t index;
  Interval window;
  IntervalSet in_mpi;  // The training thread's calls that communicate. Empty on GPU ranks.
  std::vector<LiveOperation> operations;
  std::int64_t gpu_exposed_ns;  // Communication kernels while no other kernel ran; -1: no GPU was seen.
};

// Thread: one.
class LiveSteps {
 public:
  // Whole records of one ring, its oldest first; `parts` may cut a record between two slots.
  void Take(std::uint32_t ring, const RingEntry& entry, std::span<const iovec> parts);

  // Complete steps that ended before `until_ticks` and begin after those of the last call; if they are more than
  // `most_steps` or hold more than `most_entries` calls and operations, those whose index is a multiple of the
  // smallest sufficient power of two: ranks that sample for themselves so sample the same steps.
  std::vector<LiveStep> Sample(std::uint64_t until_ticks, std::size_t most_steps, std::size_t most_entries,
                               const std::function<std::int64_t(std::uint64_t)>& ns_of_ticks);

  // The step that has begun and not ended; index -1: none.
  struct Open {
    std::int64_t index = -1;
    std::uint64_t begin_ticks = 0;
  };
  Open open() const;
  std::int64_t steps() const { return steps_; }  // Ended so far.
  // Share of the time since the last call that the thread with the most of it was in communicating MPI calls; -1: no
  // MPI call.
  double MpiShare(std::uint64_t now_ticks);

 private:
  struct Ticks {
    std::uint64_t begin, end;  // end 0: not yet.
  };
  struct Operation {
    std::uint64_t key;
    Ticks ticks;
    std::uint64_t end_low;  // Ticks.
    std::uint32_t members, splits;
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
    std::uint32_t generation = 0;
    MpiRecord call{};                                // Whose completions follow.
    std::unordered_set<std::uint32_t> comm_kernels;  // Ids of their names.
    std::uint64_t mpi_ticks = 0;                     // Since the last MpiShare.
  };
  // A record's fixed part, wherever `parts` cut it.
  class Reader;

  void OnRecord(std::uint32_t index, Ring& ring, const RecordHead& head, const Reader& reader, std::size_t at);
  void OnStep(std::uint32_t ring, const StepRecord& record);
  void OnMpi(std::uint32_t index, Ring& ring, const MpiRecord& record, bool completions_follow);
  void OnCompletion(Ring& ring, const CompletionRecord& record);
  void OnComm(const CommRecord& record);
  void Post(std::uint64_t handle, std::int64_t operation, std::uint64_t at_ticks);
  void Start(const MpiRecord& call, std::uint64_t handle, std::uint64_t nth);
  void Complete(std::uint64_t handle, const MpiRecord& call);
  // Its number, -1: a communicator that nobody else can name.
  std::int64_t Add(const MpiRecord& record, std::uint32_t start, Ticks ticks);
  void KeepWithin();
  void Forget(std::uint64_t before_ticks);
  LiveStep Make(std::int64_t index, Ticks window, const std::function<std::int64_t(std::uint64_t)>& ns_of_ticks) const;
  std::size_t Entries(Ticks window) const;
  void Reset(std::uint32_t process);

  std::int64_t process_ = -1, step_ring_ = -1;
  std::unordered_map<std::uint32_t, Ring> rings_;
  std::unordered_map<std::uint32_t, Comm> comms_;
  std::unordered_map<std::uint64_t, Persistent> persistent_;
  std::deque<StepRecord> boundaries_;
  std::deque<Ticks> calls_;
  std::deque<Operation> operations_;
  std::int64_t first_operation_ = 0;  // Number of operations_[0].
  std::deque<Kernel> kernels_;
  std::uint64_t last_kernel_ticks_ = 0;
  bool gpu_ = false;
  // By handle, the oldest first: operations posted and not completed, and completions whose post is still to come (from
  // another ring).
  std::unordered_map<std::uint64_t, std::vector<std::int64_t>> posted_;
  std::unordered_map<std::uint64_t, std::vector<Ticks>> completed_early_;  // The calls.
  std::uint64_t whole_from_ticks_ = 0, share_from_ticks_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace lockstep::agent
