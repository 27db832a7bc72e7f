#pragma once
// Command line of fsdp_mpi.

#include "examples/common/training_options.h"

namespace lockstep::example {

struct Options : TrainingOptions {
  bool prefetch = true;
};

// As ParseTrainingOptions.
int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options);

}  // namespace lockstep::example
