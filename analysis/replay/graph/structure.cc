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
  if (graph.peer_lists() > 0) FindWaiters(graph);
}

void Structure::FindWaiters(const Graph& graph) {
  const auto& operations = graph.operations();
  const auto for_each = [&](auto&& take) {
    for (std::uint32_t i = 0; i < operations.size(); ++i) {
      if (operations[i].collective == kNone || !operations[i].waits) continue;
      for (const std::uint32_t peer : graph.PeersOf(operations[i]))
        if (peer != i && operations[peer].collective == operations[i].collective) take(i, peer);
    }
  };
  peers.assign(graph.peer_lists(), 0);
  first_waiter.assign(operations.size() + 1, 0);
  for_each([&](std::uint32_t member, std::uint32_t peer) {
    ++peers[operations[member].peers];
    ++first_waiter[peer + 1];
  });
  for (std::size_t i = 0; i < operations.size(); ++i) first_waiter[i + 1] += first_waiter[i];
  waiters.resize(first_waiter.back());
  std::vector<std::uint32_t> at(first_waiter.begin(), first_waiter.end());
  for_each([&](std::uint32_t member, std::uint32_t peer) { waiters[at[peer]++] = member; });
}

}  // namespace lockstep::replay
