#include "examples/ddp_mpi/reduce_queue.h"

#include <utility>

namespace lockstep::example {

ReduceQueue::ReduceQueue(bool wanted, std::function<void(std::size_t)> reduce) : reduce_(std::move(reduce)) {
  if (wanted) thread_ = std::thread([this] { Loop(); });
}

ReduceQueue::~ReduceQueue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ReduceQueue::Push(std::size_t bucket) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(bucket);
  }
  wake_.notify_one();
}

void ReduceQueue::Wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void ReduceQueue::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::size_t bucket = queue_.front();
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    reduce_(bucket);
    lock.lock();
    busy_ = false;
    if (queue_.empty()) idle_.notify_one();
  }
}

}  // namespace lockstep::example
