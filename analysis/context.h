#pragma once
// What the passes share: the timeline with the indexes over its tables that
// more than one of them needs, made once.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/analyze.h"
#include "core/interval.h"

namespace lockstep::analysis {

class ReplayedRun;  // replayed_run.h

inline constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

// A stretch of the job that is compared with others like it: a step, or, in
// runs without steps, a slice that holds as many collectives as any other.
struct Unit {
  Interval window;              // Cluster time.
  std::size_t step = kNowhere;  // Row of tables.steps.
  std::int64_t length_ns() const { return window.end - window.begin; }
};

class Context {
 public:
  Context(const merge::Timeline& timeline, const AnalyzeOptions& options);
  ~Context();

  const merge::Timeline& timeline() const { return timeline_; }
  const schema::TimelineTables& tables() const { return timeline_.tables; }
  const AnalyzeOptions& options() const { return options_; }

  // Ranks with a readable file, ascending. Passes use their position here.
  const std::vector<std::int32_t>& ranks() const { return ranks_; }
  std::size_t Position(std::int32_t rank) const;                                    // kNowhere if it has no file.
  std::size_t RankRow(std::size_t position) const { return rank_rows_[position]; }  // Row of tables.ranks.

  // The analysis window in step numbers, inclusive; any if it is not given in steps.
  bool InWindow(std::int64_t step_index) const { return step_index >= first_step_ && step_index <= last_step_; }
  std::int64_t first_step() const { return first_step_; }
  std::int64_t last_step() const { return last_step_; }
  // Rows of tables.steps that medians are taken over: complete, no warm-up (flagged, or found: slow_start), length
  // known, within the window; by index.
  const std::vector<std::size_t>& usable_steps() const { return usable_; }
  // First steps that nobody flagged and that are warm-up all the same (warmup.h); by index.
  const std::vector<std::size_t>& slow_start() const { return slow_start_; }
  // Rows of tables.steps by index.
  const std::vector<std::size_t>& steps() const { return steps_; }
  // Row of tables.step_ranks of a step (row of tables.steps) on a rank (position); kNowhere if absent.
  std::size_t Cell(std::size_t step_row, std::size_t position) const {
    return cells_[step_row * ranks_.size() + position];
  }
  IdentityTerms TermsOf(std::size_t step_rank_row) const;
  // The rank used a device, and what that did was not recorded: its compute and idle time are the host's.
  bool DeviceUnknown(std::int32_t rank) const { return without_gpus_.contains(rank); }
  // What it blocks in was not recorded: its compute includes that.
  bool BlockedUnknown(std::int32_t rank) const { return without_blocked_.contains(rank); }
  // Usable steps, or slices of the run if it has none.
  const std::vector<Unit>& units() const { return units_; }
  bool units_are_steps() const { return units_are_steps_; }
  std::int64_t recorded_ns() const;  // Of all units.
  // Position of the unit that holds this cluster time, kNowhere if between.
  std::size_t UnitAt(std::int64_t cluster_ns) const;

  // Part of what is analysed: all, unless the window was narrowed to some of the steps.
  bool Counts(std::size_t collective) const { return !narrowed_ || InWindow(tables().collectives.step[collective]); }
  // Shares its kernel with the instance before it: arrivals, waits and transfer are the group's and
  // counted there.
  bool OfSameKernel(std::size_t collective) const;
  // Counts; two members at least, a split kind, no contradiction: its arrivals can be compared. Of
  // operations that share a kernel the first one only.
  bool Comparable(std::size_t collective) const;
  // Complete and without contradiction, of a kind in which some members wait for some only (for the root of a
  // broadcast), and one of these came last beyond the clocks' error: `last_rank`, by `charge_ns`.
  bool WaitsForOne(std::size_t collective) const;
  // Row of collective_ranks of a rank in an instance; kNowhere if it is not a member.
  std::size_t MemberRow(std::size_t collective, std::int32_t rank) const;
  // When the last one arrived that others wait for, cluster time.
  std::int64_t LastAwaited(std::size_t collective) const;
  // Lower median of its members' arrivals, cluster time.
  std::int64_t MedianArrival(std::size_t collective) const;

  // Tables of a rank: all of them, or those that the breakdown of its time needs.
  Result<schema::RankTables> ReadRank(std::int32_t rank) const;
  Result<schema::RankTables> ReadActivity(std::int32_t rank) const;

  // The run for replays, read when first asked for; nullptr where it cannot be replayed. Not for several threads at
  // once; what it points to is.
  const ReplayedRun* Replayed() const;
  // Why not; "" if it can be, or nobody asked.
  const std::string& replay_skipped() const { return replay_skipped_; }

 private:
  void IndexSteps();
  void LeaveOutSlowStart();
  void SliceIntoUnits();
  // Counts, without contradiction, and not counted with another operation.
  bool Sound(std::size_t collective) const;

  const merge::Timeline& timeline_;
  const AnalyzeOptions& options_;
  std::vector<std::int32_t> ranks_;
  std::vector<std::size_t> rank_rows_, steps_, usable_, slow_start_, cells_;
  std::vector<Unit> units_;
  std::set<std::int32_t> without_gpus_, without_blocked_;
  bool units_are_steps_ = false, narrowed_ = false;
  std::int64_t first_step_ = INT64_MIN, last_step_ = INT64_MAX;
  mutable bool replay_tried_ = false;
  mutable std::unique_ptr<const ReplayedRun> replayed_;
  mutable std::string replay_skipped_;
};

// Length of a rank's analysis window; files of before capture windows had no gaps.
inline std::int64_t SpanOf(const schema::TlRankTotals& totals, std::size_t row) {
  return totals.span_ns[row] > 0 ? totals.span_ns[row] : totals.end_ns[row] - totals.begin_ns[row];
}

}  // namespace lockstep::analysis
