#include "hang/waits.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "hang/differ.h"

namespace lockstep::hang {
namespace {

class Finder {
 public:
  Finder(const Progress& progress, const JudgeOptions& options) : progress_(progress), options_(options) {
    std::map<std::int32_t, RankFacts> ranks;
    for (const RankFacts& facts : progress.ranks) ranks.emplace(facts.rank, facts);
    for (const Group& group : progress.groups)
      for (const Member& member : group.members)
        ranks.try_emplace(member.rank, RankFacts{.rank = member.rank, .state = RankState::kMissing});
    for (auto& [rank, facts] : ranks) {
      node_[rank] = static_cast<std::uint32_t>(found_.ranks.size());
      found_.ranks.push_back(std::move(facts));
    }
    found_.of_rank.resize(found_.ranks.size());
    found_.moves.resize(found_.ranks.size());
    opened_.resize(found_.ranks.size());
  }

  Waits Find() {
    for (std::size_t g = 0; g < progress_.groups.size(); ++g) {
      AddCollectives(g);
      AddMessages(g);
    }
    for (std::vector<Opened>& opened : opened_)
      std::sort(opened.begin(), opened.end(), [](const Opened& a, const Opened& b) {
        return std::tie(a.created_ns, a.wait) < std::tie(b.created_ns, b.wait);
      });
    for (std::uint32_t w = 0; w < found_.waits.size(); ++w) QueueBehindEarlier(w);
    return std::move(found_);
  }

 private:
  struct Opened {  // By one rank.
    std::uint32_t wait;
    std::int64_t created_ns;
  };
  struct Front {
    std::int64_t sequence;
    const Operation* call;  // Null if only its number is known.
  };

  // How long the rank has been inside; kNotKnown if that cannot be told.
  std::int64_t AgeOf(std::uint32_t rank, const Operation* call) const {
    const std::int64_t seen = found_.ranks[rank].seen_ns;
    if (call == nullptr || seen == kNotKnown || call->created_ns == kNotKnown) return kNotKnown;
    return std::max<std::int64_t>(0, seen - call->created_ns);
  }
  // Who cannot go on holds up what it was inside, however short that was until then.
  bool IsYoung(std::uint32_t rank, const Operation* call) const {
    if (Gone(found_.ranks[rank].state)) return false;
    const std::int64_t age = AgeOf(rank, call);
    return age != kNotKnown && age < options_.least_wait_ns;
  }
  void CountYoung(std::uint32_t rank, const Operation* call) {
    ++found_.young;
    found_.moves[rank] = true;
    found_.oldest_young_ns = std::max(found_.oldest_young_ns, AgeOf(rank, call));
  }

  // The oldest collective that the member is inside; sequence kNotKnown: none.
  Front FrontOf(const Member& member) {
    for (const Operation& call : member.calls)
      if (call.state != OperationState::kCompleted && call.sequence > member.completed &&
          (call.waited || found_.ranks[node_.at(member.rank)].state == RankState::kStopped))  // Nothing moves it.
        return {call.sequence, &call};
    if (member.entered != kNotKnown && member.completed != kNotKnown && member.entered > member.completed) {
      const Operation* call = CallOf(member, member.completed + 1);
      // Calls that are known to have completed are not waited in, whatever the count says.
      if (call == nullptr) return {member.completed + 1, nullptr};
    }
    return {kNotKnown, nullptr};
  }

  void Enter(std::uint32_t wait, std::uint32_t rank, const Operation* call) {
    Wait& w = found_.waits[wait];
    w.inside.push_back(rank);
    w.waited_ns = std::max(w.waited_ns, AgeOf(rank, call));
    const std::int64_t created = call == nullptr ? kNotKnown : call->created_ns;
    w.inside_ns.push_back(created);
    if (created != kNotKnown && (w.first_ns == kNotKnown || created < w.first_ns)) w.first_ns = created;
    found_.of_rank[rank].push_back(wait);
    if (created != kNotKnown) opened_[rank].push_back({wait, created});
  }

  void Join(std::uint32_t wait, std::uint32_t rank, const Operation* call) {
    Enter(wait, rank, call);
    found_.waits[wait].joined.push_back(rank);
  }

  void AddCollectives(std::size_t g) {
    const Group& group = progress_.groups[g];
    std::vector<Front> fronts(group.members.size()), young(group.members.size(), {kNotKnown, nullptr});
    std::map<std::int64_t, std::vector<std::size_t>> at;  // Members by their front.
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const Member& member = group.members[m];
      fronts[m] = member.known ? FrontOf(member) : Front{kNotKnown, nullptr};
      if (fronts[m].sequence != kNotKnown && !LeftBefore(group, fronts[m].sequence) &&
          IsYoung(node_.at(member.rank), fronts[m].call)) {
        young[m] = fronts[m];
        fronts[m].sequence = kNotKnown;
      }
      if (fronts[m].sequence != kNotKnown) at[fronts[m].sequence].push_back(m);
    }
    for (const auto& [sequence, inside] : at) {
      const auto index = static_cast<std::uint32_t>(found_.waits.size());
      found_.waits.emplace_back();
      Wait& wait = found_.waits.back();
      wait.group = g;
      wait.call.sequence = sequence;
      for (const std::size_t m : inside)
        if (fronts[m].call != nullptr && wait.call.kind.empty()) wait.call = *fronts[m].call;
      for (const std::size_t m : inside) Enter(index, node_.at(group.members[m].rank), fronts[m].call);
      bool completed = false;
      for (std::size_t m = 0; m < group.members.size(); ++m) {
        const Member& member = group.members[m];
        const std::uint32_t rank = node_.at(member.rank);
        if (fronts[m].sequence == sequence) continue;
        if (!member.known) {
          (Gone(found_.ranks[rank].state) ? wait.missing : wait.unknown).push_back(rank);
        } else if (member.entered < sequence) {
          (member.entered == kNotKnown ? wait.unknown : wait.missing).push_back(rank);
        } else if (fronts[m].sequence != kNotKnown && fronts[m].sequence < sequence) {
          wait.lagging.push_back(rank);
        } else {
          const Operation* call = CallOf(member, sequence);
          completed |= member.completed >= sequence || (call != nullptr && call->state == OperationState::kCompleted);
          if (Away(member, call)) wait.away.push_back(rank);
        }
      }
      Decide(wait, group, completed);
      if (wait.end == Wait::End::kAllInside) FindUnstarted(wait, group);
      // What holds up those who have waited for long holds up who came to it last: it is no rank that goes on.
      if (wait.end != Wait::End::kPasses && wait.end != Wait::End::kDiffers) continue;
      for (std::size_t m = 0; m < group.members.size(); ++m) {
        if (young[m].sequence != sequence) continue;
        Join(index, node_.at(group.members[m].rank), young[m].call);
        young[m].sequence = kNotKnown;
      }
    }
    for (std::size_t m = 0; m < group.members.size(); ++m)
      if (young[m].sequence != kNotKnown) CountYoung(node_.at(group.members[m].rank), young[m].call);
  }

  bool LeftBefore(const Group& group, std::int64_t sequence) const {
    return std::any_of(group.members.begin(), group.members.end(), [&](const Member& member) {
      return member.known && member.entered < sequence && found_.ranks[node_.at(member.rank)].without_finalize;
    });
  }
  bool LeftBefore(const Group& group, const Member& member, const Operation& message) const {
    const Member* peer = Find(group, message.peer);
    return peer != nullptr && peer->known && found_.ranks[node_.at(peer->rank)].without_finalize &&
           OtherEnd(message, member, *peer) == nullptr;
  }

  static bool Away(const Member& member, const Operation* call) {
    return call != nullptr && call->state != OperationState::kCompleted && !call->waited && member.moves_in_calls;
  }

  void Decide(Wait& wait, const Group& group, bool completed) {
    // Who has completed it has seen all others' part in it.
    const bool all_entered = completed && (HoldsAll(wait.call) || wait.unknown.empty());
    // Members of an operation that does not hold all may leave it although others called something else.
    // So may those whose own call of this number was such a one.
    const bool agreed = completed && HoldsAll(wait.call) &&
                        std::all_of(group.members.begin(), group.members.end(), [&](const Member& member) {
                          const Operation* call = CallOf(member, wait.call.sequence);
                          return call == nullptr || call->kind.empty() || HoldsAll(*call);
                        });
    // MPI compares no sizes: a member's part may have come to its end although another one's is longer.
    Verdict differs;
    if ((!agreed || group.on_host) && Differ(group, wait.call.sequence, differs) &&
        (!agreed || differs.cause == Cause::kMismatch)) {
      wait.differs = std::move(differs);
      wait.end = Wait::End::kDiffers;
    } else if (!wait.missing.empty() || !wait.lagging.empty()) {
      wait.end = Wait::End::kPasses;
    } else if (!completed && !wait.away.empty()) {
      wait.lagging = wait.away;
      wait.end = Wait::End::kPasses;
    } else if (all_entered && group.members.size() >= 2 * wait.inside.size()) {
      wait.end = Wait::End::kBehind;
    } else if (!all_entered && (!wait.unknown.empty() || !group.complete)) {
      wait.end = Wait::End::kUnknown;
    }
  }

  void FindUnstarted(Wait& wait, const Group& group) {
    std::size_t started = 0;
    for (const Member& member : group.members) {
      const Operation* call = CallOf(member, wait.call.sequence);
      if (call == nullptr) continue;
      started += call->state == OperationState::kStarted;
      if (call->state == OperationState::kScheduled && member.shows_started)
        wait.unstarted.push_back(node_.at(member.rank));
    }
    if (started < wait.unstarted.size() || started == 0) wait.unstarted.clear();
  }

  const Member* Find(const Group& group, std::int32_t rank) const {
    const auto at = std::lower_bound(group.members.begin(), group.members.end(), rank,
                                     [](const Member& member, std::int32_t wanted) { return member.rank < wanted; });
    return at == group.members.end() || at->rank != rank ? nullptr : &*at;
  }

  static bool Open(const Member& member, const Operation& call) {
    return call.state != OperationState::kCompleted &&
           (call.sequence == kNotKnown || call.sequence > member.messages_completed);
  }

  // The oldest open message of each member to each other one, each way.
  void AddMessages(std::size_t g) {
    const Group& group = progress_.groups[g];
    std::set<std::tuple<std::int32_t, std::int32_t, bool>> seen;
    // Both ends of a message are inside one wait; from, to -> its number.
    std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> of_pair;
    struct Late {
      std::pair<std::int32_t, std::int32_t> pair;
      std::uint32_t rank;
      const Operation* call;
    };
    std::vector<Late> young;
    for (const Member& member : group.members) {
      for (const Operation& call : member.messages) {
        const bool sends = call.kind == "send";
        if (call.peer == member.rank || !Open(member, call) || !call.waited) continue;
        if (!seen.insert({member.rank, call.peer, sends}).second) continue;
        const std::uint32_t rank = node_.at(member.rank);
        const auto pair = sends ? std::pair(member.rank, call.peer) : std::pair(call.peer, member.rank);
        if (IsYoung(rank, &call) && !LeftBefore(group, member, call)) {
          young.push_back({pair, rank, &call});
          continue;
        }
        if (const auto other = of_pair.find(pair); other != of_pair.end()) {
          const Wait& there = found_.waits[other->second];
          const bool same =
              there.call.sequence == kNotKnown || call.sequence == kNotKnown || there.call.sequence == call.sequence;
          if (there.missing.empty() && there.end != Wait::End::kBehind && same) {
            Enter(other->second, rank, &call);
            continue;
          }
        }
        AddMessage(g, member, call, rank);
        of_pair[pair] = static_cast<std::uint32_t>(found_.waits.size()) - 1;
      }
    }
    for (const Late& late : young) {
      const auto other = of_pair.find(late.pair);
      if (other != of_pair.end() && found_.waits[other->second].end == Wait::End::kDiffers)
        Join(other->second, late.rank, late.call);
      else
        CountYoung(late.rank, late.call);
    }
  }

  void AddMessage(std::size_t g, const Member& member, const Operation& call, std::uint32_t rank) {
    const Group& group = progress_.groups[g];
    const auto index = static_cast<std::uint32_t>(found_.waits.size());
    found_.waits.emplace_back();
    found_.waits.back().group = g;
    found_.waits.back().message = true;
    found_.waits.back().call = call;
    Enter(index, rank, &call);
    Wait& wait = found_.waits.back();
    const auto at = node_.find(call.peer);
    const Member* peer = Find(group, call.peer);
    if (at == node_.end()) {
      wait.end = Wait::End::kUnknown;
    } else if (peer == nullptr || !peer->known) {
      (Gone(found_.ranks[at->second].state) ? wait.missing : wait.unknown).push_back(at->second);
      wait.end = wait.missing.empty() ? Wait::End::kUnknown : Wait::End::kPasses;
    } else {
      FindOtherEnd(wait, member, *peer, at->second);
    }
  }

  static const Operation* OtherEnd(const Operation& message, const Member& member, const Member& peer) {
    const std::string wanted = message.kind == "send" ? "recv" : "send";
    for (const Operation& call : peer.messages) {
      // A message from anybody may be this one.
      const bool fits = call.kind == wanted && (call.peer == member.rank || (call.peer < 0 && wanted == "recv"));
      if (!fits) continue;
      // Without numbers, the oldest open one on either side is the same message.
      const bool numbered = call.sequence != kNotKnown && message.sequence != kNotKnown;
      if (numbered ? call.sequence == message.sequence : Open(peer, call)) return &call;
    }
    return nullptr;
  }

  void FindOtherEnd(Wait& wait, const Member& member, const Member& peer, std::uint32_t node) {
    const std::string wanted = wait.call.kind == "send" ? "recv" : "send";
    const Operation* other = OtherEnd(wait.call, member, peer);
    const bool done = (other != nullptr && !Open(peer, *other)) ||
                      (wait.call.sequence != kNotKnown && peer.messages_completed >= wait.call.sequence);
    if (done) {
      // What a process of a host had not yet handed on is gone with it.
      const bool lost = progress_.groups[wait.group].on_host && Gone(found_.ranks[node].state);
      wait.end = lost ? Wait::End::kUnknown : Wait::End::kBehind;
    } else if (other == nullptr) {
      wait.missing.push_back(node);
      wait.end = Wait::End::kPasses;
    } else if (Away(peer, other)) {
      wait.away = wait.lagging = {node};
      wait.end = Wait::End::kPasses;
    } else if (const std::int64_t sent = wanted == "recv" ? wait.call.elements_in : other->elements_in,
               received = wanted == "recv" ? other->elements_out : wait.call.elements_out;
               sent != kNotKnown && received != kNotKnown && sent != received) {
      wait.end = Wait::End::kDiffers;
      wait.differs.cause = Cause::kMismatch;
      wait.differs.sides = {{wait.call, {member.rank}}, {*other, {peer.rank}}};
      if (wanted == "send") std::swap(wait.differs.sides[0], wait.differs.sides[1]);
    } else if (const RankState state = found_.ranks[node].state;
               Gone(state) && state != found_.ranks[wait.inside.front()].state) {
      // It began its half of the message, and its process does not go on.
      wait.lagging = {node};
      wait.end = Wait::End::kPasses;
    }
  }

  // Where nobody is missing, a rank's GPU may not have come to it: what the rank entered earlier is still open.
  void QueueBehindEarlier(std::uint32_t index) {
    Wait& wait = found_.waits[index];
    if (wait.end != Wait::End::kAllInside && wait.end != Wait::End::kUnknown) return;
    // The oldest ones tell why the rank's queue does not move; a rank may be inside thousands.
    constexpr std::size_t kMost = 16;
    for (std::size_t i = 0; i < wait.inside.size(); ++i) {
      const std::uint32_t rank = wait.inside[i];
      if (Gone(found_.ranks[rank].state) || wait.inside_ns[i] == kNotKnown) continue;
      for (std::size_t o = 0; o < std::min(kMost, opened_[rank].size()); ++o)
        if (opened_[rank][o].wait != index && opened_[rank][o].created_ns < wait.inside_ns[i])
          wait.behind.push_back(opened_[rank][o].wait);
    }
    std::sort(wait.behind.begin(), wait.behind.end());
    wait.behind.erase(std::unique(wait.behind.begin(), wait.behind.end()), wait.behind.end());
    if (!wait.behind.empty()) wait.end = Wait::End::kPasses;
  }

  const Progress& progress_;
  const JudgeOptions& options_;
  Waits found_;
  std::unordered_map<std::int32_t, std::uint32_t> node_;
  std::vector<std::vector<Opened>> opened_;
};

}  // namespace

bool Gone(RankState state) {
  return state == RankState::kStopped || state == RankState::kExited || state == RankState::kKilled ||
         state == RankState::kSilent;
}

Waits FindWaits(const Progress& progress, const JudgeOptions& options) { return Finder(progress, options).Find(); }

}  // namespace lockstep::hang
