#pragma once
// What a rank's facts come from, in words: "no dump of rank 3".

#include "analysis/words/clause.h"
#include "hang/progress.h"

namespace lockstep::hang {

// The libraries whose calls the dumps show; empty: they do not say, or there are none.
analysis::Names Shown(const Progress& progress);

inline analysis::Clause SaySource(Source source) {
  using analysis::Say, analysis::Word;
  switch (source) {
    case Source::kDump:
      break;
    case Source::kRankFile:
      return Say(Word::kHangRankFile);
    case Source::kAnswer:
      return Say(Word::kHangAnswer);
  }
  return Say(Word::kHangDump);
}

}  // namespace lockstep::hang
