#include "trace/decode/open_requests.h"

namespace lockstep::trace {

void OpenRequests::PopFirst(Queue& queue) {
  const std::uint32_t node = queue.first;
  queue.first = nodes_[node].next;
  if (queue.first == kEnd) queue.last = kEnd;
  nodes_[node].next = free_;
  free_ = node;
}

void OpenRequests::Post(std::uint64_t handle, Operation operation) {
  Queue& queue = queues_[Key(handle)];
  while (queue.first != kEnd && nodes_[queue.first].epoch != epoch_) PopFirst(queue);
  std::uint32_t node = free_;
  if (node != kEnd) {
    free_ = nodes_[node].next;
  } else {
    node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
  }
  nodes_[node] = {operation, kEnd, epoch_};
  if (queue.first == kEnd)
    queue.first = node;
  else
    nodes_[queue.last].next = node;
  queue.last = node;
  if (operation.kind != Kind::kOther) ++open_;
}

bool OpenRequests::Complete(std::uint64_t handle, Operation& operation) {
  const auto at = queues_.find(Key(handle));
  if (at == queues_.end() || at->second.first == kEnd) return false;
  operation = nodes_[at->second.first].operation;
  PopFirst(at->second);
  if (operation.kind != Kind::kOther) --open_;
  return true;
}

}  // namespace lockstep::trace
