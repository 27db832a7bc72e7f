#pragma once
// Command line of ddp_mpi.

#include "examples/common/training_options.h"

namespace lockstep::example {

struct Options : TrainingOptions {
  double bucket_cap_mb = 25;
  double first_bucket_mb = 1;
  bool overlap = true;
  bool print_buckets = false;
};

// As ParseTrainingOptions.
int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options);

}  // namespace lockstep::example
