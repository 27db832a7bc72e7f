#pragma once
// Estimates a clock from the ends of GPU collectives. All members' kernels of one n-to-n operation end
// nearly together (dlrm on 8 V100: within 1-7 us), however far apart they start, so the difference of
// two ranks' ends is the difference of their clocks, plus the skew of leaving. The median over
// operations is the estimate; the corridors (no member ends before every member began) are hard bounds
// around it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge/clock/clock_map.h"

namespace lockstep::merge {

// One operation as seen by the domain to fit and by its partner.
struct EndSample {
  std::int64_t at_ns;             // Own end, own clock.
  std::int64_t difference_ns;     // Partner's end (cluster) minus own end: the offset, but for exit skew.
  std::int64_t low_ns, high_ns;   // The offset is between these; valid if `hard`.
  std::int64_t partner_error_ns;  // Of the partner's map there.
  std::int64_t transfer_ns;       // Shortest stay of any member, an upper limit of the transfer.
  std::uint64_t sort;             // Operations of one kind and size share it.
  bool hard;
};

struct EndFit {
  std::vector<MapKnot> knots;      // Not empty; cover [begin_ns, end_ns].
  std::size_t samples = 0;         // The number of samples used.
  std::int64_t skew_ns = 0;        // How far apart ends are after alignment: 3 MAD.
  std::int64_t systematic_ns = 0;  // The difference between operations of different kind or size.
  std::uint64_t violated = 0;      // Operations whose corridor the estimate had left; it was moved back inside.
};

// `samples` not empty, in any order. The map covers [begin_ns, end_ns] (ignored if begin > end).
EndFit FitEnds(std::vector<EndSample> samples, std::int64_t begin_ns, std::int64_t end_ns);

}  // namespace lockstep::merge
