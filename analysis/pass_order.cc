#include "analysis/pass_order.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::analysis {
namespace {

using Graph = std::vector<std::vector<bool>>;  // [a][b]: a comes before b.

std::string AddEdges(std::span<const Pass> passes, Graph& before) {
  for (std::size_t reader = 0; reader < passes.size(); ++reader) {
    const Pass& pass = passes[reader];
    for (const std::string_view name : pass.after) {
      if (name.empty()) continue;
      const auto at = std::find_if(passes.begin(), passes.end(), [&](const Pass& each) { return each.name == name; });
      if (at == passes.end()) return fmt::format("{} comes after {}, which is no pass", pass.name, name);
      before[static_cast<std::size_t>(at - passes.begin())][reader] = true;
    }
    for (std::size_t p = 0; p < kSectionNames.size(); ++p) {
      const Section part{static_cast<std::uint8_t>(p)};
      if (!pass.reads.Has(part)) continue;
      bool written = false;
      for (std::size_t writer = 0; writer < passes.size(); ++writer) {
        if (writer == reader || !passes[writer].writes.Has(part)) continue;
        written = true;
        if (!pass.writes.Has(part)) before[writer][reader] = true;
      }
      if (!written) return fmt::format("{} reads {}, which no other pass writes", pass.name, kSectionNames[p]);
    }
  }
  return {};
}

}  // namespace

std::vector<std::size_t> OrderOf(std::span<const Pass> passes, std::string& problem) {
  const std::size_t n = passes.size();
  Graph before(n, std::vector<bool>(n, false));
  problem = AddEdges(passes, before);
  if (!problem.empty()) return {};
  for (std::size_t via = 0; via < n; ++via)
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        if (before[a][via] && before[via][b]) before[a][b] = true;
  for (std::size_t a = 0; a < n; ++a) {
    if (before[a][a]) problem = fmt::format("{} has to come after itself", passes[a].name);
    for (std::size_t b = 0; b < a && problem.empty(); ++b)
      for (std::size_t p = 0; p < kSectionNames.size(); ++p)
        if (const Section part{static_cast<std::uint8_t>(p)};
            passes[a].writes.Has(part) && passes[b].writes.Has(part) && !before[a][b] && !before[b][a])
          problem = fmt::format("{} and {} both write {}, and neither comes after the other", passes[b].name,
                                passes[a].name, kSectionNames[p]);
    if (!problem.empty()) return {};
  }
  std::vector<std::size_t> order;
  std::vector<bool> done(n, false);
  while (order.size() < n) {
    std::size_t next = 0;
    const auto waits = [&](std::size_t b) {
      for (std::size_t a = 0; a < n; ++a)
        if (before[a][b] && !done[a]) return true;
      return false;
    };
    while (done[next] || waits(next)) ++next;
    done[next] = true;
    order.push_back(next);
  }
  return order;
}

}  // namespace lockstep::analysis
