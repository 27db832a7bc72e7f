#pragma once
// A rank's activities as sets in memory, for comparing the streaming Breakdown with.

#include <utility>
#include <vector>

#include "core/interval.h"
#include "merge/timeline/breakdown.h"

namespace lockstep::merge {

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
  IntervalSet mpi_setup;
  IntervalSet input;
  IntervalSet blocked;  // The training thread in waits of its own.
  IntervalSet awaited;  // In waits for other threads' collectives.
  IntervalSet message;  // In calls that wait for the other half of a message.
};

// Fills certain, possible, transfer and wait.
inline void AddOps(const std::vector<CommOp>& ops, RankActivity& activity) {
  std::vector<Interval> certain, possible, transfer, wait;
  for (const CommOp& op : ops) {
    (op.certain ? certain : possible).push_back({op.begin_ns, op.end_ns});
    if (op.wait_end_ns > op.begin_ns) wait.push_back({op.begin_ns, op.wait_end_ns});
    if (op.end_ns > op.transfer_begin_ns) transfer.push_back({op.transfer_begin_ns, op.end_ns});
  }
  activity.certain = Normalize(std::move(certain));
  activity.possible = Normalize(std::move(possible));
  activity.transfer = Normalize(std::move(transfer));
  activity.wait = Normalize(std::move(wait));
}

// The terms of each window.
inline std::vector<Terms> BreakDown(const RankActivity& a, const std::vector<Interval>& windows) {
  Breakdown breakdown(a.gpu, windows);
  const std::pair<Activity, const IntervalSet*> sets[] = {
      {Activity::kBusy, &a.busy},         {Activity::kCertain, &a.certain},    {Activity::kPossible, &a.possible},
      {Activity::kTransfer, &a.transfer}, {Activity::kWait, &a.wait},          {Activity::kInsideMpi, &a.inside_mpi},
      {Activity::kCopy, &a.copy},         {Activity::kMpiOther, &a.mpi_other}, {Activity::kInput, &a.input},
      {Activity::kMpiIo, &a.mpi_io},      {Activity::kMpiRma, &a.mpi_rma},     {Activity::kMpiSetup, &a.mpi_setup},
      {Activity::kBlocked, &a.blocked},   {Activity::kAwaited, &a.awaited},    {Activity::kMessage, &a.message}};
  for (const auto& [activity, set] : sets) breakdown.Add(breakdown.AddSource(activity), *set);
  return breakdown.Finish();
}

}  // namespace lockstep::merge
