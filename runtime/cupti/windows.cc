#include "runtime/cupti/windows.h"

#include <algorithm>
#include <cstring>

namespace lockstep::cupti {

void Windows::Follow(const ProcessWindow& window) {
  begin_ = end_ = 0;
  const std::uint32_t count = window.switches.count.load(std::memory_order_acquire);
  if (used_ == 0 && count == seen_) first_ = IsOn(window);
  if (count == seen_) return;
  std::uint32_t next = seen_;
  const bool lost = count - next > kSwitchHistory;
  if (lost) next = count - kSwitchHistory;
  for (; next != count; ++next) {
    const std::uint64_t entry = window.switches.at[next % kSwitchHistory].load(std::memory_order_acquire);
    // Counted, but not stored yet: it is found at the next call.
    if (entry == 0 || (used_ != 0 && !lost && (entry >> 1) + 1 < switches_[used_ - 1] >> 1 && next + 1 == count)) break;
    if (used_ == kKept) {
      first_ = (switches_[kKept / 2 - 1] & 1) != 0;
      std::memmove(switches_, switches_ + kKept / 2, sizeof switches_ / 2);
      used_ = kKept / 2;
    }
    if (used_ == 0 && seen_ == 0 && !lost) first_ = (entry & 1) == 0;
    // Some switches are missing: count too much as recorded rather than too little.
    if (lost && used_ != 0 && next == count - kSwitchHistory && used_ + 1 < kKept && (switches_[used_ - 1] & 1) == 0)
      switches_[used_] = switches_[used_ - 1] | 1, ++used_;
    switches_[used_++] = entry;
  }
  seen_ = next;
  std::sort(switches_, switches_ + used_);
}

bool Windows::Look(std::uint64_t ticks) const {
  const std::uint64_t* end = switches_ + used_;
  // Switches at this very moment count.
  const std::uint64_t* after = std::upper_bound(switches_, end, ticks << 1 | 1);
  on_ = after == switches_ ? first_ : (after[-1] & 1) != 0;
  begin_ = after == switches_ ? 0 : after[-1] >> 1;
  end_ = after == end ? ~std::uint64_t{0} : *after >> 1;
  return on_;
}

}  // namespace lockstep::cupti
