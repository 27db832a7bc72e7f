#include "analysis/replay/graph/simulate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "analysis/replay/graph/propagate.h"
#include "analysis/replay/graph/structure.h"

namespace lockstep::replay {

namespace {

class Player {
 public:
  Player(const Graph& graph, const Structure& structure, const Interference& interference)
      : operations_(graph.operations()),
        needs_(graph.needs()),
        queued_(graph.queued_lanes()),
        s_(structure),
        interference_(interference),
        rated_(interference.any()),
        peers_(structure) {
    const std::size_t n = operations_.size();
    out_.begin_ns.assign(n, kNever);
    out_.end_ns.assign(n, kNever);
    out_.cause.assign(n, kNone);
    out_.last_arrival.assign(graph.collectives(), kNone);
    pending_ = s_.needed;
    ready_.assign(n, 0);
    lanes_.resize(queued_.size());
    arrived_.assign(graph.collectives(), 0);
    waiting_.assign(n, false);
    if (rated_) {
      rates_.resize(n);
      ranks_.resize(s_.ranks);
    }
  }

  Result<Schedule> Run() {
    for (std::uint32_t i = 0; i < operations_.size(); ++i)
      if (operations_[i].lane == kNone && pending_[i] == 0) Begin(i, operations_[i].delay_ns);
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) TryLane(lane);
    while (!events_.empty()) {
      const Event event = events_.top();
      if (event.time_ns > now_) {
        if (!dirty_.empty()) {
          Rerate();  // It may add events before this one.
          continue;
        }
        now_ = event.time_ns;
      }
      events_.pop();
      if (event.begins)
        OnBegin(event.operation);
      else if (!rated_ || rates_[event.operation].version == event.version)
        OnEnd(event.operation);
      if (events_.empty() && !dirty_.empty()) Rerate();
    }
    if (ended_ != operations_.size()) return Stuck();
    out_.last_peer = peers_.TakeLast();
    return std::move(out_);
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

  struct Event {
    std::int64_t time_ns;
    std::uint32_t operation;
    std::uint32_t version;
    bool begins;
    // Ends come first, because operations that they release can begin at the same time.
    bool operator>(const Event& other) const {
      return std::tie(time_ns, begins, operation) > std::tie(other.time_ns, other.begins, other.operation);
    }
  };
  // The rate of an operation that interference may slow.
  struct Rate {
    double left_ns = 0, speed = 1;
    std::int64_t since_ns = 0;
    std::uint32_t version = 0;
    bool begun = false;
  };
  struct RankState {
    std::vector<std::uint32_t> computing, transferring;  // Indices of operations.
    bool dirty = false;
  };

  bool Slowed(const Operation& operation) const {
    return rated_ && operation.rank >= 0 && operation.activity != Activity::kOther;
  }

  void TryLane(std::uint32_t index) {
    PlayedLane& lane = lanes_[index];
    if (lane.busy) return;
    const std::uint32_t next = lane.Next(s_, index, queued_[index]);
    if (next == kNone || pending_[next] != 0) return;
    ++lane.head;
    lane.busy = true;
    if (lane.last != kNone && lane.free_ns >= ready_[next]) out_.cause[next] = lane.last;
    Begin(next, std::max(lane.free_ns, ready_[next]) + operations_[next].delay_ns);
  }

  void Begin(std::uint32_t i, std::int64_t begin_ns) {
    const Operation& operation = operations_[i];
    out_.begin_ns[i] = begin_ns;
    if (rated_ || operation.enqueues != kNone || operation.collective != kNone)
      events_.push({begin_ns, i, 0, true});
    else
      events_.push({begin_ns + operation.duration_ns, i, 0, false});
  }

  void OnBegin(std::uint32_t i) {
    const Operation& operation = operations_[i];
    if (operation.enqueues != kNone) {
      const std::uint32_t target = operation.enqueues;
      Satisfy(target, now_ + operation.enqueue_lag_ns, i);
      const std::uint32_t lane = operations_[target].lane;
      if (lane != kNone) {
        lanes_[lane].queue.push_back(target);
        TryLane(lane);
      }
    }
    if (operation.collective == kNone) {
      StartWork(i);
      return;
    }
    const std::uint32_t collective = operation.collective;
    const std::uint32_t first = s_.first_member[collective], end = s_.first_member[collective + 1];
    // Of several that arrive at the same time the lowest counts as last, whatever the order of events.
    std::uint32_t& last = out_.last_arrival[collective];
    if (operation.awaited && (last == kNone || out_.begin_ns[last] < now_)) last = i;
    if (s_.Selective(collective)) {
      ArriveSelective(i, collective);
      return;
    }
    if (++arrived_[collective] != end - first) return;
    for (std::uint32_t m = first; m < end; ++m) StartWork(s_.members[m]);
  }

  // For collectives in which not every member waits for every other.
  void ArriveSelective(std::uint32_t i, std::uint32_t collective) {
    const Operation& operation = operations_[i];
    arrived_[collective] += operation.awaited;
    const bool all_there = arrived_[collective] == s_.awaited[collective];
    if (!operation.waits || (operation.peers == kNone ? all_there : peers_.Complete(operation.peers)))
      StartWork(i);
    else
      waiting_[i] = true;
    peers_.Arrive(
        i, [&](std::uint32_t peer) { return out_.begin_ns[peer]; }, [&](std::uint32_t waiter) { GoOn(waiter); });
    if (!all_there || !operation.awaited) return;
    for (std::uint32_t m = s_.first_member[collective]; m < s_.first_member[collective + 1]; ++m)
      if (operations_[s_.members[m]].peers == kNone) GoOn(s_.members[m]);
  }

  // Those for which a member waited are there.
  void GoOn(std::uint32_t member) {
    if (!waiting_[member]) return;
    waiting_[member] = false;
    StartWork(member);
  }

  void StartWork(std::uint32_t i) {
    const Operation& operation = operations_[i];
    const bool slowed = Slowed(operation);
    if (slowed) {
      Rate& rate = rates_[i];
      rate.left_ns = static_cast<double>(operation.duration_ns);
      rate.since_ns = now_;
      rate.begun = true;
      RankState& rank = ranks_[static_cast<std::size_t>(operation.rank)];
      (operation.activity == Activity::kCompute ? rank.computing : rank.transferring).push_back(i);
      MarkDirty(static_cast<std::uint32_t>(operation.rank));
    }
    events_.push({now_ + operation.duration_ns, i, slowed ? rates_[i].version : 0, false});
  }

  void OnEnd(std::uint32_t i) {
    const Operation& operation = operations_[i];
    out_.end_ns[i] = now_;
    out_.length_ns = std::max(out_.length_ns, now_);
    ++ended_;
    if (Slowed(operation)) {
      RankState& rank = ranks_[static_cast<std::size_t>(operation.rank)];
      std::erase(operation.activity == Activity::kCompute ? rank.computing : rank.transferring, i);
      MarkDirty(static_cast<std::uint32_t>(operation.rank));
    }
    for (std::uint32_t d = s_.first_dependent[i]; d < s_.first_dependent[i + 1]; ++d) {
      const Structure::Dependent& dependent = s_.dependents[d];
      Satisfy(dependent.operation, now_ + needs_[dependent.need].lag_ns, i);
      const std::uint32_t lane = operations_[dependent.operation].lane;
      if (lane != kNone && pending_[dependent.operation] == 0) TryLane(lane);
    }
    if (operation.lane != kNone) {
      PlayedLane& lane = lanes_[operation.lane];
      lane.busy = false;
      lane.free_ns = now_;
      lane.last = i;
      TryLane(operation.lane);
    }
  }

  // One of the conditions for which `i` waits is satisfied.
  void Satisfy(std::uint32_t i, std::int64_t at_ns, std::uint32_t by) {
    if (out_.cause[i] == kNone || at_ns > ready_[i]) out_.cause[i] = by;
    ready_[i] = std::max(ready_[i], at_ns);
    if (--pending_[i] == 0 && operations_[i].lane == kNone) Begin(i, ready_[i] + operations_[i].delay_ns);
  }

  void MarkDirty(std::uint32_t rank) {
    if (ranks_[rank].dirty) return;
    ranks_[rank].dirty = true;
    dirty_.push_back(rank);
  }

  // Computes speeds after all events of this time.
  void Rerate() {
    for (const std::uint32_t r : dirty_) {
      RankState& rank = ranks_[r];
      rank.dirty = false;
      const double compute = rank.transferring.empty() ? 1 : 1 / (1 + interference_.compute_slowdown);
      for (const std::uint32_t i : rank.computing) SetSpeed(i, compute);
      for (const std::uint32_t i : rank.transferring) SetSpeedOfTransfer(i);
    }
    dirty_.clear();
  }

  void SetSpeedOfTransfer(std::uint32_t i) {
    const std::uint32_t collective = operations_[i].collective;
    if (collective == kNone) {
      const bool computes = !ranks_[static_cast<std::size_t>(operations_[i].rank)].computing.empty();
      SetSpeed(i, 1 / (1 + interference_.transfer_slowdown * (computes ? 1 : 0)));
      return;
    }
    const std::uint32_t first = s_.first_member[collective], end = s_.first_member[collective + 1];
    std::uint32_t computing = 0;
    for (std::uint32_t m = first; m < end; ++m) {
      const std::int32_t rank = operations_[s_.members[m]].rank;
      computing += rank >= 0 && !ranks_[static_cast<std::size_t>(rank)].computing.empty();
    }
    const double speed = 1 / (1 + interference_.transfer_slowdown * computing / (end - first));
    for (std::uint32_t m = first; m < end; ++m) {
      const std::uint32_t member = s_.members[m];
      if (rates_[member].begun && out_.end_ns[member] == kNever && Slowed(operations_[member])) SetSpeed(member, speed);
    }
  }

  void SetSpeed(std::uint32_t i, double speed) {
    Rate& rate = rates_[i];
    if (rate.speed == speed) return;
    rate.left_ns = std::max(0.0, rate.left_ns - static_cast<double>(now_ - rate.since_ns) * rate.speed);
    rate.speed = speed;
    rate.since_ns = now_;
    ++rate.version;
    events_.push({now_ + std::llround(rate.left_ns / speed), i, rate.version, false});
  }

  Error Stuck() const {
    std::string first;
    for (std::size_t i = 0; i < operations_.size() && first.empty(); ++i)
      if (out_.end_ns[i] == kNever)
        first = "operation " + std::to_string(i) + " of rank " + std::to_string(operations_[i].rank);
    return Error{ErrorCode::kMalformed,
                 std::to_string(operations_.size() - ended_) + " operations of the replay wait for each other", first,
                 "the trace lacks operations that others depend on; see what it says was lost"};
  }

  const std::vector<Operation>& operations_;
  const std::vector<Graph::Need>& needs_;
  const std::vector<bool>& queued_;
  const Structure& s_;
  const Interference interference_;
  const bool rated_;

  Schedule out_;
  std::vector<std::uint32_t> pending_, arrived_;
  std::vector<std::int64_t> ready_;
  ArrivingPeers peers_;
  std::vector<bool> waiting_;  // For members of collectives in which not every member waits for every other.
  std::vector<PlayedLane> lanes_;
  std::vector<Rate> rates_;
  std::vector<RankState> ranks_;
  std::vector<std::uint32_t> dirty_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t now_ = 0;
  std::size_t ended_ = 0;
};

}  // namespace

Simulator::Simulator(const Graph& graph) : graph_(graph), structure_(std::make_unique<const Structure>(graph)) {}
Simulator::~Simulator() = default;

Result<Schedule> Simulator::Run(const Interference& interference) const {
  if (structure_->fixed_order && !interference.any())
    if (std::optional<Schedule> schedule = Propagate(graph_, *structure_)) return std::move(*schedule);
  return Player(graph_, *structure_, interference).Run();
}

std::uint32_t WaitedFor(const Graph& graph, const Schedule& schedule, std::uint32_t member) {
  const Operation& operation = graph.operations()[member];
  const std::uint32_t last =
      operation.peers == kNone ? schedule.last_arrival[operation.collective] : schedule.last_peer[operation.peers];
  return operation.waits && last != kNone && schedule.begin_ns[last] >= schedule.begin_ns[member] ? last : member;
}

std::vector<std::uint32_t> CriticalChain(const Graph& graph, const Schedule& schedule, std::uint32_t operation) {
  std::vector<std::uint32_t> chain;
  std::uint32_t at = operation;
  while (at != kNone && chain.size() <= graph.operations().size()) {
    chain.push_back(at);
    if (graph.operations()[at].collective != kNone) {
      at = WaitedFor(graph, schedule, at);  // A member that only waited.
      chain.back() = at;
    }
    at = schedule.cause[at];
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace lockstep::replay
