#pragma once
// Rank clocks -> cluster time: the `clock` table of timeline.h5 from the rank
// files' raw clock exchanges, checked against (or, without exchanges, estimated
// from) the collectives. docs/definitions.md: cluster time is the event clock of
// the reference domain, which is the one of the lowest rank present.

#include <cstdint>
#include <string>
#include <vector>

#include "core/loss.h"
#include "core/result.h"
#include "core/schema.h"
#include "merge/merge.h"

namespace lockstep::merge {

// A member's side of an n-to-n collective: Splits(kind), not an inter-communicator,
// bytes > 0 or a barrier, completed. Blocking, non-blocking (post .. return of the
// completing call) and GPU alike: no member's end lies before another's begin.
struct AlignCollective {
  std::uint64_t comm, seq;  // Instance key: comms.global_id (of NCCL: with the function), .seq, .start.
  std::uint32_t start;
  std::uint32_t gpu;              // 1: a kernel; ends nearly together.
  std::int64_t begin_ns, end_ns;  // Rank clock.
  std::uint64_t sort = 0;         // Operations of one kind and size share it.
  bool uneven = false;            // Members that exchange nothing need not wait for one another: no hard bounds.
};

// One rank file's contribution. Pointers must outlive the call; null: table not there.
struct AlignRank {
  std::int32_t rank = -1;
  std::string domain;  // meta clock_domain; "": a domain of its own.
  const schema::ClockBursts* bursts = nullptr;
  const schema::ClockSnapshots* snapshots = nullptr;
  std::vector<AlignCollective> collectives;
  // First and last event time, which the map must cover. Both 0: unknown.
  std::int64_t begin_ns = 0, end_ns = 0;
  // Imported from another tool's trace, whose times count from 1970: a rank that is related to no other keeps them,
  // without a bound on its error, instead of being refused.
  bool imported = false;
};

struct AlignLoss {
  std::int32_t rank;
  Loss loss;
  std::uint64_t count;
  std::string detail;
};

struct AlignResult {
  schema::Clock clock;  // Rows sorted by rank, then local_ns; at least one per rank.
  std::vector<AlignLoss> losses;
  std::uint64_t corridors_checked = 0, corridors_violated = 0;  // Against the fit, before it was widened.
};

// Fits all ranks. kUnsupported, with the remedy, if a rank that was not imported has no
// relation to the reference and `choice` is kAuto. kOff: offset 0 everywhere, method 4,
// error 0. Imported ranks without relation: method 4, error INT64_MAX, and a loss; or
// with kWall method 5. If only such ranks are there, the reference is the lowest rank
// of those that most others can be related to.
// The result depends on neither the order of `ranks` nor `jobs`.
Result<AlignResult> AlignClocks(const std::vector<AlignRank>& ranks, ClockChoice choice, unsigned jobs = 1);

}  // namespace lockstep::merge
