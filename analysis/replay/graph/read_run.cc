#include "analysis/replay/graph/read_run.h"

#include <algorithm>
#include <optional>

#include "merge/parallel.h"

namespace lockstep::replay {
namespace {

std::vector<std::size_t> ChooseSteps(const schema::TlSteps& steps, const ReadRunOptions& options) {
  std::vector<std::size_t> order, best, run;
  for (std::size_t i = 0; i < steps.rows(); ++i)
    if (steps.complete[i] && !steps.warmup[i] && steps.step_ns[i] > 0 && steps.index[i] >= options.first_step &&
        steps.index[i] <= options.last_step)
      order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return steps.index[a] < steps.index[b]; });
  for (const std::size_t i : order) {
    if (!run.empty() && steps.index[i] != steps.index[run.back()] + 1) run.clear();
    run.push_back(i);
    if (run.size() >= best.size()) best = run;
  }
  if (best.size() > options.most_steps)
    best.erase(best.begin(), best.end() - static_cast<std::ptrdiff_t>(options.most_steps));
  return best;
}

}  // namespace

void ChooseRanksAndSteps(const merge::Timeline& timeline, const ReadRunOptions& options, RecordedRun& run) {
  const schema::TimelineTables& t = timeline.tables;
  run.ranks = timeline.PresentRanks();
  for (const std::size_t step : ChooseSteps(t.steps, options)) {
    run.steps.push_back(t.steps.index[step]);
    run.measured_step_ns.push_back(t.steps.step_ns[step]);
  }
}

void ChooseCollectives(const merge::Timeline& timeline, std::int64_t steps_beside, RecordedRun& run,
                       const std::function<void(std::size_t row, std::uint32_t position)>& chosen) {
  const auto& c = timeline.tables.collectives;
  const auto& m = timeline.tables.collective_ranks;
  const std::int64_t first = run.steps.front() - steps_beside, last = run.steps.back() + steps_beside;
  for (std::size_t i = 0; i < c.rows(); ++i) {
    bool whole = c.seen[i] == c.expected[i] && c.seen[i] > 0 && !c.mismatch[i], inside = run.whole_window;
    for (std::size_t k = timeline.FirstMember(i); k < timeline.FirstMember(i + 1); ++k) {
      whole &= run.PositionOf(m.rank[k]) != kNone;
      inside |= m.step[k] >= first && m.step[k] <= last;
    }
    if (whole && (!inside || c.bytes[i] <= kFewBytes) && c.transfer_ns[i] > 0 && !c.censored[i])
      run.beside.push_back({c.comm_id[i], static_cast<CollectiveKind>(c.kind[i]), c.bytes[i], c.transfer_ns[i]});
    if (!inside) continue;
    if (!whole) {
      ++run.left_out;
      continue;
    }
    chosen(i, static_cast<std::uint32_t>(run.collectives.size()));
    run.collectives.push_back(
        {static_cast<std::uint32_t>(i), c.comm_id[i], static_cast<CollectiveKind>(c.kind[i]), c.bytes[i], c.seen[i]});
  }
}

Result<std::vector<std::size_t>> StepRows(const merge::Timeline& timeline, const RecordedRun& run) {
  const auto& cells = timeline.tables.step_ranks;
  const std::size_t steps = run.steps.size();
  std::vector<std::size_t> rows(run.ranks.size() * steps, SIZE_MAX);
  for (std::size_t i = 0; i < cells.rows(); ++i) {
    const std::int64_t step = cells.index[i] - run.steps.front();
    if (step < 0 || step >= static_cast<std::int64_t>(steps)) continue;
    const std::uint32_t r = run.PositionOf(cells.rank[i]);
    if (r != kNone) rows[r * steps + static_cast<std::size_t>(step)] = i;
  }
  if (std::find(rows.begin(), rows.end(), SIZE_MAX) != rows.end())
    return Error{ErrorCode::kUnsupported, "a rank lacks the steps that the others have", timeline.run_dir,
                 "record the same steps on all ranks"};
  return rows;
}

Status ReadRanks(
    const merge::Timeline& timeline, const ReadRunOptions& options, const RecordedRun& run,
    const std::function<void(std::size_t r, const schema::RankTables& tables, const merge::ClockMap& clock)>& read) {
  std::vector<std::optional<Error>> errors(run.ranks.size());
  merge::ParallelFor(options.jobs, run.ranks.size(), [&](std::size_t r) {
    const Result<schema::RankTables> tables =
        options.read_rank ? options.read_rank(run.ranks[r]) : timeline.ReadRank(run.ranks[r]);
    if (tables.ok())
      read(r, tables.value(), merge::ClockMap(timeline.tables.clock, run.ranks[r]));
    else
      errors[r] = tables.error();
  });
  for (const auto& error : errors)
    if (error) return *error;
  return Ok();
}

}  // namespace lockstep::replay
