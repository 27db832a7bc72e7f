#pragma once
// Who waits for whom in a collective, by its kind: the one table of it.
//
//   kind                                             waits                     for
//   all-reduce, all-gather, reduce-scatter,          who takes something       every other that gives something
//     all-to-all, barrier
//   broadcast, scatter                               who takes something       the root
//   reduce, gather                                   the root                  every other that gives something
//   scan, neighbourhood, others                      nobody that is known
//
// Who gives or takes nothing is known of collectives with counts of their own (core/uneven.h). Which pairs of an
// all-to-all exchange something is not.

#include <cstdint>

#include "core/collective.h"
#include "core/uneven.h"

namespace lockstep::merge {

struct Part {
  bool waits = false, awaited = false;  // For some other member; by some other.
};

// `uneven`: of the member's row.
constexpr Part PartOf(CollectiveKind kind, bool root, std::uint8_t uneven) {
  const bool gives = (uneven & kGivesNothing) == 0, takes = (uneven & kTakesNothing) == 0;
  if (Splits(kind)) return {takes, gives};
  if (RootSends(kind)) return {!root && takes, root};
  if (RootReceives(kind)) return {root, !root && gives};
  return {};
}

}  // namespace lockstep::merge
