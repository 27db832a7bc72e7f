#include "examples/common/training_options.h"

#include <iostream>

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
                         const std::function<void(Arguments&)>& add_own, TrainingOptions& options) {
  Arguments arguments(description, program);
  constexpr auto kPositive = Arguments::kPositive, kNotNegative = Arguments::kNotNegative;
  arguments.Number("--steps", options.steps, kPositive, "Steps to train");
  arguments.Number("--layers", options.layers, {2, 1000}, "Linear layers");
  arguments.Number("--width", options.width, {4, 65536}, "Width of the hidden layers");
  arguments.Number("--batch", options.batch, kNotNegative, "Samples per rank and step; 0: 4 when timed, 32 when real");
  arguments.Number("--learning-rate", options.learning_rate, kPositive, "Learning rate");
  arguments.Number("--seed", options.seed, kNotNegative, "Seed of weights and data");
  add_own(arguments);
  arguments.Choice<Progress>(
      "--progress", options.progress,
      {{"test", Progress::kTest}, {"thread", Progress::kThread}, {"none", Progress::kNone}},
      "How non-blocking communication advances during compute: test (MPI_Testsome between pieces of work), "
      "thread (a helper thread), none (only when it is waited for)");
  arguments.Choice<Work>(
      "--work", options.work, {{"timed", Work::kTimed}, {"real", Work::kReal}},
      "timed: real arithmetic on small tensors, padded to fixed times by sleeping, so that more ranks than cores still "
      "time cleanly; real: arithmetic only");
  arguments.Number("--step-ms", options.step_ms, kPositive, "Timed: healthy compute per step");
  arguments.Number("--input-ms", options.input_ms, kNotNegative, "Timed: loading of a batch, per step");
  arguments.Number("--poll-us", options.poll_us, {10, 1000000}, "Time between two polls for progress");
  arguments.Flag("--check", options.check, "Compare the training with a serial run on the combined batch");
  arguments.Flag("--quiet", options.quiet, "Print nothing but errors");
  arguments.Text("--report", options.report, "Write timings and MPI call counts to this JSON file");
  arguments.Text("--save", options.save, "Write the trained parameters to this file, as raw 32-bit floats");
  FaultTexts texts;
  AddFaultOptions(arguments, texts);
  std::string said;
  if (const int code = arguments.Parse(argc, argv, said); code >= 0) {
    if (rank == 0) (code == 0 ? std::cout : std::cerr) << said;
    return code;
  }
  if (options.batch == 0) options.batch = options.work == Work::kTimed ? 4 : 32;
  if (const std::string wrong = ParseFaults(texts, ranks, options.faults); !wrong.empty()) {
    if (rank == 0) std::cerr << wrong << "\n";
    return 2;
  }
  return -1;
}

}  // namespace lockstep::example
