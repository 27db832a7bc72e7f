#pragma once
// When a device had nothing to do, and why: each gap in parts. docs/definitions.md, "Idle time of a GPU", has the rule.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/gpu/blocking_calls.h"
#include "analysis/gpu/launch_index.h"

namespace lockstep::gpu {

enum class PartKind : std::uint8_t {
  // What ends the gap had not been launched yet, and the host was ...
  kInput,          // ... in a range marked as input.
  kBeforeForward,  // ... between the step's begin or its optimizer and the forward pass, where nothing is marked as
                   // input.
  kSync,           // ... waiting for the GPU; with the launch that this delayed.
  kMemory,         // ... allocating or freeing.
  kCopy,           // ... in a copy to the GPU from pageable memory.
  kLoad,           // ... loading or compiling GPU code.
  kCommunication,  // ... communicating on the CPU.
  kLaunch,         // ... in a call that launches.
  kCall,           // ... in another runtime call.
  kOperator,       // ... in an operator, outside of calls.
  kBetween,        // ... in no call and no operator: Python, in a range or a function if one is recorded.
  kHostUnknown,    // ... in nothing that was recorded, by a trace without operators.
  // It had been launched, and ...
  kStreamWait,  // ... its stream waited for work of another device.
  kStart,       // ... took the time that starts take.
  kNotStarted,  // ... did not start, for a reason that is not in the trace.
  // Whether it had been launched is not known:
  kLaunchUnknown,  // its launching call is not in the trace,
  kEdge,           // or nothing ran after the gap, and no host thread is known.
};
inline constexpr std::size_t kPartKinds = static_cast<std::size_t>(PartKind::kEdge) + 1;
std::string_view PartKindName(PartKind kind);  // "before_forward"
// The host was too slow with the launch, for reasons of its own; or the launch took long to start.
bool LaunchLimited(PartKind kind);
// The trace does not tell why.
bool Unexplained(PartKind kind);

struct GapPart {
  Interval at;
  PartKind kind;
  std::uint32_t range;     // Row of ranges: the innermost that the host was in, kNone.
  std::uint32_t call;      // Row of api that the host was in, kNone.
  std::uint32_t blocking;  // Of BlockingCalls that the host was in, or that delayed the launch, kNone.
};

struct Gap {
  Interval at;  // The part within the window.
  std::uint16_t device;
  std::uint32_t before, after;         // Of GpuTimeline.ops, kNone: nothing in the trace.
  std::uint32_t follows;               // Of BlockingCalls: the host was waiting in it when the device went idle, kNone.
  std::size_t first_part, part_count;  // Of DeviceGaps.parts; they tile `at`, in order.
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
  std::vector<GapPart> parts;
  std::vector<BlockingCall> blocking;
  struct Device {
    std::uint16_t device;
    std::int64_t window_ns, idle_ns;
  };
  std::vector<Device> devices;
  std::span<const GapPart> PartsOf(const Gap& gap) const {
    return std::span(parts).subspan(gap.first_part, gap.part_count);
  }
};
DeviceGaps FindGaps(const DeviceActivity& activity);
// Of the gap's time how much is of which kind, by PartKind; sums to its length.
std::array<std::int64_t, kPartKinds> NsByKind(const DeviceGaps& found, const Gap& gap);

// "aten::copy_", a kernel's name, "copy host to device".
std::string OpName(const RankView& rank, const GpuOp& op);
std::string_view CopyKindName(std::uint8_t kind);

}  // namespace lockstep::gpu
