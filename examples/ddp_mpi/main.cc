// ddp_mpi: data-parallel training over MPI the way PyTorch's DDP does it, small
// enough for a laptop and real in everything but its size. A network is trained
// on synthetic data; gradients are averaged in buckets by MPI_Iallreduce while
// the backward pass still runs.
//
//   mpirun -np 4 ddp_mpi                              healthy
//   mpirun -np 4 ddp_mpi --slow-rank 2:1.3            rank 2 computes 1.3 times as long
//   mpirun -np 4 ddp_mpi --progress none              communication moves only in MPI_Waitall
//   mpirun -np 4 ddp_mpi --bucket-cap-mb 0.5 --print-buckets
//   mpirun -np 4 ddp_mpi --check                      against a serial run on the combined batch
//   mpirun -np 2 ddp_mpi --work real --report times.json --compare cap=25 --compare cap=1,overlap=late
//
// Under Lockstep put `lockstep run --` before ddp_mpi; nothing else changes.

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/common/compare.h"
#include "examples/common/faults.h"
#include "examples/common/network.h"
#include "examples/common/pace.h"
#include "examples/common/results.h"
#include "examples/common/training.h"
#include "examples/ddp_mpi/options.h"
#include "examples/ddp_mpi/reducer.h"
#include "examples/ddp_mpi/report.h"
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
        pace_(options.work == Work::kTimed, 1, options.poll_us * 1000, [this] { ways_[way_].reducer.Poll(); }),
        faults_(options.faults, rank, pace_) {
    const auto add = [&](const Options& way) {
      ways_.emplace_back(way, network_, ranks, calls, [this] { faults_.BeforeCollective(); });
    };
    for (const std::string& text : options.compare) {
      Options way = options;
      Changed(text, ranks, way);
      add(way);
    }
    if (ways_.empty()) add(options);
    Use(0);
    std::vector<lockstep_int64> bytes;
    for (const Bucket& bucket : reducer().buckets())
      for (const std::size_t tensor : bucket.tensors)
        bytes.push_back(static_cast<lockstep_int64>(network_.TensorBytes(tensor)));
    lockstep_gradients(bytes.data(), static_cast<int>(bytes.size()));
  }

  Network& network() { return network_; }
  const Reducer& reducer() const { return ways_[way_].reducer; }
  // The next steps are made in the n-th of the ways that --compare names.
  void Use(std::size_t way) {
    way_ = way;
    pace_.Stretch(Slow());
  }

  void Step(int step) {
    Reducer& reducer = ways_[way_].reducer;
    reducer.BeginStep();
    pace_.Begin();
    LoadInput(step);
    Forward();
    faults_.BetweenPasses(step);
    Backward();
    if (!options_.queue) reducer.Wait();
    Optimize();
  }

 private:
  struct Way {
    Way(const Options& changed, Network& network, int ranks, CallCounts& calls, std::function<void()> before)
        : options(changed), reducer(network, options, ranks, calls, std::move(before)) {}
    Options options;
    Reducer reducer;
  };

  double Slow() const { return ways_[way_].options.faults.slow[static_cast<std::size_t>(rank_)]; }
  double Extra() const { return options_.work == Work::kReal ? Slow() - 1 : 0; }
  // Time of one layer in a pass that takes `share` of the step's compute: the same
  // for all layers, since narrow ones stand for convolutions over large images.
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

  void Forward() {
    const PhaseRange range("forward", LOCKSTEP_FORWARD);
    for (std::size_t l = 0; l < network_.layers().size(); ++l) {
      network_.Forward(l);
      network_.RepeatForward(l, Extra());
      pace_.Finish(LayerNs(kForwardShare));
    }
    network_.Loss();
  }

  void Backward() {
    const PhaseRange range("backward", LOCKSTEP_BACKWARD);
    for (std::size_t l = network_.layers().size(); l-- > 0;) {
      network_.Backward(l);
      network_.RepeatBackward(l, Extra());
      ways_[way_].reducer.Pack(l);
      pace_.Finish(LayerNs(kBackwardShare));
      ways_[way_].reducer.Launch();
    }
    // As in PyTorch, where the call of the backward pass returns with the gradients averaged.
    if (options_.queue) ways_[way_].reducer.Wait();
  }

  void Optimize() {
    const PhaseRange range("optimizer", LOCKSTEP_OPTIMIZER);
    pace_.Begin();
    ways_[way_].reducer.Unpack();
    network_.Update(static_cast<float>(options_.learning_rate));
    pace_.Finish(options_.step_ms * 1e6 * kOptimizerShare);
  }

  const Options& options_;
  int rank_, ranks_;
  Network network_;
  Pace pace_;
  FaultInjector faults_;
  std::deque<Way> ways_;  // Reducers keep references to their options.
  std::size_t way_ = 0;
};

// Trains once more in this process alone on the combined batches.
void CheckAgainstSerial(const Options& options, int ranks, std::span<const float> parameters,
                        const std::vector<std::vector<float>>& gradients, Outcome& outcome) {
  Network serial(options.layers, options.width, options.batch * ranks, options.seed);
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    serial.LoadBatch(step * serial.batch());
    for (std::size_t l = 0; l < serial.layers().size(); ++l) serial.Forward(l);
    serial.Loss();
    for (std::size_t l = serial.layers().size(); l-- > 0;) serial.Backward(l);
    outcome.gradient_error = std::max(outcome.gradient_error, RelativeError(gradients[step], serial.gradients()));
    serial.Update(static_cast<float>(options.learning_rate));
  }
  outcome.parameter_error = RelativeError(parameters, serial.parameters());
  outcome.checked = true;
  outcome.check_passed = outcome.gradient_error <= kGradientTolerance && outcome.parameter_error <= kParameterTolerance;
}

// Returns the exit code.
int Run(const Options& options, int rank, int ranks, CallCounts& calls) {
  std::optional<Trainer> trainer(std::in_place, options, rank, ranks, calls);
  Outcome outcome;
  if (rank == 0) {
    outcome.initial_loss = Evaluate(options, trainer->network().parameters());
    if (options.print_buckets) PrintBuckets(trainer->reducer().buckets());
  }
  std::vector<std::vector<float>> gradients;
  std::vector<std::int64_t> marks;

  ++calls.barrier;
  MPI_Barrier(MPI_COMM_WORLD);
  if (!options.compare.empty()) {
    int step = 0;
    ++calls.gather;
    outcome.compared = CompareWays(
        options.compare.size(), options.steps, options.block_steps, rank, ranks,
        [&](std::size_t way) { trainer->Use(way); }, [&] { trainer->Step(step++); });
    trainer->Use(0);
  }
  for (int step = 0; step < (options.compare.empty() ? options.steps : 0); ++step) {
    marks.push_back(NowNs());
    lockstep_step();
    trainer->Step(step);
    if (options.check && rank == 0) {
      gradients.emplace_back(trainer->network().gradients().begin(), trainer->network().gradients().end());
    }
  }
  if (options.compare.empty()) {
    marks.push_back(NowNs());
    lockstep_step_end();
  }

  for (std::size_t i = 1; i < marks.size(); ++i) outcome.step_ns.push_back(marks[i] - marks[i - 1]);
  outcome.hash = HashFloats(trainer->network().parameters());
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(ranks));
  ++calls.gather;
  MPI_Gather(&outcome.hash, 1, MPI_UINT64_T, hashes.data(), 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  outcome.identical = std::all_of(hashes.begin(), hashes.end(), [&](auto hash) { return hash == outcome.hash; });
  if (rank == 0) {
    outcome.final_loss = Evaluate(options, trainer->network().parameters());
    if (options.check) CheckAgainstSerial(options, ranks, trainer->network().parameters(), gradients, outcome);
  }
  for (std::size_t i = 0; i < trainer->network().tensor_count(); ++i) {
    outcome.tensor_bytes.push_back(trainer->network().TensorBytes(i));
  }
  const std::vector<Bucket> buckets = trainer->reducer().buckets();
  const std::vector<float> parameters(trainer->network().parameters().begin(), trainer->network().parameters().end());
  trainer.reset();  // Ends the helper thread before its counts are read.

  ++calls.gather;
  ++calls.finalize;
  outcome.calls.resize(static_cast<std::size_t>(ranks));
  MPI_Gather(&calls, sizeof(calls), MPI_BYTE, outcome.calls.data(), sizeof(calls), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) return 0;
  if (!options.quiet) PrintOutcome(options, outcome);
  if (!options.report.empty() && !WriteReport(options, buckets, outcome)) {
    std::fprintf(stderr, "ddp_mpi: cannot write %s\n", options.report.c_str());
    return 1;
  }
  if (!options.save.empty() && !SaveFloats(options.save, parameters)) {
    std::fprintf(stderr, "ddp_mpi: cannot write %s\n", options.save.c_str());
    return 1;
  }
  return outcome.identical && (!outcome.checked || outcome.check_passed) ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::example

int main(int argc, char** argv) {
  using namespace lockstep::example;
  const auto helper = [](const Options& options) {
    return options.overlap != Overlap::kOff && (options.queue || options.progress == Progress::kThread);
  };
  return TrainingMain<Options, CallCounts>(argc, argv, "ddp_mpi", ParseOptions, helper, Run);
}
