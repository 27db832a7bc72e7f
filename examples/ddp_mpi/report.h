#pragma once
// What a run says about itself, for people and for programs.

#include <cstdint>
#include <string>
#include <vector>

#include "examples/ddp_mpi/buckets.h"
#include "examples/ddp_mpi/options.h"
#include "examples/ddp_mpi/reducer.h"

namespace lockstep::example {

struct Outcome {
  double initial_loss = 0, final_loss = 0;  // On data that is not trained on.
  std::uint64_t hash = 0;                   // Of the parameters.
  bool identical = false;                   // Parameters are bitwise equal on all ranks.
  bool checked = false, check_passed = false;
  double gradient_error = 0, parameter_error = 0;   // Largest relative L2 distance to the serial run.
  std::vector<std::uint64_t> tensor_bytes;          // In registration order.
  std::vector<std::int64_t> step_ns;                // Rank 0's steps, begin to begin.
  std::vector<std::vector<std::int64_t>> compared;  // Per way of --compare: all its steps, block after block.
  std::vector<CallCounts> calls;                    // By rank, complete including MPI_Finalize.
};

void PrintBuckets(const std::vector<Bucket>& buckets);
void PrintOutcome(const Options& options, const Outcome& outcome);
// Writes options.report as JSON. False if the file cannot be written.
bool WriteReport(const Options& options, const std::vector<Bucket>& buckets, const Outcome& outcome);

}  // namespace lockstep::example
