#pragma once
// Command line of ddp_mpi.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::example {

enum class Progress { kTest, kThread, kNone };
enum class Work { kTimed, kReal };

struct Options {
  int steps = 60;
  int layers = 12;
  int width = 256;
  int batch = 0;  // Samples per rank and step; 0: 4 when timed, 32 when real.
  double learning_rate = 0.01;
  std::uint64_t seed = 1;
  double bucket_cap_mb = 25;
  double first_bucket_mb = 1;
  bool overlap = true;
  Progress progress = Progress::kTest;
  Work work = Work::kTimed;
  double step_ms = 40;  // Timed: healthy compute per step.
  double input_ms = 1;  // Timed: loading of one batch.
  std::int64_t poll_us = 500;
  std::vector<double> slow;  // Factor per rank, 1 unless given.
  bool check = false;
  bool print_buckets = false;
  bool quiet = false;
  std::string report;
};

// Reads the command line for a job of `ranks`. Returns -1 if the job shall run,
// else the exit code; messages are printed by rank 0 only.
int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options);

}  // namespace lockstep::example
