#pragma once
// The entries of a segment's tables that have been used so far. The application may have overwritten the counts.

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/ring_layout.h"

namespace lockstep::agent {

inline std::span<RingEntry> UsedRings(const SegmentView& segment) {
  return {segment.rings(), std::min(segment.header().rings_used.load(std::memory_order_acquire), kMaxRings)};
}
inline std::span<ProcessEntry> UsedProcesses(const SegmentView& segment) {
  return {segment.processes(),
          std::min(segment.header().processes_used.load(std::memory_order_acquire), kMaxProcesses)};
}

}  // namespace lockstep::agent
