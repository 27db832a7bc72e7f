#include "comms/nccl/mask.h"

#include <sched.h>

#include <atomic>

#include "comms/nccl/state.h"

namespace lockstep::nccl {
namespace {

struct Mask {
  std::atomic<int*> at;
  std::atomic<std::uint32_t> users;  // Communicators.
  std::atomic<int> wanted, always;
};
constexpr std::uint8_t kMasks = 8;
constinit Mask g_masks[kMasks] = {};
constinit std::atomic<int> g_chained{0};
constinit std::atomic<std::uint32_t> g_storing{0};  // Threads that are using an address.
constinit std::atomic<bool> g_resting{false};
constinit std::atomic<int> g_hooked{0};

// Whether recording, once it is off, can only be switched on by this process.
bool MayRest() {
  const SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr) return true;
  if (g_chained.load(std::memory_order_relaxed) != 0) return false;
  const ProcessWindow* window = lockstep_probe.window.load(std::memory_order_relaxed);
  if (window == nullptr) return true;
  switch (segment->window.kind) {
    case WindowKind::kSteps:
    case WindowKind::kSchedule:
    case WindowKind::kRange:
    case WindowKind::kManual:
    case WindowKind::kAll:
      // Until it decides itself, it goes with the process that started it.
      return window->starter == 0 || (window->state.load(std::memory_order_relaxed) & kWindowDecides) != 0;
    default:
      return false;
  }
}

void Store(Mask& mask, bool on) {
  int* at = mask.at.load(std::memory_order_seq_cst);
  if (at == nullptr) return;
  const int value =
      (on ? mask.wanted : mask.always).load(std::memory_order_relaxed) | g_chained.load(std::memory_order_relaxed);
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

void StoreAll() {
  g_storing.fetch_add(1, std::memory_order_seq_cst);
  // Switches of two threads may arrive here out of order; the last thread to read the state has the right one.
  for (int round = 0; round < 3; ++round) {
    const bool on = Inert() ? false : ring::Recording() || !MayRest();
    g_resting.store(!on, std::memory_order_relaxed);
    for (Mask& mask : g_masks) Store(mask, on);
    if (Inert() || on == (ring::Recording() || !MayRest())) break;
  }
  g_storing.fetch_sub(1, std::memory_order_seq_cst);
}

void OnSwitch(bool) { StoreAll(); }

}  // namespace

std::uint8_t OpenMask(int* mask, int wanted, int always) {
  if (mask == nullptr) return 0xff;
  int none = 0;
  if (!Inert() && g_hooked.compare_exchange_strong(none, 1)) lockstep_on_switch(OnSwitch);
  std::uint8_t index = 0xff;
  for (std::uint8_t i = 0; i < kMasks && index == 0xff; ++i)
    if (g_masks[i].at.load(std::memory_order_acquire) == mask) index = i;
  for (std::uint8_t i = 0; i < kMasks && index == 0xff; ++i) {
    int* free = nullptr;
    if (g_masks[i].at.compare_exchange_strong(free, mask, std::memory_order_acq_rel) || free == mask) index = i;
  }
  if (index == 0xff) {
    __atomic_store_n(mask, wanted | g_chained.load(std::memory_order_relaxed), __ATOMIC_RELAXED);
    return index;
  }
  g_masks[index].users.fetch_add(1, std::memory_order_acq_rel);
  g_masks[index].wanted.store(wanted, std::memory_order_relaxed);
  g_masks[index].always.store(always, std::memory_order_relaxed);
  StoreAll();
  return index;
}

void CloseMask(std::uint8_t index) {
  if (index >= kMasks) return;
  Mask& mask = g_masks[index];
  if (mask.users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  mask.at.store(nullptr, std::memory_order_seq_cst);
  for (int i = 0; i < 1000 && g_storing.load(std::memory_order_seq_cst) != 0; ++i) sched_yield();
}

void ChainedMask(int bits) {
  if (g_chained.exchange(bits, std::memory_order_relaxed) != bits) StoreAll();
}

void WakeMasks() {
  if (g_resting.load(std::memory_order_relaxed) && ring::Recording()) [[unlikely]]
    StoreAll();
}

}  // namespace lockstep::nccl
