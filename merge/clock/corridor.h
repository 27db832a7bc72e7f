#pragma once
// Bounds on clocks from collectives: in an n-to-n operation no member's end is before any
// member's begin. For a domain X against all domains already mapped this bounds X's offset
// from both sides, at every collective, between the bursts. Measured: 2,000 4-byte all-reduces
// between two ranks gave bounds of +-4 us around the true offset, whose middle was 0.08 us
// off.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge/clock/burst_knots.h"
#include "merge/clock/clock_map.h"
#include "merge/clock/fit.h"

namespace lockstep::merge {

struct AlignCollective;

// One instance as seen by a set of ranks, in one clock: a domain's, or cluster time.
struct InstanceBounds {
  std::uint64_t key;  // Hash of (comm, seq, start).
  // The begin and the end that bind most with their errors: among ranks of one clock the last and the first.
  std::int64_t last_begin_ns, first_end_ns;
  std::int64_t last_end_ns;
  std::int32_t begin_error_ns, end_error_ns;  // Of last_begin and first_end, once in cluster time; saturated.
  std::uint8_t gpu, hard;                     // Kernels on all ranks; the corridor holds for each pair.
  std::int64_t shortest_ns;                   // Shortest stay.
  std::uint64_t sort;                         // AlignCollective::sort.

  std::int64_t end_ns() const { return first_end_ns + (last_end_ns - first_end_ns) / 2; }
};

// Of all ranks of one domain (they share the clock), sorted by key.
std::vector<InstanceBounds> InstancesOf(const std::vector<const std::vector<AlignCollective>*>& ranks);
// A mapped domain's instances in cluster time, appended to `mapped`; JoinInstances makes one row per key of them.
void AddMapped(const std::vector<InstanceBounds>& domain, const ClockMap& map, std::vector<InstanceBounds>* mapped);
// Sorted by key, one row each. Thread: uses all allowed cores of the calling arena.
void JoinInstances(std::vector<InstanceBounds>* instances);
// f(own, other) for each instance that both have; both sorted by key.
template <typename F>
void ForEachShared(const std::vector<InstanceBounds>& own, const std::vector<InstanceBounds>& others, F&& f) {
  auto other = others.begin();
  for (const InstanceBounds& instance : own) {
    // Galloping search, because one side may be a thousand times longer.
    std::ptrdiff_t step = 1;
    while (others.end() - other > step && other[step].key < instance.key) other += step, step *= 2;
    other = std::lower_bound(other, others.end() - other > step ? other + step + 1 : others.end(), instance.key,
                             [](const InstanceBounds& a, std::uint64_t key) { return a.key < key; });
    if (other == others.end()) return;
    if (other->key == instance.key) f(instance, *other);
  }
}

// One instance's bounds on X's offset; sorted by time.
struct Corridor {
  OffsetBounds bounds;
  std::int64_t low_error_ns, high_error_ns;  // The other side's clock errors.
  std::int64_t end_difference_ns;  // Others' end (cluster) minus own end (local): the estimate for GPU kernels.
  bool gpu;
};
std::vector<Corridor> CorridorsOf(const std::vector<InstanceBounds>& domain, const std::vector<InstanceBounds>& mapped);

// Estimates the offset from corridors alone; empty if they bound it on no side.
std::vector<OffsetKnot> KnotsOfCorridors(const std::vector<Corridor>& corridors);

// Moves the ends of the fit's gaps (a jump happened within each) as close together as the corridors allow.
void NarrowGaps(const std::vector<Corridor>& corridors, DomainFit* fit);

struct CorridorCheck {
  std::uint64_t checked = 0, violated = 0;  // Violated: beyond the errors of both sides.
  std::int64_t worst_ns = 0;                // How far beyond.
};
// Checks the map. Where collectives contradict it, a knot that agrees with them is inserted, and the error around it is
// raised by the contradiction.
CorridorCheck ApplyCorridors(const std::vector<Corridor>& corridors, ClockMap* map);

}  // namespace lockstep::merge
