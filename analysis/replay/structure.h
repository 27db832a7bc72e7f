#pragma once
// What depends on what in a graph, by index ranges: what does not change between plays of it. Of simulate.h only.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph.h"

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
  std::uint32_t ranks = 0;
  // Whatever the durations, operations are enqueued on each lane in the same order: by one lane in program order.
  bool fixed_order = true;

  explicit Structure(const Graph& graph);
};

}  // namespace lockstep::replay
