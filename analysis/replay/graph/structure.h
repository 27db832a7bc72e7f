#pragma once
// The dependencies of a graph, by index ranges: everything that does not change between runs of it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "analysis/replay/graph/graph.h"

namespace lockstep::replay {

// Lists of numbers, one after the other.
struct Lists {
  std::vector<std::uint32_t> first, items;  // Empty: there are no lists.
  std::span<const std::uint32_t> Of(std::uint32_t list) const {
    if (first.empty()) return {};
    return std::span(items).subspan(first[list], first[list + 1] - first[list]);
  }
};

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
  // Of sets of peers (Graph::AddPeers): per operation, those that it is in; per set, the members that wait for it and
  // the sets that contain it.
  Lists sets_of, waiters, containing;
  // Per set, what is missing until all in it have arrived: operations, and the set in it if that lacks any.
  std::vector<std::uint32_t> missing;
  std::uint32_t ranks = 0;
  // Operations are enqueued on each lane in the same order whatever the durations: by one lane in program order.
  bool fixed_order = true;

  explicit Structure(const Graph& graph);

 private:
  void FindPeers(const Graph& graph);
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

// Which sets of peers are complete while a graph is played.
class ArrivingPeers {
 public:
  explicit ArrivingPeers(const Structure& structure)
      : s_(structure), missing_(structure.missing), last_(structure.missing.size(), kNone) {}

  bool Complete(std::uint32_t set) const { return missing_[set] == 0; }
  // The one that arrived last of those that have (of several, the lowest); kNone: none has.
  std::uint32_t Last(std::uint32_t set) const { return last_[set]; }
  std::vector<std::uint32_t> TakeLast() { return std::move(last_); }

  // `operation` has arrived. `arrived_ns`: of an operation that has. Calls release(member) for each that waits for a
  // set that is complete by that.
  template <typename ArrivedNs, typename Release>
  void Arrive(std::uint32_t operation, ArrivedNs&& arrived_ns, Release&& release) {
    const auto take = [&](std::uint32_t set, std::uint32_t member) {
      std::uint32_t& last = last_[set];
      if (member != kNone &&
          (last == kNone || std::pair(arrived_ns(last), member) < std::pair(arrived_ns(member), last)))
        last = member;
      if (--missing_[set] == 0) complete_.push_back(set);
    };
    for (const std::uint32_t set : s_.sets_of.Of(operation)) take(set, operation);
    while (!complete_.empty()) {
      const std::uint32_t set = complete_.back();
      complete_.pop_back();
      for (const std::uint32_t member : s_.waiters.Of(set)) release(member);
      for (const std::uint32_t whole : s_.containing.Of(set)) take(whole, last_[set]);
    }
  }

 private:
  const Structure& s_;
  std::vector<std::uint32_t> missing_, last_;  // By set.
  std::vector<std::uint32_t> complete_;        // Whose waiters are not released yet.
};

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
