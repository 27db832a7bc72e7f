#pragma once
// What a run says about itself, for people and for programs.

#include <cstdint>
#include <vector>

#include "examples/fsdp_mpi/options.h"
#include "examples/fsdp_mpi/shards.h"

namespace lockstep::example {

struct Outcome {
  double initial_loss = 0, final_loss = 0;  // On data that is not trained on.
  std::uint64_t hash = 0;                   // Of the parameters.
  bool identical = false;                   // All ranks gathered the same parameters, bit by bit.
  bool checked = false, check_passed = false;
  double parameter_error = 0;                       // Relative L2 distance to the serial run.
  std::vector<std::uint64_t> unit_bytes;            // As gathered, padding included.
  std::vector<std::int64_t> step_ns;                // Rank 0's steps, begin to begin.
  std::vector<std::vector<std::int64_t>> compared;  // Per way of --compare: all its steps, block after block.
  std::vector<CallCounts> calls;                    // By rank, complete including MPI_Finalize.
};

void PrintOutcome(const Options& options, const Outcome& outcome);
// Writes options.report as JSON. False if the file cannot be written.
bool WriteReport(const Options& options, const Outcome& outcome);

}  // namespace lockstep::example
