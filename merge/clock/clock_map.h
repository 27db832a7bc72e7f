#pragma once
// The map from one clock to cluster time. Clock alignment finds it, the rows of `clock` store it, and, made of them, it
// computes all times and errors of a run.

#include <cstdint>
#include <vector>

#include "core/schema.h"

namespace lockstep::merge {

// Offset and error bound at one local time. Between knots offset and base error
// are linear, and the nearer knot's slew times the distance to it comes on top.
struct MapKnot {
  std::int64_t local_ns;
  std::int64_t offset_ns;  // Cluster minus local.
  std::int64_t base_error_ns;
  std::int64_t slew_ppb;  // ns per second.
};

// Strictly monotone. Without knots cluster time is local time, and its error unbounded.
class ClockMap {
 public:
  ClockMap() = default;
  // Of one rank, from rows of `clock`.
  ClockMap(const schema::Clock& clock, std::int32_t rank);

  std::vector<MapKnot> knots;  // Sorted, distinct local_ns.
  std::uint8_t method = schema::ClockMethod::kNone;

  // Outside the knots: the nearest segment's line.
  std::int64_t OffsetAt(std::int64_t local_ns) const;
  // Error bound of what OffsetAt gives, ns; kForever (merge/saturated.h) where there is none.
  std::int64_t ErrorAt(std::int64_t local_ns) const;
  std::int64_t ToCluster(std::int64_t local_ns) const { return local_ns + OffsetAt(local_ns); }
  // Inverse of ToCluster, to the ns but for rounding.
  std::int64_t ToLocal(std::int64_t cluster_ns) const;
};

// Sorts the knots, drops duplicates and makes local -> cluster strictly monotone
// (a clock that was set back cannot be mapped exactly: the error says so).
void Normalise(std::vector<MapKnot>* knots);

}  // namespace lockstep::merge
