#include "examples/fsdp_mpi/options.h"

#include <iostream>
#include <string>

namespace lockstep::example {

int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options) {
  int prefetch = 1;
  const auto add_own = [&](Arguments& arguments) {
    arguments.Number("--prefetch", prefetch, {0, 1},
                     "1: the next unit's parameters are gathered (MPI_Iallgather) while this one computes; 0: each "
                     "unit's when it is needed (MPI_Allgather)");
    arguments.Texts("--compare", options.compare, 0,
                    "prefetch=0 or prefetch=1: train in each of these ways in turn, --block-steps each, for --steps "
                    "rounds; the times go to --report");
    arguments.Number("--block-steps", options.block_steps, Arguments::kPositive, "Steps of one way before the next");
  };
  const int code = ParseTrainingOptions(
      argc, argv, rank, ranks,
      "Fully sharded data-parallel training of a multi-layer network over MPI, the way FSDP does it.", "fsdp_mpi",
      add_own, options);
  for (const std::string& way : options.compare)
    if (code < 0 && way != "prefetch=0" && way != "prefetch=1") {
      if (rank == 0) std::cerr << "--compare: '" << way << "' is none of prefetch=0, prefetch=1\n";
      return 2;
    }
  options.prefetch = prefetch != 0;
  return code;
}

}  // namespace lockstep::example
