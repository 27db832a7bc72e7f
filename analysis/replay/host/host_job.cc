// The graph (graph.h) of a run on CPU ranks. Each rank's training thread is a lane of its own work between MPI calls,
// of calls, and of collectives; a non-blocking collective takes its turn on a queued lane of its communicator;
// collectives of other threads (PyTorch over MPI has a thread for them) are lanes whose operations the training thread
// releases.
//
// Without changes the replay gives the recorded times, except for what cannot be known: in any replay, work between two
// calls begins when the previous one ends.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "analysis/replay/host/host_run.h"
#include "merge/match/awaited.h"

namespace lockstep::replay {
namespace {

// No message has it.
constexpr std::uint32_t kLikenessOfCollective = 1;

class Maker {
 public:
  Maker(const HostRun& run, const JobOptions& options) : run_(run), options_(options) {
    operation_of_.resize(run.ranks.size());
    members_.resize(run.collectives.size());
    groups_.assign(run.collectives.size(), kNone);
  }

  Job Make() {
    std::int64_t first = INT64_MAX;
    for (const RankStretches& rank : run_.stretches) first = std::min(first, rank.begin_ns);
    job_.step_ends.assign(run_.steps.size(), std::vector<std::uint32_t>(run_.ranks.size(), kNone));
    std::size_t about = 0;  // A stretch and the work before it, or a collective and its exit.
    for (const RankStretches& rank : run_.stretches)
      about += 1 + 2 * rank.training.size() + 2 * rank.collectives.size();
    job_.operations.reserve(about);
    job_.graph.operations().reserve(about);
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) AddRank(r, run_.stretches[r].begin_ns - first);
    LinkPeers();
    SetTransfers();
    LinkMessages();
    return std::move(job_);
  }

 private:
  // A collective's member while the graph is made. If collectives take turns, the communicator continues with the next
  // one when the first rank has left; the remaining time of the others is a separate operation, `exit`, otherwise
  // kNone.
  struct Member {
    std::uint32_t operation, exit;
    // `looked`: the begin of the call that found it complete.
    std::int64_t arrival_ns, looked_ns, end_ns, end_low_ns;
    bool waits, awaited;
    std::uint32_t number;  // In its group, if members wait for some of the others; else kNone.
    bool seen_later =
        false;  // The same call found one of a later turn complete, which may have been the reason for its return.
    std::int64_t peers_ns = INT64_MIN;  // The last arrival of those for which it waits by name.
  };
  struct Later {
    std::uint32_t operation;
    std::vector<std::uint32_t> collectives;
  };

  std::uint32_t Add(Operation operation, JobOperation about) {
    operation.rank = static_cast<std::int32_t>(about.rank);
    job_.operations.push_back(about);
    return job_.graph.Add(operation);
  }

  bool InWait(const RankCollective& c) const {
    return c.posted && ((c.in_wait && !options_.progress) || !options_.wait_for_overlap);
  }

  // The ends that this call awaits from other ranks are linked when all ranks have been added.
  std::uint32_t AddAwaiting(const Operation& operation, const JobOperation& about, const Stretch& stretch) {
    const std::uint32_t made = Add(operation, about);
    if (!stretch.awaits.empty()) awaiting_.push_back({made, &stretch});
    if (stretch.awaits.empty() && stretch.collectives.empty()) job_.operations[made].message = stretch.hands_over;
    // Which of several comes last is chance and says nothing of what the rank does.
    if (stretch.awaits.size() == 1)
      job_.operations[made].likeness = LikenessOf(about.rank, stretch.awaits.front() / 2);
    else if (stretch.awaits.empty() && job_.operations[made].message != kNone)
      job_.operations[made].likeness = LikenessOf(about.rank, job_.operations[made].message);
    return made;
  }

  // Direction and distance of a message: in a ring the neighbour of the last rank is the first one.
  std::uint32_t LikenessOf(std::uint32_t rank, std::uint32_t message) const {
    const RunMessage& about = run_.messages[message];
    const auto ranks = static_cast<std::uint32_t>(run_.ranks.size());
    const bool sends = about.from == rank;
    const std::uint32_t peer = sends ? about.to : about.from;
    return 2 * (1 + (peer + ranks - rank) % ranks) + sends;
  }

  void LinkMessages() {
    for (const auto& [operation, stretch] : awaiting_) {
      bool linked = false, receives = false;
      for (const std::uint32_t port : stretch->awaits) {
        const auto at = ports_.find(port);
        if (at == ports_.end()) continue;
        // Odd ones are receives that a send waits for (JoinMessages).
        if (options_.sends_wait || port % 2 == 0) job_.graph.Needs(operation, at->second);
        linked = true;
        receives |= port % 2 == 0;
      }
      if (!linked) continue;
      Operation& call = job_.graph.operations()[operation];
      call.duration_ns = std::min(call.duration_ns, stretch->after_ns);
      job_.operations[operation].message = stretch->last_awaited / 2;
      job_.operations[operation].only_sends = !receives;
      // A wait for messages and for nothing else is one of them, however they were posted.
      Role& role = job_.operations[operation].role;
      if (role == Role::kCall || (role == Role::kWait && stretch->collectives.empty())) role = Role::kMessage;
    }
  }

  // Work of a rank in this time, without the time by which transfers of the recorded run slowed it.
  std::int64_t AloneNs(std::uint32_t r, Interval work) const {
    const std::int64_t ns = work.end - work.begin;
    const double slowdown = options_.interference.compute_slowdown;
    if (slowdown <= 0 || r >= run_.overlap.transferring.size()) return ns;
    const auto beside = static_cast<double>(TotalWithin(run_.overlap.transferring[r], work));
    return ns - std::llround(beside * slowdown / (1 + slowdown));
  }

  std::uint32_t AddMember(std::uint32_t r, std::uint32_t i, std::uint32_t lane, std::uint32_t step) {
    const RankCollective& c = run_.stretches[r].collectives[i];
    if (groups_[c.collective] == kNone) groups_[c.collective] = job_.graph.AddCollective();
    const std::uint32_t operation = Add({.lane = lane,
                                         .collective = groups_[c.collective],
                                         .activity = Activity::kTransfer,
                                         .waits = c.waits,
                                         .awaited = c.awaited},
                                        {Role::kMember, r, step, 0, c.collective, kLikenessOfCollective});
    std::uint32_t exit = kNone;
    if (job_.graph.queued_lanes()[lane]) {
      exit = Add({}, {Role::kExit, r, step, 0, c.collective});
      job_.graph.Needs(exit, operation);
    }
    members_[c.collective].push_back({operation, exit, c.in_wait ? c.wait_begin_ns : c.begin_ns, c.wait_begin_ns,
                                      c.end_ns, c.end_low_ns, c.waits, c.awaited, c.number});
    if (c.number != kNone) exchanges_.try_emplace(c.collective, c.exchange);
    if (const auto at = exchanges_.find(c.collective); at != exchanges_.end() && at->second != c.exchange)
      at->second.members = 0;  // They contradict each other: all wait for all.
    operation_of_[r][i] = exit == kNone ? operation : exit;
    return operation;
  }

  // The lane on which a communicator's non-blocking collectives of one kind take turns. Kinds run in parallel: MPI
  // guarantees no order of completion, and a gather that is waited for does not wait for reductions for which nothing
  // waits yet.
  std::pair<std::uint64_t, CollectiveKind> TurnKey(std::uint32_t collective) const {
    return {run_.collectives[collective].comm, run_.collectives[collective].kind};
  }
  std::uint32_t TurnsOf(std::uint32_t r, std::uint32_t collective) {
    const auto [at, fresh] = turns_.try_emplace({r, TurnKey(collective)}, 0);
    if (fresh) at->second = job_.graph.AddLane(true);
    return at->second;
  }

  void AddRank(std::uint32_t r, std::int64_t offset_ns) {
    const RankStretches& rank = run_.stretches[r];
    operation_of_[r].assign(rank.collectives.size(), kNone);
    const std::uint32_t lane = job_.graph.AddLane();
    job_.starts.push_back(Add({.duration_ns = offset_ns, .lane = lane}, {Role::kOther, r}));
    std::int64_t cursor = rank.begin_ns;
    std::uint32_t step = 0;
    std::array<std::uint32_t, kRoles> positions = {};
    std::map<std::uint32_t, std::uint32_t> feeds;  // From a collective to the operation that releases it.
    std::vector<Later> later;
    const auto about = [&](Role role) {
      return JobOperation{role, r, step, positions[static_cast<std::size_t>(role)]++, kNone};
    };
    for (const Stretch& stretch : rank.training) {
      if (step >= run_.steps.size()) break;
      if (stretch.begin_ns > cursor) {
        Add({.duration_ns = AloneNs(r, {cursor, stretch.begin_ns}), .lane = lane, .activity = Activity::kCompute},
            about(Role::kWork));
        cursor = stretch.begin_ns;
      }
      const std::int64_t length = std::max<std::int64_t>(0, stretch.end_ns - cursor);
      if (!stretch.offers.empty()) {
        const std::uint32_t there = Add({.lane = lane}, {Role::kOther, r, step});
        for (const std::uint32_t port : stretch.offers) ports_[port] = there;
      }
      switch (stretch.kind) {
        case Stretch::kCall:
          AddAwaiting({.duration_ns = length, .lane = lane}, about(Role::kCall), stretch);
          break;
        case Stretch::kPost:
          for (std::size_t k = 0; k < stretch.collectives.size(); ++k) {
            const RankCollective& c = rank.collectives[stretch.collectives[k]];
            ++job_.posted;
            job_.moved_in_wait += c.in_wait;
            JobOperation post = about(Role::kPost);
            post.collective = c.collective;
            Operation operation{.duration_ns = k == 0 ? length : 0, .lane = lane};
            if (!InWait(c)) operation.enqueues = AddMember(r, stretch.collectives[k], TurnsOf(r, c.collective), step);
            Add(operation, post);
          }
          break;
        case Stretch::kBlocking:
          AddMember(r, stretch.collectives[0], lane, step);
          break;
        case Stretch::kWait:
          later.push_back(AddWait(r, lane, step, stretch, length, about(Role::kWait)));
          break;
        case Stretch::kFeed: {
          JobOperation feed = about(Role::kOther);
          feed.collective = rank.collectives[stretch.collectives[0]].collective;
          feeds[stretch.collectives[0]] = Add({.lane = lane}, feed);
          break;
        }
        case Stretch::kStepEnd: {
          const std::uint32_t end = Add({.lane = lane}, about(Role::kStepEnd));
          job_.step_ends[stretch.step][r] = end;
          later.push_back({end, stretch.collectives});
          step = stretch.step + 1;
          positions.fill(0);
          break;
        }
      }
      cursor = std::max(cursor, stretch.end_ns);
    }
    AddOthers(r, feeds);
    for (const Later& each : later)
      for (const std::uint32_t i : each.collectives)
        if (operation_of_[r][i] != kNone) job_.graph.Needs(each.operation, operation_of_[r][i]);
  }

  Later AddWait(std::uint32_t r, std::uint32_t lane, std::uint32_t step, const Stretch& stretch, std::int64_t length,
                const JobOperation& about) {
    const RankStretches& rank = run_.stretches[r];
    if (!options_.wait_for_overlap && !stretch.collectives.empty()) {
      const std::uint32_t begins = Add({.lane = lane}, {Role::kOther, r, step});
      for (const std::uint32_t i : stretch.collectives) waits_.try_emplace({r, i}, begins);
    }
    std::int64_t last = stretch.begin_ns;
    std::vector<std::uint32_t> list = stretch.collectives;  // In the order in which they were posted.
    // This order is the same on all ranks, also for those posted at the same time.
    std::sort(list.begin(), list.end(), [&](std::uint32_t a, std::uint32_t b) {
      const RankCollective &c = rank.collectives[a], &d = rank.collectives[b];
      return std::pair(c.begin_ns, c.collective) < std::pair(d.begin_ns, d.collective);
    });
    for (const std::uint32_t i : list) {
      const RankCollective& c = rank.collectives[i];
      last = std::max(last, std::min(c.end_ns, stretch.end_ns));
      if (!InWait(c) || operation_of_[r][i] != kNone) continue;
      Operation enqueue{.lane = lane};
      enqueue.enqueues = AddMember(r, i, TurnsOf(r, c.collective), step);
      Add(enqueue, {Role::kOther, r, step});
    }
    return {AddAwaiting({.duration_ns = std::min(length, stretch.end_ns - last), .lane = lane}, about, stretch),
            std::move(list)};
  }

  void AddOthers(std::uint32_t r, const std::map<std::uint32_t, std::uint32_t>& feeds) {
    const RankStretches& rank = run_.stretches[r];
    for (const OtherThread& other : rank.others) {
      const std::uint32_t lane = job_.graph.AddLane();
      std::uint32_t step = kNone;
      std::int64_t cursor = 0;
      for (std::size_t k = 0; k < other.collectives.size(); ++k) {
        const std::uint32_t i = other.collectives[k];
        const RankCollective& c = rank.collectives[i];
        const auto feed = feeds.find(i);
        if (other.fed[k] ? feed == feeds.end() : step == kNone) continue;  // It is outside the steps.
        if (other.fed[k])
          step = job_.operations[feed->second].step;
        else if (c.begin_ns > cursor)
          Add({.duration_ns = c.begin_ns - cursor, .lane = lane}, {Role::kOther, r, step});
        const std::uint32_t member = AddMember(r, i, lane, step);
        job_.graph.operations()[member].delay_ns = c.late_ns;
        if (other.fed[k]) job_.graph.Needs(member, feed->second);
        // It begins when the training thread has nothing to do except wait for it.
        if (const auto wait = waits_.find({r, i}); !options_.wait_for_overlap && wait != waits_.end())
          job_.graph.Needs(member, wait->second);
        cursor = c.end_ns;
      }
    }
  }

  // Tells the members that wait for some of the others for whom.
  void LinkPeers() {
    merge::PeerSets sets;
    for (const auto& [collective, exchange] : exchanges_) {
      std::vector<Member>& members = members_[collective];
      std::vector<const Member*> by_number(exchange.members, nullptr);
      for (const Member& member : members)
        if (member.number < by_number.size()) by_number[member.number] = &member;
      const bool whole = members.size() == by_number.size() &&
                         std::find(by_number.begin(), by_number.end(), nullptr) == by_number.end();
      if (!whole || TakesTurns(collective)) continue;
      merge::FindPeers(exchange, sets);
      const std::uint32_t first = job_.graph.peer_sets();
      std::vector<std::uint32_t> peers;
      for (std::uint32_t set = 0; set < sets.size(); ++set) {
        peers.clear();
        for (const std::uint32_t number : sets.Own(set)) peers.push_back(by_number[number]->operation);
        const std::uint32_t also = sets.also[set];
        job_.graph.AddPeers(peers, also == merge::PeerSets::kNone ? kNone : first + also);
      }
      std::vector<std::int64_t> arrival_ns;
      for (const Member* member : by_number) arrival_ns.push_back(member->arrival_ns);
      const merge::LatestOfPeers latest(sets, arrival_ns);
      for (Member& member : members) {
        const std::uint32_t set = sets.of[member.number];
        if (set == merge::PeerSets::kNone) continue;
        member.peers_ns = latest.Of(member.number);
        job_.graph.WaitsFor(member.operation, first + set);
      }
    }
  }

  // Sets the durations of transfers after the last arrival and the begin of their turn.
  void SetTransfers() {
    // Sorted by first arrival.
    std::map<std::pair<std::uint64_t, CollectiveKind>, std::vector<std::uint32_t>> in_turns;
    for (std::uint32_t c = 0; c < members_.size(); ++c) {
      if (members_[c].empty()) continue;
      if (TakesTurns(c)) {
        in_turns[TurnKey(c)].push_back(c);
        continue;
      }
      const std::int64_t arrived_ns = Arrived(c);
      for (const Member& member : members_[c]) {
        Operation& operation = job_.graph.operations()[member.operation];
        const std::int64_t awaited_ns = operation.peers == kNone ? arrived_ns : member.peers_ns;
        operation.duration_ns =
            Took(c, member.end_ns - (member.waits ? std::max(member.arrival_ns, awaited_ns) : member.arrival_ns));
      }
    }
    for (auto& [key, list] : in_turns) {
      std::stable_sort(list.begin(), list.end(), [&](std::uint32_t a, std::uint32_t b) { return First(a) < First(b); });
      SetTurns(list);
    }
  }

  // They do not if one rank posted the collective and another called the blocking form, which occurs in damaged or
  // imported recordings.
  bool TakesTurns(std::uint32_t c) const {
    return std::all_of(members_[c].begin(), members_[c].end(), [](const Member& m) { return m.exit != kNone; });
  }
  std::int64_t First(std::uint32_t c) const {
    std::int64_t ns = INT64_MAX;
    for (const Member& member : members_[c]) ns = std::min(ns, member.arrival_ns);
    return ns;
  }
  // The last arrival of those awaited; the first arrival if none is awaited.
  std::int64_t Arrived(std::uint32_t c) const {
    std::int64_t ns = INT64_MIN;
    for (const Member& member : members_[c])
      if (member.awaited) ns = std::max(ns, member.arrival_ns);
    return ns == INT64_MIN ? First(c) : ns;
  }
  // The first end of those that wait; of all if none waits.
  std::int64_t Through(std::uint32_t c) const {
    std::int64_t ns = INT64_MAX, any = INT64_MAX;
    for (const Member& member : members_[c]) {
      any = std::min(any, member.end_ns);
      if (member.waits) ns = std::min(ns, member.end_ns);
    }
    return ns == INT64_MAX ? any : ns;
  }
  std::int64_t Took(std::uint32_t c, std::int64_t measured_ns) const {
    const std::int64_t given = run_.collectives[c].transfer_ns;
    if (given >= 0) return given;
    const double share =
        options_.interference.any() ? run_.overlap.AloneShare(c, options_.interference.transfer_slowdown) : 1;
    return std::llround(static_cast<double>(std::max<std::int64_t>(0, measured_ns)) * share);
  }

  void SetTurns(const std::vector<std::uint32_t>& list) {
    std::map<std::uint32_t, std::int64_t> next_end;  // By lane.
    for (auto c = list.rbegin(); c != list.rend(); ++c)
      for (Member& member : members_[*c]) {
        const std::uint32_t lane = job_.graph.operations()[member.operation].lane;
        const auto [at, last] = next_end.try_emplace(lane, member.end_ns);
        member.seen_later = !last && at->second == member.end_ns;
        at->second = member.end_ns;
      }
    std::int64_t turn = INT64_MIN;
    for (std::size_t i = 0; i < list.size();) {
      // One call completed several collectives. Their separate ends are unknown, so the time is divided by their bytes.
      const std::int64_t through = Through(list[i]);
      std::size_t end = i + 1;
      while (end < list.size() && Through(list[end]) == through) ++end;
      std::uint64_t bytes = 0, done = 0;
      for (std::size_t k = i; k < end; ++k) bytes += run_.collectives[list[k]].bytes + 1;
      const std::int64_t begin = std::max(turn, Arrived(list[i]));
      for (; i < end; ++i) {
        const std::uint32_t c = list[i];
        done += run_.collectives[c].bytes + 1;
        const auto share = static_cast<double>(done) / static_cast<double>(bytes);
        const std::int64_t starts = std::max(turn, Arrived(c));
        turn = std::max(starts, begin + static_cast<std::int64_t>(static_cast<double>(through - begin) * share));
        for (const Member& member : members_[c]) {
          if (!member.waits || member.arrival_ns > turn) {
            // It leaves after its own part, whenever the others leave.
            job_.graph.operations()[member.exit].duration_ns =
                std::max<std::int64_t>(0, member.end_ns - std::max(member.arrival_ns, member.looked_ns));
            continue;
          }
          job_.graph.operations()[member.operation].duration_ns = Took(c, turn - starts);
          job_.graph.operations()[member.exit].duration_ns =
              run_.collectives[c].transfer_ns >= 0
                  ? run_.collectives[c].exit_ns
                  : std::max<std::int64_t>(
                        0, (member.seen_later ? member.end_low_ns : member.end_ns) - std::max(turn, member.looked_ns));
        }
      }
    }
  }

  const HostRun& run_;
  const JobOptions& options_;
  Job job_;
  std::vector<std::vector<Member>> members_;            // [collective]
  std::vector<std::uint32_t> groups_;                   // [collective]: the graph's collective, or kNone.
  std::map<std::uint32_t, merge::Exchange> exchanges_;  // By collective, of those whose members wait for some only.
  std::map<std::pair<std::uint32_t, std::pair<std::uint64_t, CollectiveKind>>, std::uint32_t> turns_;  // -> lane
  std::vector<std::vector<std::uint32_t>> operation_of_;  // [rank][its collective]
  // From (rank, its collective) to the begin of the wait.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> waits_;
  std::map<std::uint32_t, std::uint32_t> ports_;  // From ends of messages to the operations that make them available.
  std::vector<std::pair<std::uint32_t, const Stretch*>> awaiting_;
};

}  // namespace

Job HostRun::MakeJob(const JobOptions& options) const { return Maker(*this, options).Make(); }

}  // namespace lockstep::replay
