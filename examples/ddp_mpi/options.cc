#include "examples/ddp_mpi/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <sstream>

namespace lockstep::example {
namespace {

// "2:1.3" -> slow[2] = 1.3. Returns an error text, empty if fine.
std::string ParseSlowRank(const std::string& text, std::vector<double>& slow) {
  int rank = 0;
  double factor = 0;
  char colon = 0;
  std::string rest;
  std::istringstream in(text);
  if (!(in >> rank >> colon >> factor) || colon != ':' || in >> rest) return "expected RANK:FACTOR, got '" + text + "'";
  if (rank < 0 || rank >= static_cast<int>(slow.size())) {
    return "rank " + std::to_string(rank) + " is not in this job of " + std::to_string(slow.size()) + " ranks";
  }
  if (factor < 1) return "a factor below 1 in '" + text + "': a rank can only be slowed";
  slow[static_cast<std::size_t>(rank)] = factor;
  return {};
}

}  // namespace

int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options) {
  CLI::App app{"Data-parallel training of a multi-layer network over MPI, the way DDP does it.", "ddp_mpi"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  std::vector<std::string> slow;
  const auto positive = CLI::PositiveNumber;
  app.add_option("--steps", options.steps, "Steps to train")->check(positive)->capture_default_str();
  app.add_option("--layers", options.layers, "Linear layers")->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--width", options.width, "Width of the hidden layers")
      ->check(CLI::Range(4, 65536))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Samples per rank and step; 0: 4 when timed, 32 when real")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "Learning rate")->check(positive)->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of weights and data")->capture_default_str();
  app.add_option("--bucket-cap-mb", options.bucket_cap_mb, "Bucket limit in MiB, fractions allowed")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--first-bucket-mb", options.first_bucket_mb, "Limit of the first bucket in MiB")
      ->check(positive)
      ->capture_default_str();
  std::string overlap = "on";
  app.add_option("--overlap", overlap, "on: MPI_Iallreduce during backward; off: MPI_Allreduce after it")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  const std::map<std::string, Progress> progress{
      {"test", Progress::kTest}, {"thread", Progress::kThread}, {"none", Progress::kNone}};
  app.add_option("--progress", options.progress,
                 "How communication advances during backward: test (MPI_Testsome between pieces of work), thread (a "
                 "helper thread), none (only in the final MPI_Waitall)")
      ->transform(CLI::CheckedTransformer(progress))
      ->default_str("test");
  const std::map<std::string, Work> work{{"timed", Work::kTimed}, {"real", Work::kReal}};
  app.add_option("--work", options.work,
                 "timed: real arithmetic on small tensors, padded to fixed times by sleeping, so that more ranks than "
                 "cores still time cleanly; real: arithmetic only")
      ->transform(CLI::CheckedTransformer(work))
      ->default_str("timed");
  app.add_option("--step-ms", options.step_ms, "Timed: healthy compute per step")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--input-ms", options.input_ms, "Timed: loading of a batch, per step")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--poll-us", options.poll_us, "Time between two polls for progress")
      ->check(CLI::Range(10, 1000000))
      ->capture_default_str();
  app.add_option("--slow-rank", slow, "RANK:FACTOR, a rank whose compute takes FACTOR times as long; repeatable")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--check", options.check, "Compare gradients and parameters with a serial run on the combined batch");
  app.add_flag("--print-buckets", options.print_buckets, "Print each bucket's tensors and bytes");
  app.add_flag("--quiet", options.quiet, "Print nothing but errors");
  app.add_option("--report", options.report, "Write timings, buckets and MPI call counts to this JSON file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int code = app.exit(error, out, err);
    if (rank == 0) {
      std::cout << out.str();
      std::cerr << err.str();
    }
    return code == 0 ? 0 : 2;
  }
  options.overlap = overlap == "on";
  if (options.batch == 0) options.batch = options.work == Work::kTimed ? 4 : 32;
  options.slow.assign(static_cast<std::size_t>(ranks), 1.0);
  for (const std::string& text : slow) {
    const std::string wrong = ParseSlowRank(text, options.slow);
    if (wrong.empty()) continue;
    if (rank == 0) std::cerr << "--slow-rank: " << wrong << "\n";
    return 2;
  }
  return -1;
}

}  // namespace lockstep::example
