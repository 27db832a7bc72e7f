#pragma once
// What depends on what in a graph, by index ranges: what does not change between plays of it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/replay/graph/graph.h"

namespace lockstep::replay {

struct Structure {
  struct Dependent {
    std::uint32_t operation;
    std::uint32_t need;  // Of graph.needs().
  };
  std::vector<std::uint32_t> first_dependent;  // Operations + 1.
  std::vector<Dependent> dependents;
  std::vector<std::uint32_t> needed;  // Per operation: how many things it waits for, being enqueued included.
  std::vector<std::uint32_t> first_in_lane, in_lane;  // Lanes in program order.
  std::vector<std::uint32_t> first_member, members;   // Of collectives.
  // Per collective, where some member waits for nobody or nobody for it: how many are awaited. Else all are.
  std::vector<std::uint32_t> awaited;
  bool Selective(std::uint32_t collective) const { return awaited[collective] != kEverybody; }
  static constexpr std::uint32_t kEverybody = kNone;
  std::uint32_t ranks = 0;
  // Whatever the durations, operations are enqueued on each lane in the same order: by one lane in program order.
  bool fixed_order = true;

  explicit Structure(const Graph& graph);
};

// What comes before each operation on its lane; kNone: nothing. On queued lanes the order is that of `before`, which
// compares operations; others are in program order.
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

// A lane while its graph is played.
struct PlayedLane {
  std::vector<std::uint32_t> queue;  // Of queued lanes, as far as enqueued.
  std::size_t head = 0;              // How many have begun.
  bool busy = false;
  std::int64_t free_ns = 0;
  std::uint32_t last = kNone;

  // What begins next; kNone: nothing, or nothing yet.
  std::uint32_t Next(const Structure& structure, std::uint32_t lane, bool queued) const {
    if (queued) return head < queue.size() ? queue[head] : kNone;
    const std::size_t at = structure.first_in_lane[lane] + head;
    return at < structure.first_in_lane[lane + 1] ? structure.in_lane[at] : kNone;
  }
};

}  // namespace lockstep::replay
