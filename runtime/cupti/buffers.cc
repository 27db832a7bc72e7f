#include "runtime/cupti/buffers.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace lockstep::cupti {
namespace {

// NVIDIA's own samples (activity_trace_async) use 32 KiB; CUPTI's guide advises against more than 10 MiB.
constexpr std::size_t kLeastBytes = 32 << 10, kMostBytes = std::size_t{1} << 20;
// A buffer is to be full within this time at most, while few are handed out.
constexpr std::int64_t kFullNs = 250'000'000;
constexpr std::uint32_t kDoublings = 5;  // Doublings from the smallest size to the largest.
// Records begin inside the valid bytes; this much after them is zeroed as well, in case that a record was begun there.
constexpr std::size_t kBehindBytes = 64 << 10;

}  // namespace

void BufferPool::Limit(std::size_t most_bytes) {
  // At least 256 buffers, because CUPTI may want one per thread.
  buffer_bytes_ = kLeastBytes;
  while (buffer_bytes_ < kMostBytes && most_bytes / buffer_bytes_ > 256) buffer_bytes_ *= 2;
  limit_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(most_bytes / buffer_bytes_, 4, kMost / 4));
  least_bytes_ = kLeastBytes;
}

void BufferPool::Pace(std::size_t bytes, std::int64_t elapsed_ns) {
  if (elapsed_ns <= 0) return;
  const double wanted = static_cast<double>(bytes) * static_cast<double>(kFullNs) / static_cast<double>(elapsed_ns);
  std::size_t least = kLeastBytes;
  while (least < buffer_bytes_ && static_cast<double>(least) * 2 <= wanted) least *= 2;
  least_bytes_.store(least, std::memory_order_relaxed);
}

std::uint32_t BufferPool::used() const { return std::min(used_.load(std::memory_order_acquire), kMost); }

Buffer* BufferPool::Fresh(std::uint32_t limit, std::uint32_t state) {
  std::uint32_t index = used_.load(std::memory_order_relaxed);
  do {
    if (index >= std::min(limit, kMost)) return nullptr;
  } while (!used_.compare_exchange_weak(index, index + 1));
  Buffer& buffer = buffers_[index];
  // calloc: the system returns zeroed memory, and CUPTI relies on that. Otherwise CUPTI would clear it in the
  // application's thread.
  buffer.memory = static_cast<std::uint8_t*>(calloc(1, buffer_bytes_));
  if (buffer.memory == nullptr) return nullptr;  // The entry stays empty.
  buffer.state.store(state, std::memory_order_release);
  return &buffer;
}

std::uint8_t* BufferPool::Take(std::uint64_t ticks, TimestampCallback clock, bool beyond, std::size_t& bytes) {
  bytes = 0;
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
  // The size doubles for each eighth of the limit that is in use.
  const std::uint32_t busy = busy_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t doublings = std::min(kDoublings, busy * 8 / limit_);
  bytes = std::min(buffer_bytes_, least_bytes_.load(std::memory_order_relaxed) << doublings);
  buffer->bytes = bytes;
  buffer->clock = clock;
  buffer->out_ticks.store(ticks, std::memory_order_relaxed);
  return buffer->memory;
}

bool BufferPool::Filled(std::uint8_t* memory, std::size_t valid_bytes, void* context, std::uint32_t stream,
                        bool forced) {
  const std::uint32_t used = this->used();
  for (std::uint32_t i = 0; i < used; ++i) {
    Buffer& buffer = buffers_[i];
    if (buffer.state.load(std::memory_order_acquire) != Buffer::kOut || buffer.memory != memory) continue;
    if (valid_bytes == 0) {
      busy_.fetch_sub(1, std::memory_order_relaxed);
      buffer.state.store(Buffer::kFree, std::memory_order_release);
      return true;
    }
    buffer.valid_bytes = std::min(valid_bytes, buffer.bytes);
    buffer.context = context;
    buffer.forced = forced;
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
  memset(buffer->memory, 0, std::min(buffer->bytes, buffer->valid_bytes + kBehindBytes));
  busy_.fetch_sub(1, std::memory_order_relaxed);
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

std::uint32_t BufferPool::Forget() {
  std::uint32_t forgotten = 0;
  const std::uint32_t used = this->used();
  for (std::uint32_t i = 0; i < used; ++i) {
    std::uint32_t out = Buffer::kOut;
    // It is not free before it is empty.
    if (!buffers_[i].state.compare_exchange_strong(out, Buffer::kFilled, std::memory_order_acquire)) continue;
    forgotten += 1;
    buffers_[i].valid_bytes = buffers_[i].bytes;
    Recycle(&buffers_[i]);
  }
  return forgotten;
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
