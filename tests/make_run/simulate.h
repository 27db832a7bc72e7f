#pragma once
// A discrete simulation of the described run. Cluster() walks all ranks through
// the program together and keeps what they share: when the last one arrived at
// each operation and when it was done. Rank() then replays one rank alone from
// these, so that memory holds one rank's rows, however many ranks there are.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "make_run/emitter.h"
#include "make_run/groups.h"
#include "make_run/spec.h"

namespace lockstep::make_run {

inline constexpr std::int64_t kNever = INT64_MAX;

struct RankOutput {
  schema::RankTables tables;
  std::vector<GpuMessage> messages;
};

class Simulation {
 public:
  explicit Simulation(const Spec& spec);
  void Cluster();
  // After Cluster(). Thread: any number at once.
  RankOutput Rank(std::int32_t rank) const;

 private:
  struct Instance {
    std::int64_t arrival = INT64_MIN, wait = INT64_MIN, done = kNever;
    std::int64_t free = 0;                  // Until then the one before it moves.
    std::int64_t root_arrival = INT64_MIN;  // Rooted kinds.
    std::int32_t arrived = 0, waiting = 0;
    std::vector<std::int64_t> arrivals, ends;  // By place in the group: rooted kinds over gloo.
  };
  struct Pending {
    std::size_t instance;
    const Op* op;
    std::int64_t post_end, last_incomplete;
    std::uint32_t row;
  };
  struct RankState {
    std::int32_t rank = 0;
    std::int64_t t = 0, entry = 0;
    std::int64_t off_cpu = 0, asleep = 0;  // Runnable without a core; neither that nor running.
    bool stopped = false;
    std::vector<Pending> pending;
    std::int64_t polled_until = INT64_MIN;  // Progress thread: return of its last Test.
    std::int64_t compute_free = 0, copy_free = 0;
    struct Stream {
      std::uint32_t id = 0;
      std::int64_t free = 0;
      std::uint64_t record = 0;  // Correlation of the event record behind its last operation.
    };
    std::vector<Stream> comm_streams;
    std::vector<std::pair<std::string_view, Stream>> gpu_ends;  // Of named NCCL operations: as of then.
    std::uint64_t correlation = 0, launched = 0;                // The last one; of the last launch.
    std::int64_t enqueued = 0;                                  // Begin of the last launch.
    std::int64_t& CommFree(std::uint32_t stream);
    std::int64_t LastCommFree() const;
    void Ended(const std::string& name, const Stream& end);
    const Stream* EndOf(const std::string& name) const;
  };
  // One execution of an operation.
  struct Place {
    const Op* op;
    std::int64_t step;
    std::size_t index;     // In its body.
    std::size_t instance;  // First of its instances (one per group), or of its ring entries, or of its messages' sends.
    const Op* send;        // kRecv, kNcclRecv: what it receives.
  };

  void Walk(const std::function<void(const Place&)>& execute,
            const std::function<void(std::int64_t, bool)>& mark) const;
  // What of it the rank spends off the CPU is added to its state.
  std::int64_t Duration(RankState& state, const Place& place, std::int64_t repeat) const;
  // Of a message from one rank to another.
  std::int64_t Cost(const Op& op, std::int32_t from, std::int32_t to) const;
  // The same with the network's noise, which lengthens it.
  std::int64_t NoisyCost(const Place& place, std::int32_t from, std::int32_t to) const;
  std::int64_t Cost(const Op& op) const;
  // How much longer these bytes take over a link that is slower than the network.
  std::int64_t Excess(const LinkSpec& link, std::uint64_t bytes) const;
  // How long after its instance's `done` the member at this place of its group has everything, for slow links of the
  // ring.
  std::int64_t Behind(const Op& op, std::int32_t group, std::int32_t place) const;
  std::int64_t BehindInRounds(const Op& op, std::int32_t group, std::int32_t place) const;
  std::int64_t DoneOn(const Op& op, std::size_t instance, std::int32_t rank) const;
  // Groups that may take part: all, or those of the ranks that the operation concerns.
  std::size_t FirstGroup(const Op& op) const;
  std::size_t GroupsOf(const Op& op) const;
  // Slot of what `sender` sends; its operation's slots begin at `first`.
  static std::size_t Slot(std::size_t first, const Op& op, std::int32_t sender) {
    return first + static_cast<std::size_t>(sender - op.on_block * op.on_index);
  }
  bool IsOnGloo(const Op& op) const {
    return spec_.gloo && op.kind == OpKind::kBlocking && (RootSends(op.collective) || RootReceives(op.collective));
  }
  bool IsRoot(const Op& op, std::int32_t group, std::int32_t rank) const;
  void Compute(RankState& state, std::int64_t duration, Emitter* out) const;
  bool Hits(const Disturbance& d, std::int32_t rank, std::int64_t step) const;
  // Whether it makes the operation of this place longer.
  bool Stalls(std::size_t stall, const RankState& state, const Place& place) const;
  void LeaveWaitForHelper(RankState& state, const Place& place, std::int64_t end, Emitter* out) const;
  void TestOnce(RankState& state, Emitter* out) const;
  void ThreadPolls(RankState& state, std::int64_t until, Emitter* out) const;
  void Sample(const RankState& state, Emitter* out) const;
  // Up to the point where the operation depends on others; in the cluster walk `instances` are updated.
  void Arrive(RankState& state, const Place& place, std::vector<Instance>* instances, std::vector<std::int64_t>* rings,
              Emitter* out) const;
  void Settle(const Place& place);
  void Leave(RankState& state, const Place& place, Emitter* out) const;
  void LeaveRing(RankState& state, const Place& place, Emitter* out) const;
  void Gpu(RankState& state, const Place& place, Emitter* out) const;
  void EndNccl(RankState& state, const Op& op, std::int64_t end, Emitter* out) const;
  void LeaveNccl(RankState& state, const Op& op, std::int64_t end, Emitter* out) const;
  bool Covers(const Place& place, const Pending& pending) const {
    return place.op->name.empty() || place.op->name == pending.op->name;
  }

  const Spec& spec_;
  std::vector<Instance> instances_;
  std::vector<std::int64_t> rings_;  // Entries: ranks per ring operation, senders per send.
  struct Open {
    std::size_t instance;
    const Op* op;
    std::size_t group;
  };
  std::vector<Open> open_;                             // Cluster walk: posted, not done (progress none).
  std::vector<std::vector<std::int64_t>> busy_until_;  // Per communicator and group.
  std::vector<std::int64_t> stop_step_;                // Per rank: died or cut at the begin of this step; kNever.
  std::vector<std::size_t> late_index_, stall_index_;  // Per `late`, `stall`: operation of the step body.
  std::vector<std::size_t> nth_compute_;               // Per operation of the step body: compute operations before it.
};

}  // namespace lockstep::make_run
