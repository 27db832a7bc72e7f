#include "analysis/tables/critical_path.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "merge/timeline/breakdown.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kNone = schema::kNone;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
// A device that has its next operation queued starts it within this time; longer means
// that it waited for something (HTA's consecutive_kernel_delay).
constexpr std::int64_t kStartsWithinNs = 30'000;

// What a host thread does, as sets of time.
struct HostThread {
  std::uint32_t thread = kNone;
  IntervalSet covered;  // In operators, runtime calls and MPI, not blocked.
  IntervalSet blocked;  // Waiting for the GPU in a call.
  IntervalSet mpi, input;
  Measure covered_ns;
};

// A point of a host thread that an edge leaves or enters. In the order of `kind` at one
// time: what a launch depends on comes before it.
struct HostNode {
  enum Kind : std::uint8_t { kReleased, kHandsOver, kTakesOver, kLaunches };
  std::int64_t time_ns;
  std::uint32_t thread;  // Of threads_.
  std::uint32_t ref;     // kReleased: the operation waited for; kTakesOver: the node that hands over; else kNone.
  Kind kind;
};

struct Step {
  std::int64_t best_ns = 0;    // Weight of the best path to here.
  std::uint32_t from = kNone;  // Operation or host node, by edge.
  PathEdge edge = PathEdge::kSource;
  bool counts = false;
};

}  // namespace

class CriticalPathFinder::Graph {
 public:
  explicit Graph(const DeviceActivity& activity)
      : activity_(activity),
        rank_(activity.rank),
        t_(activity.rank.tables),
        ops_(activity.timeline.ops),
        nest_(activity.rank.tables, RangeNest::kAllSources & ~RangeNest::kPythonFunctions),
        blocking_(FindBlockingCalls(activity.rank.tables, activity.launches)),
        op_steps_(ops_.size()),
        streams_(activity.timeline.streams.size()) {
    FindThreads();
    FindWaits();
    Cover();
    AddLaunches();
    AddHandOvers();
    SortNodes();
  }

  CriticalPath Find(Interval window) {
    window_ = window;
    Reset();
    std::size_t next = First(window.begin);
    CarryInto(window.begin, next);
    const auto after_last = std::upper_bound(ops_.begin(), ops_.end(), window.end,
                                             [](std::int64_t at, const GpuOp& op) { return at < op.begin_ns; });
    const auto last = static_cast<std::size_t>(after_last - ops_.begin());
    std::size_t node = FirstNode(window.begin);
    for (;;) {
      const bool host = node < nodes_.size() && nodes_[node].time_ns <= window.end &&
                        (next == last || nodes_[node].time_ns <= ops_[next].begin_ns);
      if (host) {
        VisitNode(static_cast<std::uint32_t>(node++));
      } else if (next < last) {
        const auto op = static_cast<std::uint32_t>(next++);
        if (ops_[op].busy) VisitOp(op);
        if (sink_ != kNone) break;
      } else {
        break;
      }
    }
    return Trace();
  }

  std::vector<Share> Shares(const CriticalPath& path) const;

 private:
  // ---- Built once ----

  std::uint32_t IndexOf(std::uint32_t thread) const {
    const auto at = std::lower_bound(threads_.begin(), threads_.end(), thread,
                                     [](const HostThread& t, std::uint32_t wanted) { return t.thread < wanted; });
    return at != threads_.end() && at->thread == thread ? static_cast<std::uint32_t>(at - threads_.begin()) : kNone;
  }

  // Those that launch or wait: what others do the GPU never sees.
  void FindThreads() {
    std::vector<std::uint32_t> threads;
    const auto add = [&](std::uint32_t thread) {
      if (thread != kNone && (threads.empty() || threads.back() != thread)) threads.push_back(thread);
    };
    for (const GpuOp& op : ops_)
      if (op.api != kNone) add(t_.api.thread[op.api]);
    for (const BlockingCall& call : blocking_) add(call.thread);
    std::sort(threads.begin(), threads.end());
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    for (const std::uint32_t thread : threads) threads_.emplace_back().thread = thread;
  }

  bool LaunchedBefore(const GpuOp& op, std::int64_t time_ns) const {
    return op.api == kNone || t_.api.begin_ns[op.api] < time_ns;
  }

  // The operation that a blocking call waited for: its copy, else of what was launched
  // before it (on its stream, if that is known) the one that ended last before it returned.
  std::uint32_t WaitedFor(const BlockingCall& call, const std::vector<std::uint32_t>& by_end,
                          const std::vector<std::uint32_t>& op_of_copy) const {
    if (call.copy != kNone) {
      const std::uint32_t op = op_of_copy[call.copy];
      const bool sound = ops_[op].end_ns > call.begin_ns && ops_[op].end_ns <= call.end_ns + kClockSlackNs &&
                         ops_[op].begin_ns < call.end_ns;
      if (sound) return op;
    }
    constexpr std::uint8_t kStreamSync = 3;
    const bool one_stream =
        call.sync != kNone && t_.sync.kind[call.sync] == kStreamSync && t_.sync.stream[call.sync] != kNone;
    auto at = std::upper_bound(by_end.begin(), by_end.end(), call.end_ns + kClockSlackNs,
                               [&](std::int64_t end, std::uint32_t op) { return end < ops_[op].end_ns; });
    while (at != by_end.begin()) {
      const std::uint32_t i = *--at;
      const GpuOp& op = ops_[i];
      if (op.end_ns <= call.begin_ns) break;
      if (!LaunchedBefore(op, call.begin_ns) || op.begin_ns >= std::min(op.end_ns, call.end_ns)) continue;
      const GpuStream& stream = activity_.timeline.streams[op.stream];
      if (one_stream && (stream.stream != t_.sync.stream[call.sync] || stream.device != t_.sync.device[call.sync]))
        continue;
      return i;
    }
    return kNone;
  }

  void FindWaits() {
    if (blocking_.empty()) return;
    std::vector<std::uint32_t> by_end, op_of_copy(t_.copies.rows(), 0);
    for (std::uint32_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i].copy) op_of_copy[ops_[i].row] = i;
      if (ops_[i].busy) by_end.push_back(i);
    }
    std::stable_sort(by_end.begin(), by_end.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return ops_[a].end_ns < ops_[b].end_ns; });
    std::vector<std::vector<Interval>> blocked(threads_.size());
    for (const BlockingCall& call : blocking_) {
      const std::uint32_t thread = IndexOf(call.thread);
      if (thread == kNone) continue;
      const std::uint32_t op = WaitedFor(call, by_end, op_of_copy);
      if (op == kNone) continue;
      const std::int64_t released = std::min(ops_[op].end_ns, call.end_ns);
      blocked[thread].push_back({call.begin_ns, released});
      nodes_.push_back({released, thread, op, HostNode::kReleased});
    }
    for (std::size_t i = 0; i < threads_.size(); ++i) threads_[i].blocked = Normalize(std::move(blocked[i]));
  }

  void Cover() {
    std::vector<std::vector<Interval>> covered(threads_.size()), mpi(threads_.size()), input(threads_.size());
    const auto add = [&](std::vector<std::vector<Interval>>& to, std::uint32_t thread, std::int64_t begin,
                         std::int64_t duration) {
      const std::uint32_t at = IndexOf(thread);
      if (at != kNone) to[at].push_back({begin, begin + duration});
    };
    constexpr std::uint8_t kCpuOp = 3, kInputCategory = 1;
    for (std::size_t i = 0; i < t_.ranges.rows(); ++i) {
      if (t_.ranges.source[i] == kCpuOp)
        add(covered, t_.ranges.thread[i], t_.ranges.begin_ns[i], t_.ranges.duration_ns[i]);
      if (t_.ranges.category[i] == kInputCategory)
        add(input, t_.ranges.thread[i], t_.ranges.begin_ns[i], t_.ranges.duration_ns[i]);
    }
    for (std::size_t i = 0; i < t_.api.rows(); ++i)
      add(covered, t_.api.thread[i], t_.api.begin_ns[i], t_.api.duration_ns[i]);
    for (std::size_t i = 0; i < t_.mpi_calls.rows(); ++i) {
      add(covered, t_.mpi_calls.thread[i], t_.mpi_calls.begin_ns[i], t_.mpi_calls.duration_ns[i]);
      add(mpi, t_.mpi_calls.thread[i], t_.mpi_calls.begin_ns[i], t_.mpi_calls.duration_ns[i]);
    }
    std::vector<Interval> somebody;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      HostThread& thread = threads_[i];
      thread.covered = Subtract(Normalize(std::move(covered[i])), thread.blocked);
      thread.mpi = Normalize(std::move(mpi[i]));
      thread.input = Normalize(std::move(input[i]));
      somebody.insert(somebody.end(), thread.covered.begin(), thread.covered.end());
      somebody.insert(somebody.end(), thread.blocked.begin(), thread.blocked.end());
    }
    for (HostThread& thread : threads_) thread.covered_ns = Measure(thread.covered);
    somebody_ = Normalize(std::move(somebody));
    somebody_ns_ = Measure(somebody_);
  }

  void AddLaunches() {
    node_of_api_.assign(t_.api.rows(), kNone);
    for (const GpuOp& op : ops_) {
      if (!op.busy || op.api == kNone || node_of_api_[op.api] != kNone) continue;
      const std::uint32_t thread = IndexOf(t_.api.thread[op.api]);
      if (thread == kNone) continue;
      node_of_api_[op.api] = 0;  // Its place is known after sorting.
      nodes_.push_back({t_.api.begin_ns[op.api], thread, op.api, HostNode::kLaunches});
    }
  }

  // A thread that begins again after a pause may have waited for the one that stopped
  // last within that pause: forward and backward run on threads of their own.
  void AddHandOvers() {
    struct Stretch {
      Interval at;
      std::int64_t before_ns;  // End of the stretch before it on its thread.
      std::uint32_t thread;
    };
    std::vector<Stretch> stretches;
    for (std::uint32_t i = 0; i < threads_.size(); ++i) {
      std::int64_t before = kNever;
      // Being blocked is no pause.
      for (const Interval& at : Unite(threads_[i].covered, threads_[i].blocked)) {
        stretches.push_back({at, before, i});
        before = at.end;
      }
    }
    if (threads_.size() < 2) return;
    std::vector<std::uint32_t> by_end(stretches.size());
    for (std::uint32_t i = 0; i < by_end.size(); ++i) by_end[i] = i;
    const auto end_order = [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(stretches[a].at.end, stretches[a].thread) < std::pair(stretches[b].at.end, stretches[b].thread);
    };
    std::sort(by_end.begin(), by_end.end(), end_order);
    std::vector<std::uint32_t> by_begin = by_end;
    std::sort(by_begin.begin(), by_begin.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(stretches[a].at.begin, stretches[a].thread) <
             std::pair(stretches[b].at.begin, stretches[b].thread);
    });
    // The stretch that ended last, and the last one of any other thread.
    std::uint32_t last = kNone, other = kNone;
    std::size_t e = 0;
    for (const std::uint32_t i : by_begin) {
      const Stretch& stretch = stretches[i];
      for (; e < by_end.size() && stretches[by_end[e]].at.end <= stretch.at.begin; ++e) {
        if (last != kNone && stretches[last].thread != stretches[by_end[e]].thread) other = last;
        last = by_end[e];
      }
      const std::uint32_t from = last != kNone && stretches[last].thread == stretch.thread ? other : last;
      if (from == kNone || stretches[from].at.end <= stretch.before_ns) continue;
      // ref: which pair, until the nodes are sorted.
      nodes_.push_back({stretches[from].at.end, stretches[from].thread, hand_overs_, HostNode::kHandsOver});
      nodes_.push_back({stretch.at.begin, stretch.thread, hand_overs_++, HostNode::kTakesOver});
    }
  }

  void SortNodes() {
    std::sort(nodes_.begin(), nodes_.end(), [](const HostNode& a, const HostNode& b) {
      return std::tuple(a.time_ns, a.kind, a.thread, a.ref) < std::tuple(b.time_ns, b.kind, b.thread, b.ref);
    });
    std::vector<std::uint32_t> giver(hand_overs_, kNone);
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      HostNode& node = nodes_[i];
      if (node.kind == HostNode::kHandsOver) giver[node.ref] = i;
      if (node.kind == HostNode::kTakesOver) node.ref = giver[node.ref];
      if (node.kind == HostNode::kLaunches) node_of_api_[node.ref] = i;
    }
    node_steps_.resize(nodes_.size());
  }

  // ---- One window ----

  std::size_t First(std::int64_t time_ns) const {
    return static_cast<std::size_t>(
        std::lower_bound(ops_.begin(), ops_.end(), time_ns,
                         [](const GpuOp& op, std::int64_t at) { return op.begin_ns < at; }) -
        ops_.begin());
  }
  std::size_t FirstNode(std::int64_t time_ns) const {
    return static_cast<std::size_t>(
        std::lower_bound(nodes_.begin(), nodes_.end(), time_ns,
                         [](const HostNode& node, std::int64_t at) { return node.time_ns < at; }) -
        nodes_.begin());
  }

  void Reset() {
    for (StreamState& stream : streams_) stream = {};
    recent_.clear();
    running_ = {};
    last_node_.assign(threads_.size(), kNone);
    sink_ = kNone;
    last_op_ = kNone;
  }

  std::int64_t BeginOf(std::uint32_t op) const { return std::max(ops_[op].begin_ns, window_.begin); }
  std::int64_t EndOf(std::uint32_t op) const { return std::min(ops_[op].end_ns, window_.end); }
  std::int64_t AtEnd(std::uint32_t op) const { return op_steps_[op].best_ns + EndOf(op) - BeginOf(op); }

  void Running(std::uint32_t op) {
    running_.push({ops_[op].end_ns, op});
    if (last_op_ == kNone ||
        std::tuple(EndOf(op), AtEnd(op), op) > std::tuple(EndOf(last_op_), AtEnd(last_op_), last_op_))
      last_op_ = op;
  }

  // What runs already when the window begins. Windows that come in order cost no more
  // than one pass together, even beside a kernel that runs all the time.
  void CarryInto(std::int64_t begin_ns, std::size_t first) {
    if (begin_ns < carried_at_ns_) carried_.clear(), carried_to_ = 0;
    carried_at_ns_ = begin_ns;
    std::erase_if(carried_, [&](std::uint32_t op) { return ops_[op].end_ns <= begin_ns; });
    for (; carried_to_ < first; ++carried_to_)
      if (ops_[carried_to_].busy && ops_[carried_to_].end_ns > begin_ns)
        carried_.push_back(static_cast<std::uint32_t>(carried_to_));
    for (const std::uint32_t op : carried_) {
      op_steps_[op] = Step{};
      Running(op);
    }
  }

  void EndUntil(std::int64_t time_ns) {
    while (!running_.empty() && running_.top().first <= time_ns) {
      const std::uint32_t op = running_.top().second, stream = ops_[op].stream;
      running_.pop();
      streams_[stream].ended = op;
      const auto at = std::find(recent_.begin(), recent_.end(), stream);
      if (at != recent_.end()) recent_.erase(at);
      recent_.insert(recent_.begin(), stream);
    }
  }

  // What has no launching call was launched before the trace began, or nothing has one.
  std::pair<std::int64_t, std::uint32_t> LaunchOf(const GpuOp& op) const {
    return op.api == kNone ? std::pair(kNever, 0u) : std::pair(t_.api.begin_ns[op.api], op.api);
  }

  // Of what was launched before it on another stream of the device, what ended last: if
  // that is later than the end on its own stream, this one may have waited for it.
  std::uint32_t CrossOf(std::uint32_t i, std::int64_t own_end_ns) const {
    const GpuOp& op = ops_[i];
    const std::uint16_t device = activity_.timeline.DeviceOf(op);
    for (const std::uint32_t stream : recent_) {
      const std::uint32_t candidate = streams_[stream].ended;
      if (ops_[candidate].end_ns <= own_end_ns) break;
      if (stream == op.stream || activity_.timeline.streams[stream].device != device) continue;
      if (LaunchOf(ops_[candidate]) > LaunchOf(op)) continue;
      return candidate;
    }
    return kNone;
  }

  void VisitOp(std::uint32_t i) {
    const GpuOp& op = ops_[i];
    const std::int64_t begin = op.begin_ns;
    EndUntil(begin);
    Step best{};  // From the window's begin, unexplained, if there is nothing else.
    std::int64_t best_time = kNever;
    const auto offer = [&](PathEdge edge, std::uint32_t from, std::int64_t from_time, std::int64_t from_best,
                           bool counts) {
      const std::int64_t weight = from_best + (counts ? begin - from_time : 0);
      if (std::pair(weight, from_time) <= std::pair(best.best_ns, best_time)) return;
      best = {weight, from, edge, counts};
      best_time = from_time;
    };
    const std::int64_t launch = op.api == kNone ? kNever : t_.api.begin_ns[op.api];
    const std::uint32_t own = streams_[op.stream].ended;
    const std::int64_t own_end = own == kNone ? window_.begin : ops_[own].end_ns;
    const auto queued_and_prompt = [&](std::int64_t end) { return launch < end && begin - end <= kStartsWithinNs; };
    if (own != kNone) offer(PathEdge::kStream, own, own_end, AtEnd(own), queued_and_prompt(own_end));
    const std::uint32_t other = CrossOf(i, own_end);
    std::int64_t ready = own == kNone ? kNever : own_end;
    if (other != kNone) {
      ready = ops_[other].end_ns;
      offer(PathEdge::kCross, other, ready, AtEnd(other), queued_and_prompt(ready));
    }
    const std::uint32_t node = op.api == kNone ? kNone : node_of_api_[op.api];
    if (node != kNone && launch >= window_.begin && launch <= begin) {
      const std::int64_t call_end = launch + t_.api.duration_ns[op.api];
      offer(PathEdge::kLaunch, node, launch, node_steps_[node].best_ns,
            launch >= ready && begin - call_end <= kStartsWithinNs);
    }
    op_steps_[i] = best;
    if (begin == window_.end) {
      sink_ = i;  // What begins with the next window ends this one.
      return;
    }
    Running(i);
  }

  std::int64_t HostWeight(std::uint32_t thread, Interval at) const {
    return threads_[thread].covered_ns.Within(at) + (at.end - at.begin) - somebody_ns_.Within(at);
  }

  void VisitNode(std::uint32_t i) {
    const HostNode& node = nodes_[i];
    const std::uint32_t before = last_node_[node.thread];
    Step best;
    std::int64_t best_time = before == kNone ? window_.begin : nodes_[before].time_ns;
    best.best_ns =
        (before == kNone ? 0 : node_steps_[before].best_ns) + HostWeight(node.thread, {best_time, node.time_ns});
    best.from = before;
    best.edge = before == kNone ? PathEdge::kSource : PathEdge::kHost;
    best.counts = true;
    const auto offer = [&](PathEdge edge, std::uint32_t from, std::int64_t from_time, std::int64_t weight) {
      if (std::pair(weight, from_time) <= std::pair(best.best_ns, best_time)) return;
      best = {weight, from, edge, true};
      best_time = from_time;
    };
    if (node.kind == HostNode::kReleased) {
      const GpuOp& op = ops_[node.ref];
      const bool cut = op.end_ns > node.time_ns;
      if (op.end_ns > window_.begin && BeginOf(node.ref) < node.time_ns)
        offer(cut ? PathEdge::kCut : PathEdge::kRelease, node.ref, cut ? BeginOf(node.ref) : node.time_ns,
              op_steps_[node.ref].best_ns + node.time_ns - BeginOf(node.ref));
    } else if (node.kind == HostNode::kTakesOver && nodes_[node.ref].time_ns >= window_.begin) {
      const std::int64_t from = nodes_[node.ref].time_ns;
      offer(PathEdge::kHandOver, node.ref, from,
            node_steps_[node.ref].best_ns + (node.time_ns - from) - somebody_ns_.Within({from, node.time_ns}));
    }
    node_steps_[i] = best;
    last_node_[node.thread] = i;
  }

  // From the sink back to the window's begin.
  CriticalPath Trace() const {
    CriticalPath path;
    std::int64_t now = window_.end;
    const auto piece = [&](std::int64_t begin, PathEdge edge, bool counts, std::uint32_t op, std::uint32_t thread) {
      if (begin < now) path.pieces.push_back({begin, now, edge, counts, op, thread});
      now = std::min(now, begin);
    };
    bool at_op = true;
    std::uint32_t at = kNone;
    if (sink_ != kNone) {
      at = sink_;
      path.explained_ns = op_steps_[at].best_ns;
    } else if (last_op_ != kNone) {
      at = last_op_;
      path.explained_ns = AtEnd(at);
      piece(EndOf(at), PathEdge::kTail, false, kNone, kNone);
      piece(BeginOf(at), PathEdge::kOp, true, at, kNone);
    } else {
      // No GPU work: the thread that explains most.
      std::int64_t most = -1;
      std::uint32_t thread = kNone;
      for (std::uint32_t i = 0; i < threads_.size(); ++i) {
        const std::int64_t weight = HostWeight(i, window_);
        if (weight > most) most = weight, thread = i;
      }
      path.explained_ns = std::max<std::int64_t>(most, 0);
      piece(window_.begin, PathEdge::kSource, most > 0, kNone, thread);
    }
    while (at != kNone) {
      if (at_op) {
        const Step& step = op_steps_[at];
        const std::uint32_t op = at;
        at = step.from;
        switch (step.edge) {
          case PathEdge::kStream:
          case PathEdge::kCross:
            piece(EndOf(at), step.edge, step.counts, op, kNone);
            piece(BeginOf(at), PathEdge::kOp, true, at, kNone);
            break;
          case PathEdge::kLaunch:
            piece(nodes_[at].time_ns, step.edge, step.counts, op, kNone);
            at_op = false;
            break;
          default:
            piece(window_.begin, PathEdge::kSource, false, op, kNone);
            at = kNone;
            break;
        }
      } else {
        const Step& step = node_steps_[at];
        const std::uint32_t thread = nodes_[at].thread;
        at = step.from;
        switch (step.edge) {
          case PathEdge::kHost:
          case PathEdge::kHandOver:
            piece(nodes_[at].time_ns, step.edge, true, kNone, thread);
            break;
          case PathEdge::kRelease:
            piece(BeginOf(at), PathEdge::kOp, true, at, kNone);
            at_op = true;
            break;
          case PathEdge::kCut:
            piece(BeginOf(at), PathEdge::kCut, true, at, kNone);
            at_op = true;
            break;
          default:
            piece(window_.begin, PathEdge::kSource, true, kNone, thread);
            at = kNone;
            break;
        }
      }
    }
    std::reverse(path.pieces.begin(), path.pieces.end());
    return path;
  }

  struct StreamState {
    std::uint32_t ended = kNone;  // The operation that ended last.
  };
  using Ending = std::pair<std::int64_t, std::uint32_t>;  // End, operation.

  const DeviceActivity& activity_;
  const RankView& rank_;
  const schema::RankTables& t_;
  const std::vector<GpuOp>& ops_;
  RangeNest nest_;
  std::vector<BlockingCall> blocking_;
  std::vector<HostThread> threads_;  // By thread.
  IntervalSet somebody_;             // Some thread is covered or blocked.
  Measure somebody_ns_;
  std::vector<HostNode> nodes_;
  std::vector<std::uint32_t> node_of_api_;
  std::uint32_t hand_overs_ = 0;
  std::vector<Step> op_steps_;  // At each operation's begin.
  std::vector<Step> node_steps_;

  std::vector<std::uint32_t> carried_;  // Operations before carried_to_ that end after carried_at_ns_.
  std::size_t carried_to_ = 0;
  std::int64_t carried_at_ns_ = kNever;

  Interval window_{0, 0};
  std::vector<StreamState> streams_;
  std::vector<std::uint32_t> recent_;  // Streams, the one that ended an operation last first.
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> running_;
  std::vector<std::uint32_t> last_node_;  // Per thread.
  std::uint32_t sink_ = kNone, last_op_ = kNone;
};

namespace {

// Is a time in a set, and until when does that hold? Times must not decrease.
class SetCursor {
 public:
  SetCursor(const IntervalSet& set, std::int64_t from) : set_(set) {
    at_ = static_cast<std::size_t>(
        std::upper_bound(set.begin(), set.end(), from, [](std::int64_t t, const Interval& i) { return t < i.end; }) -
        set.begin());
  }
  bool Inside(std::int64_t time_ns, std::int64_t& until) {
    while (at_ < set_.size() && set_[at_].end <= time_ns) ++at_;
    if (at_ == set_.size()) return false;
    const bool inside = set_[at_].begin <= time_ns;
    until = std::min(until, inside ? set_[at_].end : set_[at_].begin);
    return inside;
  }

 private:
  const IntervalSet& set_;
  std::size_t at_;
};

// The innermost range of a thread as time goes on.
class RangeCursor {
 public:
  RangeCursor(const schema::Ranges& ranges, const RangeNest& nest, std::uint32_t thread, std::int64_t from)
      : ranges_(ranges), nest_(nest), rows_(nest.Of(thread)), range_(nest.At(thread, from)) {
    next_ = static_cast<std::size_t>(
        std::upper_bound(rows_.begin(), rows_.end(), from,
                         [&](std::int64_t t, std::uint32_t row) { return t < ranges.begin_ns[row]; }) -
        rows_.begin());
  }
  std::uint32_t At(std::int64_t time_ns, std::int64_t& until) {
    for (; next_ < rows_.size() && ranges_.begin_ns[rows_[next_]] <= time_ns; ++next_) range_ = rows_[next_];
    while (range_ != kNone && End(range_) <= time_ns) range_ = nest_.Parent(range_);
    if (next_ < rows_.size()) until = std::min(until, ranges_.begin_ns[rows_[next_]]);
    if (range_ != kNone) until = std::min(until, End(range_));
    return range_;
  }

 private:
  std::int64_t End(std::uint32_t row) const { return ranges_.begin_ns[row] + ranges_.duration_ns[row]; }
  const schema::Ranges& ranges_;
  const RangeNest& nest_;
  std::span<const std::uint32_t> rows_;
  std::uint32_t range_;
  std::size_t next_;
};

PathCategory CategoryOf(const GpuOp& op) {
  switch (op.cls) {
    case KernelClass::kCompute:
      return PathCategory::kCompute;
    case KernelClass::kComm:
      return PathCategory::kCommunication;
    default:
      return PathCategory::kCopy;
  }
}

}  // namespace

std::vector<CriticalPathFinder::Share> CriticalPathFinder::Graph::Shares(const CriticalPath& path) const {
  std::vector<Share> shares;
  const auto op_name = [&](const GpuOp& op) {
    return op.copy ? CopyKindName(t_.copies.kind[op.row]) : rank_.Text(t_.kernels.name[op.row]);
  };
  for (const PathPiece& piece : path.pieces) {
    const std::int64_t ns = piece.end_ns - piece.begin_ns;
    if (piece.thread != kNone) {
      const HostThread& thread = threads_[piece.thread];
      SetCursor blocked(thread.blocked, piece.begin_ns), mpi(thread.mpi, piece.begin_ns),
          input(thread.input, piece.begin_ns);
      RangeCursor ranges(t_.ranges, nest_, thread.thread, piece.begin_ns);
      for (std::int64_t now = piece.begin_ns; now < piece.end_ns;) {
        std::int64_t until = piece.end_ns;
        const bool is_blocked = blocked.Inside(now, until), is_mpi = mpi.Inside(now, until),
                   is_input = input.Inside(now, until);
        const std::uint32_t range = ranges.At(now, until);
        const PathCategory category = is_blocked ? PathCategory::kSync
                                      : is_mpi   ? PathCategory::kCommunication
                                      : is_input ? PathCategory::kDataLoading
                                                 : PathCategory::kCpu;
        shares.push_back(
            {category, range == kNone ? "outside ranges" : rank_.Text(t_.ranges.name[range]), until - now, false});
        now = until;
      }
      continue;
    }
    switch (piece.edge) {
      case PathEdge::kOp:
      case PathEdge::kCut:
        shares.push_back({CategoryOf(ops_[piece.op]), op_name(ops_[piece.op]), ns, true});
        break;
      case PathEdge::kLaunch:
        if (piece.counts)
          shares.push_back({PathCategory::kLaunch, rank_.Text(t_.api.name[ops_[piece.op].api]), ns, true});
        else
          shares.push_back({PathCategory::kOther, "launched, waits for its turn", ns, false});
        break;
      case PathEdge::kStream:
      case PathEdge::kCross:
        if (piece.counts)
          shares.push_back({PathCategory::kKernelGap, "from one kernel to the next", ns, false});
        else
          shares.push_back({PathCategory::kOther, "GPU idle, next operation not launched or held back", ns, false});
        break;
      case PathEdge::kTail:
        shares.push_back({PathCategory::kOther, "after the last GPU operation", ns, false});
        break;
      default:
        shares.push_back({PathCategory::kOther, "before the first event that is known", ns, false});
        break;
    }
  }
  return shares;
}

CriticalPathFinder::CriticalPathFinder(const DeviceActivity& activity) : graph_(std::make_unique<Graph>(activity)) {}
CriticalPathFinder::~CriticalPathFinder() = default;
CriticalPath CriticalPathFinder::Find(Interval window) { return graph_->Find(window); }
std::vector<CriticalPathFinder::Share> CriticalPathFinder::Shares(const CriticalPath& path) const {
  return graph_->Shares(path);
}

std::string_view PathCategoryName(PathCategory category) {
  constexpr std::string_view kNames[] = {"cpu",    "data_loading", "compute", "communication", "copy",
                                         "launch", "kernel_gap",   "sync",    "other"};
  return kNames[static_cast<std::size_t>(category)];
}

}  // namespace lockstep
