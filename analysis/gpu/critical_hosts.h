#pragma once
// The host's side of a critical path: threads that launch or wait for the GPU, what they do
// as sets of time, and when their waits were released.

#include <cstdint>
#include <vector>

#include "analysis/gpu/device_gaps.h"
#include "analysis/gpu/stream_waits.h"
#include "merge/timeline/breakdown.h"

namespace lockstep::gpu {

struct HostThread {
  std::uint32_t thread = schema::kNone;
  IntervalSet covered;       // In operators, runtime calls and MPI, not blocked.
  IntervalSet blocked;       // Waiting for the GPU in a call.
  IntervalSet communicates;  // In MPI, or while it works on nothing beside operations that the host carries out.
  IntervalSet input;
  merge::Measure covered_ns;
};

// A waiting call's thread goes on: what it waited for has ended.
struct HostRelease {
  std::int64_t time_ns;
  std::uint32_t thread;  // Of CriticalHosts.threads().
  std::uint32_t op;      // That it waited for.
};

class CriticalHosts {
 public:
  CriticalHosts(const DeviceActivity& activity, const StreamWaits& waits);
  CriticalHosts(const CriticalHosts&) = delete;
  CriticalHosts& operator=(const CriticalHosts&) = delete;
  const std::vector<HostThread>& threads() const { return threads_; }  // By thread.
  const std::vector<HostRelease>& releases() const { return releases_; }
  // Position in threads(), kNone.
  std::uint32_t IndexOf(std::uint32_t thread) const;
  // Time that is the thread's own or nobody's: what a path along it explains.
  std::int64_t WeightOf(std::uint32_t index, Interval at) const {
    return threads_[index].covered_ns.Within(at) + NobodyWithin(at);
  }
  std::int64_t NobodyWithin(Interval at) const { return (at.end - at.begin) - somebody_ns_.Within(at); }

 private:
  void FindThreads();
  std::uint32_t WaitedFor(const BlockingCall& call, const std::vector<std::uint32_t>& by_end,
                          const std::vector<std::uint32_t>& op_of_copy) const;
  void FindWaits();
  void Cover();

  const DeviceActivity& activity_;
  const StreamWaits& waits_;
  const schema::RankTables& t_;
  const std::vector<GpuOp>& ops_;
  std::int64_t slack_ns_;
  std::vector<BlockingCall> blocking_;
  std::vector<HostThread> threads_;
  std::vector<HostRelease> releases_;
  IntervalSet somebody_;  // Some thread is covered or blocked.
  merge::Measure somebody_ns_;
};

}  // namespace lockstep::gpu
