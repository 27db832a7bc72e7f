#include "runtime/agent/stacks/held_lock.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/eventually.h"

namespace lockstep::agent {
namespace {

// Of this process: what a thread of it waits for.
class WaitingThread {
 public:
  template <typename F>
  explicit WaitingThread(F&& wait)
      : thread_([this, wait] {
          tid_ = static_cast<pid_t>(::syscall(SYS_gettid));
          wait();
        }) {
    const pid_t pid = ::getpid();
    EXPECT_TRUE(test::Eventually([&] { return tid_ != 0 && FutexOf(StateOf(pid, tid_)).address != 0; }));
  }
  ~WaitingThread() { thread_.join(); }
  pid_t tid() const { return tid_; }
  HeldLock Lock() const {
    const pid_t pid = ::getpid();
    return LockOf(ProcessMemory(pid), tid_, FutexOf(StateOf(pid, tid_)), ThreadsOf(pid), nullptr, {});
  }

 private:
  std::atomic<pid_t> tid_{0};
  std::thread thread_;
};

TEST(HeldLocks, AMutexTellsItsOwner) {
  std::mutex mutex;
  mutex.lock();
  {
    const WaitingThread waiting([&] { const std::lock_guard hold(mutex); });
    const HeldLock lock = waiting.Lock();
    EXPECT_EQ(lock.what, "a lock");
    EXPECT_EQ(lock.holder, ::getpid());
    mutex.unlock();
  }
}

TEST(HeldLocks, AMutexThatInheritsPriority) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  pthread_mutex_t mutex;
  if (pthread_mutex_init(&mutex, &attributes) != 0) GTEST_SKIP() << "there are none here";
  pthread_mutex_lock(&mutex);
  {
    const WaitingThread waiting([&] {
      pthread_mutex_lock(&mutex);
      pthread_mutex_unlock(&mutex);
    });
    EXPECT_EQ(waiting.Lock().holder, ::getpid());
    pthread_mutex_unlock(&mutex);
  }
}

TEST(HeldLocks, AConditionHasNoOwner) {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
  {
    const WaitingThread waiting([&] {
      std::unique_lock hold(mutex);
      condition.wait(hold, [&] { return done; });
    });
    EXPECT_EQ(waiting.Lock().what, "");
    {
      const std::lock_guard hold(mutex);
      done = true;
    }
    condition.notify_all();
  }
}

TEST(HeldLocks, OfAThreadThatIsNotHereNothingIsSaid) {
  // It looks like a mutex, and what would be its owner is no thread.
  std::int32_t words[3] = {2, 0, 1 << 30};
  const FutexWait futex{reinterpret_cast<std::uint64_t>(words), FUTEX_WAIT, 2};
  const ProcessMemory memory(::getpid());
  EXPECT_EQ(LockOf(memory, 1, futex, {::getpid()}, nullptr, {}).what, "");
  words[2] = ::getpid();
  EXPECT_EQ(LockOf(memory, 1, futex, {::getpid()}, nullptr, {}).holder, ::getpid());
  EXPECT_EQ(LockOf(memory, ::getpid(), futex, {::getpid()}, nullptr, {}).what, "") << "nobody waits for himself";
  words[0] = 1;
  EXPECT_EQ(LockOf(memory, 1, futex, {::getpid()}, nullptr, {}).what, "") << "it was released meanwhile";
  EXPECT_EQ(LockOf(memory, 1, {8, FUTEX_WAIT, 2}, {::getpid()}, nullptr, {}).what, "") << "nothing is there";
  EXPECT_EQ(LockOf(memory, 1, {}, {::getpid()}, nullptr, {}).what, "");
}

}  // namespace
}  // namespace lockstep::agent
