#include "merge/timeline/node_cores.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

// Adds "0-3,8" to `cpus`; returns false if the text is not such a list.
bool AddCpus(std::string_view list, std::set<std::uint32_t>& cpus) {
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    std::uint32_t first = 0, last = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc{}) return false;
    last = first;
    if (read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc{} || last < first || last - first >= rules::kNodeCpuRange) return false;
    for (std::uint32_t cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
    at = read.ptr;
    if (at != end && *at++ != ',') return false;
  }
  return !list.empty();
}

}  // namespace

std::map<std::string_view, NodeCores> CoresOfNodes(const Timeline& timeline) {
  const auto& ranks = timeline.tables.ranks;
  std::map<std::string_view, NodeCores> nodes;
  std::map<std::string_view, std::set<std::uint32_t>> cpus, masks;  // Ranks that are not bound have one mask.
  for (const std::int32_t rank : timeline.PresentRanks()) {
    const auto row = static_cast<std::size_t>(timeline.RankRow(rank));
    const std::string_view name = timeline.Text(ranks.node[row]);
    const auto [at, first] = nodes.try_emplace(name, NodeCores{.known = true});
    NodeCores& node = at->second;
    ++node.ranks;
    node.cores = std::max(node.cores, ranks.allowed_cores[row]);
    const std::uint32_t mask = ranks.allowed_cpus[row];
    if (masks[name].insert(mask).second) node.known = AddCpus(timeline.Text(mask), cpus[name]) && node.known;
  }
  for (auto& [name, node] : nodes)
    if (node.known) node.cores = static_cast<std::uint32_t>(cpus[name].size());
  return nodes;
}

double LeastCoresOfRank(const Timeline& timeline) {
  double least = 0;
  for (const auto& [name, node] : CoresOfNodes(timeline)) {
    if (!node.known) return 0;
    const double cores = static_cast<double>(node.cores) / static_cast<double>(node.ranks);
    least = least == 0 ? cores : std::min(least, cores);
  }
  return least;
}

}  // namespace lockstep::merge
