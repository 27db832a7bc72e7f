#include "cli/commands/doctor_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/analyze.h"
#include "analysis/core/format.h"
#include "analysis/run/ranks_recorded.h"
#include "merge/merge.h"
#include "merge/readers/run_files.h"

namespace lockstep::cli {
namespace {

using doctor::Finding;

Finding CheckRanks(const merge::Timeline& timeline, const analysis::RunFacts& run) {
  std::string trouble;
  const auto add = [&](const std::string& part) { trouble += (trouble.empty() ? "" : "; ") + part; };
  const auto& ranks = timeline.tables.ranks;
  const auto in_state = [&](merge::RankState::Value state) {
    std::vector<std::int32_t> names;
    for (std::size_t i = 0; i < ranks.rows(); ++i)
      if (ranks.state[i] == static_cast<std::uint8_t>(state)) names.push_back(ranks.rank[i]);
    std::sort(names.begin(), names.end());
    return names;
  };
  if (const auto cut = in_state(merge::RankState::kCutShort); !cut.empty())
    add(analysis::RankNames(cut) + " cut short");
  if (const auto recovered = in_state(merge::RankState::kRecovered); !recovered.empty())
    add(analysis::RankNames(recovered) + " recovered from what was left");
  for (const std::string& ending : run.endings) add(ending);
  if (run.endings.empty() && !run.ranks_ended_early.empty())
    add(analysis::RankNames(run.ranks_ended_early) + " ended early");
  const std::string state = analysis::RanksRecorded(run.ranks, run.ranks_expected, run.ranks_missing);
  if (trouble.empty() && run.ranks_missing.empty()) return {doctor::Status::kOk, state + ", all complete", ""};
  return {doctor::Status::kWarning,
          state + (trouble.empty() ? "" : (run.ranks_missing.empty() ? ": " : "; ") + trouble),
          "lockstep recover RUN says what was left; copy missing ranks' files from their machines"};
}

Finding LookAtLosses(const analysis::Analysis& analysis) {
  std::string lost;
  std::string remedy;
  std::size_t kinds = 0;
  for (const analysis::LossRow& loss : analysis.losses) {
    if (!loss.data_loss) continue;
    if (remedy.empty()) remedy = loss.remedy;
    if (++kinds <= 4)
      lost += fmt::format("{}{}{}", lost.empty() ? "" : "; ", analysis::CountOf(loss.count, loss.sentence),
                          loss.rank < 0 ? "" : fmt::format(" (rank {})", loss.rank));
  }
  if (kinds > 4) lost += fmt::format("; and {} more", kinds - 4);
  if (kinds == 0)
    return {doctor::Status::kOk, fmt::format("{}, none lost", analysis::Plural(analysis.trust.events, "event")), ""};
  return {doctor::Status::kWarning, lost, remedy};
}

Finding LookAtMatching(const analysis::Trust& trust) {
  if (trust.collectives == 0 && trust.unmatched_collectives == 0)
    return {doctor::Status::kNotHere, "no collective was recorded", ""};
  if (trust.unmatched_collectives == 0 && trust.mismatched_collectives == 0)
    return {doctor::Status::kOk,
            fmt::format("{} matched, none left over", analysis::Plural(trust.collectives, "collective")), ""};
  return {doctor::Status::kWarning,
          fmt::format("{} without all of their ranks, {} whose ranks disagree",
                      analysis::Plural(trust.unmatched_collectives, "collective"),
                      analysis::Count(trust.mismatched_collectives)),
          "record all ranks with the same window; a rank that is missing leaves all its collectives unmatched"};
}

Finding LookAtClocks(const analysis::Trust& trust) {
  if (trust.clock_violations > 0)
    return {doctor::Status::kWarning,
            fmt::format("{} end before a rank has arrived: the clock errors are larger than stated",
                        analysis::Plural(trust.clock_violations, "collective")),
            "do not trust arrival times of this run; record again, and report it"};
  if (!trust.clock_error_ns_max) return {doctor::Status::kNotHere, "one rank, or no clock to relate", ""};
  return {doctor::Status::kOk, fmt::format("clock error at most {}", analysis::Duration(*trust.clock_error_ns_max)),
          ""};
}

Finding LookAtSteps(const analysis::RunFacts& run) {
  if (run.steps > 0) {
    const std::string state = fmt::format("{} complete on every rank, {} of warm-up",
                                          analysis::Plural(run.steps, "step"), analysis::Count(run.warmup_steps));
    if (run.steps - run.warmup_steps < 20)
      return {doctor::Status::kWarning, state + ": too few for lockstep diff and for naming stragglers",
              "record 20 steps or more"};
    return {doctor::Status::kOk, state, ""};
  }
  return {doctor::Status::kWarning, "no steps: results cannot be given per step",
          "call lockstep_step() once per step, or use --step-range NAME"};
}

}  // namespace

Result<std::vector<RunFinding>> LookAtRun(const std::string& run_dir, unsigned jobs) {
  merge::MergeOptions merge;
  merge.run_dir = run_dir;
  merge.jobs = jobs;
  merge.write = false;
  LS_TRY(const merge::Timeline timeline, merge::OpenOrMerge(merge));
  analysis::AnalyzeOptions options;
  options.jobs = jobs;
  options.replay = false;
  LS_TRY(const analysis::Analysis analysis, analysis::Analyze(timeline, options));
  return std::vector<RunFinding>{{"run_ranks", CheckRanks(timeline, analysis.run)},
                                 {"run_losses", LookAtLosses(analysis)},
                                 {"run_matching", LookAtMatching(analysis.trust)},
                                 {"run_clocks", LookAtClocks(analysis.trust)},
                                 {"run_steps", LookAtSteps(analysis.run)}};
}

}  // namespace lockstep::cli
