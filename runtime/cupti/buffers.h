#pragma once
// The buffers that CUPTI fills. They are handed out and taken back on the application's threads, in CUPTI's callbacks:
// lock-free, with no cost but a system call for memory when none is left.
//
// The memory is malloc's: a profiler that takes CUPTI over without our knowledge gets our buffers and will free() them;
// then they are only lost.

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
  bool forced;                           // It came back with what was unfinished in it.
  TimestampCallback clock;               // CUPTI's clock when the buffer was handed out; null: CUPTI's own.
  std::atomic<std::uint64_t> out_ticks;  // When it was handed out.
  Buffer* next;                          // The next one in the queue of filled buffers.
};

// CUPTI gives a buffer back when everything in it has ended, and a kill destroys what was not given back. So buffers
// are small as long as few are handed out (32 KiB: 128 kernels with their calls), larger where records come so fast
// that a small one would be full in less than a quarter of a second, and largest where many are handed out, so that a
// long queue of work fits.
class BufferPool {
 public:
  // Once, before any other call. At most `most_bytes` of memory in all.
  void Limit(std::size_t most_bytes);
  // Flusher only: so many bytes of records came back in this time.
  void Pace(std::size_t bytes, std::int64_t elapsed_ns);

  // Thread: any. Returns an empty, zeroed buffer of `bytes`; null if the limit is reached. `beyond`: up to four times
  // the limit, for libraries that cannot handle null.
  std::uint8_t* Take(std::uint64_t ticks, TimestampCallback clock, bool beyond, std::size_t& bytes);
  // Thread: any. Returns false if it is not one of ours.
  bool Filled(std::uint8_t* memory, std::size_t valid_bytes, void* context, std::uint32_t stream, bool forced);

  // Flusher only. Returns all filled ones, oldest first; give each back with Recycle.
  Buffer* TakeFilled();
  void Recycle(Buffer* buffer);
  // Allocates memory ahead of need, so that the application's threads need not.
  void Prepare(std::uint32_t free_wanted);
  // When the buffer that has been out longest was handed out; ~0 if none is out.
  std::uint64_t OldestOut() const;
  // CUPTI was detached from the process, and the buffers that were out are lost. Returns their number.
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
  std::atomic<std::uint32_t> busy_{0};  // Handed out or filled.
};

}  // namespace lockstep::cupti
