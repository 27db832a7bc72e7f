#pragma once
// When a device had nothing to do, and why. docs/tables.md defines the causes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/gpu/blocking_calls.h"
#include "analysis/gpu/launch_index.h"

namespace lockstep::gpu {

enum class GapCause : std::uint8_t {
  kHost,        // What ran next was launched after the device had gone idle, for no reason below.
  kInput,       // ... and the host was loading data for at least half of that time.
  kSync,        // ... and the host had waited for the device: a sync, a blocking copy.
  kCollective,  // ... and the host was inside communication for at least half of that time.
  kStreamWait,  // What ran next had been launched before: its stream waited for work of another device.
  kLatency,     // What ran next had been launched before: queued, and started late.
  kUnknown,     // What ran next has no launching call in the trace.
  kEnd,         // Nothing ran before or after it in the trace.
};
inline constexpr std::size_t kGapCauses = 8;
std::string_view GapCauseName(GapCause cause);
// Time the GPU lost because launches came late or took long: host and latency.
inline bool LaunchLimited(GapCause cause) { return cause == GapCause::kHost || cause == GapCause::kLatency; }

struct Gap {
  Interval at;  // The part within the window.
  std::uint16_t device;
  GapCause cause;
  std::uint32_t before, after;  // Of GpuTimeline.ops, kNone: nothing in the trace.
  std::uint32_t blocking;       // kSync: of BlockingCalls, else kNone.
  std::uint32_t host_range;     // Row of ranges: the innermost that covers half of the wait for the launch, kNone.
  std::uint32_t host_call;      // Row of api that does, kNone.
};

// "cudaStreamSynchronize"; of a row of sync alone what it is.
std::string BlockingName(const RankView& rank, const BlockingCall& call);

// What the GPU tables of one rank need, made once.
struct DeviceActivity {
  explicit DeviceActivity(const RankView& rank);
  const RankView& rank;
  LaunchIndex launches;
  GpuTimeline timeline;
  std::vector<Interval> windows;  // rank.windows; without known ends the GPU's extent.
};

struct DeviceGaps {
  std::vector<Gap> gaps;  // By device, then time.
  std::vector<BlockingCall> blocking;
  struct Device {
    std::uint16_t device;
    std::int64_t window_ns, idle_ns;
  };
  std::vector<Device> devices;
};
DeviceGaps FindGaps(const DeviceActivity& activity);

// "aten::copy_", a kernel's name, "copy host to device".
std::string OpName(const RankView& rank, const GpuOp& op);
std::string_view CopyKindName(std::uint8_t kind);

}  // namespace lockstep::gpu
