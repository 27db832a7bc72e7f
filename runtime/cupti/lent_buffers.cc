#include "runtime/cupti/lent_buffers.h"

namespace lockstep::cupti {

namespace {

bool Change(std::atomic<std::uint32_t>& state, std::uint32_t from, std::uint32_t to) {
  return state.load(std::memory_order_relaxed) == from &&
         state.compare_exchange_strong(from, to, std::memory_order_acquire);
}

}  // namespace

void LentBuffers::Lend(std::uint8_t* memory) {
  for (std::uint32_t i = 0; i < kMost; ++i) {
    Lent& lent = lent_[i];
    if (!Change(lent.state, kNone, kChanging)) continue;
    lent.memory.store(memory, std::memory_order_relaxed);
    lent.state.store(kOut, std::memory_order_release);
    std::uint32_t used = used_.load(std::memory_order_relaxed);
    while (used <= i && !used_.compare_exchange_weak(used, i + 1)) {
    }
    return;
  }
}

LentBuffers::Lent* LentBuffers::TakeOut(const std::uint8_t* memory) {
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used; ++i) {
    Lent& lent = lent_[i];
    if (lent.state.load(std::memory_order_acquire) == kOut && lent.memory.load(std::memory_order_relaxed) == memory &&
        Change(lent.state, kOut, kChanging))
      return &lent;
  }
  return nullptr;
}

void LentBuffers::Return(const std::uint8_t* memory) {
  if (Lent* lent = TakeOut(memory); lent != nullptr) lent->state.store(kNone, std::memory_order_release);
}

bool LentBuffers::Keep(void* context, std::uint32_t stream, std::uint8_t* memory, std::size_t bytes,
                       std::size_t valid_bytes) {
  Lent* lent = TakeOut(memory);
  if (lent == nullptr) return false;
  lent->context = context;
  lent->stream = stream;
  lent->bytes = bytes;
  lent->valid_bytes = valid_bytes;
  lent->state.store(kKept, std::memory_order_release);
  return true;
}

void LentBuffers::Deliver(BufferCompleted completed) {
  if (completed == nullptr) return;
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used; ++i) {
    Lent& lent = lent_[i];
    if (!Change(lent.state, kKept, kChanging)) continue;
    completed(lent.context, lent.stream, lent.memory, lent.bytes, lent.valid_bytes);
    lent.state.store(kNone, std::memory_order_release);
  }
}

bool LentBuffers::AnyOut() const {
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used; ++i)
    if (const std::uint32_t state = lent_[i].state.load(std::memory_order_relaxed); state == kOut || state == kChanging)
      return true;
  return false;
}

void LentBuffers::Forget() {
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used; ++i) Change(lent_[i].state, kOut, kNone);
}

}  // namespace lockstep::cupti
