#pragma once
// How far a GPU's times must move for launches and waits to agree with the host's. A trace in which they agree, to the
// precision of its times, needs nothing.

#include <cstdint>
#include <vector>

#include "core/schema.h"
#include "trace/decode/gpu_clock_evidence.h"

namespace lockstep::trace {

struct GpuClockShift {
  std::uint16_t device = 0;
  std::int64_t move_ns = 0;   // The least that makes nearly all possible; 0 where they agree or nothing would.
  std::int64_t error_ns = 0;  // Launches and waits contradict each other by up to this, also after the move; 0: do not.
  std::uint64_t starts = 0,
                returns = 0;  // Operations before their launch, waits before the end: `move_ns` is for them.
  // Likewise, but too few to say anything of the clock, or alone with a time far from the others': wrong themselves.
  std::uint64_t odd_starts = 0, odd_returns = 0;
  std::int64_t odd_ns = 0;  // The largest of them.

  bool disagree() const { return move_ns != 0 || error_ns != 0; }
};

GpuClockShift FindShift(const GpuClockEvidence& evidence);

}  // namespace lockstep::trace
