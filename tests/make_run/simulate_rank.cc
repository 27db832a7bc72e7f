// One rank's way through an operation.

#include <algorithm>

#include "make_run/simulate.h"

namespace lockstep::make_run {
namespace {

constexpr std::uint32_t kTraining = 0, kProgressThread = 1;  // Rows of threads.
constexpr std::int64_t kLeastWaitNs = 20'000;                // Shorter ones are not recorded.

// The thread that carries it.
std::uint32_t HelperOf(const Op& op) { return 1 + static_cast<std::uint32_t>(op.comm); }

MpiOp FindOp(CollectiveKind kind, MpiClass cls) {
  if (kind == CollectiveKind::kFinalize) return MpiOp::kFinalize;
  for (const MpiOpInfo& info : kMpiOps)  // The plain function stands before its variants.
    if (info.kind == kind && info.cls == cls) return info.op;
  return MpiOp::kOther;
}
schema::MpiCalls::Row CallRow(const Op& op) {
  const bool rooted = RootSends(op.collective) || RootReceives(op.collective);
  return {.comm = static_cast<std::uint32_t>(op.comm),
          .bytes = op.bytes,
          .peer = rooted ? op.root : -1,
          .tag = -1,
          .count = 1};
}
schema::MpiCalls::Row RequestsRow(std::size_t requests, std::uint32_t count, bool completed) {
  return {.comm = schema::kNone,
          .bytes = requests,
          .peer = -1,
          .tag = -1,
          .count = count,
          .outcome = static_cast<std::uint8_t>(completed ? 0 : 1)};
}

}  // namespace

bool Simulation::IsRoot(const Op& op, std::int32_t group, std::int32_t rank) const {
  return Member(spec_, op.comm, group, op.root % MemberCount(spec_, op.comm, group)) == rank;
}

void Simulation::Sample(const RankState& state, Emitter* out) const {
  if (out != nullptr) out->Cpu(state.t, state.t - spec_.epoch_ns - state.off_cpu - state.asleep, state.off_cpu);
}

void Simulation::TestOnce(RankState& state, Emitter* out) const {
  const std::int64_t entry = state.t;
  state.t += spec_.call_ns;
  const std::size_t before = state.pending.size();
  std::erase_if(state.pending, [&](Pending& pending) {
    if (DoneOn(*pending.op, pending.instance, state.rank) > entry) {
      pending.last_incomplete = state.t;
      return false;
    }
    if (out != nullptr) out->Complete(pending.row, pending.last_incomplete, entry, state.t);
    return true;
  });
  if (out != nullptr)
    out->Mpi(kTraining, MpiOp::kTestsome, entry, state.t, RequestsRow(before, 1, state.pending.size() < before));
}

void Simulation::Compute(RankState& state, std::int64_t duration, Emitter* out) const {
  if (spec_.progress == Progress::kTest)
    while (duration >= spec_.poll_ns && !state.pending.empty()) {
      state.t += spec_.poll_ns;
      duration -= spec_.poll_ns;
      TestOnce(state, out);
    }
  state.t += duration;
}

void Simulation::ThreadPolls(RankState& state, std::int64_t until, Emitter* out) const {
  const auto poll = [&](std::int64_t begin, std::int64_t end) {
    const auto calls = static_cast<std::uint32_t>((end - begin) / std::max<std::int64_t>(spec_.call_ns, 1) + 1);
    if (out != nullptr)
      out->Mpi(kProgressThread, MpiOp::kTestsome, begin, end, RequestsRow(state.pending.size(), calls, false));
  };
  while (!state.pending.empty()) {
    Pending& next = state.pending.front();
    const std::int64_t done = DoneOn(*next.op, next.instance, state.rank);
    const std::int64_t begin = std::max(state.polled_until, next.post_end);
    const std::int64_t entry = std::max(begin, done);
    if (done == kNever || entry + spec_.call_ns > until) {
      if (begin < until && done != kNever) {
        poll(begin, until);
        for (Pending& pending : state.pending) pending.last_incomplete = until;
      }
      return;
    }
    if (begin < entry) {
      poll(begin, entry);
      next.last_incomplete = entry;
    }
    state.polled_until = entry + spec_.call_ns;
    if (out != nullptr) {
      out->Mpi(kProgressThread, MpiOp::kTest, entry, state.polled_until, RequestsRow(1, 1, true));
      out->Complete(next.row, next.last_incomplete, entry, state.polled_until);
    }
    state.pending.erase(state.pending.begin());
  }
}

void Simulation::Arrive(RankState& state, const Place& place, std::vector<Instance>* instances,
                        std::vector<std::int64_t>* rings, Emitter* out) const {
  const Op& op = *place.op;
  switch (op.kind) {
    case OpKind::kCompute: {
      const std::int64_t duration = Duration(state, place, 0);
      struct Stall {
        const WaitRow* row;
        std::int64_t begin, end;
      };
      std::vector<Stall> waits;
      if (out != nullptr && !op.name.empty()) out->Push(op.name, op.category, state.t);
      Compute(state, duration, out);
      if (out != nullptr) {
        std::int64_t end = state.t;
        for (std::size_t i = spec_.stall.size(); i-- > 0;) {
          if (!Stalls(i, state, place)) continue;
          const std::int64_t begin = end - spec_.stall[i].by_ns;
          if (spec_.stall[i].wait) waits.push_back({&*spec_.stall[i].wait, begin, end});
          end = begin;
        }
        for (; !waits.empty(); waits.pop_back())
          out->Blocked(*waits.back().row, waits.back().begin, waits.back().end, schema::kNone);
      }
      if (out != nullptr && !op.name.empty()) out->Pop(state.t);
      return;
    }
    case OpKind::kOther:
      if (out != nullptr) out->Mpi(kTraining, op.mpi, state.t, state.t + op.duration_ns);
      state.t += op.duration_ns;
      return;
    case OpKind::kPush:
      if (out != nullptr) out->Push(op.name, op.category, state.t);
      return;
    case OpKind::kPop:
      if (out != nullptr) out->Pop(state.t);
      return;
    case OpKind::kInit:
      if (GroupOf(spec_, op.comm, state.rank) < 0) return;
      if (out != nullptr) {
        out->Mpi(kTraining, FindOp(op.collective, MpiClass::kCollectiveInit), state.t, state.t + spec_.call_ns,
                 CallRow(op));
        out->Init(op, state.t, state.t + spec_.call_ns);
      }
      state.t += spec_.call_ns;
      return;
    case OpKind::kTest:
      if (spec_.progress != Progress::kThread && spec_.progress != Progress::kHelper && !state.pending.empty())
        TestOnce(state, out);
      return;
    case OpKind::kWait:
      state.entry = state.t;
      if (spec_.progress == Progress::kThread) ThreadPolls(state, state.t, out);
      if (instances != nullptr)
        for (const Pending& pending : state.pending)
          if (Covers(place, pending)) {
            Instance& instance = (*instances)[pending.instance];
            instance.wait = std::max(instance.wait, state.t);
            ++instance.waiting;
          }
      return;
    case OpKind::kRing:
      state.entry = state.t;
      if (rings != nullptr) (*rings)[place.instance + static_cast<std::size_t>(state.rank)] = state.t;
      return;
    case OpKind::kSend:
      if (rings != nullptr) (*rings)[Slot(place.instance, op, state.rank)] = state.t;
      Sample(state, out);
      if (out != nullptr) out->Message(op, true, state.t, state.t + spec_.call_ns, state.t);
      state.t += spec_.call_ns;
      Sample(state, out);
      return;
    case OpKind::kRecv:
      state.entry = state.t;
      return;
    case OpKind::kHost:
    case OpKind::kKernel:
    case OpKind::kNccl:
    case OpKind::kNcclSend:
    case OpKind::kNcclRecv:
    case OpKind::kCopy:
    case OpKind::kJoin:
    case OpKind::kSync:
    case OpKind::kOverhead:
      Gpu(state, place, out);
      if (op.kind == OpKind::kNcclSend && rings != nullptr)
        (*rings)[Slot(place.instance, op, state.rank)] = state.entry;
      break;
    case OpKind::kBlocking:
    case OpKind::kPost:
    case OpKind::kStart:
      state.entry = state.t;
      break;
  }
  if (instances == nullptr || !(op.kind == OpKind::kBlocking || op.kind == OpKind::kPost || op.kind == OpKind::kStart ||
                                op.kind == OpKind::kNccl))
    return;
  const std::int32_t group = GroupOf(spec_, op.comm, state.rank);
  if (group < 0) return;
  Instance& instance = (*instances)[place.instance + static_cast<std::size_t>(group) - FirstGroup(op)];
  if (!op.IsEmpty(state.rank)) instance.arrival = std::max(instance.arrival, state.entry);
  ++instance.arrived;
  if (RootSends(op.collective) && IsRoot(op, group, state.rank)) instance.root_arrival = state.entry;
  if (IsOnGloo(op)) {
    instance.arrivals.resize(static_cast<std::size_t>(MemberCount(spec_, op.comm, group)));
    instance.arrivals[static_cast<std::size_t>(CommRank(spec_, op.comm, state.rank))] = state.entry;
  }
}

// The training thread sleeps until the last of them has ended.
void Simulation::LeaveWaitForHelper(RankState& state, const Place& place, std::int64_t end, Emitter* out) const {
  Sample(state, out);
  std::uint32_t waker = schema::kNone;
  std::erase_if(state.pending, [&](const Pending& pending) {
    if (!Covers(place, pending)) return false;
    if (DoneOn(*pending.op, pending.instance, state.rank) == end) waker = HelperOf(*pending.op);
    return true;
  });
  if (waker != schema::kNone && end - state.entry >= kLeastWaitNs && out != nullptr)
    out->Blocked({.kind = schema::BlockedKind::kCondition, .function = "pthread_cond_wait"}, state.entry, end, waker);
  state.asleep += end - state.entry;
  state.t = end;
  Sample(state, out);
}

void Simulation::LeaveRing(RankState& state, const Place& place, Emitter* out) const {
  const Op& op = *place.op;
  const auto n = static_cast<std::int64_t>(spec_.ranks);
  const auto left = static_cast<std::int32_t>(((state.rank - op.shift) % n + n) % n);
  const auto right = static_cast<std::int32_t>(((state.rank + op.shift) % n + n) % n);
  const std::int64_t of_left = rings_[place.instance + static_cast<std::size_t>(left)];
  const std::int64_t of_right =
      op.both_ways || op.handshake ? rings_[place.instance + static_cast<std::size_t>(right)] : state.entry;
  if (of_left == kNever || of_right == kNever) {
    state.stopped = true;
    return;
  }
  Sample(state, out);
  const bool together = op.waits == Op::Waits::kTogether;
  const std::int64_t posts = (op.both_ways ? 4 : together ? 0 : 2) * spec_.call_ns;
  const auto received = [&](std::int64_t sent, std::int32_t from) {
    return (op.handshake ? std::max(state.entry, sent) : sent) + posts + NoisyCost(place, from, state.rank);
  };
  const auto handed_over = [&](std::int64_t there, std::int32_t to) {
    return (op.handshake ? std::max(state.entry, there) + NoisyCost(place, state.rank, to) : state.entry) + posts;
  };
  const auto wait = [&](std::int64_t entry, std::int64_t done) {
    return Emitter::Wait{entry, std::max(entry + spec_.call_ns, done)};
  };
  const std::int64_t begin = state.entry + posts, from_left = received(of_left, left),
                     to_right = handed_over(of_right, right);
  if (together) {
    state.t = wait(begin, std::max(from_left, to_right)).end;
    if (op.both_ways) state.t = std::max({state.t, received(of_right, right), handed_over(of_left, left)});
    if (out != nullptr && op.both_ways) out->Halo(op, state.entry, begin, state.t);
    if (out != nullptr && !op.both_ways) out->Ring(op, state.entry, state.t);
  } else {
    const bool send_first = op.waits == Op::Waits::kSendFirst;
    const Emitter::Wait first = wait(begin, send_first ? to_right : from_left),
                        second = wait(first.end, send_first ? from_left : to_right);
    state.t = second.end;
    if (out != nullptr) out->PostedRing(op, state.entry, send_first ? second : first, send_first ? first : second);
  }
  Sample(state, out);
}

void Simulation::Leave(RankState& state, const Place& place, Emitter* out) const {
  const Op& op = *place.op;
  if (op.kind == OpKind::kWait) {
    std::int64_t end = state.entry + spec_.call_ns;
    std::size_t covered = 0;
    for (const Pending& pending : state.pending) {
      if (!Covers(place, pending)) continue;
      ++covered;
      end = std::max(end, DoneOn(*pending.op, pending.instance, state.rank));
    }
    if (end == kNever) {
      state.stopped = true;
      return;
    }
    if (spec_.progress == Progress::kHelper) return LeaveWaitForHelper(state, place, end, out);
    Sample(state, out);
    std::erase_if(state.pending, [&](const Pending& pending) {
      if (!Covers(place, pending)) return false;
      if (out != nullptr) out->Complete(pending.row, pending.last_incomplete, state.entry, end);
      return true;
    });
    if (out != nullptr)
      out->Mpi(kTraining, op.name.empty() ? MpiOp::kWaitall : MpiOp::kWait, state.entry, end,
               RequestsRow(covered, 1, true));
    state.t = end;
    state.polled_until = end;
    Sample(state, out);
    return;
  }
  if (op.kind == OpKind::kRing) return LeaveRing(state, place, out);
  if (op.kind == OpKind::kRecv || op.kind == OpKind::kNcclRecv) {
    const std::int64_t sent = rings_[Slot(place.instance, *place.send, state.rank - op.peer)];
    if (sent == kNever) {
      state.stopped = true;
      return;
    }
    if (op.kind == OpKind::kNcclRecv) {
      const std::int64_t end = state.CommFree(op.stream) =
          std::max(state.entry, sent) + Cost(op, state.rank - op.peer, state.rank);
      if (out != nullptr) out->GpuSendRecv(op, false, state.launched, state.entry, end);
      EndNccl(state, op, end, out);
      return;
    }
    Sample(state, out);
    const std::int64_t looked = op.posted ? state.entry + spec_.call_ns : state.entry;
    state.t = std::max(looked + spec_.call_ns, sent + NoisyCost(place, state.rank - op.peer, state.rank));
    if (out != nullptr) out->Message(op, false, state.entry, state.t, looked);
    Sample(state, out);
    return;
  }
  if (op.kind != OpKind::kBlocking && op.kind != OpKind::kPost && op.kind != OpKind::kStart && op.kind != OpKind::kNccl)
    return;
  const std::int32_t group = GroupOf(spec_, op.comm, state.rank);
  if (group < 0) return;
  const std::size_t at = place.instance + static_cast<std::size_t>(group) - FirstGroup(op);
  const Instance& instance = instances_[at];
  if (op.kind == OpKind::kPost || op.kind == OpKind::kStart) {
    const bool persistent = op.kind == OpKind::kStart;
    state.t = state.entry + spec_.call_ns;
    Pending pending{at, &op, state.t, schema::kNoTime, 0};
    if (out != nullptr && spec_.progress == Progress::kHelper) {
      if (instance.done != kNever) {
        const std::int64_t begin = std::max(state.t, instance.free), end = DoneOn(op, at, state.rank);
        const std::uint32_t row = out->Collective(
            {.op = &op, .begin_ns = begin, .post_end_ns = end, .enqueue_ns = state.entry, .thread = HelperOf(op)});
        out->Complete(row, schema::kNoTime, begin, end);
      }
    } else if (out != nullptr) {
      const std::uint32_t call = persistent
                                     ? out->Mpi(kTraining, MpiOp::kStart, state.entry, state.t, RequestsRow(1, 1, true))
                                     : out->Mpi(kTraining, FindOp(op.collective, MpiClass::kCollectivePost),
                                                state.entry, state.t, CallRow(op));
      pending.row = out->Collective({&op, static_cast<std::uint8_t>(persistent ? 2 : 1), state.entry, state.t, call});
    }
    state.pending.push_back(pending);
    return;
  }
  if (instance.done == kNever) {
    state.stopped = true;
    return;
  }
  if (op.kind == OpKind::kNccl) return LeaveNccl(state, op, DoneOn(op, at, state.rank), out);
  const bool is_root = (RootSends(op.collective) || RootReceives(op.collective)) && IsRoot(op, group, state.rank);
  std::int64_t end = DoneOn(op, at, state.rank);
  if (!instance.ends.empty()) {
    end = instance.ends[static_cast<std::size_t>(CommRank(spec_, op.comm, state.rank))];
  } else if (RootSends(op.collective)) {
    end = std::max(state.entry, instance.root_arrival) + Cost(op);
  } else if (RootReceives(op.collective)) {
    if (!is_root) end = state.entry + spec_.call_ns;
  } else if (spec_.skew_ns > 0) {
    end += static_cast<std::int64_t>(Random(spec_.seed ^ 1, static_cast<std::uint64_t>(state.rank),
                                            static_cast<std::uint64_t>(place.step), place.index) %
                                     static_cast<std::uint64_t>(spec_.skew_ns));
  }
  if (op.IsEmpty(state.rank)) end = std::max(end, state.entry + Cost(op));
  Sample(state, out);
  state.t = end;
  if (out != nullptr) {
    const std::uint32_t call =
        out->Mpi(kTraining, FindOp(op.collective, MpiClass::kCollective), state.entry, end, CallRow(op));
    const std::uint32_t row = out->Collective({&op, 0, state.entry, end, call});
    out->Complete(row, schema::kNoTime, state.entry, end);
  }
  Sample(state, out);
}

RankOutput Simulation::Rank(std::int32_t rank) const {
  Emitter out(spec_, rank);
  RankState state{.rank = rank, .t = spec_.epoch_ns};
  bool ended = false, cut = false;
  const auto cpu = [&] { return state.t - spec_.epoch_ns - state.off_cpu - state.asleep; };
  Walk(
      [&](const Place& place) {
        if (state.stopped || !place.op->Concerns(rank)) return;
        Arrive(state, place, nullptr, nullptr, &out);
        Leave(state, place, &out);
      },
      [&](std::int64_t step, bool last) {
        if (state.stopped) return;
        if (spec_.marks) {
          out.Mark(step, last, state.t, cpu());
          Sample(state, &out);
        }
        if (stop_step_[static_cast<std::size_t>(rank)] != step) return;
        state.stopped = ended = true;
        for (const EndSpec& end : spec_.ends) cut |= end.rank == rank && end.cut;
      });
  std::int32_t signal = 0;
  if (ended) {
    for (const EndSpec& end : spec_.ends)
      if (end.rank == rank) signal = end.signal;
  } else if (state.stopped) {
    signal = 15;
  }
  RankOutput result;
  result.tables =
      out.Finish(std::max({state.t, state.compute_free, state.LastCommFree(), state.copy_free}), signal, cut, cpu());
  result.messages = out.TakeMessages();
  return result;
}

}  // namespace lockstep::make_run
