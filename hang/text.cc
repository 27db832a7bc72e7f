#include "hang/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "analysis/core/format.h"
#include "core/printed.h"
#include "hang/stacks.h"

namespace lockstep::hang {
namespace {

using analysis::Plural;

std::string Dashed(std::string kind) {
  std::replace(kind.begin(), kind.end(), '_', '-');
  return kind.empty() ? "operation" : Printed(kind);
}

// "all-reduce #482 of 17.7 MB", "send to rank 3 of 40 MB".
std::string NameOfCall(const Operation& call, bool message) {
  std::string text = Dashed(call.kind);
  if (message) {
    text += call.kind == "send" ? " to " : " from ";
    text += call.peer < 0 ? "some rank" : fmt::format("rank {}", call.peer);
  } else if (call.sequence != kNotKnown && call.numbered) {
    text += fmt::format(" #{}", call.sequence);
  }
  if (call.bytes != kNotKnown && call.kind != "barrier")
    text += " of " + analysis::Bytes(static_cast<std::uint64_t>(call.bytes));
  return text;
}

// What distinguishes a call from that of another rank.
std::string Exactly(const Operation& call) {
  std::string text = Dashed(call.kind);
  if (call.elements_in != kNotKnown)
    text += fmt::format(" of {} {}", analysis::Count(call.elements_in),
                        call.type.empty() ? "elements" : Printed(call.type));
  if (call.peer >= 0 && call.kind != "send" && call.kind != "recv") text += fmt::format(", root rank {}", call.peer);
  if (!call.site.empty()) text += ", " + Printed(call.site);
  return text;
}

class Teller {
 public:
  Teller(const Progress& progress, const Verdict& verdict, bool all_ranks)
      : progress_(progress), verdict_(verdict), all_ranks_(all_ranks) {}

  Words Tell() {
    Words words;
    const std::string call = NameOfCall(verdict_.call, verdict_.message) + OnGroup(verdict_.group);
    words.headline = LeftMpi() ? fmt::format("{} exited with code 0 without MPI_Finalize while {} waited for {} in {}",
                                             Names(verdict_.culprits), Names(verdict_.waiting),
                                             One(verdict_.culprits) ? "it" : "them", call)
                               : call + Headline();
    Details(words.details);
    words.remedy = Remedy();
    return words;
  }

 private:
  std::string Names(const std::vector<std::int32_t>& ranks) const {
    if (!all_ranks_) return analysis::RankNames(ranks);
    return (ranks.size() == 1 ? "rank " : "ranks ") + analysis::RankList(ranks);
  }
  std::string NamesAndHost(const std::vector<std::int32_t>& ranks) const {
    std::set<std::string> hosts;
    for (const std::int32_t rank : ranks)
      if (const RankFacts* facts = FactsOf(progress_, rank); facts != nullptr && !facts->host.empty())
        hosts.insert(Printed(facts->host));
    return Names(ranks) + (hosts.size() == 1 ? " (" + *hosts.begin() + ")" : "");
  }
  std::string NameOfGroup(std::size_t index) const {
    const Group& group = progress_.groups[index];
    return Printed(group.label.empty() ? group.name : group.label);
  }
  std::string OnGroup(std::size_t index) const {
    const Group& group = progress_.groups[index];
    std::vector<std::int32_t> ranks;
    for (const Member& member : group.members) ranks.push_back(member.rank);
    return fmt::format(" on group {} ({} {}{})", NameOfGroup(index), ranks.size() == 1 ? "rank" : "ranks",
                       all_ranks_ ? analysis::RankList(ranks) : analysis::ShortRankList(ranks),
                       group.complete ? "" : " and perhaps more");
  }
  static bool One(const std::vector<std::int32_t>& ranks) { return ranks.size() == 1; }
  // The launcher ends the others soon, so that it does not matter how long they have waited.
  bool LeftMpi() const {
    return verdict_.cause == Cause::kEarlyExit &&
           std::all_of(verdict_.culprits.begin(), verdict_.culprits.end(), [&](std::int32_t rank) {
             const RankFacts* facts = FactsOf(progress_, rank);
             return facts != nullptr && facts->without_finalize;
           });
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

  std::string Waited() const {
    const std::size_t count = verdict_.waiting.size();
    std::string text = fmt::format("; {} {}", Plural(static_cast<std::int64_t>(count), "rank"),
                                   verdict_.waited_ns != kNotKnown ? count == 1 ? "has waited " : "have waited "
                                   : count == 1                    ? "waits"
                                                                   : "wait");
    if (verdict_.waited_ns != kNotKnown) text += analysis::Duration(verdict_.waited_ns);
    return text;
  }

  std::string Headline() const {
    const std::string who = NamesAndHost(verdict_.culprits);
    switch (verdict_.cause) {
      case Cause::kDidNotEnter:
      case Cause::kStopped:
      case Cause::kEarlyExit:
      case Cause::kKilled:
      case Cause::kUnreachable:
      case Cause::kNoDump:
        return " waits for " + who + Waited();
      case Cause::kBehindOnGpu:
        return " waits for " + who + Waited();
      case Cause::kOtherOperation:
        return " cannot end: the ranks called different operations" + Waited();
      case Cause::kMismatch:
        return " cannot end: the ranks' calls do not fit together" + Waited();
      case Cause::kExtraOrMissingCall:
        return " cannot end: one side made a call more than the other" + Waited();
      case Cause::kAllInside:
        return (OnItsWay() ? " does not move: its other end is through with it"
                           : " does not move: everybody is inside") +
               Waited();
      case Cause::kCircularWait:
        return fmt::format(" is part of a circle: {} wait for one another", who) + Waited();
      case Cause::kCannotTell:
        break;
    }
    return " waits, and the facts do not say for whom" + Waited();
  }

  static std::string DoingText(const RankFacts& facts) {
    const std::string place = PlaceOf(facts);
    return Printed(facts.doing) + (place.empty() ? "" : (facts.doing.empty() ? "in " : ", in ") + place);
  }

  void AddDoing(std::vector<std::string>& details) const {
    for (const std::int32_t rank : verdict_.culprits) {
      const RankFacts* facts = FactsOf(progress_, rank);
      if (facts == nullptr || facts->state == RankState::kStopped || LeftMpi() || details.size() >= 8) continue;
      if (!facts->process.empty()) details.push_back(fmt::format("rank {} is {}", rank, Printed(facts->process)));
      const std::string text = DoingText(*facts);
      if (!text.empty()) details.push_back(fmt::format("rank {} is {}", rank, text));
    }
  }

  static const char* OutsideAs(RankState state) {
    switch (state) {
      case RankState::kStopped:
        return "is stopped by a signal or a debugger";
      case RankState::kExited:
        return "has left";
      case RankState::kKilled:
        return "was killed";
      case RankState::kSilent:
        return "does not answer";
      case RankState::kUnknown:
      case RankState::kAlive:
      case RankState::kMissing:
        break;
    }
    return "is inside no call";
  }

  // Who waits for nobody, and what each of some does.
  void AddOutside(std::vector<std::string>& details) const {
    constexpr std::size_t kMostEach = 3;
    const std::vector<std::int32_t>& ranks = verdict_.candidates;
    if (ranks.size() > kMostEach) {
      details.push_back(Names(ranks) + " are inside no call");
    } else {
      for (const std::int32_t rank : ranks) {
        const RankFacts* facts = FactsOf(progress_, rank);
        const std::string doing = facts == nullptr ? "" : DoingText(*facts);
        details.push_back(fmt::format("rank {} {}{}", rank,
                                      OutsideAs(facts == nullptr ? RankState::kUnknown : facts->state),
                                      doing.empty() ? "" : ": " + doing));
      }
    }
    for (std::string& line : BriefStacks(progress_, ranks, false)) details.push_back(std::move(line));
  }

  static std::string WhereAllStacksAre(const RankFacts& facts) {
    if (facts.stacks_file.empty()) return "";
    return " (" + Printed(facts.stacks_file) +
           (facts.threads.size() > 1 ? fmt::format(" has all of its {} threads)", facts.threads.size()) : ")");
  }

  // Where those who wait called what they wait in: one collective may be called from several lines.
  void AddSites(std::vector<std::string>& details) const {
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
      if (!site.empty()) details.push_back("those who wait called it at " + Printed(site));
      return;
    }
    std::size_t told = 0;
    for (const auto& [site, ranks] : sites) {
      if (++told > kMost) break;
      details.push_back(fmt::format("{} called it at {}", Names(ranks), Printed(site)));
    }
    if (sites.size() > kMost)
      details.push_back(fmt::format("and {} more", Plural(static_cast<std::int64_t>(sites.size() - kMost), "line")));
  }

  // Of one or two who are named, the stacks line by line; of more, and of those who wait, which stacks there are.
  void AddStacks(std::vector<std::string>& details) const {
    constexpr std::size_t kMostWhole = 2, kMostFrames = 8;
    std::vector<std::int32_t> others;
    std::set_difference(verdict_.waiting.begin(), verdict_.waiting.end(), verdict_.culprits.begin(),
                        verdict_.culprits.end(), std::back_inserter(others));
    const bool whole = verdict_.culprits.size() <= kMostWhole;
    for (const std::int32_t rank : verdict_.culprits) {
      const RankFacts* facts = FactsOf(progress_, rank);
      if (!whole || facts == nullptr) break;
      if (!facts->no_stacks.empty())
        details.push_back(fmt::format("no stack of rank {}: {}", rank, Printed(facts->no_stacks)));
      const Thread* thread = MainThread(*facts);
      if (thread == nullptr) continue;
      details.push_back(fmt::format("stack of rank {}{}:", rank, WhereAllStacksAre(*facts)));
      for (const Frame& frame : FramesThatMatter(*thread, kMostFrames)) details.push_back("  " + FrameText(frame));
      for (std::string& line : HolderOf(*facts, *thread, kMostFrames)) details.push_back(std::move(line));
    }
    if (!whole)
      for (std::string& line : BriefStacks(progress_, verdict_.culprits, false)) details.push_back(std::move(line));
    for (std::string& line : BriefStacks(progress_, others, !verdict_.culprits.empty()))
      details.push_back(std::move(line));
  }

  std::string LastCall() const {
    return "its last call in this group was " +
           NameOfCall(verdict_.last, verdict_.last.kind == "send" || verdict_.last.kind == "recv") +
           (verdict_.last.site.empty() ? "" : ", " + Printed(verdict_.last.site));
  }

  std::string DidNotEnter() const {
    if (verdict_.began)
      return Names(verdict_.culprits) + " began it and does not wait for it; MPI moves it only inside its calls";
    std::string text = Names(verdict_.culprits) + (verdict_.message ? " made no call that fits" : " did not enter");
    if (!verdict_.last.kind.empty()) text += ": " + LastCall();
    if (CountsOnly(verdict_.culprits)) return text + "; whether it waits elsewhere is not known";
    return text + (verdict_.hides_messages ? "; its dump shows no other call that is open, and would show no message"
                                           : "; it waits for nobody else");
  }

  // Most of a group did not come: candidates are named, nobody is blamed.
  std::string Absent() const {
    const bool one = One(verdict_.candidates);
    const bool ended = std::all_of(verdict_.candidates.begin(), verdict_.candidates.end(), [&](std::int32_t rank) {
      const RankFacts* facts = FactsOf(progress_, rank);
      return facts != nullptr && facts->state == RankState::kExited;
    });
    const std::string who = Names(verdict_.candidates), others = Names(verdict_.waiting);
    if (ended) return fmt::format("{} ended without it: either too early, or {} made a call too many", who, others);
    return fmt::format("{} did not enter and {} nowhere else: either {} late, or {} made a call too many", who,
                       one ? "waits" : "wait", one ? "it is" : "they are", others);
  }

  void AddSides(std::vector<std::string>& details) const {
    constexpr std::size_t kMost = 6;
    for (std::size_t i = 0; i < std::min(kMost, verdict_.sides.size()); ++i)
      details.push_back(fmt::format("{} called {}", Names(verdict_.sides[i].ranks), Exactly(verdict_.sides[i].call)));
    if (verdict_.sides.size() > kMost)
      details.push_back(
          fmt::format("and {} more", Plural(static_cast<std::int64_t>(verdict_.sides.size() - kMost), "call")));
    if (verdict_.culprits.empty() && !verdict_.sides.empty())
      details.emplace_back("whose call is the wrong one cannot be told: too few ranks agree");
  }

  void AddCircle(std::vector<std::string>& details) const {
    for (std::size_t i = 0; i < std::min<std::size_t>(6, verdict_.cycle.size()); ++i) {
      const Link& link = verdict_.cycle[i];
      const bool message = link.call.kind == "send" || link.call.kind == "recv";
      const std::string what = NameOfCall(link.call, message) + " on group " + NameOfGroup(link.group);
      details.push_back(link.missing.empty()
                            ? fmt::format("{} {} queued in {} behind another one", Names(link.waiting),
                                          One(link.waiting) ? "is" : "are", what)
                            : fmt::format("{} {} in {} for {}", Names(link.waiting),
                                          One(link.waiting) ? "waits" : "wait", what, Names(link.missing)));
    }
  }

  void Details(std::vector<std::string>& details) const {
    const std::string who = Names(verdict_.culprits), candidates = Names(verdict_.candidates);
    const bool one = One(verdict_.culprits);
    switch (verdict_.cause) {
      case Cause::kDidNotEnter:
        details.push_back(DidNotEnter());
        break;
      case Cause::kStopped:
        details.push_back(fmt::format("{} {} stopped by a signal or a debugger", who, one ? "is" : "are"));
        break;
      case Cause::kEarlyExit:
        if (!LeftMpi())
          details.push_back(fmt::format("{} left by {} before this call", who, one ? "itself" : "themselves"));
        else if (!verdict_.last.kind.empty())
          details.push_back(LastCall());
        break;
      case Cause::kKilled:
        details.push_back(fmt::format("{} {} killed", who, one ? "was" : "were"));
        break;
      case Cause::kUnreachable:
        details.push_back(fmt::format("the {} of {} {} not answer: ended, killed or stopped, or {} network is gone",
                                      one ? "process" : "processes", who, one ? "does" : "do", one ? "its" : "their"));
        break;
      case Cause::kNoDump:
        details.push_back(
            fmt::format("there is no {} of {}, and all others that wait are inside", progress_.source, who));
        break;
      case Cause::kBehindOnGpu:
        details.push_back(verdict_.not_started
                              ? "the GPU of " + who + " has not started it; others' have"
                              : fmt::format("{} called and {} not finished what other ranks have finished", who,
                                            one ? "has" : "have"));
        break;
      case Cause::kOtherOperation:
      case Cause::kMismatch:
        AddSides(details);
        AddCircle(details);
        break;
      case Cause::kExtraOrMissingCall:
        AddSides(details);
        if (verdict_.made_one_less) details.push_back(who + " made a call less: its next one is already here");
        if (verdict_.made_one_more) details.push_back(who + " made a call more: the others' call is its next one");
        if (!verdict_.candidates.empty()) details.push_back(Absent());
        break;
      case Cause::kAllInside:
        if (OnItsWay()) {
          details.push_back(fmt::format("{} {} for nothing but messages whose other ends, on other hosts, are through",
                                        candidates, One(verdict_.candidates) ? "waits" : "wait"));
          break;
        }
        if (!verdict_.candidates.empty()) {
          // Of a rank without a file nothing is known.
          const bool all =
              verdict_.waiting.size() + verdict_.candidates.size() >= progress_.groups[verdict_.group].members.size();
          details.push_back(fmt::format("all {}have called; {} {} not finished what other ranks have finished",
                                        all ? "" : "that are known of ", candidates,
                                        One(verdict_.candidates) ? "has" : "have"));
          break;
        }
        details.emplace_back(
            OnHost() ? "nobody is missing and nobody is ahead: the network between their hosts stopped"
                     : "nobody is missing and nobody is ahead: the GPUs or the network between them stopped");
        break;
      case Cause::kCircularWait:
        AddCircle(details);
        break;
      case Cause::kCannotTell:
        if (verdict_.in_message)
          details.push_back(candidates + " did not enter, and may be inside a message" +
                            (CountsOnly(verdict_.candidates) ? " or another communicator, which RAS does not show"
                                                             : ", which gloo's dumps do not show"));
        else if (verdict_.outside)
          AddOutside(details);
        else if (verdict_.nobody_outside)
          details.push_back("every rank of the job is inside a call: nobody is left who could end it");
        else if (!verdict_.candidates.empty())
          details.push_back(fmt::format("no {} of {}, so it cannot be told who is late", progress_.source, candidates));
        break;
    }
    if (verdict_.sides.empty()) AddSites(details);
    AddDoing(details);
    AddStacks(details);
  }

  std::string Remedy() const {
    const std::string who = Names(verdict_.culprits);
    switch (verdict_.cause) {
      case Cause::kDidNotEnter:
        if (CountsOnly(verdict_.culprits))
          return "look at the stacks of " + who + ": its host waits for something, or for its own GPU";
        return "look at what the host of " + who +
               " does: input, a lock, the file system, a caught exception; the others are "
               "healthy";
      case Cause::kStopped:
        return "let it go on (kill -CONT), or end the debugger";
      case Cause::kEarlyExit:
        if (LeftMpi()) return "look for what calls exit() or returns from main() on " + who + " before MPI_Finalize";
        return "look at the output and the exit code of " + who + ": it left while others went on";
      case Cause::kKilled:
        return "look for why " + who + " was killed: out of memory (dmesg), the scheduler, a fault";
      case Cause::kUnreachable:
        return "look at the machine of " + who + ", and at the end of its output";
      case Cause::kNoDump:
        return "look at the output and the machine of " + who + ": it may have ended before it could write";
      case Cause::kBehindOnGpu:
        if (OnHost())
          return "look at the host and the network of " + who + ": dmesg, the links' counters, its other processes";
        return "look at the GPU and the network of " + who + ": Xid errors in dmesg, nvidia-smi, the links";
      case Cause::kOtherOperation:
        return "the program's order of calls depends on the rank: look for a branch around these lines";
      case Cause::kMismatch:
        return "make size, type and root the same on all ranks: look for an uneven last batch or a branch on the rank";
      case Cause::kExtraOrMissingCall:
        return "look for a call that some ranks skip: a branch on the rank, on the data or on the number of batches";
      case Cause::kAllInside:
        if (OnHost()) return "look at the network between these ranks' hosts (a firewall, dmesg, the links' counters)";
        return "look at the network and the GPUs of these ranks (NCCL_DEBUG=INFO, dmesg, the links' counters)";
      case Cause::kCircularWait:
        return "let all ranks make these calls in the same order, or receive before they send";
      case Cause::kCannotTell:
        break;
    }
    if (verdict_.in_message)
      return "look at the stacks of " + Names(verdict_.candidates) + ": in a receive, or elsewhere";
    if (verdict_.outside)
      return "look at " + Names(verdict_.candidates) + ": those who wait may wait for " +
             (One(verdict_.candidates) ? "it" : "one of them");
    if (CountsOnly(verdict_.candidates)) return "look at the output and the machines of " + Names(verdict_.candidates);
    if (!verdict_.candidates.empty())
      return "add the " + progress_.source + " of " + Names(verdict_.candidates) +
             ", or look at its output and machine";
    // Of a recorded run every rank's file is here, or named.
    return progress_.source == "dump" ? "add the dumps of all ranks"
                                      : "look at the stacks of " + Names(verdict_.waiting) + ": whom they wait for";
  }

  const Progress& progress_;
  const Verdict& verdict_;
  bool all_ranks_;
};

}  // namespace

Words WordsOf(const Progress& progress, const Verdict& verdict, bool all_ranks) {
  return Teller(progress, verdict, all_ranks).Tell();
}

}  // namespace lockstep::hang
