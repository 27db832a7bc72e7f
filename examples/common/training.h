#pragma once
// What the training programs over MPI have in common besides their options.

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>

#include "examples/common/faults.h"
#include "examples/common/network.h"
#include "examples/common/pace.h"
#include "examples/common/training_options.h"
#include "runtime/lockstep.h"

namespace lockstep::example {

class PhaseRange {
 public:
  PhaseRange(const char* name, lockstep_category category) { lockstep_range_push_category(name, category); }
  ~PhaseRange() { lockstep_range_pop(); }
  PhaseRange(const PhaseRange&) = delete;
  PhaseRange& operator=(const PhaseRange&) = delete;
};

// Healthy compute of a step splits as usual: backward costs twice forward.
inline constexpr double kForwardShare = 0.3, kBackwardShare = 0.6, kOptimizerShare = 0.1;

// Float rounding that a different summation order causes, with room for its growth over steps.
inline constexpr double kGradientTolerance = 1e-3, kParameterTolerance = 1e-4;

// Loss of these parameters on samples far behind everything that is trained on.
inline double Evaluate(const TrainingOptions& options, std::span<const float> parameters) {
  constexpr std::uint64_t kSample = std::uint64_t{1} << 40;
  Network network(options.layers, options.width, 64, options.seed);
  std::copy(parameters.begin(), parameters.end(), network.parameters().begin());
  network.LoadBatch(kSample);
  for (std::size_t l = 0; l < network.layers().size(); ++l) network.Forward(l);
  return network.Loss();
}

// main() of such a program: MPI up, options read, `run(options, rank, ranks, calls)` for
// the exit code, MPI down. `parse` is as ParseTrainingOptions without the texts;
// `helper(options)` says whether a thread besides the training thread will call MPI.
template <typename Options, typename Calls, typename Parse, typename Helper, typename Run>
int TrainingMain(int argc, char** argv, const char* program, Parse parse, Helper helper, Run run) {
  StartLate(argc, argv);
  Calls calls;
  int provided = 0, rank = 0, ranks = 1;
  // Only a helper thread needs more than one thread in MPI; the others keep MPI's cheaper locking.
  const bool threads = std::any_of(argv, argv + argc, [](std::string_view arg) { return arg.ends_with("thread"); });
  ++calls.init;
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
  ++calls.comm_rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ++calls.comm_size;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  Options options;
  int code = parse(argc, argv, rank, ranks, options);
  if (code < 0 && helper(options) && provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0)
      std::fprintf(stderr, "%s: --progress thread needs MPI_THREAD_MULTIPLE, which this MPI lacks\n", program);
    code = 2;
  }
  if (code < 0) {
    SleepPrecisely();
    code = run(options, rank, ranks, calls);
  }
  MPI_Finalize();
  return code;
}

}  // namespace lockstep::example
