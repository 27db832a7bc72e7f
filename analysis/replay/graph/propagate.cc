#include "analysis/replay/graph/propagate.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

class Propagation {
 public:
  Propagation(const Graph& graph, const Structure& structure)
      : operations_(graph.operations()),
        needs_(graph.needs()),
        queued_(graph.queued_lanes()),
        s_(structure),
        states_(operations_.size()),
        arrived_(graph.collectives(), 0),
        peers_(structure),
        waiting_(operations_.size(), false),
        lanes_(queued_.size()) {
    for (std::size_t i = 0; i < states_.size(); ++i) states_[i].pending = s_.needed[i];
    out_.last_arrival.assign(graph.collectives(), kNone);
  }

  std::optional<Schedule> Run() {
    for (std::uint32_t i = 0; i < operations_.size(); ++i)
      if (operations_[i].lane == kNone && states_[i].pending == 0) Begin(i, operations_[i].delay_ns);
    Drain();
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      TryLane(lane);
      Drain();
    }
    if (ended_ != operations_.size()) return std::nullopt;
    out_.begin_ns.reserve(states_.size());
    out_.end_ns.reserve(states_.size());
    out_.cause.reserve(states_.size());
    for (const State& state : states_) {
      out_.begin_ns.push_back(state.begin_ns);
      out_.end_ns.push_back(state.end_ns);
      out_.cause.push_back(state.cause);
    }
    out_.last_peer = peers_.TakeLast();
    return std::move(out_);
  }

 private:
  // One struct, because all of it is used at the same time and little else of the same cache lines.
  struct State {
    std::int64_t ready_ns = 0, begin_ns = 0, end_ns = 0;
    std::uint32_t cause = kNone, pending = 0;
  };

  void Drain() {
    while (!begun_.empty()) {
      const std::uint32_t i = begun_.back();
      begun_.pop_back();
      OnBegin(i);
    }
  }

  void TryLane(std::uint32_t index) {
    PlayedLane& lane = lanes_[index];
    if (lane.busy) return;
    const std::uint32_t next = lane.Next(s_, index, queued_[index]);
    if (next == kNone || states_[next].pending != 0) return;
    State& state = states_[next];
    ++lane.head;
    lane.busy = true;
    if (lane.last != kNone && lane.free_ns >= state.ready_ns) state.cause = lane.last;
    Begin(next, std::max(lane.free_ns, state.ready_ns) + operations_[next].delay_ns);
  }

  void Begin(std::uint32_t i, std::int64_t begin_ns) {
    states_[i].begin_ns = begin_ns;
    begun_.push_back(i);
  }

  void OnBegin(std::uint32_t i) {
    const Operation& operation = operations_[i];
    const std::int64_t begin_ns = states_[i].begin_ns;
    if (operation.enqueues != kNone) {
      const std::uint32_t target = operation.enqueues, lane = operations_[target].lane;
      Satisfy(target, begin_ns + operation.enqueue_lag_ns, i);
      if (lane != kNone) {
        lanes_[lane].queue.push_back(target);
        TryLane(lane);
      }
    }
    if (operation.collective == kNone) {
      End(i, begin_ns + operation.duration_ns);
      return;
    }
    const std::uint32_t collective = operation.collective;
    const std::uint32_t first = s_.first_member[collective], end = s_.first_member[collective + 1];
    std::uint32_t& last = out_.last_arrival[collective];
    if (operation.awaited && (last == kNone || std::pair(begin_ns, last) > std::pair(states_[last].begin_ns, i)))
      last = i;
    if (s_.Selective(collective)) {
      ArriveSelective(i, collective);
      return;
    }
    if (++arrived_[collective] != end - first) return;
    const std::int64_t all_ns = states_[last].begin_ns;
    for (std::uint32_t m = end; m-- > first;) {
      // Each member is of another rank, so it is far away in memory.
      if (m >= first + rules::kReplayMembersAhead) {
        __builtin_prefetch(&operations_[s_.members[m - rules::kReplayMembersAhead]]);
        __builtin_prefetch(&states_[s_.members[m - rules::kReplayMembersAhead]]);
        __builtin_prefetch(&s_.first_dependent[s_.members[m - rules::kReplayMembersAhead]]);
      }
      End(s_.members[m], all_ns + operations_[s_.members[m]].duration_ns);
    }
  }

  // For collectives in which not every member waits for every other.
  void ArriveSelective(std::uint32_t i, std::uint32_t collective) {
    const Operation& operation = operations_[i];
    arrived_[collective] += operation.awaited;
    const bool all_there = arrived_[collective] == s_.awaited[collective];
    const std::uint32_t last = out_.last_arrival[collective];
    const std::int64_t all_ns = last == kNone ? states_[i].begin_ns : states_[last].begin_ns;
    waiting_[i] = true;
    if (!operation.waits)
      GoOn(i, states_[i].begin_ns);
    else if (operation.peers != kNone && peers_.Complete(operation.peers))
      GoOn(i, PeersThereNs(i));
    else if (operation.peers == kNone && all_there)
      GoOn(i, all_ns);
    peers_.Arrive(
        i, [&](std::uint32_t peer) { return states_[peer].begin_ns; },
        [&](std::uint32_t waiter) { GoOn(waiter, PeersThereNs(waiter)); });
    if (!all_there || !operation.awaited) return;
    for (std::uint32_t m = s_.first_member[collective]; m < s_.first_member[collective + 1]; ++m)
      if (operations_[s_.members[m]].peers == kNone) GoOn(s_.members[m], all_ns);
  }

  // When those for which a member waits by name had arrived.
  std::int64_t PeersThereNs(std::uint32_t member) const {
    const std::uint32_t last = peers_.Last(operations_[member].peers);
    return states_[last == kNone ? member : last].begin_ns;
  }

  // Those for which a member waited, if it is there, had arrived by then.
  void GoOn(std::uint32_t member, std::int64_t there_ns) {
    if (!waiting_[member]) return;
    waiting_[member] = false;
    End(member, std::max(states_[member].begin_ns, there_ns) + operations_[member].duration_ns);
  }

  void End(std::uint32_t i, std::int64_t end_ns) {
    states_[i].end_ns = end_ns;
    out_.length_ns = std::max(out_.length_ns, end_ns);
    ++ended_;
    for (std::uint32_t d = s_.first_dependent[i]; d < s_.first_dependent[i + 1]; ++d) {
      const Structure::Dependent& dependent = s_.dependents[d];
      Satisfy(dependent.operation, end_ns + needs_[dependent.need].lag_ns, i);
      const std::uint32_t lane = operations_[dependent.operation].lane;
      if (lane != kNone && states_[dependent.operation].pending == 0) TryLane(lane);
    }
    const std::uint32_t index = operations_[i].lane;
    if (index == kNone) return;
    PlayedLane& lane = lanes_[index];
    lane.busy = false;
    lane.free_ns = end_ns;
    lane.last = i;
    TryLane(index);
  }

  void Satisfy(std::uint32_t i, std::int64_t at_ns, std::uint32_t by) {
    State& state = states_[i];
    if (state.cause == kNone || at_ns > state.ready_ns ||
        (at_ns == state.ready_ns && When(by, i) < When(state.cause, i)))
      state.cause = by;
    state.ready_ns = std::max(state.ready_ns, at_ns);
    if (--state.pending == 0 && operations_[i].lane == kNone) Begin(i, state.ready_ns + operations_[i].delay_ns);
  }

  // Of several that `i` needed last, the first in time is its cause, ends before begins.
  std::tuple<std::int64_t, bool, std::uint32_t> When(std::uint32_t by, std::uint32_t i) const {
    const bool enqueued = operations_[by].enqueues == i;
    return {enqueued ? states_[by].begin_ns : states_[by].end_ns, enqueued, by};
  }

  const std::vector<Operation>& operations_;
  const std::vector<Graph::Need>& needs_;
  const std::vector<bool>& queued_;
  const Structure& s_;

  Schedule out_;
  std::vector<State> states_;
  std::vector<std::uint32_t> arrived_;
  ArrivingPeers peers_;
  std::vector<bool> waiting_;  // For members of collectives in which not every member waits for every other.
  std::vector<PlayedLane> lanes_;
  std::vector<std::uint32_t> begun_;  // Operations whose effects are not applied yet.
  std::size_t ended_ = 0;
};

}  // namespace

std::optional<Schedule> Propagate(const Graph& graph, const Structure& structure) {
  return Propagation(graph, structure).Run();
}

}  // namespace lockstep::replay
