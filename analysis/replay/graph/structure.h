#pragma once
// The dependencies of a graph, by index ranges: everything that does not change between runs of it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/replay/graph/graph.h"

namespace lockstep::replay {

struct Structure {
  struct Dependent {
    std::uint32_t operation;
    std::uint32_t need;  // Index in graph.needs().
  };
  std::vector<std::uint32_t> first_dependent;  // Operations + 1.
  std::vector<Dependent> dependents;
  // Per operation: the number of conditions for which it waits, including being enqueued.
  std::vector<std::uint32_t> needed;
  std::vector<std::uint32_t> first_in_lane, in_lane;  // Lanes in program order.
  std::vector<std::uint32_t> first_member, members;   // Of collectives.
  // Per collective: the number of members that are awaited, if some member does not wait, is not awaited, or waits for
  // some only. Otherwise all are.
  std::vector<std::uint32_t> awaited;
  bool Selective(std::uint32_t collective) const { return awaited[collective] != kEverybody; }
  static constexpr std::uint32_t kEverybody = kNone;
  // The members that wait for an operation by name (Graph::WaitsFor); per list of peers, how many there are in it.
  std::span<const std::uint32_t> WaitersOf(std::uint32_t operation) const {
    if (first_waiter.empty()) return {};
    return std::span(waiters).subspan(first_waiter[operation], first_waiter[operation + 1] - first_waiter[operation]);
  }
  std::vector<std::uint32_t> peers;
  std::vector<std::uint32_t> first_waiter, waiters;  // Operations + 1, or empty: there are no such lists.
  std::uint32_t ranks = 0;
  // Operations are enqueued on each lane in the same order whatever the durations: by one lane in program order.
  bool fixed_order = true;

  explicit Structure(const Graph& graph);

 private:
  void FindWaiters(const Graph& graph);
};

// The previous operation on the lane of each operation; kNone if there is none. On queued lanes the order is that of
// `before`, which compares operations; others are in program order.
template <typename Before>
std::vector<std::uint32_t> PrecedingOnLane(const Graph& graph, Before before) {
  const auto& operations = graph.operations();
  std::vector<std::vector<std::uint32_t>> lanes(graph.queued_lanes().size());
  for (std::uint32_t i = 0; i < operations.size(); ++i)
    if (operations[i].lane != kNone) lanes[operations[i].lane].push_back(i);
  std::vector<std::uint32_t> preceding(operations.size(), kNone);
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (graph.queued_lanes()[lane]) std::stable_sort(lanes[lane].begin(), lanes[lane].end(), before);
    for (std::size_t k = 1; k < lanes[lane].size(); ++k) preceding[lanes[lane][k]] = lanes[lane][k - 1];
  }
  return preceding;
}

// The state of a lane while its graph is played.
struct PlayedLane {
  std::vector<std::uint32_t> queue;  // For queued lanes: the operations enqueued so far.
  std::size_t head = 0;              // The number that have begun.
  bool busy = false;
  std::int64_t free_ns = 0;
  std::uint32_t last = kNone;

  // The operation that begins next; kNone: there is none, or not yet.
  std::uint32_t Next(const Structure& structure, std::uint32_t lane, bool queued) const {
    if (queued) return head < queue.size() ? queue[head] : kNone;
    const std::size_t at = structure.first_in_lane[lane] + head;
    return at < structure.first_in_lane[lane + 1] ? structure.in_lane[at] : kNone;
  }
};

}  // namespace lockstep::replay
