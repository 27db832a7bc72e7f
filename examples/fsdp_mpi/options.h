#pragma once
// Command line of fsdp_mpi.

#include <string>
#include <vector>

#include "examples/common/training_options.h"

namespace lockstep::example {

struct Options : TrainingOptions {
  bool prefetch = true;
  // --compare: the job is run in each of these ways in turn, block by block, in one process.
  std::vector<std::string> compare;  // "prefetch=0", "prefetch=1".
  int block_steps = 3;
};

// As ParseTrainingOptions.
int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options);

}  // namespace lockstep::example
