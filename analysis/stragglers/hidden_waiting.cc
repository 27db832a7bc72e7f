#include "analysis/stragglers/hidden_waiting.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "analysis/core/statistics.h"
#include "analysis/replayed/replay_price.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/stragglers.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

using Lengths = std::vector<std::int64_t>;

class Asking {
 public:
  Asking(const Context& context, const ReplayedRun& replayed) : context_(context), replayed_(replayed) {}

  // Of each replayed step, without what slows these ranks.
  std::optional<Lengths> Without(const std::vector<std::size_t>& positions) const {
    if (positions.empty()) return replayed_.what_if().replayed_lengths();
    replay::Question question{.kind = replay::Question::kWithoutRanks};
    for (const std::size_t position : positions) question.ranks.push_back(context_.ranks()[position]);
    const Result<replay::Answer> answer = replayed_.what_if().Ask(question, false);
    return answer.ok() ? std::optional(answer.value().step_lengths_ns) : std::nullopt;
  }

  // The lower end of the median gain's 95 % interval; of fewer steps than have one, the least gain of them all.
  // In a run without steps the gain in all.
  double SureGain(const std::optional<Lengths>& before, const std::optional<Lengths>& after) const {
    const Lengths of_steps = Gains(before, after);
    if (replayed_.run().whole_window) return of_steps.empty() ? 0 : static_cast<double>(of_steps.front());
    const std::vector<double> gains(of_steps.begin(), of_steps.end());
    if (gains.size() < 2) return 0;
    if (gains.size() < rules::kFewest) return *std::min_element(gains.begin(), gains.end());
    return BootstrapInterval(gains, BlockLength({gains}), Statistic::kMedian,
                             context_.options().seed + rules::kStragglerSeedGain)
        .first;
  }

  static Lengths Gains(const std::optional<Lengths>& before, const std::optional<Lengths>& after) {
    Lengths gains;
    if (!before || !after || before->size() != after->size()) return gains;
    for (std::size_t i = 0; i < before->size(); ++i) gains.push_back((*before)[i] - (*after)[i]);
    return gains;
  }

 private:
  const Context& context_;
  const ReplayedRun& replayed_;
};

}  // namespace

std::vector<std::size_t> WorthByReplay(const Context& context, std::vector<std::size_t> positions, double limit_ns) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Holds()) return {};
  const Asking asking(context, *replayed);
  std::optional<Lengths> without = asking.Without(positions);
  if (asking.SureGain(asking.Without({}), without) < limit_ns) return {};
  if (positions.size() > replayed->Plays(rules::kHiddenAskedLeast, rules::kHiddenAskedMost)) return {};
  for (bool dropped = true; dropped && positions.size() > 1;) {
    dropped = false;
    for (std::size_t i = 0; i < positions.size() && !dropped; ++i) {
      std::vector<std::size_t> others = positions;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      std::optional<Lengths> still = asking.Without(others);
      if (asking.SureGain(still, without) >= limit_ns) continue;
      positions = std::move(others);
      without = std::move(still);
      dropped = true;
    }
  }
  return asking.SureGain(asking.Without({}), without) >= limit_ns ? positions : std::vector<std::size_t>{};
}

std::optional<std::int64_t> GainBeside(const Context& context, std::vector<std::size_t> others, std::size_t position) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Holds()) return std::nullopt;
  const Asking asking(context, *replayed);
  const std::optional<Lengths> before = asking.Without(others);
  others.push_back(position);
  const Lengths gains = Asking::Gains(before, asking.Without(others));
  return gains.empty() ? std::nullopt : std::optional(replay::MeanStep(replayed->run(), gains));
}

std::int64_t GainByReplay(const Context& context, std::size_t position) {
  return GainBeside(context, {}, position).value_or(0);
}

std::int64_t GainWithoutMoreInput(const Context& context, std::size_t position) {
  const std::optional<replay::Question> question = WithoutMoreInput(context, {context.ranks()[position]});
  if (!question) return 0;
  const Result<replay::Answer> answer = context.Replayed()->what_if().Ask(*question, false);
  return answer.ok() ? answer.value().gain_ns : 0;
}

}  // namespace lockstep::analysis
