#pragma once
// Operations that were posted and are not yet completed: a multiset by request handle. Two active operations may share
// a handle (Open MPI gives every eager Isend the same completed request), so a completion takes the oldest.

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace lockstep::trace {

class OpenRequests {
 public:
  enum class Kind : std::uint8_t { kOther, kCollective, kP2p, kRequest };
  struct Operation {
    Kind kind;
    std::uint32_t row;       // Of collectives, p2p or mpi_requests.
    std::uint16_t rows = 1;  // Isendrecv: two messages, one after the other.
    bool told = true;        // The status describes what was received.
  };

  // PollRecord keeps 52 bits of a handle, so only these are compared.
  static constexpr std::uint64_t Key(std::uint64_t handle) { return handle & ((std::uint64_t{1} << 52) - 1); }

  void Post(std::uint64_t handle, Operation operation);
  // Takes the oldest operation with that handle; returns false if there is none.
  bool Complete(std::uint64_t handle, Operation& operation);
  template <typename F>
  void ForEach(std::uint64_t handle, F&& f) const {
    const auto at = queues_.find(Key(handle));
    if (at == queues_.end()) return;
    for (std::uint32_t i = at->second.first; i != kEnd; i = nodes_[i].next) f(nodes_[i].operation);
  }
  // Records were lost, or not recorded: an operation that is open now may have been completed meanwhile. A later post
  // of the same handle then replaces it instead of being queued after it.
  void MarkGap() { ++epoch_; }
  std::uint32_t epoch() const { return epoch_; }  // Gaps so far.
  std::uint64_t open() const { return open_; }    // Never completed so far, replaced ones included.

 private:
  static constexpr std::uint32_t kEnd = 0xffffffffu;
  struct Node {
    Operation operation;
    std::uint32_t next;
    std::uint32_t epoch;
  };
  struct Queue {
    std::uint32_t first = kEnd, last = kEnd;
  };
  void PopFirst(Queue& queue);

  std::unordered_map<std::uint64_t, Queue> queues_;
  std::vector<Node> nodes_;
  std::uint32_t free_ = kEnd;
  std::uint32_t epoch_ = 0;
  std::uint64_t open_ = 0;
};

}  // namespace lockstep::trace
