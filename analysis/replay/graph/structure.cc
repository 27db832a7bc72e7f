#include "analysis/replay/graph/structure.h"

#include <algorithm>

namespace lockstep::replay {
namespace {

bool OrderIsFixed(const Graph& graph) {
  std::vector<std::uint32_t> feeder(graph.queued_lanes().size(), kNone);
  for (const Operation& operation : graph.operations()) {
    if (operation.enqueues == kNone) continue;
    const std::uint32_t lane = graph.operations()[operation.enqueues].lane;
    if (lane == kNone) continue;
    if (operation.lane == kNone || graph.queued_lanes()[operation.lane]) return false;
    if (feeder[lane] != kNone && feeder[lane] != operation.lane) return false;
    feeder[lane] = operation.lane;
  }
  return true;
}

// `each` calls its argument with a list and an item for every item; each time in the same order.
template <typename Each>
Lists ListsOf(std::size_t count, Each&& each) {
  Lists lists;
  lists.first.assign(count + 1, 0);
  each([&](std::uint32_t list, std::uint32_t) { ++lists.first[list + 1]; });
  for (std::size_t i = 0; i < count; ++i) lists.first[i + 1] += lists.first[i];
  lists.items.resize(lists.first.back());
  std::vector<std::uint32_t> at(lists.first.begin(), lists.first.end());
  each([&](std::uint32_t list, std::uint32_t item) { lists.items[at[list]++] = item; });
  return lists;
}

}  // namespace

Structure::Structure(const Graph& graph) {
  const auto& operations = graph.operations();
  const auto& needs = graph.needs();
  needed.assign(operations.size(), 0);
  first_dependent.assign(operations.size() + 1, 0);
  for (const Graph::Need& need : needs) {
    ++needed[need.operation];
    ++first_dependent[need.earlier + 1];
  }
  for (std::size_t i = 0; i < operations.size(); ++i) first_dependent[i + 1] += first_dependent[i];
  dependents.resize(needs.size());
  std::vector<std::uint32_t> at(first_dependent.begin(), first_dependent.end());
  for (std::uint32_t i = 0; i < needs.size(); ++i) dependents[at[needs[i].earlier]++] = {needs[i].operation, i};

  const auto by = [&](std::size_t count, auto key, std::vector<std::uint32_t>& first,
                      std::vector<std::uint32_t>& list) {
    first.assign(count + 1, 0);
    for (const Operation& operation : operations)
      if (key(operation) != kNone) ++first[key(operation) + 1];
    for (std::size_t i = 0; i < count; ++i) first[i + 1] += first[i];
    list.resize(first[count]);
    std::vector<std::uint32_t> next(first.begin(), first.end());
    for (std::uint32_t i = 0; i < operations.size(); ++i)
      if (key(operations[i]) != kNone) list[next[key(operations[i])]++] = i;
  };
  by(
      graph.queued_lanes().size(), [](const Operation& o) { return o.lane; }, first_in_lane, in_lane);
  by(
      graph.collectives(), [](const Operation& o) { return o.collective; }, first_member, members);
  awaited.assign(graph.collectives(), kEverybody);
  for (const Operation& operation : operations)
    if (operation.collective != kNone && !(operation.waits && operation.awaited && operation.peers == kNone))
      awaited[operation.collective] = 0;
  for (const Operation& operation : operations) {
    if (operation.collective != kNone && operation.awaited && Selective(operation.collective))
      ++awaited[operation.collective];
    if (operation.enqueues != kNone) ++needed[operation.enqueues];
    if (operation.rank >= 0) ranks = std::max(ranks, static_cast<std::uint32_t>(operation.rank) + 1);
  }
  fixed_order = OrderIsFixed(graph);
  if (graph.peer_sets() > 0) FindPeers(graph);
}

void Structure::FindPeers(const Graph& graph) {
  const auto& operations = graph.operations();
  const std::uint32_t sets = graph.peer_sets();
  // Of a set, the collective of those that wait for it.
  std::vector<std::uint32_t> collective(sets, kNone);
  const auto count = static_cast<std::uint32_t>(operations.size());
  const auto each_waiter = [&](auto&& take) {
    for (std::uint32_t i = 0; i < count; ++i)
      if (operations[i].collective != kNone && operations[i].waits && operations[i].peers != kNone)
        take(operations[i].peers, i);
  };
  each_waiter([&](std::uint32_t set, std::uint32_t i) { collective[set] = operations[i].collective; });
  for (std::uint32_t set = sets; set-- > 0;)
    if (const std::uint32_t also = graph.AlsoOf(set); also != kNone && collective[set] != kNone)
      collective[also] = collective[set];
  const auto each_peer = [&](auto&& take) {
    for (std::uint32_t set = 0; set < sets; ++set)
      for (const std::uint32_t peer : graph.PeersOf(set))
        if (collective[set] != kNone && operations[peer].collective == collective[set]) take(peer, set);
  };
  missing.assign(sets, 0);
  each_peer([&](std::uint32_t, std::uint32_t set) { ++missing[set]; });
  const auto lacks = [&](std::uint32_t set) { return set != kNone && missing[set] > 0; };
  for (std::uint32_t set = 0; set < sets; ++set)
    if (lacks(graph.AlsoOf(set))) ++missing[set];
  sets_of = ListsOf(operations.size(), each_peer);
  waiters = ListsOf(sets, each_waiter);
  containing = ListsOf(sets, [&](auto&& take) {
    for (std::uint32_t set = 0; set < sets; ++set)
      if (lacks(graph.AlsoOf(set))) take(graph.AlsoOf(set), set);
  });
}

}  // namespace lockstep::replay
