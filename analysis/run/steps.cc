// The rank x step table.

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "analysis/passes.h"

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

std::map<StepAndRank, Phases> PhasesByStep(const schema::TlStepPhases& table) {
  std::map<StepAndRank, Phases> phases;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    if (table.index[i] < 0) continue;
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
  if (context.steps().size() * context.ranks().size() > context.options().max_step_cells) {
    analysis.truncated = true;
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
                    cells.mpi_setup_ns[i],
                    cells.late_sender_ns[i],
                    cells.late_receiver_ns[i],
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
