#pragma once
// Who waits for whom: the operations that somebody is inside, and who holds each of them up.

#include <cstdint>
#include <vector>

#include "hang/judge.h"
#include "hang/progress.h"

namespace lockstep::hang {

// Ranks and waits are numbered from 0.
struct Wait {
  enum class End : std::uint8_t {
    kPasses,     // Others hold it up: `for_ranks`, `behind`.
    kDiffers,    // The calls in it are not one operation.
    kBehind,     // Others have completed it: its ranks' GPUs or network have not.
    kAllInside,  // Everybody is inside.
    kUnknown,    // Everybody is inside of whom something is known.
  };
  End end = End::kAllInside;
  std::size_t group = 0;
  bool message = false;
  Operation call;                       // As one of its ranks made it.
  std::vector<std::uint32_t> inside;    // Ranks whose oldest open operation of the group it is.
  std::vector<std::int64_t> inside_ns;  // Since when; kNotKnown.
  std::vector<std::uint32_t> joined;   // Of `inside`: for less than JudgeOptions asks, and held up by what holds it up.
  std::vector<std::uint32_t> missing;  // That did not enter it.
  std::vector<std::uint32_t> lagging;  // That entered it and have not completed an earlier one of the group.
  std::vector<std::uint32_t> away;     // Of `lagging`: that began it, went on, and move nothing meanwhile.
  std::vector<std::uint32_t> unknown;
  std::vector<std::uint32_t> unstarted;  // Inside, and their GPU has not started it while another's has.
  std::vector<std::uint32_t> behind;     // Waits that its ranks entered before it and that are still open.
  std::int64_t waited_ns = kNotKnown, first_ns = kNotKnown;  // The longest wait; when the first rank entered.
  Verdict differs;                                           // For kDiffers.
};

struct Waits {
  std::vector<RankFacts> ranks;  // Every rank of which anything names the number, ascending.
  std::vector<Wait> waits;
  std::vector<std::vector<std::uint32_t>> of_rank;  // The waits that it is inside.
  std::vector<bool> moves;                          // By rank: inside an operation that is no wait yet.
  std::size_t young = 0;
  std::int64_t oldest_young_ns = kNotKnown;
};

// Whether this process cannot go on by itself: then it waits for nobody, whatever it is inside.
bool Gone(RankState state);

Waits FindWaits(const Progress& progress, const JudgeOptions& options);

}  // namespace lockstep::hang
