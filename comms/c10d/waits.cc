// Waits for works that C++ waits for by itself: functional collectives of a program that torch.compile made (its code
// calls the operator _c10d_functional::wait_tensor, and no Python function), of DTensor, of other threads. They become
// the ranges that the hooks in Python make of the waits of Python programs (collectives.py), where those do not show
// the same already.
//
// c10d::Work::wait is virtual, and every class of works that leaves it as it is (gloo's; not those of MPI and NCCL) has
// it in its table by libtorch's symbol table (1.13 to 2.15), so that the preloaded function of its name is called.
// ProcessGroupGloo's messages have waits of their own, which are called the same way.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "comms/c10d/groups.h"
#include "comms/c10d/real.h"
#include "core/errno_keeper.h"
#include "core/ring_writer.h"
#include "core/schema_enums.h"

namespace lockstep::c10d {
namespace {

constexpr char kWait[] = "c10d::wait";

std::atomic<bool> g_recorded{false};

#define LS_WAIT "_ZN4c10d4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"
#define LS_SEND_WAIT "_ZN4c10d16ProcessGroupGloo8SendWork4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"
#define LS_RECEIVE_WAIT "_ZN4c10d16ProcessGroupGloo8RecvWork4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"

void EmitWait(std::uint64_t begin_ticks) {
  const ErrnoKeeper errno_keeper;
  const RingPage* page = lockstep_ring();
  const std::uint32_t depth = page == nullptr ? 0 : page->producer.hook_depth;
  const RangeRecord record{
      {RecordKind::kRange,
       static_cast<std::uint8_t>(schema::RangeSource::kTorch | schema::Category::kCommunication << 4), 1},
      lockstep_intern(kWait),
      begin_ticks,
      std::max<std::uint64_t>(ring::Ticks(), begin_ticks),
      static_cast<std::uint16_t>(std::min(depth, 65535u)),
      0,
      0};
  lockstep_emit_slow(&record, 1, 1);
}

// A wait may throw: nothing is open meanwhile that its end would have to close.
bool Wait(void* real, void* work, std::int64_t timeout_ms) {
  const auto wait = reinterpret_cast<bool (*)(void*, std::int64_t)>(real);
  if (!g_recorded.load(std::memory_order_relaxed) || lockstep_probe.segment == nullptr || WaitIsShown() ||
      !ring::Recording())
    return wait(work, timeout_ms);
  const std::uint64_t begin_ticks = ring::Ticks();
  const bool done = wait(work, timeout_ms);
  if (ring::Recording()) EmitWait(begin_ticks);
  return done;
}

}  // namespace

extern "C" {

// Whether what C++ waits for is recorded: all backends that were seen are such as are shown by ranges.
__attribute__((visibility("default"))) void lockstep_hook_torch_waits(int recorded) {
  g_recorded.store(recorded != 0, std::memory_order_relaxed);
}

// `timeout_ms` is a std::chrono::milliseconds, whose only member is the number.
__attribute__((visibility("default"))) bool LockstepWait(void* work, std::int64_t timeout_ms) __asm__(LS_WAIT);
bool LockstepWait(void* work, std::int64_t timeout_ms) {
  static std::atomic<void*> real{nullptr};
  return Wait(RealOf(real, LS_WAIT, work, __builtin_return_address(0)), work, timeout_ms);
}

__attribute__((visibility("default"))) bool LockstepSendWait(void* work, std::int64_t timeout_ms) __asm__(LS_SEND_WAIT);
bool LockstepSendWait(void* work, std::int64_t timeout_ms) {
  static std::atomic<void*> real{nullptr};
  return Wait(RealOf(real, LS_SEND_WAIT, work, __builtin_return_address(0)), work, timeout_ms);
}

__attribute__((visibility("default"))) bool LockstepReceiveWait(void* work,
                                                                std::int64_t timeout_ms) __asm__(LS_RECEIVE_WAIT);
bool LockstepReceiveWait(void* work, std::int64_t timeout_ms) {
  static std::atomic<void*> real{nullptr};
  return Wait(RealOf(real, LS_RECEIVE_WAIT, work, __builtin_return_address(0)), work, timeout_ms);
}
}

}  // namespace lockstep::c10d
