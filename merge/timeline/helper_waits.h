#pragma once
// When the training thread of a CPU rank waited for collectives that other threads of its
// process made (PyTorch over MPI reduces its buckets in a thread of its own). No call of
// the training thread shows it: it sleeps on a condition variable.

#include <cstdint>
#include <string_view>

#include "core/interval.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::merge {

// What PyTorch's hook names the ranges in which the training thread gives a bucket away; other programs may as well.
inline constexpr std::string_view kGivesBucketAway = "ddp bucket";

// How far apart the end of waiting, `waited_ns` long, and the noted end of what was waited for may lie.
std::int64_t EndToleranceNs(std::int64_t waited_ns);

// Rank clock; empty unless other threads make blocking collectives and steps carry the CPU time of the training
// thread. Waiting is time in which others were in collectives and the training thread,
// - in steps in which it gave buckets away: had given the last one, until the last of their collectives ended;
// - in other steps: did nothing that is recorded (a range's begin or end, a call of MPI's) between something and about
//   the end of such a collective, as who is woken by it does: soon after it, or before an end that was noted late;
// of both at most the last B of each step, where B is the time it was blocked: the step's length minus its CPU time,
// its time on the run queue (where that was sampled) and its ranges marked as input. Who waits by spinning is
// computing.
IntervalSet HelperWaits(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training);
// The same of tables in memory.
IntervalSet HelperWaits(const schema::RankTables& tables, std::uint32_t training);

}  // namespace lockstep::merge
