// One block of lines for each thing that others wait for.

#include <algorithm>

#include "analysis/words/render.h"
#include "hang/source_words.h"
#include "hang/text.h"

namespace lockstep::hang {
namespace {

using analysis::Clauses;
using analysis::Ns;
using analysis::Num;
using analysis::Ranks;
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

// Where nobody hangs.
std::string NoneText(const Progress& progress, const Judgement& judgement) {
  switch (progress.open) {
    case Open::kWhoIsBehind:
      return Told(Word::kHangUnplacedBehind);
    case Open::kWhoIsInside:
      return Told(Word::kHangInsideNotKnown);
    case Open::kNothing:
      break;
  }
  if (judgement.young == 0) return Told(Word::kHangNone);
  return Told(Word::kHangOnlyYoung,
              {{"young", Num{static_cast<std::int64_t>(judgement.young)}}, {"longest", Ns{judgement.oldest_young_ns}}});
}

}  // namespace

std::string TextOf(const Progress& progress, const Judgement& judgement, bool all_ranks, bool unicode) {
  constexpr std::size_t kMostVerdicts = 5;
  const std::string margin = "      ";
  std::string text;
  const std::vector<Block> told = Gather(judgement, all_ranks);
  const std::size_t shown = all_ranks ? told.size() : std::min(kMostVerdicts, told.size());
  const auto more = [](std::size_t count) { return analysis::Fact{"more", Num{static_cast<std::int64_t>(count)}}; };
  for (std::size_t i = 0; i < shown; ++i) {
    const Words words = WordsOf(progress, *told[i].verdict, all_ranks);
    text += "HANG  " + words.headline + "\n";
    for (const std::string& detail : words.details) text += margin + detail + "\n";
    if (told[i].more != 0) text += margin + Told(Word::kHangSameCause, {more(told[i].more)}) + "\n";
    text += margin + (unicode ? "→ " : "-> ") + words.remedy + "\n";
  }
  if (shown < told.size()) text += Told(Word::kHangMoreOperations, {more(told.size() - shown)}) + "\n";
  if (judgement.verdicts.empty()) text += NoneText(progress, judgement) + "\n";
  if (!judgement.no_dump.empty())
    text += margin +
            Told(Word::kHangMissing,
                 {{"source", Clauses{{SaySource(progress.source)}}}, {"ranks", Ranks{judgement.no_dump, all_ranks}}}) +
            "\n";
  return text;
}

}  // namespace lockstep::hang
