#pragma once
// Records when the thread that marks steps was blocked, and its input, from records as the agent takes them: the input
// of core/awaited_operation.h for finding when it waited for collectives of other threads (PyTorch over gloo).

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "core/interval.h"
#include "core/record.h"

namespace lockstep::agent {

struct LiveTicks {
  std::uint64_t begin, end;  // An end of 0: not ended yet.
};

// Thread: one.
class LiveHelpers {
 public:
  using NsOfTicks = std::function<std::int64_t(std::uint64_t)>;

  struct Collective {
    LiveTicks ticks;
    std::uint32_t tid;  // Of the thread that carries it.
  };

  void Input(LiveTicks ticks) { done_.push_back({ticks, 0, 0}); }
  void Blocked(const BlockedRecord& record);

  // On the rank's clock, within the time of these collectives: waits that the end of one of them ended, and input,
  // which is exposed as well.
  IntervalSet Exposed(const std::vector<Collective>& collectives, const NsOfTicks& ns_of_ticks) const;

  void Forget(std::uint64_t before_ticks);
  std::size_t size() const { return done_.size(); }
  // Of the n-th that ended.
  std::uint64_t end_ticks(std::size_t n) const { return done_[n].ticks.end; }

 private:
  struct Done {
    LiveTicks ticks;
    std::uint64_t woken_ticks;  // 0: input.
    std::uint32_t waker_tid;
  };
  std::deque<Done> done_;
};

}  // namespace lockstep::agent
