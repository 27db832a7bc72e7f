#pragma once
// What must hold of the progress that a reader of dumps makes, and of the judgement on it.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "hang/judge.h"
#include "hang/text.h"

namespace lockstep::fuzz {

inline void MustHold(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FINDING: %s\n", what);
  std::abort();
}

inline void RanksAreOfTheJob(const std::vector<std::int32_t>& ranks, const std::set<std::int32_t>& job) {
  MustHold(std::is_sorted(ranks.begin(), ranks.end()), "ranks out of order");
  MustHold(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end(), "a rank twice");
  for (const std::int32_t rank : ranks) MustHold(job.contains(rank), "a rank that the job does not have");
}

// Judges it, and says it in words.
inline void CheckJudgement(const hang::Progress& progress) {
  std::set<std::int32_t> job;
  std::size_t members = 0;
  for (std::size_t i = 0; i < progress.ranks.size(); ++i) {
    job.insert(progress.ranks[i].rank);
    MustHold(i == 0 || progress.ranks[i - 1].rank < progress.ranks[i].rank, "facts out of order");
  }
  for (const hang::Group& group : progress.groups) {
    members += group.members.size();
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      job.insert(group.members[i].rank);
      MustHold(i == 0 || group.members[i - 1].rank < group.members[i].rank, "members out of order");
    }
  }
  const hang::Judgement judgement = hang::Judge(progress, {});
  for (const hang::Verdict& verdict : judgement.verdicts) {
    MustHold(verdict.group < progress.groups.size(), "a group that is not there");
    MustHold(!verdict.waiting.empty(), "a wait without a rank");
    RanksAreOfTheJob(verdict.culprits, job);
    RanksAreOfTheJob(verdict.candidates, job);
    RanksAreOfTheJob(verdict.waiting, job);
  }
  if (members > 10'000) return;
  for (const bool all : {false, true}) {
    const std::string text = hang::TextOf(progress, judgement, all);
    for (const char c : text) MustHold(c == '\n' || static_cast<unsigned char>(c) >= 32, "a control character");
  }
  const auto json = nlohmann::json::parse(hang::JsonOf(progress, judgement));
  MustHold(json["verdicts"].size() == judgement.verdicts.size(), "a verdict less in the JSON");
}

inline void CheckProgress(hang::Progress progress) {
  CheckJudgement(progress);
  progress.whole = true;  // As a recorded run's.
  CheckJudgement(progress);
}

}  // namespace lockstep::fuzz
