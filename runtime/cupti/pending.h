#pragma once
// GPU records whose launch has not come yet. CUPTI writes calls and GPU work into different buffers and returns these
// in any order, so either may come first. Bounded, and flat: 64 Ki records at most. One thread.

#include <cstdint>

#include "core/gpu_records.h"
#include "runtime/cupti/table.h"

namespace lockstep::cupti {

// A record of the ring as it will be written, 2 slots, and what is needed to decide about it.
struct PendingRecord {
  alignas(8) std::uint8_t record[2 * kSlotBytes];
  const char* what;     // As losses name it.
  std::uint64_t ticks;  // When the GPU began with it, or the nearest known time.
  std::uint32_t correlation;
  std::uint32_t round;  // The round in which it came.
};

class Pending {
 public:
  // Null if it is full or there is no memory.
  PendingRecord* Add() {
    if (records_ == nullptr && !refused_) {
      records_ = static_cast<PendingRecord*>(FreshMemory(sizeof(PendingRecord) * kMost));
      refused_ = records_ == nullptr;
    }
    return records_ == nullptr || used_ == kMost ? nullptr : &records_[used_++];
  }
  // `keep(record)` returns whether the record stays pending.
  template <typename Keep>
  void Sweep(const Keep& keep) {
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < used_; ++i) {
      if (!keep(records_[i])) continue;
      if (kept != i) records_[kept] = records_[i];
      ++kept;
    }
    used_ = kept;
  }
  bool empty() const { return used_ == 0; }
  std::uint64_t FirstTicks() const {
    std::uint64_t first = ~std::uint64_t{0};
    for (std::uint32_t i = 0; i < used_; ++i) first = records_[i].ticks < first ? records_[i].ticks : first;
    return first;
  }

 private:
  static constexpr std::uint32_t kMost = 1u << 16;
  PendingRecord* records_ = nullptr;
  std::uint32_t used_ = 0;
  bool refused_ = false;
};

}  // namespace lockstep::cupti
