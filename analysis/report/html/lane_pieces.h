#pragma once
// Cuts one rank's step into pieces of one activity each, to draw the identity.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/tables/kinds/comm_ops.h"
#include "core/interval.h"

namespace lockstep::report {

// The activity of a rank in a piece; the numbers are those of the page (web/src/timeline.js).
enum class PieceState : std::uint8_t {
  kCompute = 0,
  kHiddenTransfer = 1,  // Computes, and beside it something transfers, ...
  kHiddenWait = 2,      // ... waits for another rank, ...
  kHiddenUnsplit = 3,   // ... moves and cannot be split,
  kPosted = 4,          // ... or is posted: it is not known whether it moves.
  kTransfer = 5,        // Exposed.
  kWait = 6,
  kUnsplit = 7,
  kCopy = 8,
  kIdle = 9,
  kInput = 10,  // Part of idle.
  // CPU ranks: blocked, and beside it the same as beside compute, in the same order.
  kBlocked = 11,
  kBlockedHiddenTransfer = 12,
  kBlockedHiddenWait = 13,
  kBlockedHiddenUnsplit = 14,
  kBlockedPosted = 15,
};
inline constexpr std::size_t kPieceStates = 16;

struct Piece {
  std::int64_t end_ns;
  PieceState state;
};

// A rank's activities by time, rank clock.
struct RankLane {
  tables::RankComm comm;
  IntervalSet copy, input;
  IntervalSet blocked, awaited;  // As merge/timeline/blocked_time.h has them; the latter is in comm.busy as well.
};

// Contiguous from window.begin to window.end. The sums over the states are the terms of
// merge/timeline/breakdown.h, but for what is blocked in no recorded call: that is drawn as compute.
std::vector<Piece> CutIntoPieces(const RankLane& lane, Interval window);
// At most `most` pieces: the window in as many equal parts, each with the state that fills most of it.
std::vector<Piece> Coarsened(const std::vector<Piece>& pieces, Interval window, std::size_t most);

}  // namespace lockstep::report
