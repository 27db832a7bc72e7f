#pragma once
// Matches the same collective on all its members by the instance key (communicator, seq, start): its arrivals in
// cluster time, which member came last, and until when each member only waited. Definitions:
// docs/definitions.md.

#include <cstdint>
#include <string>
#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "merge/readers/run_files.h"
#include "merge/timeline/timeline.h"

namespace lockstep::merge {

// When a rank recorded, rank clock.
struct RecordedWindow {
  Interval local{0, 0};
  std::int64_t first_step = -1, end_step = -1;  // -1 no live steps.
  bool cut = false;
};

// One rank as matching sees it. Pointers must outlive the call.
struct MatchRank {
  std::int32_t rank = -1;
  const schema::RankTables* tables = nullptr;
  const ClockMap* clock = nullptr;
  Interval window{0, 0};  // From the first to the last sign of life, cluster time.
  // The file covers less than the process did: recording began later or stopped earlier than on others. An operation
  // outside counts as cut, not as unmatched.
  bool cut_begin = false, cut_end = false;
  // Recording was switched on and off: an operation counts as missing only where the rank's own rows of one window are
  // on both sides of it. Null: the file does not say.
  const std::vector<RecordedWindow>* windows = nullptr;
  bool in_parts = false;
};

struct MatchedCollectives {
  // One row per instance, by first arrival. FinishCollectives fills end, transfer,
  // wait, censored, violation and step from the members.
  schema::TlCollectives collectives;
  // The members of an instance are contiguous, by rank. Rank, row and arrival are set;
  // each rank's breakdown writes the rest, those of different ranks on different
  // threads.
  schema::TlCollectiveRanks members;
  std::vector<std::size_t> first_member;  // Instances + 1.
  // Cluster time until which the member could only wait; kNoTime: never split.
  std::vector<std::int64_t> limit_ns;
  std::vector<std::int64_t> error_ns;  // Clock error of the member at its arrival.
  std::vector<std::uint8_t> whole;     // Per instance: every member was seen.
  std::vector<std::uint8_t> endless;   // Per member: it never completed, and its end is only the last sign of life.
  // Per member: a member for which no other has to wait came after the others and before this one's end. It may have
  // been awaited all the same, because libraries pass data on through it, so the time since limit_ns is not known to be
  // transfer.
  std::vector<std::uint8_t> doubtful;
  // [rank as given][row of its collectives] -> row of members, kNone if not matched.
  std::vector<std::vector<std::uint32_t>> member_of;

  std::uint64_t unmatched = 0;  // Instances that lack a member within the ranks' windows.
  std::uint64_t cut = 0;        // Instances that lack one because of the windows, deaths or missing files.
  std::uint64_t outside = 0;    // Of those: because the ranks' capture windows differ.
  std::uint64_t mismatched = 0;
  std::vector<RunLoss> losses;
};

// `absent_ranks`: ranks of the job without a readable file.
MatchedCollectives MatchCollectives(const std::vector<MatchRank>& ranks, std::size_t absent_ranks, unsigned jobs);

struct CollectiveChecks {
  std::uint64_t violations = 0;
  // A check that needs no clocks: the shortest stay in a collective against its transfer.
  std::uint64_t free_checked = 0, free_disagreed = 0;
};
CollectiveChecks FinishCollectives(MatchedCollectives& matched, unsigned jobs);

}  // namespace lockstep::merge
