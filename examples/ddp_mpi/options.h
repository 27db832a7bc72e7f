#pragma once
// Command line of ddp_mpi.

#include <string>
#include <vector>

#include "examples/common/training_options.h"

namespace lockstep::example {

// When gradients are reduced: each bucket by MPI_Iallreduce as it is complete; the same calls all after the
// backward pass; MPI_Allreduce there.
enum class Overlap { kOn, kLate, kOff };
const char* Name(Overlap overlap);

struct Options : TrainingOptions {
  double bucket_cap_mb = 25;
  double first_bucket_mb = 1;
  Overlap overlap = Overlap::kOn;
  bool queue = false;  // A thread reduces the buckets by MPI_Allreduce, one after the other (reduce_queue.h).
  bool print_buckets = false;
  // --compare: the job is run in each of these ways in turn, block by block, in one process.
  std::vector<std::string> compare;  // As written.
  int block_steps = 3;
};

// The options with what one --compare says changed; an error text, empty if fine.
std::string Changed(const std::string& text, int ranks, Options& options);

// As ParseTrainingOptions.
int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options);

}  // namespace lockstep::example
