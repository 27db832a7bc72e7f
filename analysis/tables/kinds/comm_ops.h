#pragma once
// What a rank communicated, as the identity counts it (docs/definitions.md): when each
// operation waited and transferred, for which group, launched by which thread. Rank clock.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/core/rates.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/table.h"
#include "core/collective.h"
#include "core/rules/common.h"

namespace lockstep::tables {

// Groups of one name and size are one: of the sixteen tensor-parallel groups of a job
// each rank is in one.
struct GroupOfOps {
  std::string name;
  std::uint32_t size = 0;  // 0 unknown.
  CollectiveKind kind = CollectiveKind::kNone;
  friend auto operator<=>(const GroupOfOps&, const GroupOfOps&) = default;
};

struct CommOperation {
  // As merge/timeline/breakdown.h has it: [begin, wait_end) waits for another rank,
  // [transfer_begin, end) transfers, what is neither cannot be split.
  std::int64_t begin_ns, wait_end_ns, transfer_begin_ns, end_ns;
  bool certain;            // Blocking or on a GPU. Else it moves only while a thread is inside MPI.
  std::uint32_t group;     // Of RankComm.groups.
  std::uint32_t row;       // Of collectives, kNone.
  std::uint32_t thread;    // That called, posted or launched, kNone unknown.
  std::int64_t launch_ns;  // When it did; kNoTime unknown.
  bool goes_on = false;    // A later part of the operation before it: between them it was not exposed nor hidden.
};

// Waiting for the other half of a message: exposed communication outside the rank's own work, and nothing inside it.
struct MessageWaiting {
  Interval at;
  std::uint32_t group;  // Of RankComm.groups.
  std::uint32_t row;    // Of p2p.
};

struct RankComm {
  bool gpu = false;
  IntervalSet busy;  // GPU ranks: compute kernels. CPU ranks: the training thread communicates or loads input; the rest
                     // is its own work.
  IntervalSet inside_mpi;  // Any thread; empty if nothing was posted.
  std::vector<GroupOfOps> groups;
  std::vector<CommOperation> ops;
  std::vector<MessageWaiting> message_waits;
  std::uint64_t receives_alone = 0;  // Receives counted from their own post: the senders are not known here.
};

// Whether so many operations with a certain transfer are enough for a bandwidth (core/rates.h): of one rank each is an
// instance, of all ranks together each instance is there once for each member. A group of one uses no network.
inline bool EnoughForRate(const TableRow& row, std::int64_t timed, std::int64_t members) {
  if (members == 1) return false;
  const std::int64_t each = IsPooled(row) ? std::max<std::int64_t>(1, members) : 1;
  return timed >= each * static_cast<std::int64_t>(rules::kFewest);
}

// core/collective.h's BusFactor of a kind by its name, as cells have it.
double BusFactorOf(std::string_view kind, std::int64_t members);

// For members of instances wait and transfer are the timeline's.
RankComm CommOf(const gpu::RankView& rank);

}  // namespace lockstep::tables
