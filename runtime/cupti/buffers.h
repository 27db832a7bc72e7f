#pragma once
// The buffers that CUPTI fills. Handing out and taking back happens on the application's threads, in
// CUPTI's callbacks: lock-free, nothing but a system call's worth of memory when none is left.
//
// The memory is malloc's: a profiler that takes CUPTI over behind our back gets our buffers
// and will free() them; then they are merely gone.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/cupti/abi.h"

namespace lockstep::cupti {

struct Buffer {
  enum State : std::uint32_t { kNone, kFree, kOut, kFilled };
  std::atomic<std::uint32_t> state;
  std::uint8_t* memory;
  std::size_t bytes;  // Of the memory, that were handed out.
  std::size_t valid_bytes;
  void* context;
  std::uint32_t stream;
  TimestampCallback clock;               // That CUPTI had when it was handed out; null its own.
  std::atomic<std::uint64_t> out_ticks;  // When that was.
  Buffer* next;                          // Of the queue of filled ones.
};

// CUPTI gives a buffer back when everything in it has ended, and what it has not given back a kill takes
// along. So buffers are small as long as few are out (32 KiB: 128 kernels with their calls), larger where
// records come so fast that a small one would be full in less than a quarter of a second, and largest where
// many are out, that a deep queue of work finds room.
class BufferPool {
 public:
  // Once, before any other call. At most `most_bytes` of memory in all.
  void Limit(std::size_t most_bytes);
  // Flusher only: so many bytes of records came back in so long.
  void Pace(std::size_t bytes, std::int64_t elapsed_ns);

  // Thread: any. An empty, zeroed buffer of `bytes`; null if the limit is reached. `beyond`: up to four
  // times the limit, for libraries that cannot take a null.
  std::uint8_t* Take(std::uint64_t ticks, TimestampCallback clock, bool beyond, std::size_t& bytes);
  // Thread: any. False: not one of ours.
  bool Filled(std::uint8_t* memory, std::size_t valid_bytes, void* context, std::uint32_t stream);

  // Flusher only. All filled ones, oldest first; give each back with Recycle.
  Buffer* TakeFilled();
  void Recycle(Buffer* buffer);
  // Makes memory ahead of need, so that the application's threads need not.
  void Prepare(std::uint32_t free_wanted);
  // When the one that is out longest was handed out; ~0 if none is.
  std::uint64_t OldestOut() const;
  // CUPTI has gone from the process and took what was out with it. Returns how many those were.
  std::uint32_t Forget();

  std::uint32_t used() const;

 private:
  static constexpr std::uint32_t kMost = 2048;
  Buffer* Fresh(std::uint32_t limit, std::uint32_t state);

  Buffer buffers_[kMost] = {};
  std::atomic<std::uint32_t> used_{0};
  std::atomic<Buffer*> filled_{nullptr};
  std::uint32_t limit_ = 0;
  std::size_t buffer_bytes_ = 0;
  std::atomic<std::size_t> least_bytes_{0};
  std::atomic<std::uint32_t> busy_{0};  // Out or filled.
};

}  // namespace lockstep::cupti
