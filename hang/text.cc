#include "hang/text.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "analysis/words/render.h"
#include "core/printed.h"
#include "hang/source_words.h"
#include "hang/stacks.h"

namespace lockstep::hang {
namespace {

using analysis::AddTo;
using analysis::Clause;
using analysis::Clauses;
using analysis::Fact;
using analysis::If;
using analysis::Index;
using analysis::Ns;
using analysis::Num;
using analysis::Ranks;
using analysis::Rendered;
using analysis::Say;
using analysis::Size;
using analysis::Value;
using analysis::Word;

std::string NameOfKind(std::string kind) {
  std::replace(kind.begin(), kind.end(), '_', '-');
  return Printed(kind);
}

bool IsMessage(const Operation& call) { return call.kind == "send" || call.kind == "recv"; }

Num NumberOf(std::size_t count) { return {static_cast<std::int64_t>(count)}; }

// "all-reduce #482 of 17.7 MB", "send to rank 3 of 40 MB".
Clauses SayCall(const Operation& call, bool message) {
  const bool numbered = !message && call.sequence != kNotKnown && call.numbered;
  const bool sized = call.bytes != kNotKnown && call.kind != "barrier";
  return {{Say(Word::kHangCall, {{"kind", NameOfKind(call.kind)},
                                 {"sends", call.kind == "send"},
                                 {"peer", If(message && call.peer >= 0, Ranks{{call.peer}})},
                                 {"peer_unknown", message && call.peer < 0},
                                 {"number", If(numbered, Index{call.sequence})},
                                 {"size", If(sized, Size{static_cast<std::uint64_t>(call.bytes)})}})}};
}

class Teller {
 public:
  Teller(const Progress& progress, const Verdict& verdict, bool all_ranks)
      : progress_(progress), verdict_(verdict), all_ranks_(all_ranks) {
    const Verdict& v = verdict_;
    facts_ = {{"culprits", Names(v.culprits)},
              {"candidates", Names(v.candidates)},
              {"waiting", Names(v.waiting)},
              {"host", HostOf(v.culprits)},
              {"call", Clauses{{CallOnGroup()}}},
              {"message", v.message},
              {"on_host", OnHost()},
              {"waited", Clauses{{Waited()}}},
              {"last", LastCall()},
              {"shows", If(progress.source == Source::kDump, Shown(progress))},
              {"source", Clauses{{SaySource(progress.source)}}}};
  }

  Words Tell() const {
    Words words;
    words.headline = Rendered(Whole(Headline()));
    for (const Clause& detail : Details()) words.details.push_back(Rendered(detail));
    words.remedy = Rendered(Whole(Remedy()));
    return words;
  }

 private:
  // A row about the verdict as a whole.
  Clause Whole(Word word) const { return {word, facts_}; }

  Ranks Names(const std::vector<std::int32_t>& ranks) const { return {ranks, all_ranks_}; }
  // "" if they are on several.
  std::string HostOf(const std::vector<std::int32_t>& ranks) const {
    std::set<std::string> hosts;
    for (const std::int32_t rank : ranks)
      if (const RankFacts* facts = FactsOf(progress_, rank); facts != nullptr && !facts->host.empty())
        hosts.insert(Printed(facts->host));
    return hosts.size() == 1 ? *hosts.begin() : "";
  }
  std::string NameOfGroup(std::size_t index) const {
    const Group& group = progress_.groups[index];
    return Printed(group.label.empty() ? group.name : group.label);
  }
  Clause CallOnGroup() const {
    const Group& group = progress_.groups[verdict_.group];
    std::vector<std::int32_t> members;
    for (const Member& member : group.members) members.push_back(member.rank);
    return Say(Word::kHangCallOnGroup, {{"call", SayCall(verdict_.call, verdict_.message)},
                                        {"group", NameOfGroup(verdict_.group)},
                                        {"members", Names(members)},
                                        {"incomplete", !group.complete}});
  }
  Clause Waited() const {
    const bool known = verdict_.waited_ns != kNotKnown;
    return Say(known ? Word::kHangHaveWaited : Word::kHangWait,
               {{"ranks", NumberOf(verdict_.waiting.size())}, {"waited", If(known, Ns{verdict_.waited_ns})}});
  }
  Clauses LastCall() const {
    const Operation& last = verdict_.last;
    if (last.kind.empty()) return {};
    return {{Say(Word::kHangLastCall, {{"call", SayCall(last, IsMessage(last))}, {"site", Printed(last.site)}})}};
  }

  bool AllOf(const std::vector<std::int32_t>& ranks, bool (*is)(const RankFacts&)) const {
    return std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) {
      const RankFacts* facts = FactsOf(progress_, rank);
      return facts != nullptr && is(*facts);
    });
  }
  // The launcher ends the others soon, so that it does not matter how long they have waited.
  bool LeftMpi() const {
    return verdict_.cause == Cause::kEarlyExit &&
           AllOf(verdict_.culprits, [](const RankFacts& facts) { return facts.without_finalize; });
  }
  bool CountsOnly(const std::vector<std::int32_t>& ranks) const {
    return std::any_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) {
      const RankFacts* facts = FactsOf(progress_, rank);
      return facts != nullptr && facts->counts_only;
    });
  }
  // A message that its sender is through with and its receiver is not, or the other way round.
  bool OnItsWay() const {
    return verdict_.cause == Cause::kAllInside && verdict_.message && !verdict_.candidates.empty();
  }
  bool OnHost() const { return progress_.groups[verdict_.group].on_host; }

  Word Headline() const {
    switch (verdict_.cause) {
      case Cause::kEarlyExit:
        return LeftMpi() ? Word::kHangLeftMpi : Word::kHangWaitsFor;
      case Cause::kDidNotEnter:
      case Cause::kStopped:
      case Cause::kKilled:
      case Cause::kUnreachable:
      case Cause::kNoDump:
      case Cause::kBehindOnGpu:
        return Word::kHangWaitsFor;
      case Cause::kOtherOperation:
        return Word::kHangOtherOperation;
      case Cause::kMismatch:
        return Word::kHangMismatch;
      case Cause::kExtraOrMissingCall:
        return Word::kHangExtraOrMissing;
      case Cause::kAllInside:
        return OnItsWay() ? Word::kHangOnItsWay : Word::kHangAllInside;
      case Cause::kCircularWait:
        return Word::kHangCircle;
      case Cause::kCannotTell:
        break;
    }
    return Word::kHangCannotTell;
  }

  // Nothing where it is not known.
  static Clauses Doing(const RankFacts& facts) {
    const Frame* place = PlaceOf(facts);
    if (facts.doing.empty() && place == nullptr) return {};
    return {{Say(Word::kHangDoing, {{"doing", Printed(facts.doing)},
                                    {"place", place == nullptr ? Value() : Value(Clauses{{SayFrame(*place)}})}})}};
  }

  void AddDoing(std::vector<Clause>& details) const {
    constexpr std::size_t kMostDetails = 8;
    for (const std::int32_t rank : verdict_.culprits) {
      const RankFacts* facts = FactsOf(progress_, rank);
      if (facts == nullptr || facts->state == RankState::kStopped || LeftMpi() || details.size() >= kMostDetails)
        continue;
      const Fact who{"rank", Index{rank}};
      if (!facts->process.empty()) details.push_back(Say(Word::kHangRankIs, {who, {"what", Printed(facts->process)}}));
      if (Clauses doing = Doing(*facts); !doing.all.empty())
        details.push_back(Say(Word::kHangRankIs, {who, {"what", std::move(doing)}}));
    }
  }

  static Word OutsideAs(RankState state) {
    switch (state) {
      case RankState::kStopped:
        return Word::kHangStopped;
      case RankState::kExited:
        return Word::kHangLeft;
      case RankState::kKilled:
        return Word::kHangKilled;
      case RankState::kSilent:
        return Word::kHangSilent;
      case RankState::kUnknown:
      case RankState::kAlive:
      case RankState::kMissing:
        break;
    }
    return Word::kHangOutside;
  }

  // Who waits for nobody, and what each of some does.
  void AddOutside(std::vector<Clause>& details) const {
    constexpr std::size_t kMostEach = 3;
    const std::vector<std::int32_t>& ranks = verdict_.candidates;
    if (ranks.size() > kMostEach) {
      details.push_back(Say(Word::kHangOutside, {{"ranks", Names(ranks)}, {"doing", {}}}));
    } else {
      for (const std::int32_t rank : ranks) {
        const RankFacts* facts = FactsOf(progress_, rank);
        details.push_back(Say(OutsideAs(facts == nullptr ? RankState::kUnknown : facts->state),
                              {{"ranks", Ranks{{rank}}}, {"doing", facts == nullptr ? Clauses() : Doing(*facts)}}));
      }
    }
    AddTo(details, BriefStacks(progress_, ranks, false));
  }

  // Where those who wait called what they wait in: one collective may be called from several lines.
  void AddSites(std::vector<Clause>& details) const {
    constexpr std::size_t kMost = 3;
    std::map<std::string, std::vector<std::int32_t>> sites;
    for (const Member& member : progress_.groups[verdict_.group].members) {
      if (verdict_.message || !std::binary_search(verdict_.waiting.begin(), verdict_.waiting.end(), member.rank))
        continue;
      for (const Operation& call : member.calls)
        if (call.sequence != kNotKnown && call.sequence == verdict_.call.sequence && !call.site.empty())
          sites[call.site].push_back(member.rank);
    }
    if (sites.size() <= 1) {
      const std::string& site = sites.empty() ? verdict_.call.site : sites.begin()->first;
      if (!site.empty()) details.push_back(Say(Word::kHangCalledAt, {{"site", Printed(site)}}));
      return;
    }
    std::size_t told = 0;
    for (const auto& [site, ranks] : sites) {
      if (++told > kMost) break;
      details.push_back(Say(Word::kHangRanksCalledAt, {{"ranks", Names(ranks)}, {"site", Printed(site)}}));
    }
    if (sites.size() > kMost) details.push_back(Say(Word::kHangMoreLines, {{"more", NumberOf(sites.size() - kMost)}}));
  }

  // Of one or two who are named, the stacks line by line; of more, and of those who wait, which stacks there are.
  void AddStacks(std::vector<Clause>& details) const {
    constexpr std::size_t kMostWhole = 2, kMostFrames = 8;
    std::vector<std::int32_t> others;
    std::set_difference(verdict_.waiting.begin(), verdict_.waiting.end(), verdict_.culprits.begin(),
                        verdict_.culprits.end(), std::back_inserter(others));
    const bool whole = verdict_.culprits.size() <= kMostWhole;
    for (const std::int32_t rank : verdict_.culprits) {
      const RankFacts* facts = FactsOf(progress_, rank);
      if (!whole || facts == nullptr) break;
      const Fact who{"rank", Index{rank}};
      if (!facts->no_stacks.empty())
        details.push_back(Say(Word::kHangNoStack, {who, {"why", Printed(facts->no_stacks)}}));
      const Thread* thread = MainThread(*facts);
      if (thread == nullptr) continue;
      details.push_back(
          Say(Word::kHangStack, {who,
                                 {"file", Printed(facts->stacks_file)},
                                 {"threads", If(facts->threads.size() > 1, NumberOf(facts->threads.size()))}}));
      for (const Frame& frame : FramesThatMatter(*thread, kMostFrames)) details.push_back(SayFrameOfStack(frame));
      AddTo(details, HolderOf(*facts, *thread, kMostFrames));
    }
    if (!whole) AddTo(details, BriefStacks(progress_, verdict_.culprits, false));
    AddTo(details, BriefStacks(progress_, others, !verdict_.culprits.empty()));
  }

  // What is known of ranks that did not enter, apart from that.
  Clauses Elsewhere(const std::vector<std::int32_t>& ranks) const {
    const Word word = CountsOnly(ranks)                       ? Word::kHangCallsHidden
                      : verdict_.hides_messages               ? Word::kHangMessagesHidden
                      : progress_.source == Source::kRankFile ? Word::kHangNotRecordedElsewhere
                                                              : Word::kHangNotKnownElsewhere;
    return {{Say(word, {{"ranks", Names(ranks)}, {"shows", Shown(progress_)}})}};
  }

  Clause DidNotEnter() const {
    if (verdict_.began) return Whole(Word::kHangBegan);
    Clause clause = Whole(Word::kHangDidNotEnter);
    clause.facts.push_back({"elsewhere", Elsewhere(verdict_.culprits)});
    return clause;
  }

  void AddMost(std::vector<Clause>& details) const {
    const bool left =
        AllOf(verdict_.candidates, [](const RankFacts& facts) { return facts.state == RankState::kExited; });
    Clause clause = Whole(left ? Word::kHangMostLeft : Word::kHangMostAbsent);
    if (!left) clause.facts.push_back({"elsewhere", Elsewhere(verdict_.candidates)});
    details.push_back(std::move(clause));
  }

  void AddSides(std::vector<Clause>& details) const {
    constexpr std::size_t kMost = 6;
    for (std::size_t i = 0; i < std::min(kMost, verdict_.sides.size()); ++i) {
      const Operation& call = verdict_.sides[i].call;
      details.push_back(Say(Word::kHangSide, {{"ranks", Names(verdict_.sides[i].ranks)},
                                              {"kind", NameOfKind(call.kind)},
                                              {"elements", If(call.elements_in != kNotKnown, Num{call.elements_in})},
                                              {"type", Printed(call.type)},
                                              {"root", If(call.peer >= 0 && !IsMessage(call), Ranks{{call.peer}})},
                                              {"site", Printed(call.site)}}));
    }
    if (verdict_.sides.size() > kMost)
      details.push_back(Say(Word::kHangMoreCalls, {{"more", NumberOf(verdict_.sides.size() - kMost)}}));
    if (verdict_.culprits.empty() && !verdict_.sides.empty()) details.push_back(Say(Word::kHangSidesEven));
  }

  void AddCircle(std::vector<Clause>& details) const {
    constexpr std::size_t kMost = 6;
    for (std::size_t i = 0; i < std::min(kMost, verdict_.cycle.size()); ++i) {
      const Link& link = verdict_.cycle[i];
      details.push_back(Say(link.missing.empty() ? Word::kHangQueued : Word::kHangLink,
                            {{"waiting", Names(link.waiting)},
                             {"call", SayCall(link.call, IsMessage(link.call))},
                             {"group", NameOfGroup(link.group)},
                             {"missing", Names(link.missing)}}));
    }
  }

  // What is said of candidates, or of nobody.
  Clause AllInside() const {
    if (OnItsWay()) return Whole(Word::kHangMessagesCompleted);
    if (verdict_.candidates.empty()) return Whole(Word::kHangNobodyMissing);
    Clause clause = Whole(Word::kHangSomeNotFinished);
    // Of a rank without a file nothing is known.
    clause.facts.push_back({"some_unknown", verdict_.waiting.size() + verdict_.candidates.size() <
                                                progress_.groups[verdict_.group].members.size()});
    return clause;
  }

  std::vector<Clause> Details() const {
    std::vector<Clause> details;
    const auto whole = [&](Word word) { details.push_back(Whole(word)); };
    switch (verdict_.cause) {
      case Cause::kDidNotEnter:
        details.push_back(DidNotEnter());
        break;
      case Cause::kStopped:
        details.push_back(Say(Word::kHangStopped, {{"ranks", Names(verdict_.culprits)}, {"doing", {}}}));
        break;
      case Cause::kEarlyExit:
        if (!LeftMpi())
          whole(Word::kHangLeftBefore);
        else
          AddTo(details, LastCall().all);
        break;
      case Cause::kKilled:
        details.push_back(Say(Word::kHangKilled, {{"ranks", Names(verdict_.culprits)}, {"doing", {}}}));
        break;
      case Cause::kUnreachable:
        whole(Word::kHangUnreachable);
        break;
      case Cause::kNoDump:
        whole(Word::kHangNoFacts);
        break;
      case Cause::kBehindOnGpu:
        whole(verdict_.not_started ? Word::kHangNotStarted : Word::kHangNotFinished);
        break;
      case Cause::kOtherOperation:
      case Cause::kMismatch:
        AddSides(details);
        AddCircle(details);
        break;
      case Cause::kExtraOrMissingCall:
        AddSides(details);
        if (verdict_.made_one_less) whole(Word::kHangOneLess);
        if (verdict_.made_one_more) whole(Word::kHangOneMore);
        // Most of a group did not come: candidates are named, nobody is blamed.
        if (!verdict_.candidates.empty()) AddMost(details);
        break;
      case Cause::kAllInside:
        details.push_back(AllInside());
        break;
      case Cause::kCircularWait:
        AddCircle(details);
        break;
      case Cause::kCannotTell:
        if (verdict_.in_message)
          whole(CountsOnly(verdict_.candidates) ? Word::kHangMayBeElsewhere : Word::kHangMayBeInMessage);
        else if (verdict_.outside)
          AddOutside(details);
        else if (verdict_.nobody_outside)
          whole(Word::kHangNobodyOutside);
        else if (!verdict_.candidates.empty())
          whole(Word::kHangNoFactsToTell);
        break;
    }
    if (verdict_.sides.empty()) AddSites(details);
    AddDoing(details);
    AddStacks(details);
    return details;
  }

  Word Remedy() const {
    switch (verdict_.cause) {
      case Cause::kDidNotEnter:
        return CountsOnly(verdict_.culprits) ? Word::kHangCallsHiddenAction : Word::kHangDidNotEnterAction;
      case Cause::kStopped:
        return Word::kHangStoppedAction;
      case Cause::kEarlyExit:
        return LeftMpi() ? Word::kHangLeftMpiAction : Word::kHangLeftAction;
      case Cause::kKilled:
        return Word::kHangKilledAction;
      case Cause::kUnreachable:
        return Word::kHangUnreachableAction;
      case Cause::kNoDump:
        return Word::kHangNoFactsAction;
      case Cause::kBehindOnGpu:
        return OnHost() ? Word::kHangHostAction : Word::kHangGpuAction;
      case Cause::kOtherOperation:
        return Word::kHangOtherOperationAction;
      case Cause::kMismatch:
        return Word::kHangMismatchAction;
      case Cause::kExtraOrMissingCall:
        return Word::kHangExtraOrMissingAction;
      case Cause::kAllInside:
        return OnHost() ? Word::kHangHostNetworkAction : Word::kHangGpuNetworkAction;
      case Cause::kCircularWait:
        return Word::kHangCircleAction;
      case Cause::kCannotTell:
        break;
    }
    if (verdict_.in_message) return Word::kHangInMessageAction;
    if (verdict_.outside) return Word::kHangOutsideAction;
    if (CountsOnly(verdict_.candidates)) return Word::kHangMachinesAction;
    if (!verdict_.candidates.empty()) return Word::kHangAddFactsAction;
    // Of a recorded run every rank's file is here, or named.
    return progress_.source == Source::kDump ? Word::kHangAddDumpsAction : Word::kHangWaitingAction;
  }

  const Progress& progress_;
  const Verdict& verdict_;
  bool all_ranks_;
  std::vector<Fact> facts_;
};

}  // namespace

analysis::Names Shown(const Progress& progress) {
  std::set<std::string> shown;
  for (const RankFacts& facts : progress.ranks)
    for (const std::string& library : facts.shows) shown.insert(Printed(library));
  return {{shown.begin(), shown.end()}};
}

Words WordsOf(const Progress& progress, const Verdict& verdict, bool all_ranks) {
  return Teller(progress, verdict, all_ranks).Tell();
}

}  // namespace lockstep::hang
