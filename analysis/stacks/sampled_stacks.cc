#include "analysis/stacks/sampled_stacks.h"

#include <algorithm>

#include "merge/timeline/charged.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
std::int64_t MostFrequent(const std::map<std::int64_t, std::int64_t>& lines) {
  std::int64_t most = 0, best = 0;
  for (const auto& [line, count] : lines)
    if (line > 0 && count > most) most = count, best = line;
  return best;
}

SampledStacks SampledStacksOf(const schema::RankTables& tables, const merge::ClockMap& clock,
                              const IntervalSet& awaited) {
  const schema::Stacks& stacks = tables.stacks;
  SampledStacks sampled;
  std::vector<std::uint32_t> frames;
  for (std::size_t i = 0; i < tables.samples.rows(); ++i) {
    const bool late = merge::Within(awaited, clock.ToCluster(tables.samples.time_ns[i]));
    sampled.longest_stop_ns = std::max(sampled.longest_stop_ns, tables.samples.stopped_ns[i]);
    frames.clear();
    // A caller's row comes before: what a damaged file says besides must not go round in a ring.
    for (std::uint32_t row = tables.samples.stack[i]; row < stacks.rows();
         row = stacks.parent[row] < row ? stacks.parent[row] : schema::kNone)
      frames.push_back(row);
    sampled.inside_communication += frames.empty();
    std::size_t at = 0;
    const auto count = [&] { ++sampled.nodes[at].samples, sampled.nodes[at].late += late; };
    count();
    for (; !frames.empty(); frames.pop_back()) {
      const std::uint32_t row = frames.back();
      std::string function(trace::TextOf(tables, stacks.function[row]));
      std::string file(trace::TextOf(tables, stacks.file[row]));
      const auto [callee, fresh] = sampled.nodes[at].callees.try_emplace({file, function}, sampled.nodes.size());
      const std::size_t next = callee->second;
      if (fresh) {
        StackNode node;
        node.function = std::move(function);
        node.file = std::move(file);
        node.library = stacks.library[row] != 0;
        node.parent = at;
        sampled.nodes.push_back(std::move(node));
      }
      at = next;
      ++sampled.nodes[at].lines[stacks.line[row]];
      count();
    }
    ++sampled.nodes[at].self;
    sampled.nodes[at].self_late += late;
  }
  return sampled;
}

}  // namespace lockstep::analysis
