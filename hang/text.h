#pragma once
// A judgement in words.

#include <string>
#include <vector>

#include "hang/judge.h"
#include "hang/progress.h"

namespace lockstep::hang {

struct Words {
  std::string headline;              // "all-reduce #482 of 17.7 MB on group dp (ranks 0-7) waits for rank 5; ...".
  std::vector<std::string> details;  // Who did what, and why nobody is named if nobody is.
  std::string remedy;
};

// Lists of ranks are short unless `all_ranks`.
Words WordsOf(const Progress& progress, const Verdict& verdict, bool all_ranks);

// Without a verdict: that nothing hangs, or why that is not known and what would tell.
struct NoHang {
  std::string sentence, remedy;  // The remedy is "" where there is nothing to do.
};
NoHang NoHangOf(const Progress& progress, const Judgement& judgement, bool all_ranks);

// The blocks of all verdicts, or what NoHangOf says; lines that are safe to print.
std::string TextOf(const Progress& progress, const Judgement& judgement, bool all_ranks, bool unicode = true);

// The same for programs: a JSON object of schema lockstep.hang/1. Keys are added, never changed.
std::string JsonOf(const Progress& progress, const Judgement& judgement);

}  // namespace lockstep::hang
