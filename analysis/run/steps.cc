// The rank x step table.

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

using StepAndRank = std::pair<std::int64_t, std::int32_t>;

std::map<StepAndRank, Phases> PhasesByStep(const schema::TlStepPhases& table) {
  std::map<StepAndRank, Phases> phases;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    if (table.index[i] < 0) continue;
    Phases& cell = phases[{table.index[i], table.rank[i]}];
    switch (table.phase[i]) {
      case 1:
        cell.input_ns = table.phase_ns[i];
        break;
      case 2:
        cell.forward_ns = table.phase_ns[i];
        break;
      case 3:
        cell.backward_ns = table.phase_ns[i];
        break;
      case 4:
        cell.optimizer_ns = table.phase_ns[i];
        break;
      case 5:
        cell.communication_ns = table.phase_ns[i];
        break;
      case 6:
        cell.checkpoint_ns = table.phase_ns[i];
        break;
      default:
        break;
    }
  }
  return phases;
}

}  // namespace

void TabulateSteps(const Context& context, Analysis& analysis) {
  const auto& steps = context.tables().steps;
  const auto& cells = context.tables().step_ranks;
  if (context.steps().size() * context.ranks().size() > context.options().max_step_cells) {
    analysis.steps_truncated = true;
    return;
  }
  const auto phases = PhasesByStep(context.tables().step_phases);
  for (const std::size_t row : context.steps()) {
    if (!context.InWindow(steps.index[row])) continue;
    StepRow step;
    step.index = steps.index[row];
    step.complete = steps.complete[row] != 0;
    step.warmup = steps.warmup[row] != 0 || std::find(context.slow_start().begin(), context.slow_start().end(), row) !=
                                                context.slow_start().end();
    if (steps.step_ns[row] >= 0) step.step_ns = steps.step_ns[row];
    for (std::size_t p = 0; p < context.ranks().size(); ++p) {
      const std::size_t i = context.Cell(row, p);
      if (i == kNowhere) continue;
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
                    cells.late_sender_ns[i],
                    cells.late_receiver_ns[i],
                    {}};
      if (const auto at = phases.find({step.index, cell.rank}); at != phases.end()) cell.phases = at->second;
      step.ranks.push_back(std::move(cell));
    }
    analysis.steps.push_back(std::move(step));
  }
}

}  // namespace lockstep::analysis
