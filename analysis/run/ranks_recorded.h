#pragma once
// Describes how many ranks of a job are recorded; the verdict, `lockstep info`, `lockstep doctor` and the line that
// ends `lockstep run` use the same words.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/words/render.h"

namespace lockstep::analysis {

// "4 of 4 ranks recorded", "2 of 4 ranks recorded: nothing is there of ranks 2 and 3". No full stop. `missing`
// ascending.
inline std::string RanksRecorded(std::int64_t ranks, std::int64_t expected, const std::vector<std::int32_t>& missing) {
  return Told(Word::kRanksRecorded,
              {{"recorded", Num{ranks}}, {"expected", Num{expected}}, {"missing", Ranks{missing}}});
}

}  // namespace lockstep::analysis
