#pragma once
// `lockstep run --estimate`: everything is recorded, drained and counted, but not written. Then each rank reports what
// recording costs in bytes, and rank 0 adds the numbers up.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/agent/rundir/run_dir.h"
#include "runtime/agent/window/window_options.h"

namespace lockstep::agent {

struct RankEstimate {
  std::int32_t rank = 0;
  std::uint64_t records = 0, bytes = 0;
  std::int64_t wall_ns = 0;
  std::int64_t steps = 0;           // Steps that were seen; 0: none was marked.
  std::int64_t step_bytes_p50 = 0;  // Lower median.
};

// Computes bytes per step from the bytes that each tick of the agent found. Steps between two ticks get equal shares.
class StepBytes {
 public:
  void Add(std::int64_t next_step, std::uint64_t bytes);
  std::int64_t steps() const { return steps_; }
  std::int64_t Median() const;

 private:
  struct Sample {
    std::int64_t step_bytes, steps;
  };
  std::vector<Sample> samples_;
  std::int64_t last_step_ = -1, steps_ = 0;
  std::uint64_t last_bytes_ = 0;
};

// Into the run directory's ranks/, for rank 0.
void WriteEstimate(const RunDir& dir, const RankEstimate& estimate);
// The estimates of all slots that were written within the time, by rank. Then the directory is removed as far as
// Lockstep made it.
std::vector<RankEstimate> CollectEstimates(const RunDir& dir, std::int32_t slots, std::int64_t wait_ms);

// The report's lines. `free_bytes` 0: unknown.
std::vector<std::string> DescribeEstimates(const std::vector<RankEstimate>& ranks, std::int32_t slots,
                                           const WindowPlan& plan, std::uint64_t max_bytes, std::uint64_t free_bytes);

}  // namespace lockstep::agent
