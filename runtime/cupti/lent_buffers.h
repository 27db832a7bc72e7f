#pragma once
// Buffers that another profiler gave to CUPTI. CUPTI is taken back only when none is out, or our records would go
// into them. What comes back because we asked CUPTI for it is kept until the profiler itself fetches: Kineto does not
// fetch at all when none of its buffers is out any more, and would lose those that came unasked.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/cupti/abi.h"

namespace lockstep::cupti {

class LentBuffers {
 public:
  // Thread: any.
  void Lend(std::uint8_t* memory);
  // It was returned by CUPTI, and goes to its owner.
  void Return(const std::uint8_t* memory);
  // CUPTI returned it although the owner did not ask. Returns false if there is no space to keep it.
  bool Keep(void* context, std::uint32_t stream, std::uint8_t* memory, std::size_t bytes, std::size_t valid_bytes);
  // Gives the kept ones to their owner.
  void Deliver(BufferCompleted completed);
  bool AnyOut() const;
  // CUPTI was detached, and the buffers that were out are lost.
  void Forget();

 private:
  enum State : std::uint32_t { kNone, kChanging, kOut, kKept };
  struct Lent {
    std::atomic<std::uint32_t> state;
    std::atomic<std::uint8_t*> memory;
    void* context;
    std::uint32_t stream;
    std::size_t bytes, valid_bytes;
  };
  static constexpr std::uint32_t kMost = 1024;  // Buffers beyond this number are not tracked.
  // The buffer that is out with this memory, now kChanging; null if there is none.
  Lent* TakeOut(const std::uint8_t* memory);
  Lent lent_[kMost] = {};
  std::atomic<std::uint32_t> used_{0};
};

}  // namespace lockstep::cupti
