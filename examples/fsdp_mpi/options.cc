#include "examples/fsdp_mpi/options.h"

#include <CLI/CLI.hpp>

namespace lockstep::example {

int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options) {
  int prefetch = 1;
  const auto add_own = [&](CLI::App& app) {
    app.add_option(
           "--prefetch", prefetch,
           "1: the next unit's parameters are gathered (MPI_Iallgather) while this one computes; 0: each unit's "
           "when it is needed (MPI_Allgather)")
        ->check(CLI::IsMember({0, 1}))
        ->capture_default_str();
    app.add_option("--compare", options.compare,
                   "prefetch=0 or prefetch=1: train in each of these ways in turn, --block-steps each, for --steps "
                   "rounds; the times go to --report")
        ->check(CLI::IsMember({"prefetch=0", "prefetch=1"}))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--block-steps", options.block_steps, "Steps of one way before the next")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
  };
  const int code = ParseTrainingOptions(
      argc, argv, rank, ranks,
      "Fully sharded data-parallel training of a multi-layer network over MPI, the way FSDP does it.", "fsdp_mpi",
      add_own, options);
  options.prefetch = prefetch != 0;
  return code;
}

}  // namespace lockstep::example
