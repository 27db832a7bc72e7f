#include "ingest/ras/combine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ingest/ras/numbering.h"

namespace lockstep::ras {
namespace {

using hang::Operation;
using hang::OperationState;

using Kinds = std::set<std::string>;

std::int64_t CountOf(const Communicator& communicator, const CommRank& rank, const std::string& kind) {
  const auto at = rank.counts.find(kind);
  if (at != rank.counts.end()) return at->second;
  return communicator.counts_are_whole && !rank.counts.empty() ? 0 : kNotKnown;
}

// kNotKnown: of one of them it is not known.
std::int64_t SumOf(const Communicator& communicator, const CommRank& rank, const Kinds& kinds) {
  std::int64_t sum = 0;
  for (const std::string& kind : kinds) {
    const std::int64_t count = CountOf(communicator, rank, kind);
    if (count == kNotKnown) return kNotKnown;
    sum += count;
  }
  return sum;
}

bool Answers(const CommRank& rank) { return !rank.silent && rank.status != Status::kNoMember; }

// A text names no counts of ranks that agree.
bool Counted(const Communicator& communicator, const CommRank& rank) {
  return Answers(rank) && (!communicator.counts_are_whole || !rank.counts.empty());
}

// Of the ranks of which it is known; kNotKnown: of none.
std::int64_t LowestOf(const Communicator& communicator, const Kinds& kinds) {
  std::int64_t lowest = kNotKnown;
  for (const CommRank& rank : communicator.ranks) {
    const std::int64_t sum = Answers(rank) ? SumOf(communicator, rank, kinds) : kNotKnown;
    if (sum != kNotKnown && (lowest == kNotKnown || sum < lowest)) lowest = sum;
  }
  return lowest;
}

Kinds KindsOf(const Communicator& communicator) {
  Kinds kinds;
  for (const CommRank& rank : communicator.ranks)
    for (const auto& [kind, count] : rank.counts) kinds.insert(kind);
  return kinds;
}

// Those that not all ranks have called as often.
Kinds DifferingKinds(const Communicator& communicator) {
  Kinds differing;
  for (const std::string& kind : KindsOf(communicator)) {
    std::optional<std::int64_t> first;
    for (const CommRank& rank : communicator.ranks) {
      const std::int64_t count = Answers(rank) ? CountOf(communicator, rank, kind) : kNotKnown;
      if (count == kNotKnown) continue;
      if (!first) first = count;
      if (*first != count) differing.insert(kind);
    }
  }
  return differing;
}

bool AnySilent(const Communicator& communicator) {
  return std::any_of(communicator.ranks.begin(), communicator.ranks.end(),
                     [](const CommRank& rank) { return rank.silent; });
}

const CommRank* Find(const Communicator& communicator, std::int32_t rank) {
  const auto at = std::lower_bound(communicator.ranks.begin(), communicator.ranks.end(), rank,
                                   [](const CommRank& each, std::int32_t wanted) { return each.rank < wanted; });
  return at == communicator.ranks.end() || at->rank != rank ? nullptr : &*at;
}

const Communicator* Find(const Answer& answer, const Communicator& like) {
  for (const Communicator& each : answer.communicators)
    if (each.hash == like.hash && each.size == like.size) return &each;
  return nullptr;
}

std::string TextOf(const Process& process) {
  if (!process.known()) return "";
  return "process " + std::to_string(process.pid) + " on " + process.host +
         (process.gpu >= 0 ? ", GPU " + std::to_string(process.gpu) : "");
}

std::string NameOf(const Communicator& communicator) { return "NCCL 0x" + communicator.hash; }

class Combiner {
 public:
  Combiner(const std::vector<Answer>& answers, std::vector<std::string>& notes)
      : answers_(answers), last_(answers.back()), notes_(notes) {}

  hang::Progress Combine() {
    progress_.source = hang::Source::kAnswer;
    std::vector<bool> troubled;
    for (const Communicator& each : last_.communicators)
      troubled.push_back(AnySilent(each) || !DifferingKinds(each).empty());
    numbering_ = NumberingOf(last_);
    progress_.own_ranks = numbering_.own;
    for (std::size_t c = 0; c < last_.communicators.size(); ++c) AddRanks(c);
    for (std::size_t c = 0; c < last_.communicators.size(); ++c) AddGroup(c, troubled[c]);
    AddFacts();
    AddNotes();
    return std::move(progress_);
  }

 private:
  void AddRanks(std::size_t c) {
    const Communicator& communicator = last_.communicators[c];
    for (std::size_t i = 0; i < numbering_.ranks[c].size(); ++i) {
      const CommRank& rank = communicator.ranks[i];
      const std::int32_t number = numbering_.ranks[c][i];
      hang::RankFacts& facts = ranks_.try_emplace(number).first->second;
      facts.rank = number;
      facts.counts_only = facts.hides_messages = true;
      facts.seen_ns = last_.time_ns;
      if (rank.process.known()) {
        facts.host = rank.process.host;
        facts.pid = rank.process.pid;
        facts.process = TextOf(rank.process);
      }
      if (rank.silent) facts.state = hang::RankState::kSilent;
      counted_[number] |= Counted(communicator, rank);
      if (Answers(rank) && facts.state == hang::RankState::kUnknown) facts.state = hang::RankState::kAlive;
      const std::string doing = DoingOf(communicator, rank);
      if (!doing.empty() && facts.doing.empty()) facts.doing = doing;
    }
  }

  void AddFacts() {
    std::size_t silent = 0;
    for (const auto& [rank, facts] : ranks_) silent += facts.state == hang::RankState::kSilent;
    for (auto& [rank, facts] : ranks_) {
      // Most of a job does not end by itself while the rest is at fault for nothing.
      if (2 * silent > ranks_.size() && facts.state == hang::RankState::kSilent)
        facts.state = hang::RankState::kUnknown;
      // Whoever is behind may wait in a communicator whose ranks are not known.
      facts.makes_messages = unplaced_ > 0;
      facts.blind = !counted_[rank];
      progress_.ranks.push_back(std::move(facts));
    }
  }

  // What explains that it makes no call. That a peer failed explains nothing.
  static std::string DoingOf(const Communicator& communicator, const CommRank& rank) {
    if (rank.dead) return "dead to RAS, which has had no answer of its process for a minute";
    if (!rank.error.empty() && rank.error != "remote process error")
      return "in an error of " + NameOf(communicator) + ": " + rank.error;
    if (rank.status == Status::kFinalize)
      return "ending " + NameOf(communicator) + " (ncclCommFinalize, ncclCommDestroy)";
    if (rank.status == Status::kAbort) return "aborting " + NameOf(communicator) + " (ncclCommAbort)";
    return "";
  }

  // Since when a communicator is as it is, as far as the answers before tell.
  struct Past {
    std::size_t since;   // The first answer of which that holds.
    bool moved = false;  // Between the last two.
  };
  Past PastOf(const Communicator& communicator, const Kinds& kinds, std::int64_t lowest) const {
    Past past{answers_.size() - 1};
    for (std::size_t i = answers_.size() - 1; i-- > 0;) {
      const Communicator* before = Find(answers_[i], communicator);
      const std::int64_t then = before == nullptr ? kNotKnown : LowestOf(*before, kinds);
      if (then == kNotKnown) break;
      if (then != lowest) {
        past.moved = i + 2 == answers_.size();
        break;
      }
      past.since = i;
    }
    return past;
  }

  // Which processes have called something since the answer before.
  void FindMotion(const Communicator& communicator) {
    if (answers_.size() < 2) return;
    const Communicator* before = Find(answers_[answers_.size() - 2], communicator);
    for (const CommRank& rank : communicator.ranks) {
      if (rank.status == Status::kNoMember) continue;
      const CommRank* then = before == nullptr ? nullptr : Find(*before, rank.rank);
      // A text does not name a communicator for as long as its ranks agree.
      const bool moved = then != nullptr
                             ? then->counts != rank.counts
                             : communicator.counts_are_whole && SumOf(communicator, rank, KindsOf(communicator)) > 0;
      const std::string who =
          rank.process.known() ? TextOf(rank.process) : communicator.hash + " " + std::to_string(rank.rank);
      moved_[who] |= moved;
    }
  }

  // Time of the first answer since which `holds` of the communicator; kNotKnown: only the last one says so.
  template <typename Holds>
  std::int64_t Since(const Communicator& communicator, const Past& past, Holds&& holds) const {
    std::int64_t since = kNotKnown;
    for (std::size_t i = answers_.size() - 1; i-- > past.since;) {
      const Communicator* before = Find(answers_[i], communicator);
      if (before == nullptr || !holds(*before)) break;
      since = answers_[i].time_ns;
    }
    return since;
  }

  void AddGroup(std::size_t c, bool troubled) {
    const Communicator& communicator = last_.communicators[c];
    const std::vector<std::int32_t>& numbers = numbering_.ranks[c];
    const Kinds differing = DifferingKinds(communicator);
    const Kinds compared = communicator.counts_are_whole ? KindsOf(communicator) : differing;
    const Past past = PastOf(communicator, compared, LowestOf(communicator, compared));
    moves_ |= past.moved;
    stands_ |= !past.moved && past.since + 1 < answers_.size() && communicator.counts_are_whole && !compared.empty();
    any_counts_ |= !KindsOf(communicator).empty();
    FindMotion(communicator);
    NoteStates(communicator, past.moved);
    // Where a process does not answer, the others may have gone on until it stopped.
    const bool silent = AnySilent(communicator), waits = silent || (troubled && !past.moved);
    if (numbers.size() != communicator.ranks.size() || communicator.ranks.empty()) {
      if (waits) NoteUnplaced(communicator, differing);
      return;
    }
    hang::Group group{.name = communicator.hash, .label = NameOf(communicator)};
    group.complete = static_cast<std::int64_t>(communicator.ranks.size()) == communicator.size;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      hang::Member member{.rank = numbers[i]};
      member.known = Counted(communicator, communicator.ranks[i]);
      if (member.known) member.entered = member.completed = 0;
      group.members.push_back(std::move(member));
    }
    if (silent) {
      waits_ = true;
      WaitForSilent(communicator, past, group);
    } else if (waits && past.since + 1 == answers_.size() && answers_.size() > 1) {
      recent_ = true;  // It is no wait yet: it may have begun a moment ago.
    } else if (waits) {
      waits_ = true;
      WaitForSlowest(communicator, differing, past, group);
    }
    std::sort(group.members.begin(), group.members.end(),
              [](const hang::Member& a, const hang::Member& b) { return a.rank < b.rank; });
    progress_.groups.push_back(std::move(group));
  }

  // All that answer are inside something that the silent ones are not known to have entered. What they have called
  // besides says nothing: how far a host runs ahead differs.
  void WaitForSilent(const Communicator& communicator, const Past& past, hang::Group& group) const {
    const std::int64_t since = Since(communicator, past, [&](const Communicator& before) {
      return std::all_of(communicator.ranks.begin(), communicator.ranks.end(), [&](const CommRank& rank) {
        const CommRank* then = Find(before, rank.rank);
        return !rank.silent || (then != nullptr && then->silent);
      });
    });
    for (hang::Member& member : group.members) {
      if (!member.known) continue;
      member.entered = 1;
      member.calls = {Operation{.sequence = 1, .numbered = false, .created_ns = since}};
    }
  }

  // The calls of a rank beyond what everybody has called.
  struct Ahead {
    std::int64_t sum = kNotKnown;
    std::map<std::string, std::int64_t> calls;
  };

  // Of ranks that call the same in the same order, the calls of one contain those of another.
  static bool InOrder(std::vector<const Ahead*> ranks) {
    std::erase_if(ranks, [](const Ahead* rank) { return rank->sum == kNotKnown; });
    std::sort(ranks.begin(), ranks.end(), [](const Ahead* a, const Ahead* b) { return a->sum < b->sum; });
    for (std::size_t i = 1; i < ranks.size(); ++i)
      for (const auto& [kind, count] : ranks[i - 1]->calls) {
        const auto at = ranks[i]->calls.find(kind);
        if (at == ranks[i]->calls.end() || at->second < count) return false;
      }
    return true;
  }

  // The kind of its first call, as far as it follows from their number. Calls in another order are compared by it: what
  // may have begun alike is not told apart.
  static std::string FirstKind(const Ahead& ahead, bool in_order, const Kinds& only) {
    if (ahead.calls.size() == 1) return ahead.calls.begin()->first;
    std::string kinds;
    if (in_order) return kinds;
    for (const auto& [kind, count] : ahead.calls) {
      if (only.contains(kind)) return "";
      kinds += (kinds.empty() ? "" : " or ") + kind;
    }
    return kinds;
  }

  void WaitForSlowest(const Communicator& communicator, const Kinds& differing, const Past& past,
                      hang::Group& group) const {
    std::map<std::string, std::int64_t> common;  // What everybody has called.
    std::int64_t base = 0;
    for (const std::string& kind : differing) base += common[kind] = LowestOf(communicator, {kind});
    std::vector<Ahead> ahead(communicator.ranks.size());
    Kinds only;  // The kinds of those that are ahead by one kind.
    std::vector<const Ahead*> all;
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      const CommRank& rank = communicator.ranks[i];
      if (Answers(rank)) ahead[i].sum = SumOf(communicator, rank, differing);
      all.push_back(&ahead[i]);
      if (ahead[i].sum == kNotKnown) continue;
      for (const auto& [kind, count] : common)
        if (const std::int64_t own = CountOf(communicator, rank, kind); own > count) ahead[i].calls[kind] = own - count;
      if (ahead[i].calls.size() == 1) only.insert(ahead[i].calls.begin()->first);
    }
    const bool in_order = InOrder(std::move(all));
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      hang::Member& member = group.members[i];
      if (ahead[i].sum == kNotKnown) {
        member = {.rank = member.rank};
        continue;
      }
      member.completed = base;
      member.entered = ahead[i].sum;
      if (member.entered == base) continue;
      const std::int64_t since = Since(communicator, past, [&](const Communicator& before) {
        const CommRank* then = Find(before, communicator.ranks[i].rank);
        return then != nullptr && SumOf(before, *then, differing) > base;
      });
      member.calls = {Operation{.sequence = base + 1,
                                .kind = FirstKind(ahead[i], in_order, only),
                                .numbered = differing.size() == 1,
                                .created_ns = since}};
    }
  }

  // Notes -------------------------------------------------------------------------------------------------------------

  // "rank 3", "ranks 3, 7, 9 and 12 more".
  std::string RanksText(const Communicator& communicator, const std::vector<std::int32_t>& places) const {
    constexpr std::size_t kMost = 8;
    const auto c = static_cast<std::size_t>(&communicator - last_.communicators.data());
    const std::vector<std::int32_t>& numbers = numbering_.ranks[c];
    std::string text = places.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < std::min(kMost, places.size()); ++i) {
      const auto place = static_cast<std::size_t>(places[i]);
      text += (i > 0 ? ", " : "") + std::to_string(numbers.empty() ? communicator.ranks[place].rank : numbers[place]);
    }
    if (places.size() > kMost) text += " and " + std::to_string(places.size() - kMost) + " more";
    return text + (numbers.empty() ? " of its " + std::to_string(communicator.size) : "");
  }

  void NoteStates(const Communicator& communicator, bool moved) {
    std::map<std::string, std::vector<std::int32_t>> errors;
    std::map<Status, std::vector<std::int32_t>> states;
    for (std::size_t i = 0; i < communicator.ranks.size(); ++i) {
      const CommRank& rank = communicator.ranks[i];
      if (!rank.error.empty()) errors[rank.error].push_back(static_cast<std::int32_t>(i));
      if (!rank.silent && rank.status != Status::kUnknown) states[rank.status].push_back(static_cast<std::int32_t>(i));
    }
    for (const auto& [error, ranks] : errors)
      notes_.push_back(NameOf(communicator) + ": " + RanksText(communicator, ranks) +
                       (ranks.size() == 1 ? " reports " : " report ") + error);
    if (moved || states.size() < 2) return;
    static constexpr const char* kWords[] = {
        "", "is being made on ", "runs on ", "is being ended on ", "is being aborted on ", "does not exist on "};
    std::string text;
    for (const auto& [state, ranks] : states)
      text += (text.empty() ? " " : ", ") + (kWords[static_cast<std::size_t>(state)] + RanksText(communicator, ranks));
    notes_.push_back(NameOf(communicator) + text);
  }

  // A communicator whose ranks are not known by the numbers of the answer.
  void NoteUnplaced(const Communicator& communicator, const Kinds& differing) {
    std::vector<std::int32_t> silent, slowest;
    const std::int64_t lowest = LowestOf(communicator, differing);
    for (std::size_t i = 0; i < communicator.ranks.size(); ++i) {
      const CommRank& rank = communicator.ranks[i];
      if (rank.silent) silent.push_back(static_cast<std::int32_t>(i));
      if (Answers(rank) && SumOf(communicator, rank, differing) == lowest)
        slowest.push_back(static_cast<std::int32_t>(i));
    }
    const std::vector<std::int32_t>& named = silent.empty() ? slowest : silent;
    if (named.empty()) return;
    ++unplaced_;
    const Process& process = communicator.ranks[static_cast<std::size_t>(named[0])].process;
    notes_.push_back(NameOf(communicator) + ": " + RanksText(communicator, named) +
                     (named.size() == 1 && process.known() ? " (" + TextOf(process) + ")" : "") +
                     (silent.empty()
                          ? named.size() == 1 ? " has called less than others" : " have called less than others"
                      : named.size() == 1 ? " does not answer"
                                          : " do not answer") +
                     "; who that is in the job, ncclras -f json (NCCL 2.28.7 and later) tells");
  }

  void AddNotes() {
    for (const Answer& answer : answers_)
      if (answer.cut_off) notes_.push_back(answer.name + ": an answer is cut off, and what it lacks is not known");
    const std::vector<Process>& gone = last_.dead.empty() ? last_.silent : last_.dead;
    if (!gone.empty() && !waits_)
      notes_.push_back(TextOf(gone[0]) +
                       (gone.size() > 1 ? " and " + std::to_string(gone.size() - 1) + " more do" : " does") +
                       " not answer RAS; no communicator is left in which others wait");
    if (!any_counts_ && !waits_ && unplaced_ == 0 && gone.empty()) {
      progress_.open = hang::Open::kNoCounts;
      return;
    }
    if (waits_ && numbering_.own)
      notes_.emplace_back(
          "no communicator holds all processes, so the ranks of the job are not known: here they are numbered by host, "
          "GPU and process");
    if (waits_ && answers_.size() == 1)
      notes_.emplace_back(
          "RAS was asked once, and a job that runs looks like this for a moment: ask it again after 10 s and name both "
          "answers");
    if (recent_)
      notes_.emplace_back("some rank is behind that was not in the answer before: ask RAS again and name the last two");
    if (waits_) return;
    if (unplaced_ > 0) {
      progress_.open = hang::Open::kWhoIsBehind;
      return;
    }
    const auto standing = std::count_if(moved_.begin(), moved_.end(), [](const auto& each) { return !each.second; });
    if (moves_ && standing == 0 && gone.empty() && !last_.cut_off) return;
    progress_.open = hang::Open::kWhoIsInside;
    if (recent_) return;
    if (moves_) {
      if (standing != 0)
        notes_.push_back("no count of " + std::to_string(standing) + (standing == 1 ? " rank" : " ranks") +
                         " has moved since the answer before, while others went on: whether " +
                         (standing == 1 ? "it waits" : "they wait") + " is not known");
      return;
    }
    notes_.emplace_back(answers_.size() > 1 && stands_
                            ? "no count has moved since the first answer, and all ranks have called alike: either all "
                              "are inside an operation or all hosts are elsewhere, which RAS does not tell"
                            : "RAS tells what was called, and not what has completed: ask it again after 10 s and name "
                              "both answers");
  }

  const std::vector<Answer>& answers_;
  const Answer& last_;
  std::vector<std::string>& notes_;
  hang::Progress progress_;
  Numbering numbering_;
  std::map<std::int32_t, hang::RankFacts> ranks_;
  bool waits_ = false;        // Somewhere somebody is behind.
  bool recent_ = false;       // Somewhere somebody is who was not in the answer before.
  std::size_t unplaced_ = 0;  // Communicators in which somebody is whose ranks are not known.
  bool moves_ = false;        // A communicator goes on.
  bool stands_ = false;       // One is known not to.
  bool any_counts_ = false;
  std::map<std::int32_t, bool> counted_;  // By rank: some communicator has counts of it.
  std::map<std::string, bool> moved_;     // By process: it has called something since the answer before.
};

}  // namespace

hang::Progress Combine(const std::vector<Answer>& answers, std::vector<std::string>& notes) {
  return Combiner(answers, notes).Combine();
}

}  // namespace lockstep::ras
