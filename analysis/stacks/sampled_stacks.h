#pragma once
// The samples of a rank's stack, and which of them were taken while other ranks waited for it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

// The line with most samples; 0: unknown.
std::int64_t MostFrequent(const std::map<std::int64_t, std::int64_t>& lines);

// Samples by function: a tree in which a node is a function as called from its parent, whichever line it is at.
struct StackNode {
  std::string function, file;
  bool library = false;    // Of the system, the interpreter or an installed package, not of the program.
  std::size_t parent = 0;  // Itself: the root.
  std::int64_t samples = 0, late = 0, self = 0, self_late = 0;  // In it and what it calls; `self`: in itself alone.
  std::map<std::int64_t, std::int64_t> lines;                   // In it and what it calls, by the line that it is at.
  std::map<std::pair<std::string, std::string>, std::size_t> callees;  // File and function, node.
  std::int64_t line() const { return MostFrequent(lines); }
};

struct SampledStacks {
  std::vector<StackNode> nodes{1};        // The root stands for all of them; callers come before those that they call.
  std::int64_t inside_communication = 0;  // Samples without a stack, which the root counts as well.
  std::int64_t longest_stop_ns = 0;
  std::int64_t samples() const { return nodes[0].samples; }
  std::int64_t late() const { return nodes[0].late; }  // Taken while others waited.
};

// `awaited`: when others waited for this rank (merge/timeline/charged.h), cluster time.
SampledStacks SampledStacksOf(const schema::RankTables& tables, const merge::ClockMap& clock,
                              const IntervalSet& awaited);

}  // namespace lockstep::analysis
