#pragma once
// The part of a merge that examines every event of one rank: when its operations ended, which windows its steps have,
// and how its time is divided.

#include <cstdint>
#include <string>
#include <vector>

#include "merge/match/collectives.h"
#include "merge/match/p2p.h"
#include "merge/match/p2p_waits.h"
#include "merge/steps/steps.h"
#include "merge/timeline/breakdown.h"

namespace lockstep::merge {

// From the first to the last sign of life according to the small tables, rank clock; {0, 0} unknown.
Interval CapturedSpan(const schema::RankTables& head);

// The thread whose time the breakdown explains: the one that marks steps, else
// the process's main thread, else the first.
std::uint32_t TrainingThread(const schema::RankTables& head);

// A stretch of the analysis window without gaps: steps, inclusive, or, without
// (first > last) or on a rank that lacks them, a time.
struct AnalysisPart {
  std::int64_t first_step = 0, last_step = -1;
  Interval cluster_window{0, 0};
};

struct RankPassInput {
  std::size_t index = 0;  // Among the ranks given to the matchers.
  const RunRank* rank = nullptr;
  const ClockMap* clock = nullptr;
  const MatchedP2p* p2p = nullptr;
  const RankP2pWaits* p2p_waits = nullptr;  // May be null: none.
  const std::vector<RankStep>* steps = nullptr;
  StepTimes times = StepTimes::kMarked;
  bool hta = false;
  // Steps of the analysis window, inclusive; first > last: none, the whole captured time counts.
  std::int64_t first_step = 0, last_step = -1;
  // The window, cluster time, of a rank that lacks those steps; {0, 0}: captured time.
  Interval cluster_window{0, 0};
  // Count the totals as Holistic Trace Analysis does (core of `--window hta`): only GPU events launched before
  // `hta_until_ns` (rank clock; kNoTime: all), from the first one's begin to the last one's end.
  bool hta_window = false;
  std::int64_t hta_until_ns = schema::kNoTime;
  // If recording was not on all the time: the recorded parts, in order, instead of the above. Null or empty:
  // everything.
  const std::vector<AnalysisPart>* parts = nullptr;
};

struct RankPassResult {
  bool gpu = false;
  std::vector<RankStep> steps;  // Windows on the rank clock; of GPU ranks the GPU's.
  schema::TlStepRanks step_ranks;
  schema::TlRankTotals totals;  // One row.
  schema::TlStepPhases phases;
  // Of its steps: compute beyond CPU time and run queue that was not moved to blocked, and their length.
  std::int64_t unexplained_ns = 0, steps_ns = 0;
  std::vector<std::string> damaged;
};

// Examines the rank's events, a piece at a time; writes its members of `matched` (end, wait, transfer, censored, step)
// and returns its terms. Thread: several ranks may be examined at once.
RankPassResult PassRank(const RankPassInput& input, MatchedCollectives& matched);

// The same with events from anywhere; `head` holds the other tables.
RankPassResult PassEvents(const RankPassInput& input, const schema::RankTables& head, ingest::EventReader& events,
                          MatchedCollectives& matched);

}  // namespace lockstep::merge
