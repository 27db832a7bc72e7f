#pragma once
// Finds how each rank ended, and which ranks ended early.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "merge/readers/run_files.h"

namespace lockstep::merge {

inline constexpr std::int32_t kExitUnknown = std::numeric_limits<std::int32_t>::min();

struct RankOutcome {
  std::int32_t exit_code = kExitUnknown;  // Or -signal.
  bool ended_early = false;
  std::string why;  // "signal 9", "exit code 3", "its records end 2.5 s before the others'"; empty unless early.
};

// `last_ns`: last sign of life of each rank in cluster time. A rank ended early if
// it failed by itself, or if nothing says how it ended and the others finished, or
// were ended by the launcher, later; or if nothing says how any rank of its host
// ended, and another one of these did. Ranks that the launcher ended because of
// another one did not. Where all others had left with exit code 0 before a rank failed, they ended early.
std::vector<RankOutcome> FindOutcomes(const std::vector<RunRank>& ranks, const std::vector<std::int64_t>& first_ns,
                                      const std::vector<std::int64_t>& last_ns);

}  // namespace lockstep::merge
