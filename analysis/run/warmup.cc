#include "analysis/run/warmup.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/core/compilation.h"
#include "analysis/core/source.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"
#include "core/rules/common.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
std::size_t CountWarmup(const std::vector<std::int64_t>& own_ns) {
  const std::size_t n = own_ns.size();
  if (n < rules::kScatter) return 0;
  // The later half is beyond any warm-up that can be distinguished from a change.
  const std::vector<std::int64_t> later(own_ns.begin() + static_cast<std::ptrdiff_t>(n / 2), own_ns.end());
  const std::int64_t middle = LowerMedian(later);
  std::vector<std::int64_t> deviations;
  for (const std::int64_t ns : later) deviations.push_back(std::abs(ns - middle));
  const double scatter = rules::kMadToSigma * static_cast<double>(LowerMedian(std::move(deviations)));
  const double limit =
      static_cast<double>(middle) + std::max(rules::kLittle * static_cast<double>(middle), rules::kOutlier * scatter);
  const auto is_slow = [&](std::int64_t ns) { return static_cast<double>(ns) > limit; };
  const auto first = std::find_if_not(own_ns.begin(), own_ns.end(), is_slow);
  const auto slow_early = static_cast<std::size_t>(first - own_ns.begin());
  if (slow_early * rules::kWarmupOneIn > n) return 0;
  const auto slow_later = std::count_if(first, own_ns.end(), is_slow);
  return static_cast<double>(slow_later) > std::max(1.0, rules::kWarmupAlikeShare * static_cast<double>(n))
             ? 0
             : slow_early;
}

// How long the first rank compiled in these steps.
std::int64_t CompiledNs(const Context& context, const std::vector<std::size_t>& rows) {
  const Result<schema::RankTables> tables = context.ReadActivity(context.ranks()[0]);
  if (!tables.ok()) return 0;
  const auto& ranges = tables.value().ranges;
  const auto& cells = context.tables().step_ranks;
  std::int64_t sum_ns = 0;
  for (std::size_t i = 0; i < ranges.rows(); ++i) {
    if (trace::TextOf(tables.value(), ranges.name[i]) != kCompilation) continue;
    const Interval range{ranges.begin_ns[i], ranges.begin_ns[i] + ranges.duration_ns[i]};
    for (const std::size_t row : rows)
      if (const std::size_t cell = context.Cell(row, 0); cell != kNowhere)
        sum_ns += std::max<std::int64_t>(
            0, std::min(range.end, cells.end_ns[cell]) - std::max(range.begin, cells.begin_ns[cell]));
  }
  return sum_ns;
}

void FindWarmup(const Context& context, Analysis& analysis) {
  const std::vector<std::size_t>& rows = context.slow_start();
  if (rows.empty()) return;
  const auto& steps = context.tables().steps;
  std::vector<std::int64_t> early, later;
  Finding finding;
  finding.explain = {{"step", "step_ns"}, {}};
  for (const std::size_t row : rows) {
    early.push_back(steps.step_ns[row]);
    finding.explain.rows.push_back({steps.index[row], steps.step_ns[row]});
  }
  for (const std::size_t row : context.usable_steps()) later.push_back(steps.step_ns[row]);
  const std::int64_t first = steps.index[rows.front()], last = steps.index[rows.back()];
  const double factor =
      static_cast<double>(LowerMedian(early)) / static_cast<double>(std::max<std::int64_t>(1, LowerMedian(later)));
  const Fact step{"step", If(first == last, Index{first})}, first_step{"first_step", If(first != last, Index{first})},
      last_step{"last_step", Index{last}}, later_steps{"later_steps", Index{static_cast<std::int64_t>(later.size())}};
  finding.id = FindingId::kWarmupCaptured;
  finding.said.headline = {Say(Word::kWarmup, {step, first_step, last_step, {"factor", Real{factor}}, later_steps})};
  finding.said.brief = {Say(Word::kWarmupBrief, {{"steps", Num{static_cast<std::int64_t>(rows.size())}}})};
  finding.said.evidence = {Say(Word::kWarmupMedians, {step,
                                                      first_step,
                                                      last_step,
                                                      {"median", Ns{LowerMedian(early)}},
                                                      {"later_median", Ns{LowerMedian(later)}},
                                                      later_steps})};
  const Source source = SourceOf(context.timeline());
  const std::int64_t early_ns = std::accumulate(early.begin(), early.end(), std::int64_t{0});
  // Only where the hooks recorded it is a rank's file read for it.
  const std::int64_t compiled_ns = source.torch && source.imported.empty() ? CompiledNs(context, rows) : 0;
  const bool compiles = MostOf(compiled_ns, early_ns);
  if (compiles)
    finding.said.evidence.push_back(
        Say(Word::kWarmupCompiles,
            {{"compiled", Ns{compiled_ns}}, {"early", Ns{early_ns}}, {"rank", Index{context.ranks()[0]}}}));
  finding.said.action = {Say(compiles ? Word::kCompileLess : Word::kWarmupAction),
                         Say(source.imported.empty() ? Word::kWarmupRecordLockstepAction
                             : source.torch          ? Word::kWarmupRecordTorchAction
                                                     : Word::kWarmupRecordAction,
                             {{"from_step", Index{last + 1}}})};
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
