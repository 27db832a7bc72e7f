#include "comms/c10d/gloo_queue.h"

#include <atomic>
#include <cstddef>

#include "comms/c10d/groups.h"
#include "comms/c10d/real.h"
#include "comms/c10d/spin_hold.h"
#include "core/errno_keeper.h"
#include "core/ring_writer.h"

namespace lockstep::c10d {
namespace {

// Works that wait for a thread of their group. More are executed without being known.
constexpr std::size_t kMostQueued = 4096;

class Queue {
 public:
  void Add(const void* work, const QueuedWork& queued) {
    const SpinHold hold(lock_);
    if (count_ == kMostQueued) return;
    slots_[count_++] = {work, queued.group, queued.seq, queued.ticks, queued.peer, queued.stack};
  }
  // Works begin about in the order in which they came.
  QueuedWork Take(const void* work) {
    const SpinHold hold(lock_);
    for (std::size_t i = 0; i < count_; ++i) {
      if (slots_[i].work != work) continue;
      const Slot& slot = slots_[i];
      const QueuedWork queued{slot.group, slot.seq, slot.ticks, slot.peer, slot.stack};
      --count_;
      for (; i < count_; ++i) slots_[i] = slots_[i + 1];
      return queued;
    }
    return {};
  }

 private:
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  std::size_t count_ = 0;
  // Zeros at the start, unlike a QueuedWork: pages that no work ever reaches are never touched.
  struct Slot {
    const void* work;
    Group* group;
    std::uint64_t seq, ticks;
    std::int32_t peer;
    std::uint32_t stack;
  };
  Slot slots_[kMostQueued] = {};
};

constinit Queue g_queue;
std::atomic<bool> g_seen{false};
std::atomic<void*> g_execute{nullptr};  // libtorch's.
thread_local ExecutedWork* t_executing = nullptr;

#define LS_ENQUEUE                                                                                                     \
  "_ZN4c10d16ProcessGroupGloo7enqueueEN3c1013intrusive_ptrINS0_9AsyncWorkENS1_6detail34intrusive_target_default_null_" \
  "typeIS3_EEEE"
// By value in 1.13, by reference since; the caller passes an address both times.
#define LS_EXECUTE_BY_VALUE                                                                                          \
  "_ZN4c10d16ProcessGroupGloo9AsyncWork7executeEN3c1013intrusive_ptrIS1_NS2_6detail34intrusive_target_default_null_" \
  "typeIS1_EEEE"
#define LS_EXECUTE                                                                                                     \
  "_ZN4c10d16ProcessGroupGloo9AsyncWork7executeERKN3c1013intrusive_ptrIS1_NS2_6detail34intrusive_target_default_null_" \
  "typeIS1_EEEE"
#define LS_FINISH "_ZN4c10d16ProcessGroupGloo9AsyncWork14finishWorkGlooEv"

void RunExecute(void* real, void* const* work) {
  g_execute.store(real, std::memory_order_relaxed);
  ExecutedWork executed;
  if (lockstep_probe.segment != nullptr) {
    executed.queued = g_queue.Take(*work);
    t_executing = &executed;
  }
  reinterpret_cast<void (*)(void* const*)>(real)(work);
  t_executing = nullptr;
}

}  // namespace

ExecutedWork* Executing() { return t_executing; }

bool SeesQueues() { return g_seen.load(std::memory_order_relaxed); }

extern "C" {

// `work` is a c10::intrusive_ptr, whose only member is the address.
__attribute__((visibility("default"))) void LockstepGlooEnqueue(void* group, void* const* work) __asm__(LS_ENQUEUE);
void LockstepGlooEnqueue(void* group, void* const* work) {
  static std::atomic<void*> real{nullptr};
  void* found = Real(real, LS_ENQUEUE, __builtin_return_address(0));
  if (lockstep_probe.segment != nullptr) {
    const ErrnoKeeper errno_keeper;
    Current call;
    Group* of = GroupAt(group, &call);
    g_seen.store(true, std::memory_order_relaxed);
    const std::uint64_t seq = of->collectives.fetch_add(1);
    const std::uint32_t stack = ring::Recording() ? ring::CallStack() : 0;
    g_queue.Add(*work, {of, seq, ring::Ticks(), call.peer, stack});
  }
  reinterpret_cast<void (*)(void*, void* const*)>(found)(group, work);
}

__attribute__((visibility("default"))) void LockstepGlooExecuteByValue(void* const* work) __asm__(LS_EXECUTE_BY_VALUE);
void LockstepGlooExecuteByValue(void* const* work) {
  static std::atomic<void*> real{nullptr};
  RunExecute(Real(real, LS_EXECUTE_BY_VALUE, __builtin_return_address(0)), work);
}

__attribute__((visibility("default"))) void LockstepGlooExecute(void* const* work) __asm__(LS_EXECUTE);
void LockstepGlooExecute(void* const* work) {
  static std::atomic<void*> real{nullptr};
  RunExecute(Real(real, LS_EXECUTE, __builtin_return_address(0)), work);
}

__attribute__((visibility("default"))) void LockstepGlooFinish(void* work) __asm__(LS_FINISH);
void LockstepGlooFinish(void* work) {
  static std::atomic<void*> real{nullptr};
  // AsyncWork::execute jumps here at its end, which then returns to RunExecute: to this library.
  const void* execute = g_execute.load(std::memory_order_relaxed);
  void* found = Real(real, LS_FINISH, execute != nullptr ? execute : __builtin_return_address(0));
  if (ExecutedWork* executed = t_executing; executed != nullptr && executed->done_ticks == 0)
    executed->done_ticks = ring::Ticks();
  reinterpret_cast<void (*)(void*)>(found)(work);
}
}

}  // namespace lockstep::c10d
