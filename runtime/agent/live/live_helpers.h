#pragma once
// Records what the thread that marks steps did and when it had no core, from records as the agent takes them: the input
// of core/helper_waits.h for finding when it slept until collectives of other threads had ended (PyTorch over gloo).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "core/helper_waits.h"
#include "core/interval.h"

namespace lockstep::agent {

struct LiveTicks {
  std::uint64_t begin, end;  // An end of 0: not ended yet.
};

// Thread: one.
class LiveHelpers {
 public:
  using NsOfTicks = std::function<std::int64_t(std::uint64_t)>;

  struct Step {
    LiveTicks window;
    std::int64_t cpu_ns;  // CPU time of the thread; negative: unknown.
  };
  struct Collective {
    LiveTicks ticks;
    std::uint64_t queued;  // When the thread handed it over; 0: unknown.
  };

  // Adds a range, or a call, of the thread that marks steps.
  void Did(LiveTicks ticks, bool input, bool gives_bucket_away);
  // How long it had been runnable without a core by then, from the agent's samples.
  void Sampled(std::uint64_t ticks, std::int64_t run_delay_ns);

  // On the rank's clock: the waits, and input at the time of these collectives, which is exposed as well.
  IntervalSet Exposed(const std::vector<Step>& steps, const std::vector<Collective>& collectives,
                      const NsOfTicks& ns_of_ticks) const;
  // Until when it is known how long the thread had no core; the largest number if nothing samples it.
  std::uint64_t known_until_ticks() const;

  void Forget(std::uint64_t before_ticks);
  std::size_t size() const { return did_.size(); }
  // Of the n-th event that ended.
  std::uint64_t end_ticks(std::size_t n) const { return did_[n].ticks.end; }

 private:
  struct Done {
    LiveTicks ticks;
    bool input, gives;
  };
  struct Delay {
    std::uint64_t ticks;
    std::int64_t ns;
  };
  std::deque<Done> did_;
  std::deque<Delay> delays_;
};

}  // namespace lockstep::agent
