// Counts which rank arrives last, how often, and by how much: all shares and sentences about it derive from this one
// count.

#include "analysis/passes.h"
#include "analysis/stragglers/lateness.h"

namespace lockstep::analysis {

void CountArrivals(const Context& context, Analysis& analysis) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  analysis.arrivals.resize(context.ranks().size());
  for (std::size_t p = 0; p < context.ranks().size(); ++p) analysis.arrivals[p].rank = context.ranks()[p];
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!SaysWhoCameLast(context, c)) continue;
    for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m) {
      const std::size_t p = context.Position(members.rank[m]);
      if (p == kNowhere) continue;
      ++analysis.arrivals[p].collectives;
      if (t.last_rank[c] < 0) ++analysis.arrivals[p].ties;
    }
    if (t.last_rank[c] < 0) continue;
    const std::size_t p = context.Position(t.last_rank[c]);
    if (p == kNowhere) continue;
    ++analysis.arrivals[p].last;
    analysis.arrivals[p].charge_ns += t.charge_ns[c];
  }
}

}  // namespace lockstep::analysis
