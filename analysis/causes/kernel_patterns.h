#pragma once
// Kernels that have a known remedy: their names, and the further conditions for reporting them.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/causes/rank_events.h"
#include "analysis/words/clause.h"

namespace lockstep::analysis {

struct KernelPattern {
  FindingId id;  // The finding that reports it.
  // "attention as separate matrix products and softmax", and in a few words.
  Word what, brief;
  // Any of these in the kernel's name, lower case; separated by '|'.
  std::string_view any, none;
  enum Needs : std::uint8_t {
    kNothing,
    kBetweenGemms,  // Within a few kernels after one matrix product and before the next, on one stream.
    kTensorCores,   // On GPUs of compute capability 8 and above, which multiply fp32 as TF32.
    kInOptimizer,   // Launched within the optimizer, many per step.
  } needs;
  double removable;       // The largest share of its time that can be saved.
  double least_share;     // The least share of the step: kernels that every job has are reported only above it.
  Word action, in_torch;  // The second is the action in terms of PyTorch.
};

// The table. A kernel belongs to the first pattern that fits.
std::span<const KernelPattern> KernelPatterns();

// For each operation of events.activity().timeline.ops its index in KernelPatterns(), 255 for none.
std::vector<std::uint8_t> MatchPatterns(const RankEvents& events);
inline constexpr std::uint8_t kNoPattern = UINT8_MAX;

}  // namespace lockstep::analysis
