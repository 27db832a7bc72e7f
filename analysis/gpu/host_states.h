#pragma once
// What the host's threads were doing, moment by moment, as far as the trace tells. docs/definitions.md, "Idle time of a
// GPU", has the order in which the states are asked for.

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/gpu/blocking_calls.h"
#include "analysis/gpu/launch_index.h"

namespace lockstep::gpu {

enum class HostState : std::uint8_t {
  kNone,           // In nothing that was recorded.
  kInput,          // In a range marked as input.
  kSync,           // In a call that waits for the GPU.
  kMemory,         // In a call that allocates or frees.
  kLoad,           // In a call that loads or compiles GPU code.
  kCopy,           // In a copy to the GPU from pageable memory.
  kLaunch,         // In a call that launches.
  kCall,           // In another runtime call.
  kCommunication,  // In MPI, or in a backend of torch.distributed that communicates on the CPU.
  kOperator,       // In an operator of the framework, and in no call.
  kFunction,       // In a Python function or a system call, and in none of the above.
  kRange,          // In a range of the application, and in none of the above.
};

struct HostMoment {
  Interval at;
  HostState state;
  std::uint32_t range;  // Row of ranges: the innermost that is open, kNone.
  std::uint32_t call;   // Row of api: the innermost that is open, kNone.
};

// Built once, n log n in the host's events; afterwards for several threads at once.
class HostStates {
 public:
  HostStates(const RankView& rank, const LaunchIndex& launches, const std::vector<BlockingCall>& blocking);

  // Calls f(const HostMoment&) in order of time for the parts of `at` in which the thread is in something; what lies
  // between is kNone. O(log n + parts).
  template <typename F>
  void ForEach(std::uint32_t thread, Interval at, F&& f) const {
    const auto found = moments_.find(thread);
    if (found == moments_.end()) return;
    const std::vector<HostMoment>& all = found->second;
    auto moment = std::upper_bound(all.begin(), all.end(), at.begin,
                                   [](std::int64_t t, const HostMoment& m) { return t < m.at.end; });
    for (; moment != all.end() && moment->at.begin < at.end; ++moment) {
      HostMoment part = *moment;
      part.at = {std::max(part.at.begin, at.begin), std::min(part.at.end, at.end)};
      f(part);
    }
  }
  // Operators or Python functions of some thread are in the trace.
  bool knows_operators() const { return knows_operators_; }
  // Of a row of api: the state of a thread that is in it.
  HostState StateIn(std::uint32_t call) const { return of_call_[call]; }

 private:
  void ClassifyCalls(const RankView& rank, const LaunchIndex& launches, const std::vector<BlockingCall>& blocking);

  std::vector<HostState> of_call_;                            // Per row of api.
  std::map<std::uint32_t, std::vector<HostMoment>> moments_;  // Per thread, disjoint, in order.
  bool knows_operators_ = false;
};

}  // namespace lockstep::gpu
