#pragma once
// How many cores the recorded ranks of each node may use together.

#include <cstdint>
#include <map>
#include <string_view>

#include "merge/timeline/timeline.h"

namespace lockstep::merge {

struct NodeCores {
  std::int64_t ranks = 0;  // Those that are there.
  // Of all masks together, if the files say which cores they have (`known`), else of the widest one, and the others
  // may have the same or others. 0: no file says it.
  std::uint32_t cores = 0;
  bool known = false;
};

// By node's name (a view of the timeline's strings). O(ranks + cores of different masks).
std::map<std::string_view, NodeCores> CoresOfNodes(const Timeline& timeline);

// Cores for each rank of the node that has fewest for one; 0 if that is not known of every node.
double LeastCoresOfRank(const Timeline& timeline);

}  // namespace lockstep::merge
