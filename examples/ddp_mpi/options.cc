#include "examples/ddp_mpi/options.h"

#include <CLI/CLI.hpp>
#include <string>

namespace lockstep::example {

int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options) {
  std::string overlap = "on";
  const auto add_own = [&](CLI::App& app) {
    app.add_option("--bucket-cap-mb", options.bucket_cap_mb, "Bucket limit in MiB, fractions allowed")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--first-bucket-mb", options.first_bucket_mb, "Limit of the first bucket in MiB")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--overlap", overlap, "on: MPI_Iallreduce during backward; off: MPI_Allreduce after it")
        ->check(CLI::IsMember({"on", "off"}))
        ->capture_default_str();
    app.add_flag("--print-buckets", options.print_buckets, "Print each bucket's tensors and bytes");
  };
  const int code = ParseTrainingOptions(
      argc, argv, rank, ranks, "Data-parallel training of a multi-layer network over MPI, the way DDP does it.",
      "ddp_mpi", add_own, options);
  options.overlap = overlap == "on";
  return code;
}

}  // namespace lockstep::example
