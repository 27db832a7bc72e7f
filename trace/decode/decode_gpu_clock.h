#pragma once
// Finds how far GPU and CPU times of a process may disagree. CUPTI converts the GPU's times, and nothing else compares
// them. No kernel starts before its launching call began, and no synchronisation ends before the work it waited for:
// the least differences bound the disagreement from both sides.

#include <cstdint>
#include <vector>

#include "core/schema.h"

namespace lockstep::trace {

struct GpuClock {
  std::uint16_t device = 0;
  // GPU times minus CPU times are within [low, high] everywhere; kNoTime: there is no evidence.
  std::int64_t low_ns = schema::kNoTime, high_ns = schema::kNoTime;
  // Evidence that is impossible with clocks that agree, and the largest of it.
  std::uint64_t early_starts = 0, early_returns = 0;
  std::int64_t early_start_ns = 0, early_return_ns = 0;

  // They contradict clocks that agree by up to this, beyond what single wrong records would explain; 0: they do not.
  std::int64_t contradicted_ns = 0;

  bool bounded() const { return low_ns != schema::kNoTime && high_ns != schema::kNoTime; }
  std::int64_t error_ns() const { return high_ns > -low_ns ? high_ns : -low_ns; }
};

// By device. The tables are one process's; rows may be in any order.
std::vector<GpuClock> CompareGpuClocks(const schema::RankTables& tables);

}  // namespace lockstep::trace
