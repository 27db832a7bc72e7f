#pragma once
// CPU time and run-queue delay of the application's threads, read from outside:
// /proc/PID/task/TID/schedstat ("run_ns wait_ns timeslices").

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/event_clock.h"
#include "core/spool_layout.h"
#include "runtime/agent/rings/drain.h"

namespace lockstep::agent {

class CpuSampler {
 public:
  explicit CpuSampler(const EventClock& clock) : clock_(clock) {}
  ~CpuSampler();
  CpuSampler(const CpuSampler&) = delete;
  CpuSampler& operator=(const CpuSampler&) = delete;

  // One row per thread that has a ring; about 1.5 us each. Threads beyond
  // kMaxThreads are not sampled.
  std::vector<SpoolCpu> Sample(const Drain& drain);
  static constexpr std::size_t kMaxThreads = 256;

 private:
  struct Open {
    int fd = -1;
    std::uint32_t generation = 0;
    std::uint64_t last_pass = 0;
  };
  EventClock clock_;
  std::unordered_map<std::uint32_t, Open> files_;  // By ring index.
  std::uint64_t pass_ = 0;
};

}  // namespace lockstep::agent
