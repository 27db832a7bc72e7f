// fsdp_mpi: fully sharded data-parallel training over MPI the way PyTorch's FSDP
// does it. Each rank keeps a part of every layer's parameters; a whole layer
// exists only while it computes. It is gathered before its forward and again
// before its backward pass, and its gradients are reduced to the parts while the
// backward pass goes on.
//
//   mpirun -np 4 fsdp_mpi                              the next layer is gathered while one computes
//   mpirun -np 4 fsdp_mpi --prefetch 0                 each is gathered when it is needed
//   mpirun -np 4 fsdp_mpi --progress none              communication moves only in MPI_Wait and MPI_Waitall
//   mpirun -np 4 fsdp_mpi --slow-input 1:10            rank 1 loads its batches 10 ms more slowly
//   mpirun -np 4 fsdp_mpi --check                      against a serial run on the combined batch
//
// Under Lockstep put `lockstep run --` before fsdp_mpi; nothing else changes.

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include "examples/common/compare.h"
#include "examples/common/faults.h"
#include "examples/common/network.h"
#include "examples/common/pace.h"
#include "examples/common/results.h"
#include "examples/common/training.h"
#include "examples/fsdp_mpi/options.h"
#include "examples/fsdp_mpi/report.h"
#include "examples/fsdp_mpi/shards.h"
#include "runtime/lockstep.h"

namespace lockstep::example {
namespace {

// One training process.
class Trainer {
 public:
  Trainer(const Options& options, int rank, int ranks, CallCounts& calls)
      : options_(options),
        rank_(rank),
        ranks_(ranks),
        network_(options.layers, options.width, options.batch, options.seed),
        shards_(network_, options, rank, ranks, calls, [this] { faults_.BeforeCollective(); }),
        pace_(options.work == Work::kTimed, options.faults.slow[static_cast<std::size_t>(rank)], options.poll_us * 1000,
              [this] { shards_.Poll(); }),
        faults_(options.faults, rank, pace_) {}

  const Shards& shards() const { return shards_; }
  void UsePrefetch(bool on) { shards_.UsePrefetch(on); }

  void Step(int step) {
    pace_.Begin();
    LoadInput(step);
    Forward();
    faults_.BetweenPasses(step);
    Backward();
    shards_.FinishGradients();
    const PhaseRange range("optimizer", LOCKSTEP_OPTIMIZER);
    pace_.Begin();
    shards_.Update(static_cast<float>(options_.learning_rate));
    pace_.Finish(options_.step_ms * 1e6 * kOptimizerShare);
  }

  // The whole parameters, on every rank.
  std::vector<float> Parameters() {
    for (std::size_t u = 0; u < shards_.units(); ++u) shards_.Gather(u);
    return {network_.parameters().begin(), network_.parameters().end()};
  }

 private:
  double Extra() const { return options_.work == Work::kReal ? faults_.slow() - 1 : 0; }
  // Time of one layer in a pass that takes `share` of the step's compute.
  double LayerNs(double share) const {
    return options_.step_ms * 1e6 * share / static_cast<double>(network_.layers().size());
  }

  void LoadInput(int step) {
    const PhaseRange range("input", LOCKSTEP_INPUT);
    const auto batch = static_cast<std::uint64_t>(network_.batch());
    network_.LoadBatch(
        (static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(ranks_) + static_cast<std::uint64_t>(rank_)) *
        batch);
    pace_.FinishFixed(options_.input_ms * 1e6);
    faults_.AfterInput();
  }

  // What was waited for is not caught up: work begins when the parameters are there.
  void Fetch(std::size_t unit, std::optional<std::size_t> next) {
    shards_.Gather(unit);
    if (next) shards_.Prefetch(*next);
    pace_.Begin();
  }

  void Forward() {
    const PhaseRange range("forward", LOCKSTEP_FORWARD);
    const std::size_t units = shards_.units();
    for (std::size_t u = 0; u < units; ++u) {
      Fetch(u, u + 1 < units ? std::optional(u + 1) : std::nullopt);
      network_.Forward(u);
      network_.RepeatForward(u, Extra());
      pace_.Finish(LayerNs(kForwardShare));
      shards_.Release(u);
    }
    network_.Loss();
  }

  void Backward() {
    const PhaseRange range("backward", LOCKSTEP_BACKWARD);
    for (std::size_t u = shards_.units(); u-- > 0;) {
      Fetch(u, u > 0 ? std::optional(u - 1) : std::nullopt);
      network_.Backward(u);
      network_.RepeatBackward(u, Extra());
      pace_.Finish(LayerNs(kBackwardShare));
      shards_.Release(u);
      shards_.ReduceGradients(u);
    }
  }

  const Options& options_;
  int rank_, ranks_;
  Network network_;
  Shards shards_;
  Pace pace_;
  FaultInjector faults_;
};

// Trains once more in this process alone on the combined batches.
void CheckAgainstSerial(const Options& options, int ranks, std::span<const float> parameters, Outcome& outcome) {
  Network serial(options.layers, options.width, options.batch * ranks, options.seed);
  for (int step = 0; step < options.steps; ++step) {
    serial.LoadBatch(static_cast<std::uint64_t>(step) * serial.batch());
    for (std::size_t l = 0; l < serial.layers().size(); ++l) serial.Forward(l);
    serial.Loss();
    for (std::size_t l = serial.layers().size(); l-- > 0;) serial.Backward(l);
    serial.Update(static_cast<float>(options.learning_rate));
  }
  outcome.parameter_error = RelativeError(parameters, serial.parameters());
  outcome.checked = true;
  outcome.check_passed = outcome.parameter_error <= kParameterTolerance;
}

// Returns the exit code.
int Run(const Options& options, int rank, int ranks, CallCounts& calls) {
  std::optional<Trainer> trainer(std::in_place, options, rank, ranks, calls);
  Outcome outcome;
  if (rank == 0) {
    Network fresh(options.layers, options.width, 1, options.seed);
    outcome.initial_loss = Evaluate(options, fresh.parameters());
  }
  std::vector<std::int64_t> marks;
  ++calls.barrier;
  MPI_Barrier(MPI_COMM_WORLD);
  if (!options.compare.empty()) {
    int step = 0;
    ++calls.gather;
    outcome.compared = CompareWays(
        options.compare.size(), options.steps, options.block_steps, rank, ranks,
        [&](std::size_t way) { trainer->UsePrefetch(options.compare[way] == "prefetch=1"); },
        [&] { trainer->Step(step++); });
  }
  for (int step = 0; step < (options.compare.empty() ? options.steps : 0); ++step) {
    marks.push_back(NowNs());
    lockstep_step();
    trainer->Step(step);
  }
  if (options.compare.empty()) {
    marks.push_back(NowNs());
    lockstep_step_end();
  }

  for (std::size_t i = 1; i < marks.size(); ++i) outcome.step_ns.push_back(marks[i] - marks[i - 1]);
  const std::vector<float> parameters = trainer->Parameters();
  outcome.hash = HashFloats(parameters);
  // Equal if the largest hash and the largest complement of one belong to the same value.
  std::uint64_t extremes[2] = {outcome.hash, ~outcome.hash};
  ++calls.allreduce;
  MPI_Allreduce(MPI_IN_PLACE, extremes, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  outcome.identical = extremes[0] == ~extremes[1];
  for (std::size_t u = 0; u < trainer->shards().units(); ++u) {
    outcome.unit_bytes.push_back(trainer->shards().UnitBytes(u));
  }
  trainer.reset();  // Ends the helper thread before its counts are read.

  ++calls.gather;
  ++calls.finalize;
  outcome.calls.resize(static_cast<std::size_t>(ranks));
  MPI_Gather(&calls, sizeof(calls), MPI_BYTE, outcome.calls.data(), sizeof(calls), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) return 0;
  outcome.final_loss = Evaluate(options, parameters);
  if (options.check) CheckAgainstSerial(options, ranks, parameters, outcome);
  if (!options.quiet) PrintOutcome(options, outcome);
  if (!options.report.empty() && !WriteReport(options, outcome)) {
    std::fprintf(stderr, "fsdp_mpi: cannot write %s\n", options.report.c_str());
    return 1;
  }
  if (!options.save.empty() && !SaveFloats(options.save, parameters)) {
    std::fprintf(stderr, "fsdp_mpi: cannot write %s\n", options.save.c_str());
    return 1;
  }
  return outcome.identical && (!outcome.checked || outcome.check_passed) ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::example

int main(int argc, char** argv) {
  using namespace lockstep::example;
  const auto helper = [](const Options& options) { return options.progress == Progress::kThread; };
  return TrainingMain<Options, CallCounts>(argc, argv, "fsdp_mpi", ParseOptions, helper, Run);
}
