// The rank x step table.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/passes.h"
#include "analysis/run/listed_cells.h"

namespace lockstep::analysis {
namespace {

using StepAndRank = std::pair<std::int64_t, std::int32_t>;

// By schema::Phase.
constexpr std::array<std::int64_t Phases::*, 7> kPhases = {nullptr,
                                                           &Phases::input_ns,
                                                           &Phases::forward_ns,
                                                           &Phases::backward_ns,
                                                           &Phases::optimizer_ns,
                                                           &Phases::communication_ns,
                                                           &Phases::checkpoint_ns};

// Of these steps and ranks, both ascending.
std::map<StepAndRank, Phases> PhasesByStep(const schema::TlStepPhases& table, const std::vector<std::int64_t>& steps,
                                           const std::vector<std::int32_t>& ranks) {
  std::map<StepAndRank, Phases> phases;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    if (!std::binary_search(ranks.begin(), ranks.end(), table.rank[i]) ||
        !std::binary_search(steps.begin(), steps.end(), table.index[i]))
      continue;
    Phases& cell = phases[{table.index[i], table.rank[i]}];
    if (table.phase[i] < kPhases.size() && kPhases[table.phase[i]] != nullptr)
      cell.*kPhases[table.phase[i]] = table.phase_ns[i];
  }
  return phases;
}

}  // namespace

void TabulateSteps(const Context& context, Analysis& analysis) {
  const auto& steps = context.tables().steps;
  const auto& cells = context.tables().step_ranks;
  const AnalyzeOptions& options = context.options();
  std::vector<std::size_t> rows;
  std::vector<std::int64_t> lengths_ns;
  std::optional<std::size_t> median;
  for (const std::size_t row : context.steps()) {
    if (!context.InWindow(steps.index[row])) continue;
    if (steps.index[row] == analysis.summary.median_step) median = rows.size();
    rows.push_back(row);
    lengths_ns.push_back(steps.step_ns[row]);
  }
  const std::vector<std::size_t> listed = ListedSteps(lengths_ns, median, options.max_steps);
  std::map<std::int32_t, std::size_t> cells_of;
  for (const std::size_t at : listed)
    for (std::size_t p = 0; p < context.ranks().size(); ++p)
      if (context.Cell(rows[at], p) != kNowhere) ++cells_of[context.ranks()[p]];
  const std::vector<std::int32_t> ranks =
      ListedRanks(cells_of, analysis, options.max_step_cells, options.max_named_cells);
  analysis.truncated = listed.size() < rows.size() || ranks.size() < cells_of.size();

  std::vector<std::int64_t> indices;
  for (const std::size_t at : listed) indices.push_back(steps.index[rows[at]]);
  std::sort(indices.begin(), indices.end());
  const auto phases = PhasesByStep(context.tables().step_phases, indices, ranks);
  for (const std::size_t at : listed) {
    const std::size_t row = rows[at];
    StepRow step;
    step.index = steps.index[row];
    step.complete = steps.complete[row] != 0;
    step.warmup = steps.warmup[row] != 0 || std::find(context.slow_start().begin(), context.slow_start().end(), row) !=
                                                context.slow_start().end();
    if (steps.step_ns[row] >= 0) step.step_ns = steps.step_ns[row];
    for (std::size_t p = 0; p < context.ranks().size(); ++p) {
      const std::size_t i = context.Cell(row, p);
      if (i == kNowhere || !std::binary_search(ranks.begin(), ranks.end(), context.ranks()[p])) continue;
      StepCell cell{cells.rank[i],
                    cells.begin_ns[i],
                    cells.end_ns[i],
                    cells.complete[i] != 0,
                    context.TermsOf(i),
                    cells.comm_ns[i],
                    cells.overlap_ns[i],
                    cells.mpi_other_ns[i],
                    cells.mpi_io_ns[i],
                    cells.mpi_rma_ns[i],
                    cells.mpi_setup_ns[i],
                    cells.late_sender_ns[i],
                    cells.late_receiver_ns[i],
                    cells.blocked_unplaced_ns[i],
                    {}};
      if (const auto at = phases.find({step.index, cell.rank}); at != phases.end()) {
        cell.phases = at->second;
        cell.phases->other_ns = std::max<std::int64_t>(0, cell.end_ns - cell.begin_ns - cell.phases->Sum());
      }
      step.ranks.push_back(std::move(cell));
    }
    analysis.steps.push_back(std::move(step));
  }
}

}  // namespace lockstep::analysis
