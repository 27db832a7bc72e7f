#include "analysis/replay/host/host_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "analysis/replay/graph/chosen_steps.h"
#include "analysis/replay/graph/graph.h"
#include "analysis/replay/host/host_messages.h"
#include "merge/parallel.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::replay {
namespace {

constexpr std::int64_t kNoTime = schema::kNoTime;
constexpr std::size_t kNoCell = SIZE_MAX;

class Reader {
 public:
  Reader(const merge::Timeline& timeline, const ReadRunOptions& options)
      : timeline_(timeline), t_(timeline.tables), options_(options) {}

  Result<HostRun> Read() {
    const std::vector<std::size_t> steps = ChooseSteps(t_.steps, options_);
    if (steps.empty())
      return Error{ErrorCode::kUnsupported, "nothing to replay: the run has no complete steps", timeline_.run_dir,
                   "mark steps with lockstep_step(), or name a range with --step-range"};
    for (const std::size_t step : steps) {
      run_.steps.push_back(t_.steps.index[step]);
      run_.measured_step_ns.push_back(t_.steps.step_ns[step]);
    }
    for (std::size_t i = 0; i < t_.ranks.rows(); ++i) {
      if (t_.ranks.state[i] >= schema::RankState::kMissing) continue;
      run_.ranks.push_back(t_.ranks.rank[i]);
    }
    std::sort(run_.ranks.begin(), run_.ranks.end());
    ChooseCollectives();
    if (Status read = ReadRanks(); !read.ok()) return read.error();
    return std::move(run_);
  }

 private:
  void ChooseCollectives() {
    chosen_.resize(run_.ranks.size());
    const auto& c = t_.collectives;
    const auto& m = t_.collective_ranks;
    for (std::size_t i = 0; i < c.rows(); ++i) {
      bool whole = c.seen[i] == c.expected[i] && c.seen[i] > 0 && !c.mismatch[i], inside = false, in_wait = false;
      for (std::size_t k = timeline_.FirstMember(i); k < timeline_.FirstMember(i + 1); ++k) {
        whole &= run_.PositionOf(m.rank[k]) != kNone;
        inside |= m.step[k] >= run_.steps.front() && m.step[k] <= run_.steps.back();
        in_wait |= m.censored[k] != 0;
      }
      if (!inside) continue;
      if (!whole) {
        ++run_.left_out;
        continue;
      }
      for (std::size_t k = timeline_.FirstMember(i); k < timeline_.FirstMember(i + 1); ++k) {
        RankCollective chosen;
        chosen.row = m.row[k];
        chosen.collective = static_cast<std::uint32_t>(run_.collectives.size());
        chosen.in_wait = in_wait;
        chosen.end_ns = m.end_high_ns[k];
        chosen.end_low_ns = m.end_low_ns[k];
        chosen_[run_.PositionOf(m.rank[k])].push_back(chosen);
      }
      run_.collectives.push_back(
          {static_cast<std::uint32_t>(i), c.comm_id[i], static_cast<CollectiveKind>(c.kind[i]), c.bytes[i], c.seen[i]});
    }
  }

  Status ReadRanks() {
    IndexCells();
    run_.stretches.resize(run_.ranks.size());
    std::vector<std::optional<Error>> errors(run_.ranks.size());
    std::vector<std::vector<MessageHalf>> halves(run_.ranks.size());
    merge::ParallelFor(options_.jobs, run_.ranks.size(), [&](std::size_t r) {
      const Result<schema::RankTables> tables =
          options_.read_rank ? options_.read_rank(run_.ranks[r]) : timeline_.ReadRank(run_.ranks[r]);
      if (!tables.ok()) {
        errors[r] = tables.error();
        return;
      }
      const merge::RankClockMap clock(t_.clock, run_.ranks[r]);
      run_.stretches[r] =
          CutIntoStretches(tables.value(), clock, WindowOf(r, clock), Complete(r, tables.value(), clock));
      halves[r] = MessageHalves(tables.value(), clock, run_.ranks[r], merge::TrainingThread(tables.value()));
    });
    for (const auto& error : errors)
      if (error) return *error;
    JoinMessages(run_.ranks, halves, run_.stretches);
    KnowProgress();
    for (const RankStretches& rank : run_.stretches)
      if (rank.training.empty())
        return Error{ErrorCode::kUnsupported, "a rank lacks the steps that the others have", timeline_.run_dir,
                     "record the same steps on all ranks"};
    return Ok();
  }

  // Where half of a communicator's non-blocking collectives are seen to end outside of waits, on some rank, something
  // makes them move; then those that ended in a wait did not only move there: their ranks waited for others.
  void KnowProgress() {
    std::vector<bool> posted(run_.collectives.size(), false), tested(run_.collectives.size(), false);
    for (const RankStretches& rank : run_.stretches)
      for (const RankCollective& c : rank.collectives) {
        if (c.posted) posted[c.collective] = true;
        if (c.by_test) tested[c.collective] = true;
      }
    std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> counts;  // Communicator: tested, posted.
    for (std::size_t c = 0; c < posted.size(); ++c) {
      counts[run_.collectives[c].comm].first += tested[c];
      counts[run_.collectives[c].comm].second += posted[c];
    }
    for (RankStretches& rank : run_.stretches)
      for (RankCollective& c : rank.collectives) {
        const auto& [some, all] = counts[run_.collectives[c.collective].comm];
        if (2 * some >= all) c.in_wait = false;
      }
  }

  // Once for all ranks: there are as many cells as ranks times steps.
  void IndexCells() {
    const auto& cells = t_.step_ranks;
    const std::size_t steps = run_.steps.size();
    cells_.assign(run_.ranks.size() * steps, kNoCell);
    for (std::size_t i = 0; i < cells.rows(); ++i) {
      const std::int64_t step = cells.index[i] - run_.steps.front();
      if (step < 0 || step >= static_cast<std::int64_t>(steps)) continue;
      const std::uint32_t r = run_.PositionOf(cells.rank[i]);
      if (r != kNone) cells_[r * steps + static_cast<std::size_t>(step)] = i;
    }
  }

  RankWindow WindowOf(std::size_t r, const merge::RankClockMap& clock) const {
    RankWindow window;
    const auto& cells = t_.step_ranks;
    for (std::size_t s = 0; s < run_.steps.size(); ++s) {
      const std::size_t row = cells_[r * run_.steps.size() + s];
      if (row == kNoCell) return {};
      if (window.step_ends_ns.empty()) window.begin_ns = clock.ToCluster(cells.begin_ns[row]);
      window.step_ends_ns.push_back(clock.ToCluster(cells.end_ns[row]));
    }
    return window;
  }

  std::vector<RankCollective> Complete(std::size_t r, const schema::RankTables& tables,
                                       const merge::RankClockMap& clock) const {
    std::vector<RankCollective> list;
    const auto& rows = tables.collectives;
    for (RankCollective c : chosen_[r]) {
      if (c.row >= rows.rows()) continue;
      c.thread = rows.thread[c.row];
      c.begin_ns = clock.ToCluster(rows.begin_ns[c.row]);
      c.posted = merge::IsPosted(rows.mode[c.row]);
      c.in_wait &= c.posted;
      c.wait_begin_ns = rows.wait_begin_ns[c.row] == kNoTime ? c.begin_ns : clock.ToCluster(rows.wait_begin_ns[c.row]);
      list.push_back(c);
    }
    return list;
  }

  const merge::Timeline& timeline_;
  const schema::TimelineTables& t_;
  const ReadRunOptions& options_;
  HostRun run_;
  std::vector<std::vector<RankCollective>> chosen_;  // Per rank.
  std::vector<std::size_t> cells_;                   // Rows of step_ranks by rank and step; kNoCell.
};

// What moved in its wait only did so on all ranks. Where a rank's wait is not seen, or not the same, collectives would
// take their turns in another order than on the others: then none is taken to have moved in waits only.
void AgreeOnWaits(HostRun& run) {
  std::vector<bool> in_wait(run.collectives.size(), true);
  for (const RankStretches& rank : run.stretches)
    for (const RankCollective& c : rank.collectives)
      if (!c.in_wait) in_wait[c.collective] = false;
  const auto set = [&] {
    for (RankStretches& rank : run.stretches)
      for (RankCollective& c : rank.collectives) c.in_wait = in_wait[c.collective];
  };
  set();
  const Job job = run.MakeJob();
  if (Simulator(job.graph).Run().ok()) return;
  in_wait.assign(in_wait.size(), false);
  set();
}

}  // namespace

Result<HostRun> ReadHostRun(const merge::Timeline& timeline, const ReadRunOptions& options) {
  LS_TRY(HostRun run, Reader(timeline, options).Read());
  AgreeOnWaits(run);
  run.overlap = OverlapOf(run);
  return run;
}

}  // namespace lockstep::replay
