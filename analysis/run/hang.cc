// Says what held up a run of which ranks were ended or failed, or of which nothing tells how any of them ended: their
// hosts may have gone with all that would have written it down.

#include <algorithm>

#include "analysis/core/source.h"
#include "analysis/passes.h"

namespace lockstep::analysis {

void FindHang(const Context& context, Analysis& analysis) {
  const std::vector<std::int32_t>& codes = context.tables().ranks.exit_code;
  // Traces of others never tell.
  const bool unknown =
      SourceOf(context.timeline()).imported.empty() &&
      std::all_of(codes.begin(), codes.end(), [](std::int32_t code) { return code == schema::kNoExitCode; });
  const bool ended = !analysis.run.endings.empty() || !analysis.run.ranks_ended_early.empty();
  if ((ended || unknown) && context.options().hang) analysis.hang = context.options().hang();
}

}  // namespace lockstep::analysis
