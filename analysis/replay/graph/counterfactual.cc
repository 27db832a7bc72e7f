#include "analysis/replay/graph/counterfactual.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "analysis/core/statistics.h"

namespace lockstep::replay {
namespace {

double Mean(const std::vector<std::int64_t>& values) {
  double sum = 0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

Counterfactual::Counterfactual(Graph& graph, const Likeness& likeness, StepLengths lengths)
    : graph_(graph), simulator_(graph), lengths_(std::move(lengths)) {
  const auto& operations = graph.operations();
  std::map<std::pair<std::uint32_t, bool>, std::vector<std::int64_t>> classes;
  real_ns_.reserve(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    real_ns_.push_back(operations[i].duration_ns);
    if (likeness.alike[i] != kNone)
      classes[{likeness.alike[i], likeness.by_median[i]}].push_back(operations[i].duration_ns);
  }
  std::map<std::pair<std::uint32_t, bool>, std::int64_t> ordinary;
  for (auto& [key, values] : classes) ordinary[key] = std::llround(key.second ? MiddleMedian(values) : Mean(values));
  ordinary_ns_ = real_ns_;
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (likeness.alike[i] != kNone) ordinary_ns_[i] = ordinary.at({likeness.alike[i], likeness.by_median[i]});
}

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
  const auto lengths = ReplaySteps(ordinary);
  if (!lengths.ok()) return lengths.error();
  return Mean(lengths.value());
}

Status Counterfactual::Ends() {
  if (ideal_mean_ns_ >= 0) return Ok();
  const Result<double> real = Replay([](std::uint32_t) { return false; });
  if (!real.ok()) return real.error();
  const Result<double> ideal = Replay([](std::uint32_t) { return true; });
  if (!ideal.ok()) return ideal.error();
  real_mean_ns_ = real.value();
  ideal_mean_ns_ = ideal.value();
  return Ok();
}

Result<double> Counterfactual::Slowdown() {
  if (const Status status = Ends(); !status.ok()) return status.error();
  return real_mean_ns_ / ideal_mean_ns_;
}

Result<Counterfactual::Contribution> Counterfactual::Of(const std::function<bool(std::uint32_t)>& belongs) {
  if (const Status status = Ends(); !status.ok()) return status.error();
  const Result<double> without = Replay(belongs);
  if (!without.ok()) return without.error();
  const Result<double> alone = Replay([&](std::uint32_t i) { return !belongs(i); });
  if (!alone.ok()) return alone.error();
  const double waste = real_mean_ns_ - ideal_mean_ns_;
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  return Contribution{alone.value() / ideal_mean_ns_, waste == 0 ? nothing : (real_mean_ns_ - without.value()) / waste,
                      waste == 0 ? nothing : (alone.value() - ideal_mean_ns_) / waste};
}

}  // namespace lockstep::replay
