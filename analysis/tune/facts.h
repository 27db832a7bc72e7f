#pragma once
// What the recording of a job says that `lockstep tune` needs.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/context.h"
#include "analysis/tune/settings.h"

namespace lockstep::tune {

// Without what only the starter of the job knows: mpi, openmpi_launcher, variables; and without communication_ns.
Facts FactsOf(const analysis::Context& context);

// The mean length of the usable steps with an index below `end_index`, ns; how many these are, and how many steps below
// it are complete, usable or not. A mean, not a median: a setting that makes one step of ten wait makes the job slower.
struct StepLength {
  double mean_ns = 0;
  std::int64_t usable = 0, complete = 0;
};
StepLength LengthOf(const analysis::Context& context, std::int64_t end_index);

// What the hooks saw in a run of `lockstep tune` (core/fact.h), of the first rank that has it.
struct Seen {
  std::vector<double> losses;                                // Of the first backward passes.
  std::vector<std::string> set;                              // Settings that took effect.
  std::vector<std::pair<std::string, std::string>> not_set;  // Those that could not, and why.
  std::string threads;                                       // "" if PyTorch did not say.
  std::vector<std::pair<std::int32_t, std::string>> cpus;    // Of each rank those that it may use, "0-3,8".
};
Seen SeenIn(const analysis::Context& context);

}  // namespace lockstep::tune
