#include "analysis/replay/graph/counterfactual.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::replay {
namespace {

double Mean(const std::vector<std::int64_t>& values) {
  double sum = 0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

Counterfactual::Counterfactual(Graph& graph, std::vector<std::int64_t> ordinary_ns, StepLengths lengths)
    : graph_(graph), simulator_(graph), lengths_(std::move(lengths)), ordinary_ns_(std::move(ordinary_ns)) {
  for (const Operation& operation : graph.operations()) real_ns_.push_back(operation.duration_ns);
}

Result<std::vector<std::int64_t>> Counterfactual::ReplaySteps(const std::function<bool(std::uint32_t)>& ordinary) {
  auto& operations = graph_.operations();
  for (std::uint32_t i = 0; i < operations.size(); ++i)
    operations[i].duration_ns = ordinary(i) ? ordinary_ns_[i] : real_ns_[i];
  const Result<Schedule> schedule = simulator_.Run();
  for (std::size_t i = 0; i < operations.size(); ++i) operations[i].duration_ns = real_ns_[i];
  if (!schedule.ok()) return schedule.error();
  return lengths_(schedule.value());
}

Result<double> Counterfactual::Replay(const std::function<bool(std::uint32_t)>& ordinary) {
  LS_TRY(const std::vector<std::int64_t> lengths, ReplaySteps(ordinary));
  return Mean(lengths);
}

Status Counterfactual::Ends() {
  if (ideal_mean_ns_ >= 0) return Ok();
  LS_TRY(real_mean_ns_, Replay([](std::uint32_t) { return false; }));
  LS_TRY(ideal_mean_ns_, Replay([](std::uint32_t) { return true; }));
  return Ok();
}

Result<double> Counterfactual::Slowdown() {
  LS_CHECK(Ends());
  return real_mean_ns_ / ideal_mean_ns_;
}

Result<Counterfactual::Contribution> Counterfactual::Of(const std::function<bool(std::uint32_t)>& belongs) {
  LS_CHECK(Ends());
  LS_TRY(const double without, Replay(belongs));
  LS_TRY(const double alone, Replay([&](std::uint32_t i) { return !belongs(i); }));
  const double waste = real_mean_ns_ - ideal_mean_ns_;
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  return Contribution{alone / ideal_mean_ns_, waste == 0 ? nothing : (real_mean_ns_ - without) / waste,
                      waste == 0 ? nothing : (alone - ideal_mean_ns_) / waste};
}

}  // namespace lockstep::replay
