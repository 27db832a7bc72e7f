#pragma once
// A thread that tests posted requests now and then, so that MPI moves them while
// the training thread computes.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::example {

class ProgressHelper {
 public:
  // `test` tests the requests and says whether any was open; the lock is held then.
  // Without `wanted` there is no thread and nothing to lock.
  ProgressHelper(bool wanted, std::int64_t poll_ns, std::function<bool()> test);
  ~ProgressHelper();
  ProgressHelper(const ProgressHelper&) = delete;
  ProgressHelper& operator=(const ProgressHelper&) = delete;

  // To be held whenever requests are touched; empty without a thread.
  [[nodiscard]] std::unique_lock<std::mutex> Lock();
  // Under the lock: a request was posted.
  void Wake();
  // Under the lock: the caller completes what is open. A request may be completed by one thread at a time.
  void Pause() { helping_ = false; }

 private:
  void Loop();

  std::int64_t poll_ns_;
  std::function<bool()> test_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool helping_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep::example
