#include "examples/common/progress_helper.h"

#include <utility>

#include "examples/common/pace.h"

namespace lockstep::example {

ProgressHelper::ProgressHelper(bool wanted, std::int64_t poll_ns, std::function<bool()> test)
    : poll_ns_(poll_ns), test_(std::move(test)) {
  if (wanted) thread_ = std::thread([this] { Loop(); });
}

ProgressHelper::~ProgressHelper() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::unique_lock<std::mutex> ProgressHelper::Lock() {
  return thread_.joinable() ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void ProgressHelper::Wake() {
  helping_ = true;
  if (thread_.joinable()) wake_.notify_one();
}

void ProgressHelper::Loop() {
  SleepPrecisely();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || helping_; });
    if (stop_) return;
    helping_ = test_();
    if (!helping_) continue;
    lock.unlock();
    SleepUntil(NowNs() + poll_ns_);
    lock.lock();
  }
}

}  // namespace lockstep::example
