#include "analysis/replay/gpu/gpu_rank_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace lockstep::replay {
namespace {

// The kernels of one stream that one stretch of a thread launches, as one operation: see gpu_rank_graph.h.
struct Chain {
  std::uint32_t operation = kNone;  // kNone: no chain is open.
  std::uint16_t thread = 0;
  Role role = Role::kKernel;
  std::int64_t length_ns = 0;  // sum d_j
  std::int64_t lead_ns = 0;    // Never negative: nothing begins before the stretch.
  std::uint32_t likeness = 0;

  void Append(std::int64_t released_ns, std::int64_t takes_ns, std::uint32_t group) {
    lead_ns = std::max(lead_ns, released_ns - length_ns);
    length_ns += takes_ns;
    likeness = likeness * 31 + group;
  }
};

class RankMaker {
 public:
  RankMaker(GraphInMaking& shared, std::uint32_t r, std::int64_t job_origin_ns)
      : s_(shared), rank_(shared.run.gpu_ranks[r]), r_(r), job_origin_ns_(job_origin_ns) {}

  void Make() {
    lanes_.resize(rank_.lanes.size());
    for (LaneState& lane : lanes_) lane.lane = s_.job.graph.AddLane(true);
    threads_.resize(rank_.threads);
    for (Thread& thread : threads_) {
      thread.lane = s_.job.graph.AddLane();
      thread.h_op = Add({.duration_ns = rank_.origin_ns - job_origin_ns_, .lane = thread.lane}, Role::kOther);
      thread.h_ns = rank_.origin_ns;
    }
    s_.job.starts.push_back(threads_[0].h_op);
    operation_of_.assign(rank_.items.size(), kNone);
    FindSerial();
    std::size_t gate = rank_.FirstGate();
    for (std::uint32_t i = 0; i < rank_.items.size(); ++i) {
      // What the step before left on the streams is there before anything that this one requests.
      if (i > 0 && rank_.items[i].kind != GpuItem::kCarry && rank_.items[i - 1].kind == GpuItem::kCarry)
        EmitEnqueues(threads_[GpuRank::kNobody], 0);
      gated_ = false;
      for (; gate < rank_.gates.size() && rank_.gates[gate] == i; ++gate) Gate(i, gate);
      if (gate == rank_.gates.size() && rank_.EndsLastStep(i)) break;
      Visit(i);
    }
    for (std::uint16_t lane = 0; lane < lanes_.size(); ++lane) Release(lane, kNone, {.lane = lane});
    for (std::uint16_t thread = 0; thread < threads_.size(); ++thread) Flush(thread, threads_[thread].h_ns);
    if (!rank_.gates.empty() && rank_.gates.back() == kNone) End();
  }

 private:
  struct Thread {
    std::uint32_t lane = kNone;
    std::uint32_t h_op = kNone;  // The operation that ends when its present stretch begins...
    std::int64_t h_ns = 0;       // ... in the recorded run.
    std::vector<std::pair<std::uint32_t, std::int64_t>> enqueues;  // Operation and lag, from the stretch's begin.
    std::vector<std::uint16_t> open;                               // The lanes with a chain of this stretch.
  };
  static constexpr std::uint16_t kNoThread = 0xffff;
  struct Deferred {
    std::uint32_t item;
    std::vector<std::uint32_t> waits;
  };
  struct LaneState {
    std::uint32_t lane = kNone;
    Chain chain;
    std::uint16_t issuer = kNoThread;     // The thread that last requested something of it.
    std::uint16_t synced_by = kNoThread;  // The thread that waited for all of it, if nothing was requested since.
    std::vector<std::uint32_t> waits;     // The operations that the next operation needs.
    std::uint32_t last = kNone;
    std::int64_t end_ns = INT64_MIN;
    std::vector<Deferred> deferred;  // Collectives that move data when they are waited for.
  };

  std::uint32_t Add(Operation operation, Role role, std::uint32_t collective = kNone) {
    operation.rank = static_cast<std::int32_t>(r_);
    s_.job.operations.push_back({role, r_, step_, positions_[static_cast<std::size_t>(role)]++, collective});
    return s_.job.graph.Add(operation);
  }
  Operation& Op(std::uint32_t i) { return s_.job.graph.operations()[i]; }
  void Needs(std::uint32_t operation, std::uint32_t earlier) {
    if (earlier != kNone) s_.job.graph.Needs(operation, earlier);
  }

  // Emits all but the last `keep`.
  void EmitEnqueues(Thread& thread, std::size_t keep) {
    const std::size_t n = thread.enqueues.size() < keep ? 0 : thread.enqueues.size() - keep;
    for (std::size_t k = 0; k < n; ++k)
      thread.h_op =
          Add({.lane = thread.lane, .enqueues = thread.enqueues[k].first, .enqueue_lag_ns = thread.enqueues[k].second},
              Role::kOther);
    thread.enqueues.erase(thread.enqueues.begin(), thread.enqueues.begin() + static_cast<std::ptrdiff_t>(n));
  }

  // Ends the thread's stretch: the operations that it enqueues are added at its begin, with its work.
  void Flush(std::uint16_t number, std::int64_t until_ns) {
    Thread& thread = threads_[number];
    while (!thread.open.empty()) CloseChain(lanes_[thread.open.back()]);
    EmitEnqueues(thread, 1);
    if (number == GpuRank::kNobody) until_ns = thread.h_ns;
    Operation work{.duration_ns = std::max<std::int64_t>(0, until_ns - thread.h_ns), .lane = thread.lane};
    if (!thread.enqueues.empty()) {
      work.enqueues = thread.enqueues[0].first;
      work.enqueue_lag_ns = thread.enqueues[0].second;
      thread.enqueues.clear();
    }
    thread.h_op = Add(work, number == GpuRank::kNobody ? Role::kOther : Role::kWork);
    thread.h_ns = std::max(thread.h_ns, until_ns);
  }

  void CloseChain(LaneState& lane) {
    const Chain chain = std::exchange(lane.chain, Chain{});
    if (chain.operation == kNone) return;
    Thread& thread = threads_[chain.thread];
    if (!s_.single_kernels) Op(chain.operation).duration_ns = chain.length_ns;
    s_.job.operations[chain.operation].likeness = chain.likeness;
    if (chain.thread != GpuRank::kNobody) {
      const std::uint32_t launch = Add({.duration_ns = chain.lead_ns}, Role::kLaunch);
      Needs(launch, thread.h_op);
      Needs(chain.operation, launch);
    }
    std::erase(thread.open, static_cast<std::uint16_t>(&lane - lanes_.data()));
  }

  // An item that is added to a lane needs what the lane waits for.
  void TakeWaits(LaneState& lane, std::uint32_t operation, std::uint32_t after) {
    for (const std::uint32_t wait : lane.waits) Needs(operation, wait);
    lane.waits.clear();
    if (after != kNone) Needs(operation, operation_of_[after]);
  }

  // If two threads take turns on a stream, the exact times of their requests matter.
  void Issue(LaneState& lane, std::uint16_t thread, std::int64_t call_ns) {
    if (lane.issuer != kNoThread && lane.issuer != thread) {
      CloseChain(lane);
      Flush(thread, call_ns);
    }
    lane.issuer = thread;
    lane.synced_by = kNoThread;
  }

  // Adds a separate operation, launched at exactly the recorded point of the thread's work.
  std::uint32_t Single(std::uint16_t lane_number, std::uint16_t thread_number, std::int64_t call_ns,
                       std::int64_t lag_ns, std::uint32_t after, Operation operation, Role role,
                       std::uint32_t collective = kNone) {
    LaneState& lane = lanes_[lane_number];
    Thread& thread = threads_[thread_number];
    CloseChain(lane);
    if (call_ns > thread.h_ns || !thread.open.empty()) Flush(thread_number, call_ns);
    lane.issuer = thread_number;
    lane.synced_by = kNoThread;
    operation.lane = lane.lane;
    const std::uint32_t made = Add(operation, role, collective);
    TakeWaits(lane, made, after);
    thread.enqueues.push_back({made, lag_ns});
    lane.last = made;
    return made;
  }

  void Gate(std::uint32_t i, std::size_t gate) {
    const GpuItem& item = rank_.items[i];
    ReleaseFor(item);
    const std::uint32_t made =
        Single(item.lane, item.thread, item.call_ns, item.lag_ns, item.after, {.delay_ns = gated_ ? 0 : item.delay_ns},
               gate == 0 ? Role::kOther : Role::kStepEnd);
    gated_ = true;
    if (gate == 0)
      s_.job.starts[r_] = made;
    else
      s_.job.step_ends[gate - 1][r_] = made;
    if (gate >= s_.run.steps.size()) return;
    step_ = static_cast<std::uint32_t>(gate);
    positions_.fill(0);
  }

  // The last step ends with all that was requested.
  void End() {
    std::int64_t last_ns = INT64_MIN;
    for (const LaneState& lane : lanes_) last_ns = std::max(last_ns, lane.end_ns);
    const std::uint32_t end = Add(
        {.duration_ns = last_ns == INT64_MIN ? 0 : std::max<std::int64_t>(0, rank_.end_ns - last_ns)}, Role::kStepEnd);
    bool any = false;
    for (const LaneState& lane : lanes_) {
      Needs(end, lane.last);
      any |= lane.last != kNone;
    }
    if (!any) Needs(end, threads_[0].h_op);
    s_.job.step_ends.back()[r_] = end;
  }

  void Visit(std::uint32_t i) {
    const GpuItem& item = rank_.items[i];
    if (item.lane != GpuItem::kNoLane) {
      LaneState& lane = lanes_[item.lane];
      lane.end_ns = std::max(lane.end_ns, item.end_ns);
    }
    switch (item.kind) {
      case GpuItem::kCarry:
        operation_of_[i] = Single(item.lane, item.thread, item.call_ns, 0, kNone,
                                  {.duration_ns = item.end_ns - item.begin_ns}, Role::kOther);
        return;
      case GpuItem::kKernel:
      case GpuItem::kCopy:
        return Kernel(i, item);
      case GpuItem::kMember:
        return Collective(i, item);
      case GpuItem::kMessages:
        return Messages(i, item);
      case GpuItem::kFixed:
        return Fixed(i, item);
      case GpuItem::kWait:
        return Wait(i, item);
      case GpuItem::kSync:
        return Sync(item);
      case GpuItem::kGive:
        Flush(item.thread, item.call_ns);
        operation_of_[i] = threads_[item.thread].h_op;
        return;
      case GpuItem::kTake:
        return Take(item);
      case GpuItem::kMpi: {
        Thread& thread = threads_[item.thread];
        Flush(item.thread, item.call_ns);
        thread.h_op = AddMember(item, item.begin_ns, thread.lane);
        thread.h_ns = item.end_ns;
        return;
      }
    }
  }

  void Kernel(std::uint32_t i, const GpuItem& item) {
    ReleaseFor(item);
    LaneState& lane = lanes_[item.lane];
    Issue(lane, item.thread, item.call_ns);
    Thread& thread = threads_[item.thread];
    const Role role = item.kind == GpuItem::kCopy ? Role::kCopy : Role::kKernel;
    Chain& chain = lane.chain;
    if (chain.operation != kNone && (chain.thread != item.thread || chain.role != role || !lane.waits.empty() ||
                                     item.after != kNone || s_.single_kernels))
      CloseChain(lane);
    const std::int64_t delay = gated_ ? 0 : item.delay_ns;
    const std::int64_t length =
        role == Role::kKernel && s_.alone != nullptr ? s_.alone->Kernel(r_, item) : item.end_ns - item.begin_ns;
    if (chain.operation == kNone) {
      Operation operation{.lane = lane.lane, .activity = role == Role::kKernel ? Activity::kCompute : Activity::kOther};
      if (s_.single_kernels) {
        operation.delay_ns = delay;
        operation.duration_ns = length;
      }
      chain = {.operation = Add(operation, role), .thread = item.thread, .role = role};
      TakeWaits(lane, chain.operation, gated_ ? kNone : item.after);
      thread.enqueues.push_back({chain.operation, 0});
      thread.open.push_back(item.lane);
      lane.last = chain.operation;
    }
    chain.Append(item.call_ns + item.lag_ns - thread.h_ns, delay + length, rank_.groups[item.ref]);
    if (item.watched) {
      operation_of_[i] = chain.operation;
      CloseChain(lane);
    }
  }

  std::uint32_t AddMember(const GpuItem& item, std::int64_t arrival_ns, std::uint32_t host_lane) {
    const std::uint32_t made = Add(
        {.lane = host_lane, .collective = GroupOf(item.ref), .activity = Activity::kTransfer}, Role::kMember, item.ref);
    s_.members[item.ref].push_back({made, arrival_ns, item.end_ns});
    return made;
  }
  std::uint32_t GroupOf(std::uint32_t collective) {
    if (s_.groups[collective] == kNone) s_.groups[collective] = s_.job.graph.AddCollective();
    return s_.groups[collective];
  }

  void Collective(std::uint32_t i, const GpuItem& item) {
    if (!s_.options.wait_for_overlap && !gated_) {
      LaneState& lane = lanes_[item.lane];
      CloseChain(lane);
      if (item.after != kNone && operation_of_[item.after] != kNone) lane.waits.push_back(operation_of_[item.after]);
      lane.deferred.push_back({i, std::move(lane.waits)});
      lane.waits.clear();
      return;
    }
    Launch(i, item.lane, item.thread, item.call_ns, item.lag_ns);
  }

  void Launch(std::uint32_t i, std::uint16_t lane, std::uint16_t thread, std::int64_t call_ns, std::int64_t lag_ns) {
    const GpuItem& item = rank_.items[i];
    const std::uint32_t made = Single(lane, thread, call_ns, lag_ns, gated_ ? kNone : item.after,
                                      {.delay_ns = gated_ || !s_.options.wait_for_overlap ? 0 : item.delay_ns,
                                       .collective = GroupOf(item.ref),
                                       .activity = Activity::kTransfer},
                                      Role::kMember, item.ref);
    s_.members[item.ref].push_back({made, item.begin_ns, item.end_ns});
    operation_of_[i] = made;
    const std::uint64_t comm = s_.run.collectives[item.ref].comm;
    auto& [last, last_lane] = last_of_comm_.try_emplace(comm, kNone, lane).first->second;
    if (last != kNone && last_lane != lane && !parallel_.contains(comm)) Needs(made, last);
    last = made;
    last_lane = lane;
  }

  // NCCL runs a communicator's operations one after the other, whatever their streams; if the trace shows two at the
  // same time, the communicator is not NCCL's.
  void FindSerial() {
    std::map<std::uint64_t, std::int64_t> end;
    for (const GpuItem& item : rank_.items) {
      if (item.kind != GpuItem::kMember) continue;
      const std::uint64_t comm = s_.run.collectives[item.ref].comm;
      const auto [at, fresh] = end.try_emplace(comm, item.end_ns);
      if (!fresh && item.begin_ns < at->second) parallel_[comm] = true;
      at->second = std::max(at->second, item.end_ns);
    }
  }

  void Messages(std::uint32_t i, const GpuItem& item) {
    const std::uint32_t gate = Single(item.lane, item.thread, item.call_ns, item.lag_ns, item.after,
                                      {.delay_ns = gated_ ? 0 : item.delay_ns}, Role::kOther);
    GraphInMaking::Exchange exchange{gate, kNone, item.begin_ns, item.end_ns, {}};
    const std::uint32_t kernel = rank_.messages[item.ref].item;
    for (std::uint32_t m = item.ref; m < rank_.messages.size() && rank_.messages[m].item == kernel; ++m)
      if (s_.run.of_message[r_][m] != kNone)
        exchange.messages.push_back({s_.run.of_message[r_][m], rank_.messages[m].send});
    const std::uint32_t about = exchange.messages.empty() ? kNone : exchange.messages.front().first;
    exchange.body =
        Single(item.lane, item.thread, item.call_ns, item.lag_ns, kNone, {.duration_ns = item.end_ns - item.begin_ns},
               about == kNone ? Role::kCall : Role::kMember, about);
    operation_of_[i] = exchange.body;
    s_.exchanges.push_back(std::move(exchange));
  }

  void Fixed(std::uint32_t i, const GpuItem& item) {
    if (item.lane == GpuItem::kNoLane) {
      Thread& thread = threads_[item.thread];
      Flush(item.thread, item.call_ns);
      thread.h_op = Add({.duration_ns = item.end_ns - item.begin_ns, .lane = thread.lane}, Role::kCall);
      thread.h_ns = item.end_ns;
      return;
    }
    operation_of_[i] =
        Single(item.lane, item.thread, item.call_ns, item.lag_ns, gated_ ? kNone : item.after,
               {.duration_ns = item.end_ns - item.begin_ns, .delay_ns = gated_ ? 0 : item.delay_ns}, Role::kCall);
  }

  void Wait(std::uint32_t i, const GpuItem& item) {
    LaneState& lane = lanes_[item.lane];
    CloseChain(lane);
    if (item.ref == kNone) return;
    const std::uint16_t from = rank_.items[item.ref].lane;
    if (from != GpuItem::kNoLane) Release(from, item.ref, WaiterOf(item));
    const std::uint32_t waited = operation_of_[item.ref];
    if (waited == kNone) return;
    lane.waits.push_back(waited);
    lane.synced_by = kNoThread;
    if (item.watched) operation_of_[i] = Marker(item.lane, item.thread, item.call_ns, true);
  }

  // Adds an operation that ends when everything so far on the lane has ended.
  std::uint32_t Marker(std::uint16_t lane_number, std::uint16_t thread, std::int64_t call_ns, bool takes_waits) {
    LaneState& lane = lanes_[lane_number];
    Issue(lane, thread, call_ns);
    const std::uint32_t made = Add({.lane = lane.lane}, Role::kOther);
    for (const std::uint32_t wait : lane.waits) Needs(made, wait);
    if (takes_waits) lane.waits.clear();
    threads_[thread].enqueues.push_back({made, 0});
    return made;
  }

  void Sync(const GpuItem& item) {
    const GpuSync& sync = rank_.syncs[item.ref];
    Thread& thread = threads_[item.thread];
    Flush(item.thread, item.call_ns);
    std::vector<std::uint32_t> waited;
    for (const std::uint16_t number : sync.lanes) {
      LaneState& lane = lanes_[number];
      Release(number, kNone, {number, item.thread, item.call_ns});
      if (lane.chain.operation != kNone) Flush(lane.chain.thread, item.call_ns);
      if (lane.synced_by == item.thread) continue;  // It contains nothing new.
      waited.push_back(Marker(number, item.thread, item.call_ns, false));
      lane.synced_by = item.thread;
    }
    if (sync.item != kNone) {
      const GpuItem& of = rank_.items[sync.item];
      if (of.lane != GpuItem::kNoLane) Release(of.lane, sync.item, {of.lane, item.thread, item.call_ns});
      waited.push_back(operation_of_[sync.item]);
    }
    EmitEnqueues(thread, 0);
    thread.h_op = Add({.duration_ns = item.delay_ns, .lane = thread.lane}, Role::kSync);
    for (const std::uint32_t operation : waited) Needs(thread.h_op, operation);
    thread.h_ns = item.end_ns;
  }

  void Take(const GpuItem& item) {
    Thread& thread = threads_[item.thread];
    Flush(item.thread, std::max(thread.h_ns, item.begin_ns));
    thread.h_op = Add({.duration_ns = item.call_ns - rank_.items[item.ref].call_ns, .lane = thread.lane}, Role::kWork);
    Needs(thread.h_op, operation_of_[item.ref]);
    thread.h_ns = item.call_ns;
  }

  void ReleaseFor(const GpuItem& item) {
    if (item.after != kNone && rank_.items[item.after].lane != GpuItem::kNoLane)
      Release(rank_.items[item.after].lane, item.after, WaiterOf(item));
  }

  // What waits for deferred collectives: a thread requests something at `call_ns` on `lane` that needs them.
  struct Waiter {
    std::uint16_t lane;
    std::uint16_t thread = kNoThread;  // kNoThread: nothing waits, but the run is over.
    std::int64_t call_ns = 0;
  };
  static Waiter WaiterOf(const GpuItem& item) { return {item.lane, item.thread, item.call_ns}; }

  // The collectives deferred on the lane `from` up to the item `upto` (kNone: all of them) move data now, on the lane
  // that waits. Lanes that only communicate pass them on.
  void Release(std::uint16_t from, std::uint32_t upto, const Waiter& waiter) {
    auto& deferred = lanes_[from].deferred;
    if (deferred.empty()) return;
    std::vector<Deferred> now;
    for (auto& each : deferred)
      if (upto == kNone || each.item <= upto) now.push_back(std::move(each));
    deferred.erase(deferred.begin(), deferred.begin() + static_cast<std::ptrdiff_t>(now.size()));
    LaneState& to = lanes_[waiter.lane];
    const bool passes_on = from != waiter.lane && rank_.lanes[waiter.lane].communicates;
    for (auto& each : now) {
      if (passes_on) {
        to.deferred.push_back(std::move(each));
        continue;
      }
      CloseChain(to);
      to.waits.insert(to.waits.end(), each.waits.begin(), each.waits.end());
      if (waiter.thread != kNoThread) {
        Launch(each.item, waiter.lane, waiter.thread, waiter.call_ns, 0);
      } else {
        const std::uint16_t thread = rank_.items[each.item].thread;
        Launch(each.item, waiter.lane, thread, threads_[thread].h_ns, 0);
      }
    }
  }

  GraphInMaking& s_;
  const GpuRank& rank_;
  const std::uint32_t r_;
  const std::int64_t job_origin_ns_;
  bool gated_ = false;  // The present item's begin already is an operation.
  std::uint32_t step_ = 0;
  std::array<std::uint32_t, kRoles> positions_ = {};
  std::vector<Thread> threads_;
  std::vector<LaneState> lanes_;
  std::vector<std::uint32_t> operation_of_;  // By item; only for items that others wait for.
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint16_t>> last_of_comm_;
  std::map<std::uint64_t, bool> parallel_;
};

}  // namespace

void AddRank(GraphInMaking& shared, std::uint32_t r, std::int64_t job_origin_ns) {
  RankMaker(shared, r, job_origin_ns).Make();
}

}  // namespace lockstep::replay
