#include "examples/common/training_options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <sstream>

namespace lockstep::example {

const char* Name(Progress progress) {
  switch (progress) {
    case Progress::kTest:
      return "test";
    case Progress::kThread:
      return "thread";
    case Progress::kNone:
      return "none";
  }
  return "";
}

int ParseTrainingOptions(int argc, char** argv, int rank, int ranks, const char* description, const char* program,
                         const std::function<void(CLI::App&)>& add_own, TrainingOptions& options) {
  CLI::App app{description, program};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
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
  add_own(app);
  const std::map<std::string, Progress> progress{
      {"test", Progress::kTest}, {"thread", Progress::kThread}, {"none", Progress::kNone}};
  app.add_option("--progress", options.progress,
                 "How non-blocking communication advances during compute: test (MPI_Testsome between pieces of work), "
                 "thread (a helper thread), none (only when it is waited for)")
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
  app.add_flag("--check", options.check, "Compare the training with a serial run on the combined batch");
  app.add_flag("--quiet", options.quiet, "Print nothing but errors");
  app.add_option("--report", options.report, "Write timings and MPI call counts to this JSON file");
  app.add_option("--save", options.save, "Write the trained parameters to this file, as raw 32-bit floats");
  FaultTexts texts;
  AddFaultOptions(app, texts);
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
  if (options.batch == 0) options.batch = options.work == Work::kTimed ? 4 : 32;
  if (const std::string wrong = ParseFaults(texts, ranks, options.faults); !wrong.empty()) {
    if (rank == 0) std::cerr << wrong << "\n";
    return 2;
  }
  return -1;
}

}  // namespace lockstep::example
