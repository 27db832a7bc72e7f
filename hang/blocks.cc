// One block of lines for each thing that others wait for.

#include <fmt/format.h>

#include <algorithm>

#include "analysis/core/format.h"
#include "hang/text.h"

namespace lockstep::hang {
namespace {

using analysis::Plural;

struct Told {
  const Verdict* verdict;
  std::size_t more = 0;  // Operations that wait for the same ranks for the same reason.
};

// What holds several operations up is told once, unless `all`.
std::vector<Told> Gather(const Judgement& judgement, bool all) {
  std::vector<Told> told;
  for (const Verdict& verdict : judgement.verdicts) {
    const auto same = std::find_if(told.begin(), told.end(), [&](const Told& each) {
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

}  // namespace

std::string TextOf(const Progress& progress, const Judgement& judgement, bool all_ranks, bool unicode) {
  constexpr std::size_t kMostVerdicts = 5;
  std::string text;
  const std::vector<Told> told = Gather(judgement, all_ranks);
  const std::size_t shown = all_ranks ? told.size() : std::min(kMostVerdicts, told.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Words words = WordsOf(progress, *told[i].verdict, all_ranks);
    text += "HANG  " + words.headline + "\n";
    for (const std::string& detail : words.details) text += "      " + detail + "\n";
    if (told[i].more != 0)
      text += fmt::format("      {} more {} for the same: --members shows all\n", told[i].more,
                          told[i].more == 1 ? "operation waits" : "operations wait");
    text += (unicode ? "      → " : "      -> ") + words.remedy + "\n";
  }
  if (shown < told.size())
    text += fmt::format("{} more like this: --members shows all\n",
                        Plural(static_cast<std::int64_t>(told.size() - shown), "operation"));
  if (judgement.verdicts.empty()) {
    text += !progress.open.empty() ? progress.open + "\n"
            : judgement.young == 0 ? "nothing hangs: no rank is inside an operation that others hold up\n"
                                   : fmt::format("nothing hangs: {} open, the longest for {}\n",
                                                 Plural(static_cast<std::int64_t>(judgement.young), "operation") +
                                                     (judgement.young == 1 ? " was" : " were"),
                                                 analysis::Duration(judgement.oldest_young_ns));
  }
  if (!judgement.no_dump.empty())
    text += fmt::format("      no {} of {} {}\n", progress.source, judgement.no_dump.size() == 1 ? "rank" : "ranks",
                        all_ranks ? analysis::RankList(judgement.no_dump) : analysis::ShortRankList(judgement.no_dump));
  return text;
}

}  // namespace lockstep::hang
