#pragma once
// Finds the kernels at which a rank's GPU is slower than the other ranks' GPUs.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

struct KernelEvidence {
  bool all = false;                // Every kind of kernel is slower by one factor; otherwise those named.
  double factor = 1;               // Time of a call relative to the other ranks' lower median.
  std::vector<std::string> names;  // A few of the costliest.
  std::size_t more = 0;            // Kinds that are not named.
};

// Compares the rank at this position with some others, over these steps (rows of tables.steps). Returns nothing if it
// runs too few kinds of kernels to compare, if neither case applies, or if a file cannot be read.
std::optional<KernelEvidence> SlowKernelsOf(const Context& context, std::size_t position,
                                            const std::vector<std::size_t>& others,
                                            const std::vector<std::size_t>& steps);

}  // namespace lockstep::analysis
