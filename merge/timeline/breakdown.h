#pragma once
// Where the time of a rank's window went: the six terms of the identity, to the
// nanosecond, on the rank's own clock. Definitions: docs/definitions.md.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/schema.h"

namespace lockstep {

// One operation that communicates, rank clock: [begin, end) is in flight, of
// which [begin, wait_end) only waits for another rank and [transfer_begin, end)
// transfers; what is neither cannot be split.
struct CommOp {
  std::int64_t begin_ns, wait_end_ns, transfer_begin_ns, end_ns;
  bool certain;  // Blocking or on a GPU: in flight means moving or waiting. Else only while a thread is inside MPI.
};

// What happened on one rank. Sets as core/interval.h defines them.
struct RankActivity {
  bool gpu = false;
  IntervalSet busy;  // GPU ranks: compute kernels. CPU ranks: the training thread in MPI or input; the rest computes.
  IntervalSet certain;  // Operations in flight, by CommOp.certain.
  IntervalSet possible;
  IntervalSet transfer;
  IntervalSet wait;
  IntervalSet inside_mpi;  // Any thread.
  IntervalSet copy;
  IntervalSet mpi_other;  // Training thread in management, MPI-IO, RMA and the like.
  IntervalSet mpi_io;     // Part of it, waits for non-blocking MPI-IO included.
  IntervalSet mpi_rma;
  IntervalSet input;
};

// The columns of LS_TERMS that come from intervals.
struct Terms {
  std::int64_t compute_ns = 0, exposed_wait_ns = 0, exposed_transfer_ns = 0, exposed_unsplit_ns = 0;
  std::int64_t exposed_copy_ns = 0, idle_ns = 0;
  std::int64_t comm_ns = 0, overlap_ns = 0, comm_high_ns = 0, overlap_high_ns = 0;
  std::int64_t copy_ns = 0, mpi_other_ns = 0, mpi_io_ns = 0, mpi_rma_ns = 0, input_ns = 0;

  void Add(const Terms& other);
};

// Fills certain, possible, transfer and wait.
void AddOps(const std::vector<CommOp>& ops, RankActivity& activity);

// The terms of each window; windows may overlap and come in any order. One pass
// over all sets, whatever the number of windows.
std::vector<Terms> BreakDown(const RankActivity& activity, const std::vector<Interval>& windows);

// A cumulative counter read at some times (thread CPU time, run-queue delay),
// linear in between.
class CounterCurve {
 public:
  // Times must not decrease; a reading below its predecessor is dropped.
  void Add(std::int64_t time_ns, std::int64_t value);
  // Growth within the window; -1 if fewer than two readings or none near it: the
  // window must overlap the readings' span.
  std::int64_t Within(Interval window) const;

 private:
  double At(std::int64_t time_ns) const;
  std::vector<std::pair<std::int64_t, std::int64_t>> readings_;
};

// |set and window| for many windows of one set: O(log n) each, however they overlap.
class Measure {
 public:
  Measure() = default;
  explicit Measure(const IntervalSet& set);  // Keeps a pointer to `set`.
  std::int64_t Within(Interval window) const { return Before(window.end) - Before(window.begin); }

 private:
  std::int64_t Before(std::int64_t time_ns) const;
  const IntervalSet* set_ = nullptr;
  std::vector<std::int64_t> total_;  // Of the members before each.
};

}  // namespace lockstep
