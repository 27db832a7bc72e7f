// Says what held up a run of which ranks were ended or failed.

#include "analysis/passes.h"

namespace lockstep::analysis {

void FindHang(const Context& context, Analysis& analysis) {
  const bool ended = !analysis.run.endings.empty() || !analysis.run.ranks_ended_early.empty();
  if (ended && context.options().hang) analysis.hang = context.options().hang();
}

}  // namespace lockstep::analysis
