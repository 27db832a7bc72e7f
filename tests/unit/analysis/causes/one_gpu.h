#pragma once
// A job of GPU ranks written by hand, for the causes that ranks' own events show. Times in microseconds.

#include <memory>
#include <string_view>
#include <vector>

#include "analysis/analyze.h"
#include "tests/unit/analysis/tables/gpu_events.h"

namespace lockstep::test {

class OneGpu : public GpuEvents {
 public:
  static constexpr std::int64_t kStep = 10'000;
  OneGpu() { us = 1'000; }

  // 132 multiprocessors, 80 GB.
  void Device(std::uint16_t major = 9, std::uint32_t multiprocessors = 132);
  // Marks `steps` steps of kStep from 0 on.
  void Steps(int steps);
  // On the GPU from `begin` on; launched well before, as long as the host runs ahead.
  void Kernel(std::string_view name, std::int64_t begin, std::int64_t length, std::uint32_t shape = schema::kNone,
              std::uint32_t stream = 7);
  void InCategory(std::uint8_t category) { tables.ranges.category.back() = category; }
};

// With the terms that merge would give: compute and idle.
analysis::Analysis AnalyzeGpus(const std::vector<const OneGpu*>& ranks);
const analysis::Finding* FindIn(const analysis::Analysis& analysis, std::string_view id);

}  // namespace lockstep::test
