#include "runtime/cupti/buffers.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace lockstep::cupti {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;  // Kineto's size; 20,000 kernels.
constexpr std::size_t kLeastBufferBytes = std::size_t{1} << 20;
// Records begin inside the valid bytes; this much behind them is zeroed as well, in case that one was begun.
constexpr std::size_t kBehindBytes = 64 << 10;

}  // namespace

void BufferPool::Limit(std::size_t most_bytes) {
  buffer_bytes_ = most_bytes >= 8 * kBufferBytes ? kBufferBytes : kLeastBufferBytes;
  limit_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(most_bytes / buffer_bytes_, 4, kMost / 4));
}

std::uint32_t BufferPool::used() const { return std::min(used_.load(std::memory_order_acquire), kMost); }

Buffer* BufferPool::Fresh(std::uint32_t limit, std::uint32_t state) {
  std::uint32_t index = used_.load(std::memory_order_relaxed);
  do {
    if (index >= std::min(limit, kMost)) return nullptr;
  } while (!used_.compare_exchange_weak(index, index + 1));
  Buffer& buffer = buffers_[index];
  // From the system, zeroed: CUPTI is told so, or it would do that in the application's thread.
  buffer.memory = static_cast<std::uint8_t*>(calloc(1, buffer_bytes_));
  if (buffer.memory == nullptr) return nullptr;  // The place stays empty.
  buffer.state.store(state, std::memory_order_release);
  return &buffer;
}

std::uint8_t* BufferPool::Take(std::uint64_t ticks, bool own_clock, bool beyond) {
  const std::uint32_t used = this->used();
  Buffer* buffer = nullptr;
  for (std::uint32_t i = 0; i < used && buffer == nullptr; ++i) {
    std::uint32_t free = Buffer::kFree;
    if (buffers_[i].state.load(std::memory_order_relaxed) == free &&
        buffers_[i].state.compare_exchange_strong(free, Buffer::kOut, std::memory_order_acquire))
      buffer = &buffers_[i];
  }
  if (buffer == nullptr) buffer = Fresh(limit_, Buffer::kOut);
  if (buffer == nullptr && beyond) buffer = Fresh(4 * limit_, Buffer::kOut);
  if (buffer == nullptr) return nullptr;
  buffer->own_clock = own_clock;
  buffer->out_ticks.store(ticks, std::memory_order_relaxed);
  return buffer->memory;
}

bool BufferPool::Filled(std::uint8_t* memory, std::size_t valid_bytes, void* context, std::uint32_t stream) {
  const std::uint32_t used = this->used();
  for (std::uint32_t i = 0; i < used; ++i) {
    Buffer& buffer = buffers_[i];
    if (buffer.state.load(std::memory_order_acquire) != Buffer::kOut || buffer.memory != memory) continue;
    if (valid_bytes == 0) {
      buffer.state.store(Buffer::kFree, std::memory_order_release);
      return true;
    }
    buffer.valid_bytes = std::min(valid_bytes, buffer_bytes_);
    buffer.context = context;
    buffer.stream = stream;
    buffer.state.store(Buffer::kFilled, std::memory_order_relaxed);
    buffer.next = filled_.load(std::memory_order_relaxed);
    while (!filled_.compare_exchange_weak(buffer.next, &buffer, std::memory_order_release, std::memory_order_relaxed)) {
    }
    return true;
  }
  return false;
}

Buffer* BufferPool::TakeFilled() {
  Buffer* newest = filled_.exchange(nullptr, std::memory_order_acquire);
  Buffer* oldest = nullptr;
  while (newest != nullptr) {
    Buffer* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  return oldest;
}

void BufferPool::Recycle(Buffer* buffer) {
  memset(buffer->memory, 0, std::min(buffer_bytes_, buffer->valid_bytes + kBehindBytes));
  buffer->state.store(Buffer::kFree, std::memory_order_release);
}

void BufferPool::Prepare(std::uint32_t free_wanted) {
  std::uint32_t free = 0;
  const std::uint32_t used = this->used();
  for (std::uint32_t i = 0; i < used; ++i)
    if (buffers_[i].state.load(std::memory_order_relaxed) == Buffer::kFree) free += 1;
  for (; free < free_wanted; ++free)
    if (Fresh(limit_, Buffer::kFree) == nullptr) return;
}

std::uint64_t BufferPool::OldestOut() const {
  std::uint64_t oldest = ~std::uint64_t{0};
  const std::uint32_t used = this->used();
  for (std::uint32_t i = 0; i < used; ++i)
    if (buffers_[i].state.load(std::memory_order_acquire) == Buffer::kOut)
      oldest = std::min(oldest, buffers_[i].out_ticks.load(std::memory_order_relaxed));
  return oldest;
}

}  // namespace lockstep::cupti
