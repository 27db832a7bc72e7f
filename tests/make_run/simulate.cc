#include "make_run/simulate.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "make_run/gloo.h"

namespace lockstep::make_run {
namespace {

__int128 FloorDivide(__int128 a, __int128 b) {
  const __int128 q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

bool IsCompute(const Op& op) { return (op.kind == OpKind::kCompute && op.category != 1) || op.kind == OpKind::kKernel; }
bool CanBeDisturbed(const Op& op) {
  return op.kind == OpKind::kCompute || op.kind == OpKind::kKernel || op.kind == OpKind::kHost;
}
bool Concerns(const Op& op, const std::string& at) { return at.empty() ? IsCompute(op) : op.at == at; }
bool HasEntries(const Op& op) {
  return op.kind == OpKind::kRing || op.kind == OpKind::kSend || op.kind == OpKind::kNcclSend;
}
bool HasInstances(const Op& op) {
  return op.kind == OpKind::kBlocking || op.kind == OpKind::kPost || op.kind == OpKind::kStart ||
         op.kind == OpKind::kNccl;
}

// Who sends everything to whom at the same time.
using Round = std::vector<std::pair<std::int32_t, std::int32_t>>;

std::vector<Round> RoundsOf(Moves moves, std::int32_t n) {
  std::vector<Round> up, rounds;
  for (std::int32_t distance = 1; distance < n; distance *= 2) {
    Round& reduce = up.emplace_back();
    Round& other = rounds.emplace_back();
    for (std::int32_t member = 0; member < n; ++member) {
      if (moves == Moves::kPairs) {
        if ((member ^ distance) < n) other.emplace_back(member ^ distance, member);
      } else {
        if (member % (2 * distance) == distance) reduce.emplace_back(member, member - distance);
        if (member < distance && member + distance < n) other.emplace_back(member, member + distance);
      }
    }
  }
  if (moves == Moves::kPairs) return rounds;
  up.insert(up.end(), rounds.begin(), rounds.end());
  return up;
}

}  // namespace

Simulation::Simulation(const Spec& spec) : spec_(spec), stop_step_(static_cast<std::size_t>(spec.ranks), kNever) {
  for (std::size_t comm = 0; comm < spec.comms.size(); ++comm)
    busy_until_.emplace_back(static_cast<std::size_t>(GroupCount(spec, comm)), INT64_MIN);
  for (const EndSpec& end : spec.ends) stop_step_[static_cast<std::size_t>(end.rank)] = end.step;
  const auto first_of = [&](const Disturbance& late) {
    std::size_t at = 0;
    while (at < spec.step.size() && !(CanBeDisturbed(spec.step[at]) && Concerns(spec.step[at], late.at))) ++at;
    return at;
  };
  for (const Disturbance& late : spec.late) late_index_.push_back(first_of(late));
  for (const Disturbance& stall : spec.stall) stall_index_.push_back(first_of(stall));
  for (const Op& op : spec.step)
    nth_compute_.push_back(nth_compute_.empty() ? 0 : nth_compute_.back() + IsCompute((&op)[-1]));
}

std::int64_t Simulation::Cost(const Op& op, std::int32_t from, std::int32_t to) const {
  std::int64_t cost = Cost(op);
  for (const LinkSpec& link : spec_.links)
    if (spec_.IsOn(link, from, to)) cost += link.by_ns + Excess(link, op.bytes);
  return cost;
}

std::int64_t Simulation::NoisyCost(const Place& place, std::int32_t from, std::int32_t to) const {
  const std::int64_t cost = Cost(*place.op, from, to);
  if (spec_.noise_ppm == 0) return cost;
  const auto u = static_cast<std::int64_t>(
      Random(spec_.seed ^ 3, static_cast<std::uint64_t>(to), static_cast<std::uint64_t>(place.step), place.index) %
      kMillion);
  return cost +
         static_cast<std::int64_t>(static_cast<__int128>(cost) * spec_.noise_ppm * u / (__int128{kMillion} * kMillion));
}

std::int64_t Simulation::Excess(const LinkSpec& link, std::uint64_t bytes) const {
  if (link.bandwidth <= 0) return 0;
  const auto takes = [&](std::int64_t bandwidth) {
    return static_cast<std::int64_t>(static_cast<__int128>(bytes) * 1'000'000'000 / bandwidth);
  };
  return std::max<std::int64_t>(0, takes(link.bandwidth) - takes(spec_.bandwidth));
}

std::int64_t Simulation::Behind(const Op& op, std::int32_t group, std::int32_t place) const {
  const std::int32_t n = MemberCount(spec_, op.comm, group);
  if (n < 2 || IsEmpty(op.collective) || RootSends(op.collective) || RootReceives(op.collective)) return 0;
  if (spec_.moves != Moves::kRing) return BehindInRounds(op, group, place);
  const std::int64_t rounds = (op.collective == CollectiveKind::kAllReduce ? 2 : 1) * (n - 1);
  std::int64_t behind = 0;
  for (std::int32_t to = 0; to < n; ++to) {
    const std::int32_t from = (to + n - 1) % n;
    for (const LinkSpec& link : spec_.links) {
      if (!spec_.IsOn(link, Member(spec_, op.comm, group, from), Member(spec_, op.comm, group, to))) continue;
      const std::int32_t hops = (place + n - to) % n;
      behind = std::max(behind, (rounds - hops) * Excess(link, op.bytes / static_cast<std::uint64_t>(n)));
    }
  }
  return behind;
}

std::int64_t Simulation::BehindInRounds(const Op& op, std::int32_t group, std::int32_t place) const {
  const std::int32_t n = MemberCount(spec_, op.comm, group);
  std::vector<std::int64_t> behind(static_cast<std::size_t>(n), 0);
  // Each slow link is two pipes, out and in, through which the data of a round go together, and those of the next after
  // them.
  struct Pipe {
    std::int64_t free = 0, ready = 0, takes = 0;
  };
  std::vector<std::array<Pipe, 2>> pipes(spec_.links.size());
  for (const Round& round : RoundsOf(spec_.moves, n)) {
    // Calls take(to, pipe, ready, excess) for each pipe that data of this round go through.
    const auto each = [&](const auto& take) {
      for (const auto& [from, to] : round) {
        const std::int32_t source = Member(spec_, op.comm, group, from), target = Member(spec_, op.comm, group, to);
        for (std::size_t l = 0; l < spec_.links.size(); ++l) {
          const LinkSpec& link = spec_.links[l];
          if (!spec_.IsOn(link, source, target)) continue;
          const bool in = link.node >= 0 && spec_.NodeOf(target) == link.node;
          take(to, pipes[l][in], behind[static_cast<std::size_t>(from)], Excess(link, op.bytes));
        }
      }
    };
    std::vector<std::int64_t> next = behind;
    const auto has = [&](std::int32_t member, std::int64_t ns) {
      std::int64_t& at = next[static_cast<std::size_t>(member)];
      at = std::max(at, ns);
    };
    for (auto& link : pipes)
      for (Pipe& pipe : link) pipe.ready = pipe.free, pipe.takes = 0;
    each([](std::int32_t, Pipe& pipe, std::int64_t ready, std::int64_t excess) {
      pipe.ready = std::max(pipe.ready, ready);
      pipe.takes += excess;
    });
    for (const auto& [from, to] : round) has(to, behind[static_cast<std::size_t>(from)]);
    each([&](std::int32_t to, Pipe& pipe, std::int64_t, std::int64_t) {
      pipe.free = pipe.ready + pipe.takes;
      has(to, pipe.free);
    });
    behind = std::move(next);
  }
  return behind[static_cast<std::size_t>(place)];
}

std::int64_t Simulation::DoneOn(const Op& op, std::size_t instance, std::int32_t rank) const {
  const std::int64_t done = instances_[instance].done;
  if (done == kNever || spec_.links.empty()) return done;
  return done + Behind(op, GroupOf(spec_, op.comm, rank), CommRank(spec_, op.comm, rank));
}

std::int64_t Simulation::Cost(const Op& op) const {
  // After the last one came, MPI ends what it has (Open MPI 4.1.4: 46 ms).
  if (op.collective == CollectiveKind::kFinalize) return 40'000'000;
  if (IsEmpty(op.collective)) return spec_.alpha_ns;
  return spec_.alpha_ns + static_cast<std::int64_t>(static_cast<__int128>(op.bytes) * 1'000'000'000 / spec_.bandwidth);
}

bool Simulation::Hits(const Disturbance& d, std::int32_t rank, std::int64_t step) const {
  return step >= 0 && step < spec_.steps && (d.rank == -1 || d.rank == rank) && d.steps.Contains(step);
}

bool Simulation::Stalls(std::size_t stall, const RankState& state, const Place& place) const {
  return Hits(spec_.stall[stall], state.rank, place.step) && stall_index_[stall] == place.index;
}

std::int64_t Simulation::Duration(RankState& state, const Place& place, std::int64_t repeat) const {
  const Op& op = *place.op;
  const bool in_step = place.step >= 0 && place.step < spec_.steps;
  const auto hits = [&](const Disturbance& d) { return Hits(d, state.rank, place.step); };
  __int128 d = op.duration_ns;
  for (const Disturbance& slow : spec_.slow)
    if (hits(slow) && Concerns(op, slow.at)) d = d * slow.factor_ppm / kMillion;
  if (spec_.resample && in_step && IsCompute(op))
    d = d * spec_.resample->FactorPpm(spec_.seed, state.rank, place.step, nth_compute_[place.index]) / kMillion;
  if (op.jitter_ppm != 0) {
    const std::uint64_t key =
        op.kind == OpKind::kKernel ? place.index * 1000 + static_cast<std::uint64_t>(repeat) : place.index;
    const std::uint64_t r =
        Random(spec_.seed, static_cast<std::uint64_t>(state.rank), static_cast<std::uint64_t>(place.step), key);
    const auto u = static_cast<std::int64_t>((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48));
    d += FloorDivide(d * op.jitter_ppm * (u - 131070), static_cast<__int128>(37837) * kMillion);
  }
  for (std::size_t i = 0; i < spec_.late.size(); ++i)
    if (repeat == 0 && hits(spec_.late[i]) && late_index_[i] == place.index) d += spec_.late[i].by_ns;
  if (d < 0) d = 0;
  const __int128 on_cpu = d;
  for (const Disturbance& starve : spec_.starve)
    if (hits(starve) && Concerns(op, starve.at)) d = d * starve.factor_ppm / kMillion;
  __int128 asleep = 0;
  for (std::size_t i = 0; i < spec_.stall.size(); ++i)
    if (repeat == 0 && Stalls(i, state, place)) asleep += spec_.stall[i].by_ns;
  if (op.kind != OpKind::kKernel) {
    state.off_cpu += static_cast<std::int64_t>(d - on_cpu);
    state.asleep += static_cast<std::int64_t>(asleep);
  }
  return static_cast<std::int64_t>(d + asleep);
}

std::size_t Simulation::FirstGroup(const Op& op) const {
  return op.on_block == 0 ? 0 : static_cast<std::size_t>(GroupOf(spec_, op.comm, op.on_block * op.on_index));
}
std::size_t Simulation::GroupsOf(const Op& op) const {
  if (op.on_block == 0) return static_cast<std::size_t>(GroupCount(spec_, op.comm));
  const std::size_t all = static_cast<std::size_t>(GroupCount(spec_, op.comm));
  return all / static_cast<std::size_t>(spec_.ranks / op.on_block);
}

std::int64_t& Simulation::RankState::CommFree(std::uint32_t stream) {
  for (Stream& each : comm_streams)
    if (each.id == stream) return each.free;
  return comm_streams.emplace_back(Stream{.id = stream}).free;
}
std::int64_t Simulation::RankState::LastCommFree() const {
  std::int64_t last = 0;
  for (const Stream& each : comm_streams) last = std::max(last, each.free);
  return last;
}
void Simulation::RankState::Ended(const std::string& name, const Stream& end) {
  for (auto& [known, known_end] : gpu_ends)
    if (known == name) {
      known_end = end;
      return;
    }
  gpu_ends.emplace_back(name, end);
}
const Simulation::RankState::Stream* Simulation::RankState::EndOf(const std::string& name) const {
  for (const auto& [known, end] : gpu_ends)
    if (known == name) return &end;
  return nullptr;
}

void Simulation::Walk(const std::function<void(const Place&)>& execute,
                      const std::function<void(std::int64_t, bool)>& mark) const {
  std::size_t instance = 0, ring = 0;
  std::vector<std::size_t> sends;  // Per operation of the body.
  const auto body = [&](const std::vector<Op>& ops, std::int64_t step) {
    sends.assign(ops.size(), 0);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      const bool receives = op.kind == OpKind::kRecv || op.kind == OpKind::kNcclRecv;
      sends[i] = ring;
      execute({&op, step, i,
               receives         ? sends[i - op.send_back]
               : HasEntries(op) ? ring
                                : instance,
               receives ? &ops[i - op.send_back] : nullptr});
      if (HasInstances(op)) instance += GroupsOf(op);
      if (HasEntries(op)) ring += static_cast<std::size_t>(op.on_block > 0 ? op.on_block : spec_.ranks);
    }
  };
  body(spec_.setup, -1);
  for (std::int64_t step = 0; step < spec_.steps; ++step) {
    mark(step, false);
    body(spec_.step, step);
  }
  mark(spec_.steps, true);
  body(spec_.teardown, spec_.steps);
}

void Simulation::Cluster() {
  std::vector<RankState> states(static_cast<std::size_t>(spec_.ranks));
  for (std::size_t r = 0; r < states.size(); ++r) {
    states[r].rank = static_cast<std::int32_t>(r);
    states[r].t = spec_.epoch_ns;
  }
  Walk(
      [&](const Place& place) {
        if (HasInstances(*place.op)) instances_.resize(instances_.size() + GroupsOf(*place.op));
        const auto n = static_cast<std::size_t>(place.op->on_block > 0 ? place.op->on_block : spec_.ranks);
        const std::size_t first = n * static_cast<std::size_t>(place.op->on_index);
        if (HasEntries(*place.op)) rings_.resize(rings_.size() + n, kNever);
        for (std::size_t r = first; r < first + n; ++r)
          if (!states[r].stopped) Arrive(states[r], place, &instances_, &rings_, nullptr);
        Settle(place);
        for (std::size_t r = first; r < first + n; ++r)
          if (!states[r].stopped) Leave(states[r], place, nullptr);
      },
      [&](std::int64_t step, bool) {
        for (RankState& state : states)
          for (const EndSpec& end : spec_.ends)  // A cut file says nothing about the rank itself.
            if (end.rank == state.rank && !end.cut && end.step == step) state.stopped = true;
      });
}

// All ranks have arrived that ever will: what is settled by that?
void Simulation::Settle(const Place& place) {
  const Op& op = *place.op;
  const auto settle = [&](Instance& instance, std::int64_t start, std::size_t comm, std::size_t group, const Op& of) {
    std::int64_t& busy = busy_until_[comm][group];
    instance.free = busy;
    instance.done = busy == kNever ? kNever : std::max(start, busy) + Cost(of);
    busy = instance.done;
    if (busy == kNever || spec_.links.empty()) return;
    const auto g = static_cast<std::int32_t>(group);
    std::int64_t behind = 0;
    for (std::int32_t place = 0; place < MemberCount(spec_, of.comm, g); ++place)
      behind = std::max(behind, Behind(of, g, place));
    busy += behind;
  };
  if (HasInstances(op)) {
    const std::size_t first = FirstGroup(op);
    for (std::size_t g = first; g < first + GroupsOf(op); ++g) {
      Instance& instance = instances_[place.instance + g - first];
      const bool whole = instance.arrived == MemberCount(spec_, op.comm, static_cast<std::int32_t>(g));
      const bool moves_alone = op.kind == OpKind::kBlocking || op.kind == OpKind::kNccl;
      if (whole && IsOnGloo(op)) {
        const std::size_t root = static_cast<std::size_t>(op.root) % instance.arrivals.size();
        instance.ends = GlooEnds(op.collective, op.bytes, root, instance.arrivals, Cost(op));
      }
      if (moves_alone) {
        instance.done = whole ? instance.arrival + Cost(op) : kNever;
      } else if (!whole) {
        busy_until_[op.comm][g] = kNever;
      } else if (spec_.progress == Progress::kNone) {
        open_.push_back({place.instance + g - first, &op, g});
      } else {
        // A helper has it when its post has returned.
        settle(instance, instance.arrival + (spec_.progress == Progress::kHelper ? spec_.call_ns : 0), op.comm, g, op);
      }
    }
  }
  if (op.kind != OpKind::kWait || spec_.progress != Progress::kNone) return;
  // `open_` keeps the order of posting, so each moves after the one before it.
  std::erase_if(open_, [&](const Open& open) {
    if (!op.name.empty() && op.name != open.op->name) return false;
    Instance& instance = instances_[open.instance];
    if (instance.waiting == instance.arrived) {
      settle(instance, instance.wait, open.op->comm, open.group, *open.op);
    } else {
      busy_until_[open.op->comm][open.group] = kNever;
    }
    return true;
  });
}

}  // namespace lockstep::make_run
