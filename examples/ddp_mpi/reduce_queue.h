#pragma once
// A thread that reduces buckets one after the other by blocking calls, in the order in which
// they were given to it: what PyTorch's MPI backend does.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::example {

class ReduceQueue {
 public:
  // `reduce(bucket)` is called on the thread. Without `wanted` there is none.
  ReduceQueue(bool wanted, std::function<void(std::size_t)> reduce);
  ~ReduceQueue();
  ReduceQueue(const ReduceQueue&) = delete;
  ReduceQueue& operator=(const ReduceQueue&) = delete;

  bool wanted() const { return thread_.joinable(); }
  void Push(std::size_t bucket);
  // Returns when all that was pushed is reduced.
  void Wait();

 private:
  void Loop();

  std::function<void(std::size_t)> reduce_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::size_t> queue_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep::example
