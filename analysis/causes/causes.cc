// Finds causes that the ranks' own events show. Only a few ranks are read, because all of them run the same program;
// what only one of them does is a straggler's cause and is found there.

#include "analysis/causes/causes.h"

#include <algorithm>
#include <optional>

#include "analysis/causes/cause.h"
#include "analysis/causes/rank_blocks.h"
#include "analysis/passes.h"
#include "analysis/rules/causes.h"
#include "merge/parallel.h"

namespace lockstep::analysis {
namespace {

constexpr std::unique_ptr<Cause> (*kCauses[])() = {
#define LS_CAUSE(name) Make##name,
#include "analysis/words/causes.inc"
#undef LS_CAUSE
};

// Evenly chosen ranks: GPU ranks if there are any.
std::vector<std::int32_t> ChooseRanks(const Context& context) {
  std::vector<std::int32_t> gpu;
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (context.tables().ranks.gpu[context.RankRow(p)]) gpu.push_back(context.ranks()[p]);
  const std::vector<std::int32_t>& all = gpu.empty() ? context.ranks() : gpu;
  const std::size_t n = std::min(all.size(), gpu.empty() ? rules::kCauseHostRanks : rules::kCauseGpuRanks);
  std::vector<std::int32_t> chosen;
  for (std::size_t i = 0; i < n; ++i) chosen.push_back(all[i * all.size() / n]);
  return chosen;
}

}  // namespace

void FindCausesInBlocks(const Context& context, Analysis& analysis, std::uint64_t block_rows) {
  const std::vector<std::int32_t> ranks = ChooseRanks(context);
  std::vector<std::unique_ptr<Cause>> causes;
  for (const auto make : kCauses) causes.push_back(make());
  for (const auto& cause : causes) cause->Prepare(ranks.size());
  const tables::ViewIndex index(context.timeline());
  merge::ParallelFor(context.options().jobs, ranks.size(), [&](std::size_t i) {
    ExamineRank(context, index, ranks[i], block_rows,
                {.events =
                     [&](const RankEvents& events) {
                       for (const auto& cause : causes) cause->Examine(i, events);
                     },
                 .memory =
                     [&](const RankEvents& events, std::uint16_t device) {
                       for (const auto& cause : causes) cause->ExamineMemory(i, events, device);
                     }});
  });
  for (const auto& cause : causes) cause->Report(context, analysis);
}

void FindCauses(const Context& context, Analysis& analysis) {
  FindCausesInBlocks(context, analysis, rules::kEventBlockRows);
}

}  // namespace lockstep::analysis
