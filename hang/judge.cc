#include "hang/judge.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "hang/sinks.h"
#include "hang/waits.h"

namespace lockstep::hang {
namespace {

Cause CauseOf(RankState state) {
  switch (state) {
    case RankState::kStopped:
      return Cause::kStopped;
    case RankState::kExited:
      return Cause::kEarlyExit;
    case RankState::kKilled:
      return Cause::kKilled;
    case RankState::kSilent:
      return Cause::kUnreachable;
    case RankState::kUnknown:
    case RankState::kAlive:
    case RankState::kMissing:
      break;
  }
  return Cause::kDidNotEnter;
}

class Court {
 public:
  explicit Court(const Progress& progress, Waits waits) : progress_(progress), waits_(std::move(waits)) {
    pointing_.resize(waits_.ranks.size());
    for (std::uint32_t w = 0; w < waits_.waits.size(); ++w) {
      for (const std::uint32_t rank : waits_.waits[w].missing) pointing_[rank].push_back(w);
      for (const std::uint32_t rank : waits_.waits[w].lagging) pointing_[rank].push_back(w);
    }
  }

  Judgement Decide() {
    judgement_.young = waits_.young;
    judgement_.oldest_young_ns = waits_.oldest_young_ns;
    for (std::size_t rank = 0; rank < waits_.ranks.size(); ++rank) {
      judgement_.waiting += !waits_.of_rank[rank].empty();
      const RankFacts& facts = waits_.ranks[rank];
      if (facts.state == RankState::kMissing) judgement_.no_dump.push_back(facts.rank);
      if (facts.state == RankState::kMissing || facts.blind) judgement_.blind.push_back(facts.rank);
    }
    judgement_.known = progress_.open == Open::kNothing && judgement_.blind.empty() && !waits_.ranks.empty();
    for (const std::vector<std::uint32_t>& sink : FindSinks(waits_)) {
      if (sink.size() > 1) {
        SayCircular(sink);
      } else if (sink[0] < waits_.ranks.size()) {
        held_up_by_.push_back(sink[0]);
      } else {
        SayEnd(sink[0] - static_cast<std::uint32_t>(waits_.ranks.size()));
      }
    }
    SayRanks();
    SayBehind();
    SayUnknown();
    std::stable_sort(judgement_.verdicts.begin(), judgement_.verdicts.end(), [](const Verdict& a, const Verdict& b) {
      if (a.culprits.empty() != b.culprits.empty()) return b.culprits.empty();
      return a.waiting.size() > b.waiting.size();
    });
    return std::move(judgement_);
  }

 private:
  std::int32_t RankOf(std::uint32_t node) const { return waits_.ranks[node].rank; }
  std::size_t NodeOf(std::int32_t rank) const {
    const auto at = std::lower_bound(waits_.ranks.begin(), waits_.ranks.end(), rank,
                                     [](const RankFacts& facts, std::int32_t wanted) { return facts.rank < wanted; });
    return static_cast<std::size_t>(at - waits_.ranks.begin());
  }
  std::vector<std::int32_t> RanksOf(const std::vector<std::uint32_t>& nodes) const {
    std::vector<std::int32_t> ranks;
    for (const std::uint32_t node : nodes) ranks.push_back(RankOf(node));
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  void Describe(std::uint32_t index, Verdict& verdict) const {
    const Wait& wait = waits_.waits[index];
    verdict.group = wait.group;
    verdict.call = wait.call;
    verdict.message = wait.message;
    verdict.waiting = RanksOf(wait.inside);
    verdict.joined = RanksOf(wait.joined);
    verdict.waited_ns = wait.waited_ns;
  }

  void SetLast(Verdict& verdict) const {
    if (verdict.culprits.size() != 1) return;
    for (const Member& member : progress_.groups[verdict.group].members) {
      if (member.rank != verdict.culprits[0]) continue;
      const std::vector<Operation>& calls = verdict.message ? member.messages : member.calls;
      if (!calls.empty()) verdict.last = calls.back();
    }
  }

  // Ranks in a row, each waiting for the next, and the last for the first.
  void SayCircular(const std::vector<std::uint32_t>& sink) {
    Verdict verdict;
    verdict.cause = Cause::kCircularWait;
    std::set<std::uint32_t> within(sink.begin(), sink.end());
    const auto count = static_cast<std::uint32_t>(waits_.ranks.size());
    std::uint32_t most = 0;
    bool any = false;
    std::set<std::uint32_t> members;
    for (const std::uint32_t node : sink) {
      if (node < count) {
        members.insert(node);
        continue;
      }
      const std::uint32_t index = node - count;
      const Wait& wait = waits_.waits[index];
      Link link{wait.group, wait.call, {}, {}};
      for (const std::uint32_t rank : wait.inside)
        if (within.contains(rank) || !wait.behind.empty()) link.waiting.push_back(RankOf(rank));
      for (const auto* for_ranks : {&wait.missing, &wait.lagging})
        for (const std::uint32_t rank : *for_ranks)
          if (within.contains(rank)) link.missing.push_back(RankOf(rank));
      // Operations that only queue behind one another make a cycle, too: their ranks are its members.
      if (!wait.behind.empty()) members.insert(wait.inside.begin(), wait.inside.end());
      std::sort(link.waiting.begin(), link.waiting.end());
      std::sort(link.missing.begin(), link.missing.end());
      verdict.cycle.push_back(std::move(link));
      if (!any || wait.inside.size() > waits_.waits[most].inside.size()) most = index;
      any = true;
    }
    Describe(most, verdict);
    verdict.culprits = RanksOf({members.begin(), members.end()});
    std::set<std::int32_t> waiting, joined;
    for (const std::uint32_t node : sink) {
      if (node < count) continue;
      const Wait& wait = waits_.waits[node - count];
      for (const std::uint32_t rank : wait.inside) waiting.insert(RankOf(rank));
      for (const std::uint32_t rank : wait.joined) joined.insert(RankOf(rank));
    }
    verdict.waiting.assign(waiting.begin(), waiting.end());
    verdict.joined.assign(joined.begin(), joined.end());
    NameOddOnes(sink, verdict);
    judgement_.verdicts.push_back(std::move(verdict));
  }

  // Of a circle most of whose ranks are in one collective, those are named that called something else before it: as
  // where calls of one number differ (differ.h), and by the same majority.
  void NameOddOnes(const std::vector<std::uint32_t>& sink, Verdict& verdict) const {
    const auto count = static_cast<std::uint32_t>(waits_.ranks.size());
    for (const std::uint32_t node : sink) {
      if (node < count || waits_.waits[node - count].message || !waits_.waits[node - count].behind.empty()) continue;
      const std::vector<std::int32_t> inside = RanksOf(waits_.waits[node - count].inside);
      std::vector<std::int32_t> odd;
      for (const std::int32_t rank : verdict.culprits)
        if (!std::binary_search(inside.begin(), inside.end(), rank)) odd.push_back(rank);
      if (odd.empty() || 3 * odd.size() > verdict.culprits.size()) continue;
      Describe(node - count, verdict);
      verdict.cause = Cause::kOtherOperation;
      verdict.culprits = std::move(odd);
      return;
    }
  }

  // An operation that holds itself up.
  void SayEnd(std::uint32_t index) {
    const Wait& wait = waits_.waits[index];
    std::map<Cause, std::vector<std::uint32_t>> gone;
    for (const std::uint32_t rank : wait.inside)
      if (Gone(waits_.ranks[rank].state)) gone[CauseOf(waits_.ranks[rank].state)].push_back(rank);
    if (!gone.empty() && wait.end != Wait::End::kDiffers) {
      for (const auto& [cause, ranks] : gone) {
        Verdict verdict;
        verdict.cause = cause;
        Describe(index, verdict);
        verdict.culprits = RanksOf(ranks);
        SetLast(verdict);
        judgement_.verdicts.push_back(std::move(verdict));
      }
      return;
    }
    switch (wait.end) {
      case Wait::End::kPasses:
        break;
      case Wait::End::kBehind:
        behind_.push_back(index);
        break;
      case Wait::End::kUnknown:
        // A receive from anybody says nothing by itself; who holds others up by it waits for somebody unknown.
        if (!wait.unknown.empty() || !wait.message || !pointing_[wait.inside[0]].empty()) unknown_.push_back(index);
        break;
      case Wait::End::kDiffers: {
        Verdict verdict = wait.differs;
        Describe(index, verdict);
        judgement_.verdicts.push_back(std::move(verdict));
        break;
      }
      case Wait::End::kAllInside: {
        Verdict verdict;
        verdict.cause = wait.unstarted.empty() ? Cause::kAllInside : Cause::kBehindOnGpu;
        verdict.not_started = !wait.unstarted.empty();
        Describe(index, verdict);
        verdict.culprits = RanksOf(wait.unstarted);
        judgement_.verdicts.push_back(std::move(verdict));
      }
    }
  }

  // Of the waits for this rank, the one that most ranks are inside; of those the oldest.
  std::uint32_t MainWaitFor(std::uint32_t rank) const {
    const auto worth = [&](std::uint32_t w) {
      const Wait& wait = waits_.waits[w];
      return std::pair(static_cast<std::int64_t>(wait.inside.size()),
                       wait.first_ns == kNotKnown ? INT64_MIN : -wait.first_ns);
    };
    std::uint32_t main = pointing_[rank].front();
    for (const std::uint32_t w : pointing_[rank])
      if (worth(w) > worth(main)) main = w;
    return main;
  }

  // Ranks that others wait for and that wait for nobody.
  void SayRanks() {
    std::map<std::pair<std::uint32_t, Cause>, std::vector<std::uint32_t>> by_wait;
    for (const std::uint32_t rank : held_up_by_)
      by_wait[{MainWaitFor(rank), CauseOf(waits_.ranks[rank].state)}].push_back(rank);
    for (const auto& [key, ranks] : by_wait) {
      const auto& [index, cause] = key;
      Verdict verdict;
      verdict.cause = cause;
      Describe(index, verdict);
      verdict.culprits = RanksOf(ranks);
      std::size_t known = 0;
      for (const Member& member : progress_.groups[verdict.group].members) known += member.known;
      bool seen_doing = true, left = true;
      for (const std::uint32_t rank : ranks) {
        seen_doing &= !waits_.ranks[rank].doing.empty();
        left &= waits_.ranks[rank].without_finalize;
      }
      const std::vector<std::uint32_t>& away = waits_.waits[index].away;
      verdict.began = std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
        return std::find(away.begin(), away.end(), rank) != away.end();
      });
      // If most did not come and none of them waits anywhere, the call itself may be one too many; so it may if most
      // have ended.
      const bool absent = (cause == Cause::kDidNotEnter && !seen_doing) || (cause == Cause::kEarlyExit && !left);
      if (absent && !verdict.began && !verdict.message && 2 * ranks.size() > known) {
        verdict.cause = Cause::kExtraOrMissingCall;
        verdict.candidates = std::move(verdict.culprits);
        verdict.culprits.clear();
      }
      for (const std::uint32_t rank : ranks) {
        verdict.hides_messages |= waits_.ranks[rank].hides_messages;
        // Of several ranks that seem to wait for nobody, one may wait for the other.
        verdict.in_message |=
            waits_.ranks[rank].hides_messages && (waits_.ranks[rank].makes_messages || held_up_by_.size() > 1);
      }
      if (verdict.cause == Cause::kDidNotEnter && verdict.in_message) {
        verdict.cause = Cause::kCannotTell;
        verdict.candidates = std::move(verdict.culprits);
        verdict.culprits.clear();
      }
      SetLast(verdict);
      judgement_.verdicts.push_back(std::move(verdict));
    }
  }

  void SayBehind() {
    if (behind_.empty()) return;
    std::set<std::uint32_t> ranks;
    for (const std::uint32_t w : behind_) ranks.insert(waits_.waits[w].inside.begin(), waits_.waits[w].inside.end());
    Verdict verdict;
    verdict.cause = Cause::kBehindOnGpu;
    // Where most wait for one of them; if nobody does, what they themselves are inside.
    std::uint32_t main = behind_.front();
    bool waited_for = false;
    // A message of two hosts is told itself: of those who wait for its rank, not all have called.
    const auto on_its_way = [&](std::uint32_t w) {
      return waits_.waits[w].message && progress_.groups[waits_.waits[w].group].on_host;
    };
    const bool messages = std::all_of(behind_.begin(), behind_.end(), on_its_way);
    for (const std::uint32_t rank : ranks) {
      if (messages || pointing_[rank].empty()) continue;
      const std::uint32_t w = MainWaitFor(rank);
      if (!waited_for || waits_.waits[w].inside.size() > waits_.waits[main].inside.size()) main = w;
      waited_for = true;
    }
    Describe(main, verdict);
    verdict.culprits = RanksOf({ranks.begin(), ranks.end()});
    if (progress_.groups[verdict.group].on_host) {
      // What a host has not finished, another one has not sent, or the network has lost: it waits as others do.
      verdict.cause = Cause::kAllInside;
      verdict.candidates = std::move(verdict.culprits);
      verdict.culprits.clear();
    }
    SetLast(verdict);
    judgement_.verdicts.push_back(std::move(verdict));
  }

  // The ranks that share a group with one that is known to wait for nobody: they may wait for that one.
  std::vector<bool> BesideIdle() const {
    std::vector<bool> beside(waits_.ranks.size());
    for (const Group& group : progress_.groups) {
      const auto idle = [&](const Member& member) {
        return member.known && waits_.of_rank[NodeOf(member.rank)].empty();
      };
      if (!std::any_of(group.members.begin(), group.members.end(), idle)) continue;
      for (const Member& member : group.members) beside[NodeOf(member.rank)] = true;
    }
    return beside;
  }

  // Of calls of which not even the group is known, each rank's is one of its own: those of the same kind are told at
  // once.
  void AddAlike(std::uint32_t main, Verdict& verdict) const {
    const auto stands_alone = [&](const Wait& wait) {
      const Group& group = progress_.groups[wait.group];
      return !wait.message && !group.complete && group.members.size() == 1;
    };
    if (!stands_alone(waits_.waits[main])) return;
    std::set<std::uint32_t> inside;
    for (const std::uint32_t w : unknown_) {
      const Wait& wait = waits_.waits[w];
      if (!stands_alone(wait) || wait.call.kind != verdict.call.kind) continue;
      inside.insert(wait.inside.begin(), wait.inside.end());
      verdict.waited_ns = std::max(verdict.waited_ns, wait.waited_ns);
    }
    verdict.waiting = RanksOf({inside.begin(), inside.end()});
  }

  // Whoever is waited for is one of those that wait for nobody, where all that ranks wait in is there.
  void FindOutside(Verdict& verdict) const {
    if (!progress_.whole) return;
    std::vector<std::uint32_t> outside;
    for (std::uint32_t rank = 0; rank < waits_.ranks.size(); ++rank) {
      const RankFacts& facts = waits_.ranks[rank];
      if (facts.hides_messages || facts.counts_only || waits_.moves[rank]) return;
      if (waits_.of_rank[rank].empty()) outside.push_back(rank);
    }
    verdict.candidates = RanksOf(outside);
    verdict.outside = !outside.empty();
    verdict.nobody_outside = outside.empty();
  }

  // Everybody of whom something is known is inside.
  void SayUnknown() {
    if (unknown_.empty()) return;
    const bool explained = std::any_of(judgement_.verdicts.begin(), judgement_.verdicts.end(), [](const Verdict& v) {
      return !v.culprits.empty() || !v.candidates.empty() || !v.sides.empty();
    });
    if (explained) return;
    std::set<std::uint32_t> named, candidates, common;
    bool first = true, all_told = true;
    for (const std::uint32_t w : unknown_) {
      const std::set<std::uint32_t> here(waits_.waits[w].unknown.begin(), waits_.waits[w].unknown.end());
      candidates.insert(here.begin(), here.end());
      if (here.size() == 1) named.insert(*here.begin());
      if (first) common = here;
      std::erase_if(common, [&](std::uint32_t rank) { return !here.contains(rank); });
      first = false;
    }
    if (named.empty() && common.size() == 1) named = common;
    for (const std::uint32_t w : unknown_) {
      const std::vector<std::uint32_t>& here = waits_.waits[w].unknown;
      all_told &= std::any_of(here.begin(), here.end(), [&](std::uint32_t rank) { return named.contains(rank); });
    }
    const std::vector<bool> beside_idle = BesideIdle();
    for (const std::uint32_t rank : named)
      all_told &= waits_.ranks[rank].state == RankState::kMissing && !beside_idle[rank];
    // Of several ranks without facts one may wait for another. Several waits that meet in one rank say that it does
    // not; a single one does not say it.
    for (const std::int32_t rank : judgement_.no_dump)
      all_told &= unknown_.size() > 1 ||
                  std::any_of(named.begin(), named.end(), [&](std::uint32_t node) { return RankOf(node) == rank; });
    std::uint32_t main = unknown_.front();
    for (const std::uint32_t w : unknown_)
      if (waits_.waits[w].inside.size() > waits_.waits[main].inside.size()) main = w;
    Verdict verdict;
    const bool told = all_told && !named.empty();
    verdict.cause = told ? Cause::kNoDump : Cause::kCannotTell;
    Describe(main, verdict);
    AddAlike(main, verdict);
    (told ? verdict.culprits : verdict.candidates) =
        told ? RanksOf({named.begin(), named.end()}) : RanksOf({candidates.begin(), candidates.end()});
    // Of a group whose members are not all known, any rank without a dump may be one.
    if (!told && candidates.empty()) verdict.candidates = judgement_.no_dump;
    if (!told && verdict.candidates.empty()) FindOutside(verdict);
    judgement_.verdicts.push_back(std::move(verdict));
  }

  const Progress& progress_;
  Waits waits_;
  std::vector<std::vector<std::uint32_t>> pointing_;  // By rank: the waits that wait for it.
  std::vector<std::uint32_t> held_up_by_, behind_, unknown_;
  Judgement judgement_;
};

}  // namespace

const char* NameOf(Cause cause) {
  switch (cause) {
    case Cause::kDidNotEnter:
      return "did_not_enter";
    case Cause::kStopped:
      return "stopped";
    case Cause::kEarlyExit:
      return "early_exit";
    case Cause::kKilled:
      return "killed";
    case Cause::kUnreachable:
      return "unreachable";
    case Cause::kNoDump:
      return "no_dump";
    case Cause::kBehindOnGpu:
      return "behind_on_gpu";
    case Cause::kOtherOperation:
      return "other_operation";
    case Cause::kMismatch:
      return "mismatch";
    case Cause::kExtraOrMissingCall:
      return "extra_or_missing_call";
    case Cause::kAllInside:
      return "all_inside";
    case Cause::kCircularWait:
      return "circular_wait";
    case Cause::kCannotTell:
      break;
  }
  return "cannot_tell";
}

Judgement Judge(const Progress& progress, const JudgeOptions& options) {
  return Court(progress, FindWaits(progress, options)).Decide();
}

}  // namespace lockstep::hang
