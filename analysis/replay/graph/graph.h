#pragma once
// A job as operations, what each of them needs before it can begin, and which run one after the other. It is made from
// a timeline (or by hand), changed by what-if questions, and played by simulate.h. Times are ns; the only clock is the
// simulator's.
//
// How the parts of a job are represented:
//   host thread          a lane in program order: its operations in the order they were added
//   GPU stream, a communicator's turn on one rank   a queued lane: in the order in which they are enqueued
//   kernel launch        an operation of the thread that enqueues the kernel when it begins
//   event record         a launch of an operation without duration (a marker) on that stream
//   stream wait event    a launch of a marker on the waiting stream that needs the recorded marker
//   stream, event or device synchronise   launches of markers on the streams, then an operation of the thread
//                        that needs them: so it waits for whatever is on the stream at that time in the replay
//   collective           a member per rank, which begins (arrives) like any operation; the transfer begins when
//                        all members that are awaited have arrived, and each member that waits ends its own
//                        duration after that (after its own arrival, if it came later); others end theirs after
//                        their own arrival. A member that waits for some of them only: when these have arrived
//   non-blocking MPI     the post enqueues the member, the wait is an operation that needs it

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/column.h"

namespace lockstep::replay {

using schema::kNone;

enum class Activity : std::uint8_t { kOther, kCompute, kTransfer };

struct Operation {
  // For a collective's member: of its transfer, from the last arrival on.
  std::int64_t duration_ns = 0;
  // From the time at which everything it needs is complete to its begin: the part that the graph does not explain.
  std::int64_t delay_ns = 0;
  std::uint32_t lane = kNone;        // kNone: it waits only for what it needs.
  std::uint32_t collective = kNone;  // The collective of which it is a member.
  std::uint32_t enqueues = kNone;    // The operation that is added to its queued lane when this one begins...
  std::uint32_t peers = kNone;       // For a collective's member that waits: a set (Graph::WaitsFor).
  std::int64_t enqueue_lag_ns = 0;   // ... and cannot begin earlier than this after it.
  std::int32_t rank = -1;
  Activity activity = Activity::kOther;  // Used by interference; members of collectives: kTransfer.
  // For a collective's member: whether it waits for the others; whether the others wait for it.
  bool waits = true, awaited = true;
};

class Graph {
 public:
  // Operations of a queued lane begin in the order in which others enqueue them; exactly one operation must enqueue
  // each.
  std::uint32_t AddLane(bool queued = false) {
    queued_.push_back(queued);
    return static_cast<std::uint32_t>(queued_.size() - 1);
  }
  std::uint32_t AddCollective() { return collectives_++; }
  std::uint32_t Add(const Operation& operation) {
    operations_.push_back(operation);
    return static_cast<std::uint32_t>(operations_.size() - 1);
  }
  // `operation` cannot begin before `earlier` has ended and `lag_ns` more have passed. They may be added in any order.
  void Needs(std::uint32_t operation, std::uint32_t earlier, std::int64_t lag_ns = 0) {
    needs_.push_back({earlier, operation, lag_ns});
  }

  // Makes a set of members (operations) of one collective: these, and all of set `also`, made before. Sets that share
  // most of their members take no memory for each of them.
  std::uint32_t AddPeers(std::span<const std::uint32_t> peers, std::uint32_t also = kNone) {
    peers_.insert(peers_.end(), peers.begin(), peers.end());
    first_peer_.push_back(static_cast<std::uint32_t>(peers_.size()));
    also_.push_back(also);
    return peer_sets() - 1;
  }
  // `member` of a collective waits for those of this set, and not for all that are awaited. What is no member of its
  // collective any more is not waited for.
  void WaitsFor(std::uint32_t member, std::uint32_t set) { operations_[member].peers = set; }
  std::span<const std::uint32_t> PeersOf(std::uint32_t set) const {  // Without those of AlsoOf(set).
    return std::span(peers_).subspan(first_peer_[set], first_peer_[set + 1] - first_peer_[set]);
  }
  std::uint32_t AlsoOf(std::uint32_t set) const { return also_[set]; }
  std::uint32_t peer_sets() const { return static_cast<std::uint32_t>(also_.size()); }

  struct Need {
    std::uint32_t earlier, operation;
    std::int64_t lag_ns;
  };
  template <typename Predicate>
  void RemoveNeedsIf(Predicate remove) {
    std::erase_if(needs_, remove);
  }
  std::vector<Operation>& operations() { return operations_; }
  const std::vector<Operation>& operations() const { return operations_; }
  const std::vector<Need>& needs() const { return needs_; }
  const std::vector<bool>& queued_lanes() const { return queued_; }
  std::uint32_t collectives() const { return collectives_; }

 private:
  std::vector<Operation> operations_;
  std::vector<Need> needs_;
  std::vector<std::uint32_t> first_peer_{0}, peers_, also_;  // By set.
  std::vector<bool> queued_;
  std::uint32_t collectives_ = 0;
};

}  // namespace lockstep::replay
