// The rank x step table.

#include "analysis/passes.h"

namespace lockstep {

void TabulateSteps(const Context& context, Analysis& analysis) {
  const auto& steps = context.tables().steps;
  const auto& cells = context.tables().step_ranks;
  if (context.steps().size() * context.ranks().size() > context.options().max_step_cells) {
    analysis.steps_truncated = true;
    return;
  }
  for (const std::size_t row : context.steps()) {
    if (!context.InWindow(steps.index[row])) continue;
    StepRow step;
    step.index = steps.index[row];
    step.complete = steps.complete[row] != 0;
    step.warmup = steps.warmup[row] != 0;
    if (steps.step_ns[row] >= 0) step.step_ns = steps.step_ns[row];
    for (std::size_t p = 0; p < context.ranks().size(); ++p) {
      const std::size_t i = context.Cell(row, p);
      if (i == kNowhere) continue;
      step.ranks.push_back({cells.rank[i], cells.begin_ns[i], cells.end_ns[i], cells.complete[i] != 0,
                            context.TermsOf(i), cells.comm_ns[i], cells.overlap_ns[i]});
    }
    analysis.steps.push_back(std::move(step));
  }
}

}  // namespace lockstep
