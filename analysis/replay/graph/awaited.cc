#include "analysis/replay/graph/awaited.h"

#include <algorithm>
#include <vector>

namespace lockstep::replay {

void MoveOnlyWhenAwaited(Job& job) {
  const auto& operations = job.graph.operations();
  const auto& queued = job.graph.queued_lanes();
  std::vector<bool> training(queued.size(), false);
  for (const auto& ends : job.step_ends)
    for (const std::uint32_t end : ends)
      if (end != kNone && operations[end].lane != kNone) training[operations[end].lane] = true;
  // The previous operation on the thread; the operation of a training thread that needs it first.
  std::vector<std::uint32_t> before(operations.size(), kNone), last(queued.size(), kNone);
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    const std::uint32_t lane = operations[i].lane;
    if (lane == kNone || queued[lane]) continue;
    before[i] = last[lane];
    last[lane] = i;
  }
  std::vector<std::uint32_t> awaits(operations.size(), kNone);
  for (const Graph::Need& need : job.graph.needs()) {
    const std::uint32_t lane = operations[need.operation].lane;
    if (lane != kNone && training[lane] && job.operations[need.operation].rank == job.operations[need.earlier].rank)
      awaits[need.earlier] = std::min(awaits[need.earlier], need.operation);
  }
  // Backwards along each thread: an operation that waits for a later one also waits for those before it.
  std::vector<std::uint32_t> first(queued.size(), kNone);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> added;
  for (std::uint32_t i = static_cast<std::uint32_t>(operations.size()); i-- > 0;) {
    const std::uint32_t lane = operations[i].lane;
    if (lane == kNone || queued[lane] || training[lane]) continue;
    first[lane] = std::min(first[lane], awaits[i]);
    if (job.operations[i].role == Role::kMember && first[lane] != kNone && before[first[lane]] != kNone)
      added.emplace_back(i, before[first[lane]]);
  }
  for (const auto& [member, earlier] : added) job.graph.Needs(member, earlier);
}

}  // namespace lockstep::replay
