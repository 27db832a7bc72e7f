// One block of lines for each thing that others wait for.

#include <algorithm>

#include "analysis/words/render.h"
#include "hang/source_words.h"
#include "hang/text.h"

namespace lockstep::hang {
namespace {

using analysis::Clauses;
using analysis::Fact;
using analysis::Ns;
using analysis::Num;
using analysis::Ranks;
using analysis::Say;
using analysis::Told;
using analysis::Word;

struct Block {
  const Verdict* verdict;
  std::size_t more = 0;  // Operations that wait for the same ranks for the same reason.
};

// What holds several operations up is told once, unless `all`.
std::vector<Block> Gather(const Judgement& judgement, bool all) {
  std::vector<Block> told;
  for (const Verdict& verdict : judgement.verdicts) {
    const auto same = std::find_if(told.begin(), told.end(), [&](const Block& each) {
      return !verdict.culprits.empty() && verdict.sides.empty() && each.verdict->cause == verdict.cause &&
             each.verdict->culprits == verdict.culprits;
    });
    if (all || same == told.end()) {
      told.push_back({&verdict});
      continue;
    }
    ++same->more;
    // What a stopped rank was in itself says less than what others wait for.
    if (same->verdict->waiting == verdict.culprits) same->verdict = &verdict;
  }
  return told;
}

NoHang NotKnown(analysis::Clause why, std::string remedy) {
  return {Told(Word::kHangNotKnown, {{"why", Clauses{{std::move(why)}}}}), std::move(remedy)};
}

}  // namespace

NoHang NoHangOf(const Progress& progress, const Judgement& judgement, bool all_ranks) {
  const Clauses none{{judgement.young == 0
                          ? Say(Word::kHangNobodyHeldUp, {{"others", !judgement.known}})
                          : Say(Word::kHangOnlyYoung, {{"young", Num{static_cast<std::int64_t>(judgement.young)}},
                                                       {"longest", Ns{judgement.oldest_young_ns}}})}};
  // Of a recorded run every rank's file is here, or named.
  const auto add_dumps = [&] { return progress.source == Source::kDump ? Told(Word::kHangAddDumpsAction) : ""; };
  switch (progress.open) {
    case Open::kWhoIsBehind:
      return {Told(Word::kHangUnplacedBehind), ""};
    case Open::kWhoIsInside:
      return {Told(Word::kHangInsideNotKnown), ""};
    case Open::kNoCounts:
      return NotKnown(Say(Word::kHangNoCounts), Told(Word::kHangNoCountsAction));
    case Open::kUnreadFiles:
      if (judgement.blind.empty()) return NotKnown(Say(Word::kHangUnreadFiles, {{"none", none}}), add_dumps());
      break;
    case Open::kNothing:
      break;
  }
  if (judgement.known) return {Told(Word::kHangNone, {{"none", none}, {"shows", Shown(progress)}}), ""};
  if (judgement.blind.empty()) return NotKnown(Say(Word::kHangNoRank), add_dumps());
  const Fact ranks{"ranks", Ranks{judgement.blind, all_ranks}};
  return NotKnown(Say(Word::kHangSomeBlind, {ranks, {"none", none}}),
                  progress.source == Source::kRankFile ? Told(Word::kHangBlindAction, {ranks}) : add_dumps());
}

std::string TextOf(const Progress& progress, const Judgement& judgement, bool all_ranks, bool unicode) {
  constexpr std::size_t kMostVerdicts = 5;
  const std::string margin = "      ", arrow = unicode ? "→ " : "-> ";
  std::string text;
  const std::vector<Block> told = Gather(judgement, all_ranks);
  const std::size_t shown = all_ranks ? told.size() : std::min(kMostVerdicts, told.size());
  const auto more = [](std::size_t count) { return analysis::Fact{"more", Num{static_cast<std::int64_t>(count)}}; };
  for (std::size_t i = 0; i < shown; ++i) {
    const Words words = WordsOf(progress, *told[i].verdict, all_ranks);
    text += "HANG  " + words.headline + "\n";
    for (const std::string& detail : words.details) text += margin + detail + "\n";
    if (told[i].more != 0) text += margin + Told(Word::kHangSameCause, {more(told[i].more)}) + "\n";
    text += margin + arrow + words.remedy + "\n";
  }
  if (shown < told.size()) text += Told(Word::kHangMoreOperations, {more(told.size() - shown)}) + "\n";
  if (judgement.verdicts.empty()) {
    const NoHang none = NoHangOf(progress, judgement, all_ranks);
    text += none.sentence + "\n";
    if (!none.remedy.empty()) text += margin + arrow + none.remedy + "\n";
  }
  if (!judgement.no_dump.empty())
    text += margin +
            Told(Word::kHangMissing,
                 {{"source", Clauses{{SaySource(progress.source)}}}, {"ranks", Ranks{judgement.no_dump, all_ranks}}}) +
            "\n";
  return text;
}

}  // namespace lockstep::hang
