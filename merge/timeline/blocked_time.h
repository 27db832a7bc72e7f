#pragma once
// What the recorded waits of a CPU rank's training thread were (table `blocked`): for collectives that other threads of
// its process carry out, for what other threads compute, or of its own.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::merge {

// What FindBlockedTime reads of the table.
inline constexpr schema::Columns<schema::Blocked> kWaitColumns(
    &schema::Blocked::begin_ns, &schema::Blocked::duration_ns, &schema::Blocked::thread, &schema::Blocked::kind,
    &schema::Blocked::waker, &schema::Blocked::woken_ns, &schema::Blocked::others_cpu_ns, &schema::Blocked::timed_out);

// On the rank's clock, outside recorded calls and ranges marked as input; the parts share no time.
struct BlockedTime {
  IntervalSet
      awaited;  // Waits that the end of another thread's collective or message ended (core/awaited_operation.h).
  struct Own {
    Interval at;
    std::uint8_t kind;  // schema::BlockedKind
    std::uint64_t row;  // Of `blocked`.
  };
  std::vector<Own> own;  // The rest, by time.
  // Of waits for a lock, a condition variable, a semaphore or a thread's end, from their begin, as much as the
  // process's other threads computed meanwhile: compute. (Threads that are given work begin with it at once.)
  IntervalSet computed;
};

BlockedTime FindBlockedTime(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training);
// The same for tables in memory.
BlockedTime FindBlockedTime(const schema::RankTables& tables, std::uint32_t training);

// When the thread, or any if none is given, was in MPI calls. Rank clock.
IntervalSet InMpiCalls(const schema::RankTables& tables, std::optional<std::uint32_t> thread);
// When a CPU rank's training thread communicated: in MPI calls, in those that no source records, and in waits that
// another thread's operation ended (`blocked`, of FindBlockedTime). The rest is the rank's own. Rank clock.
IntervalSet InCommunication(const schema::RankTables& tables, std::uint32_t training, const BlockedTime& blocked);

// When other threads of the process carried blocking collectives, or messages that ended.
IntervalSet CarriedByOthers(const schema::RankTables& head, std::uint32_t training);

}  // namespace lockstep::merge
