#include "analysis/replay/propagate.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace lockstep::replay {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

class Propagation {
 public:
  Propagation(const Graph& graph, const Structure& structure)
      : operations_(graph.operations()),
        needs_(graph.needs()),
        queued_(graph.queued_lanes()),
        s_(structure),
        pending_(structure.needed),
        arrived_(graph.collectives(), 0),
        ready_(operations_.size(), 0),
        lanes_(queued_.size()) {
    out_.begin_ns.assign(operations_.size(), kNever);
    out_.end_ns.assign(operations_.size(), kNever);
    out_.cause.assign(operations_.size(), kNone);
    out_.last_arrival.assign(graph.collectives(), kNone);
  }

  std::optional<Schedule> Run() {
    for (std::uint32_t i = 0; i < operations_.size(); ++i)
      if (operations_[i].lane == kNone && pending_[i] == 0) Begin(i, operations_[i].delay_ns);
    Drain();
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      TryLane(lane);
      Drain();
    }
    if (ended_ != operations_.size()) return std::nullopt;
    return std::move(out_);
  }

 private:
  struct Lane {
    std::vector<std::uint32_t> queue;  // Of queued lanes, as far as enqueued.
    std::size_t head = 0;
    bool busy = false;
    std::int64_t free_ns = 0;
    std::uint32_t last = kNone;
  };

  void Drain() {
    while (!begun_.empty()) {
      const std::uint32_t i = begun_.back();
      begun_.pop_back();
      OnBegin(i);
    }
  }

  void TryLane(std::uint32_t index) {
    Lane& lane = lanes_[index];
    if (lane.busy) return;
    std::uint32_t next;
    if (queued_[index]) {
      if (lane.head == lane.queue.size()) return;
      next = lane.queue[lane.head];
    } else {
      const std::size_t at = s_.first_in_lane[index] + lane.head;
      if (at == s_.first_in_lane[index + 1]) return;
      next = s_.in_lane[at];
    }
    if (pending_[next] != 0) return;
    ++lane.head;
    lane.busy = true;
    if (lane.last != kNone && lane.free_ns >= ready_[next]) out_.cause[next] = lane.last;
    Begin(next, std::max(lane.free_ns, ready_[next]) + operations_[next].delay_ns);
  }

  void Begin(std::uint32_t i, std::int64_t begin_ns) {
    out_.begin_ns[i] = begin_ns;
    begun_.push_back(i);
  }

  void OnBegin(std::uint32_t i) {
    const Operation& operation = operations_[i];
    const std::int64_t begin_ns = out_.begin_ns[i];
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
    if (last == kNone || std::pair(begin_ns, last) > std::pair(out_.begin_ns[last], i)) last = i;
    if (++arrived_[collective] != end - first) return;
    const std::int64_t all_ns = out_.begin_ns[last];
    for (std::uint32_t m = end; m-- > first;) End(s_.members[m], all_ns + operations_[s_.members[m]].duration_ns);
  }

  void End(std::uint32_t i, std::int64_t end_ns) {
    out_.end_ns[i] = end_ns;
    out_.length_ns = std::max(out_.length_ns, end_ns);
    ++ended_;
    for (std::uint32_t d = s_.first_dependent[i]; d < s_.first_dependent[i + 1]; ++d) {
      const Structure::Dependent& dependent = s_.dependents[d];
      Satisfy(dependent.operation, end_ns + needs_[dependent.need].lag_ns, i);
      const std::uint32_t lane = operations_[dependent.operation].lane;
      if (lane != kNone && pending_[dependent.operation] == 0) TryLane(lane);
    }
    const std::uint32_t index = operations_[i].lane;
    if (index == kNone) return;
    Lane& lane = lanes_[index];
    lane.busy = false;
    lane.free_ns = end_ns;
    lane.last = i;
    TryLane(index);
  }

  void Satisfy(std::uint32_t i, std::int64_t at_ns, std::uint32_t by) {
    const std::uint32_t cause = out_.cause[i];
    if (cause == kNone || at_ns > ready_[i] || (at_ns == ready_[i] && When(by, i) < When(cause, i))) out_.cause[i] = by;
    ready_[i] = std::max(ready_[i], at_ns);
    if (--pending_[i] == 0 && operations_[i].lane == kNone) Begin(i, ready_[i] + operations_[i].delay_ns);
  }

  // Of several that `i` was last to wait for the first in time is its cause, ends before begins.
  std::tuple<std::int64_t, bool, std::uint32_t> When(std::uint32_t by, std::uint32_t i) const {
    const bool enqueued = operations_[by].enqueues == i;
    return {enqueued ? out_.begin_ns[by] : out_.end_ns[by], enqueued, by};
  }

  const std::vector<Operation>& operations_;
  const std::vector<Graph::Need>& needs_;
  const std::vector<bool>& queued_;
  const Structure& s_;

  Schedule out_;
  std::vector<std::uint32_t> pending_, arrived_;
  std::vector<std::int64_t> ready_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> begun_;  // What they bring about is still to be done.
  std::size_t ended_ = 0;
};

}  // namespace

std::optional<Schedule> Propagate(const Graph& graph, const Structure& structure) {
  return Propagation(graph, structure).Run();
}

}  // namespace lockstep::replay
