#pragma once
// The part of the command line that the examples share.

#include <cstdint>
#include <functional>
#include <string>

#include "examples/common/arguments.h"
#include "examples/common/faults.h"

namespace lockstep::example {

enum class Progress { kTest, kThread, kNone };
enum class Work { kTimed, kReal };
const char* Name(Progress progress);

struct TrainingOptions {
  int steps = 60;
  int layers = 12;
  int width = 256;
  int batch = 0;  // Samples per rank and step; 0: 4 when timed, 32 when real.
  double learning_rate = 0.01;
  std::uint64_t seed = 1;
  Progress progress = Progress::kTest;
  Work work = Work::kTimed;
  double step_ms = 40;  // Timed: healthy compute per step.
  double input_ms = 1;  // Timed: loading of one batch.
  std::int64_t poll_us = 500;
  bool check = false;
  bool quiet = false;
  std::string report, save;
  Faults faults;
};

// Reads the command line for a job of `ranks`; `add_own` adds the program's own
// options. Returns -1 if the job shall run, else the exit code; messages are
// printed by rank 0 only.
int ParseTrainingOptions(int argc, char** argv, int rank, int ranks, const char* description, const char* program,
                         const std::function<void(Arguments&)>& add_own, TrainingOptions& options);

}  // namespace lockstep::example
