#pragma once
// Which kernels a rank's GPU is slower at than the other ranks' GPUs.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

struct KernelEvidence {
  bool all = false;   // Every kind of kernel by one factor; else those named.
  double factor = 1;  // Time of a call beside the other ranks' lower median.
  std::string names;  // The costliest, a few: "gemm_forward and 2 more".
};

// Of the rank at this position beside some others, over these steps (rows of tables.steps). Nothing if it runs too few
// kinds of kernels to compare, if these tell neither story, or if a file cannot be read.
std::optional<KernelEvidence> SlowKernelsOf(const Context& context, std::size_t position,
                                            const std::vector<std::size_t>& others,
                                            const std::vector<std::size_t>& steps);

}  // namespace lockstep::analysis
