#pragma once
// Kernels that have a known remedy: by name, and by what else must be so before it is claimed.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/causes/rank_events.h"

namespace lockstep::analysis {

struct KernelPattern {
  FindingId id;           // Of the finding that it becomes.
  std::string_view what;  // "attention in single steps".
  // Any of these in the kernel's name, lower case; separated by '|'.
  std::string_view any, none;
  enum Needs : std::uint8_t {
    kNothing,
    kBetweenGemms,  // A few kernels behind one matrix product and before the next, on one stream.
    kTensorCores,   // Of compute capability 8 and above, which multiply fp32 as TF32.
    kInOptimizer,   // Launched within the optimizer, many per step.
  } needs;
  double removable;                   // Of its time at most.
  double least_share;                 // Of the step: what each job has some of is told only where it is much.
  std::string_view action, in_torch;  // The same, as PyTorch has it.
};

// The table. A kernel is of the first that fits.
std::span<const KernelPattern> KernelPatterns();

// Per operation of events.activity().timeline.ops: position in KernelPatterns(), 255 for none.
std::vector<std::uint8_t> MatchPatterns(const RankEvents& events);
inline constexpr std::uint8_t kNoPattern = 255;

}  // namespace lockstep::analysis
