#pragma once
// Whether recording was on at a moment of the past. CUPTI's records arrive up to a buffer's lifetime after their time,
// when recording may have been switched many times since. One thread.

#include <cstdint>

#include "core/ring_layout.h"

namespace lockstep::cupti {

class Windows {
 public:
  // Copies the new entries of the process's history. Call it at least once per 64 switches, or the time between two
  // known ones counts as recorded.
  void Follow(const ProcessWindow& window);

  bool On(std::uint64_t ticks) const {
    if (ticks >= begin_ && ticks < end_) return on_;
    return Look(ticks);
  }
  // When recording went off before a moment at which it is off; 0: it was never on until then.
  std::uint64_t OffSince(std::uint64_t ticks) const {
    On(ticks);
    return on_ ? 0 : begin_;
  }
  // Recording was never switched, so the result is the same for all times.
  bool Constant() const { return used_ == 0 && seen_ == 0; }

 private:
  static constexpr std::uint32_t kKept = 4096;
  bool Look(std::uint64_t ticks) const;

  std::uint64_t switches_[kKept];  // ticks << 1 | on, in order of time.
  std::uint32_t used_ = 0, seen_ = 0;
  bool first_ = true;  // Before the first of them.
  // The interval for which the last answer holds.
  mutable std::uint64_t begin_ = 0, end_ = 0;
  mutable bool on_ = false;
};

}  // namespace lockstep::cupti
