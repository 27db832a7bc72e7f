#pragma once
// Finds the first kernel that was launched after recording went off. It does not belong to the window, but on the GPU
// the window's last step ends where this kernel starts, whenever that is. One thread.

#include <cstdint>

namespace lockstep::cupti {

class AfterWindow {
 public:
  // A call launched kernels at `launch_ticks`; recording had gone off at `off_ticks`, 0: it was never on.
  void Launch(std::uint64_t off_ticks, std::uint64_t launch_ticks, std::uint32_t correlation) {
    if (off_ticks == 0 || correlation == 0) return;
    First* first = nullptr;
    for (First& one : firsts_)
      if (one.off_ticks == off_ticks) first = &one;
    if (first == nullptr) {
      first = &firsts_[next_++ % kMost];
      *first = {off_ticks, ~std::uint64_t{0}, 0, 0};
    }
    // Threads' buffers arrive in no order.
    if (launch_ticks < first->launch_ticks) *first = {off_ticks, launch_ticks, ~std::uint64_t{0}, correlation};
  }
  // Returns when the first one was launched, if a kernel of that call that starts at `start_ticks` is to be recorded;
  // else 0.
  std::uint64_t Starts(std::uint32_t correlation, std::uint64_t start_ticks) {
    for (First& one : firsts_) {
      if (one.off_ticks == 0 || one.correlation != correlation || start_ticks >= one.start_ticks) continue;
      one.start_ticks = start_ticks;  // Of a graph's kernels the earliest.
      return one.launch_ticks;
    }
    return 0;
  }

 private:
  // As many windows as may close before the GPU has finished the first one's work.
  static constexpr std::uint32_t kMost = 16;
  struct First {
    std::uint64_t off_ticks, launch_ticks, start_ticks;
    std::uint32_t correlation;
  };
  First firsts_[kMost] = {};
  std::uint32_t next_ = 0;
};

}  // namespace lockstep::cupti
