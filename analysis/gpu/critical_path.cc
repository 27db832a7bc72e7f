#include "analysis/gpu/critical_path.h"

#include <algorithm>
#include <boost/sort/spinsort/spinsort.hpp>
#include <limits>
#include <queue>
#include <utility>

#include "analysis/gpu/critical_hosts.h"
#include "analysis/gpu/critical_shares.h"
#include "core/rules/common.h"

namespace lockstep::gpu {
namespace {

using schema::kNone;
using schema::kNoTime;

// A point of a host thread that an edge leaves or enters. In the order of `kind` at one
// time: what a launch depends on comes before it.
struct HostNode {
  enum Kind : std::uint8_t { kReleased, kHandsOver, kTakesOver, kLaunches };
  std::int64_t time_ns;
  std::uint32_t thread;  // Of CriticalHosts.threads().
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
        t_(activity.rank.tables),
        ops_(activity.timeline.ops),
        waits_(FindStreamWaits(activity.rank.tables, activity.timeline)),
        hosts_(activity, waits_),
        nest_(activity.rank.tables, RangeNest::kAllSources & ~RangeNest::kPythonFunctions),
        op_steps_(ops_.size()),
        streams_(activity.timeline.streams.size()) {
    for (const HostRelease& release : hosts_.releases())
      nodes_.push_back({release.time_ns, release.thread, release.op, HostNode::kReleased});
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

  std::vector<Share> Shares(const CriticalPath& path) const { return SharesOf(path, activity_, hosts_, nest_); }

 private:
  // ---- Built once ----

  void AddLaunches() {
    node_of_api_.assign(t_.api.rows(), kNone);
    for (const GpuOp& op : ops_) {
      if (!op.busy || op.api == kNone || node_of_api_[op.api] != kNone) continue;
      const std::uint32_t thread = hosts_.IndexOf(t_.api.thread[op.api]);
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
    const std::vector<HostThread>& threads = hosts_.threads();
    for (std::uint32_t i = 0; i < threads.size(); ++i) {
      std::int64_t before = kNoTime;
      // Being blocked is no pause.
      for (const Interval& at : Unite(threads[i].covered, threads[i].blocked)) {
        stretches.push_back({at, before, i});
        before = at.end;
      }
    }
    if (threads.size() < 2) return;
    std::vector<std::uint32_t> by_end(stretches.size());
    for (std::uint32_t i = 0; i < by_end.size(); ++i) by_end[i] = i;
    const auto end_order = [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(stretches[a].at.end, stretches[a].thread) < std::pair(stretches[b].at.end, stretches[b].thread);
    };
    boost::sort::spinsort(by_end.begin(), by_end.end(), end_order);
    std::vector<std::uint32_t> by_begin = by_end;
    boost::sort::spinsort(by_begin.begin(), by_begin.end(), [&](std::uint32_t a, std::uint32_t b) {
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
    // Sorted runs, one after the other.
    boost::sort::spinsort(nodes_.begin(), nodes_.end(), [](const HostNode& a, const HostNode& b) {
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
    last_node_.assign(hosts_.threads().size(), kNone);
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
    return op.api == kNone ? std::pair(kNoTime, 0u) : std::pair(t_.api.begin_ns[op.api], op.api);
  }

  // What its stream waited for, if that is later than the end on its own stream. Where the trace
  // tells of such waits it is not guessed but within one CUDA graph, whose inner edges nothing tells.
  std::uint32_t HeldBy(std::uint32_t i, std::int64_t own_end_ns) const {
    if (!waits_.told || waits_.unknown[i]) return LikelyHeldBy(i, own_end_ns, false);
    const std::uint32_t of_graph = LikelyHeldBy(i, own_end_ns, true), op = waits_.held_by[i];
    if (op == kNone || op >= i || ops_[op].end_ns > ops_[i].begin_ns || ops_[op].end_ns <= own_end_ns) return of_graph;
    if (of_graph == kNone) return op;
    return std::pair(ops_[op].end_ns, op) < std::pair(ops_[of_graph].end_ns, of_graph) ? of_graph : op;
  }

  // Of what was launched before it on another stream of the device (or by the same call), what
  // ended last: if that is later than the end on its own stream, this one may have waited for it.
  std::uint32_t LikelyHeldBy(std::uint32_t i, std::int64_t own_end_ns, bool same_call) const {
    const GpuOp& op = ops_[i];
    const std::uint16_t device = activity_.timeline.DeviceOf(op);
    for (const std::uint32_t stream : recent_) {
      const std::uint32_t candidate = streams_[stream].ended;
      if (ops_[candidate].end_ns <= own_end_ns) break;
      if (stream == op.stream || activity_.timeline.streams[stream].device != device) continue;
      if (LaunchOf(ops_[candidate]) > LaunchOf(op)) continue;
      if (same_call && (op.api == kNone || ops_[candidate].api != op.api)) continue;
      return candidate;
    }
    return kNone;
  }

  void VisitOp(std::uint32_t i) {
    const GpuOp& op = ops_[i];
    const std::int64_t begin = op.begin_ns;
    EndUntil(begin);
    Step best{};  // From the window's begin, unexplained, if there is nothing else.
    std::int64_t best_time = kNoTime;
    const auto offer = [&](PathEdge edge, std::uint32_t from, std::int64_t from_time, std::int64_t from_best,
                           bool counts) {
      const std::int64_t weight = from_best + (counts ? begin - from_time : 0);
      if (std::pair(weight, from_time) <= std::pair(best.best_ns, best_time)) return;
      best = {weight, from, edge, counts};
      best_time = from_time;
    };
    const std::int64_t launch = op.api == kNone ? kNoTime : t_.api.begin_ns[op.api];
    const std::uint32_t own = streams_[op.stream].ended;
    const std::int64_t own_end = own == kNone ? window_.begin : ops_[own].end_ns;
    const auto queued_and_prompt = [&](std::int64_t end) {
      return launch < end && begin - end <= rules::kPromptStartNs;
    };
    if (own != kNone) offer(PathEdge::kStream, own, own_end, AtEnd(own), queued_and_prompt(own_end));
    const std::uint32_t other = HeldBy(i, own_end);
    std::int64_t ready = own == kNone ? kNoTime : own_end;
    if (other != kNone) {
      ready = ops_[other].end_ns;
      offer(PathEdge::kCross, other, ready, AtEnd(other), queued_and_prompt(ready));
    }
    const std::uint32_t node = op.api == kNone ? kNone : node_of_api_[op.api];
    if (node != kNone && launch >= window_.begin && launch <= begin) {
      const std::int64_t call_end = launch + t_.api.duration_ns[op.api];
      offer(PathEdge::kLaunch, node, launch, node_steps_[node].best_ns,
            launch >= ready && begin - call_end <= rules::kPromptStartNs);
    }
    op_steps_[i] = best;
    if (begin == window_.end) {
      sink_ = i;  // What begins with the next window ends this one.
      return;
    }
    Running(i);
  }

  void VisitNode(std::uint32_t i) {
    const HostNode& node = nodes_[i];
    const std::uint32_t before = last_node_[node.thread];
    Step best;
    std::int64_t best_time = before == kNone ? window_.begin : nodes_[before].time_ns;
    best.best_ns =
        (before == kNone ? 0 : node_steps_[before].best_ns) + hosts_.WeightOf(node.thread, {best_time, node.time_ns});
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
            node_steps_[node.ref].best_ns + hosts_.NobodyWithin({from, node.time_ns}));
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
      for (std::uint32_t i = 0; i < hosts_.threads().size(); ++i) {
        const std::int64_t weight = hosts_.WeightOf(i, window_);
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
  const schema::RankTables& t_;
  const std::vector<GpuOp>& ops_;
  const StreamWaits waits_;
  const CriticalHosts hosts_;
  RangeNest nest_;
  std::vector<HostNode> nodes_;
  std::vector<std::uint32_t> node_of_api_;
  std::uint32_t hand_overs_ = 0;
  std::vector<Step> op_steps_;  // At each operation's begin.
  std::vector<Step> node_steps_;

  std::vector<std::uint32_t> carried_;  // Operations before carried_to_ that end after carried_at_ns_.
  std::size_t carried_to_ = 0;
  std::int64_t carried_at_ns_ = kNoTime;

  Interval window_{0, 0};
  std::vector<StreamState> streams_;
  std::vector<std::uint32_t> recent_;  // Streams, the one that ended an operation last first.
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> running_;
  std::vector<std::uint32_t> last_node_;  // Per thread.
  std::uint32_t sink_ = kNone, last_op_ = kNone;
};

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

}  // namespace lockstep::gpu
