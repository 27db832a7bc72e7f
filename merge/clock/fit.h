#pragma once
// Knots with hard bounds -> a continuous map with an honest error. The offset is
// smoothed by a two-state Kalman/RTS filter (offset, frequency) whose noises are
// chosen by likelihood, so that a steady clock averages and a wandering one
// follows its knots; the error is what the bounds allow at the knots, and grows
// between them by the largest rate at which the clock was seen to leave its own
// interpolation. A jump splits the fit.

#include <cstdint>
#include <vector>

#include "merge/clock/burst_knots.h"
#include "merge/clock/clock_map.h"

namespace lockstep::merge {

// A stretch without a jump. Its knots are those measured, plus those where it was extended.
struct FitPiece {
  std::vector<MapKnot> knots;
  double begin_rate = 0, end_rate = 0;                // Drift at the ends, ns per ns.
  std::int64_t begin_slew_ppb = 0, end_slew_ppb = 0;  // Uncertainty of that drift.

  // Offset and error beyond the ends or between knots.
  MapKnot At(std::int64_t local_ns) const;
};

// Pieces in order; between piece i and i+1 the clock jumped, somewhere in [gap_begin, gap_end].
struct DomainFit {
  std::vector<FitPiece> pieces;
  struct Gap {
    std::int64_t begin_ns, end_ns;
  };
  std::vector<Gap> gaps;   // pieces.size() - 1
  std::uint64_t wide = 0;  // Knots that were too wide to be used.

  // All pieces as one map covering [begin_ns, end_ns] (ignored if begin > end).
  std::vector<MapKnot> Flatten(std::int64_t begin_ns, std::int64_t end_ns) const;
};

// `knots` sorted by time, not empty.
DomainFit FitKnots(const std::vector<OffsetKnot>& knots);

}  // namespace lockstep::merge
