#include "analysis/replay/graph/read_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "analysis/gpu/launch_index.h"
#include "analysis/rules/replay.h"
#include "merge/parallel.h"
#include "merge/timeline/event_windows.h"
#include "merge/timeline/step_length.h"

namespace lockstep::replay {
namespace {

// The steps that count, by number, and those of them that are replayed.
struct ChosenSteps {
  std::vector<std::size_t> all, replayed;
};

ChosenSteps ChooseSteps(const schema::TlSteps& steps, const ReadRunOptions& options) {
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
  return {std::move(order), std::move(best)};
}

// RecordedRun::step_weights.
std::vector<double> WeightsOf(const std::vector<std::int64_t>& replayed_ns, const std::vector<std::int64_t>& all_ns) {
  std::vector<std::int64_t> sorted = replayed_ns;
  std::sort(sorted.begin(), sorted.end());
  std::map<std::int64_t, double> stands_for;  // By length.
  for (const std::int64_t ns : all_ns) {
    auto nearest = std::lower_bound(sorted.begin(), sorted.end(), ns);
    if (nearest == sorted.end() || (nearest != sorted.begin() && ns - nearest[-1] < *nearest - ns)) --nearest;
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), *nearest);
    stands_for[*nearest] += 1.0 / static_cast<double>(last - first);
  }
  std::vector<double> weights;
  for (const std::int64_t ns : replayed_ns) weights.push_back(stands_for[ns]);
  return weights;
}

// Whether some GPU work of this time has a call by its number, and the call is not there.
bool LacksLaunches(const schema::RankTables& tables, const Interval& time) {
  const gpu::LaunchIndex launches = gpu::FindLaunches(tables);
  const auto lacks = [&](const auto& table, const std::vector<std::uint32_t>& calls) {
    for (std::size_t row = 0; row < table.rows(); ++row)
      if (calls[row] == schema::kNone && table.correlation[row] != 0 && table.begin_ns[row] >= time.begin &&
          table.begin_ns[row] <= time.end)
        return true;
    return false;
  };
  return lacks(tables.kernels, launches.of_kernel) || lacks(tables.copies, launches.of_copy);
}

Status TakeWhole(const merge::Timeline& timeline, RecordedRun& run) {
  const schema::TlRankTotals& totals = timeline.tables.rank_totals;
  std::vector<std::int64_t> spans;
  for (std::size_t i = 0; i < totals.rows(); ++i) {
    if (run.PositionOf(totals.rank[i]) == kNone) continue;
    spans.push_back(totals.end_ns[i] - totals.begin_ns[i]);
    if (totals.span_ns[i] > 0 && totals.span_ns[i] != spans.back())
      return Error{ErrorCode::kUnsupported, "nothing to replay: no step is complete, and the recording has gaps",
                   timeline.run_dir, "mark steps with lockstep_step(), or name a range with --step-range"};
  }
  const std::int64_t length_ns = merge::MeanLength(spans);
  if (length_ns <= 0 || spans.size() != run.ranks.size()) return Ok();
  run.whole_window = true;
  run.steps = {0};
  run.measured_step_ns = {length_ns};
  run.notes.push_back("no complete steps: all that was recorded is replayed as one");
  return Ok();
}

Result<merge::EventWindows> OpenWindows(const merge::Timeline& timeline, const ReadRunOptions& options,
                                        std::int32_t rank) {
  if (!options.read_rank) return merge::EventWindows::Open(timeline, rank);
  LS_TRY(schema::RankTables tables, options.read_rank(rank));
  return merge::EventWindows(std::move(tables));
}

Result<schema::RankTables> ReadAround(const merge::Timeline& timeline, const ReadRunOptions& options, std::int32_t rank,
                                      const StepsOfRank& steps) {
  LS_TRY(merge::EventWindows events, OpenWindows(timeline, options, rank));
  if (events.rows() <= options.most_rows || steps.count == 0) return std::move(events).ReadAll();
  bool waits = false;
  events.Scan([&](merge::EventWindows::Seen what, std::int64_t, std::uint16_t) {
    waits |= what == merge::EventWindows::kWait;
  });
  const std::int64_t length = steps.time.end - steps.time.begin;
  const std::int64_t beside = length / rules::kReplayReadBesidePart +
                              rules::kReplayReadBesideSteps * length / static_cast<std::int64_t>(steps.count);
  schema::RankTables tables = events.ReadWithOperations({steps.time.begin - beside, steps.time.end + beside});
  // Where a rank tells what streams waited for it is not guessed.
  const bool told =
      std::ranges::any_of(tables.sync.record_correlation, [](std::uint64_t record) { return record != 0; });
  if (waits != told || LacksLaunches(tables, steps.time)) return std::move(events).ReadAll();
  return tables;
}

}  // namespace

Status ChooseRanksAndSteps(const merge::Timeline& timeline, const ReadRunOptions& options, RecordedRun& run) {
  const schema::TimelineTables& t = timeline.tables;
  run.ranks = timeline.PresentRanks();
  const ChosenSteps steps = ChooseSteps(t.steps, options);
  for (const std::size_t step : steps.replayed) {
    run.steps.push_back(t.steps.index[step]);
    run.measured_step_ns.push_back(t.steps.step_ns[step]);
  }
  if (run.steps.empty()) return TakeWhole(timeline, run);
  if (steps.replayed.size() == steps.all.size()) return Ok();
  std::vector<std::int64_t> all_ns;
  for (const std::size_t step : steps.all) all_ns.push_back(t.steps.step_ns[step]);
  run.step_weights = WeightsOf(Comparable(run.measured_step_ns), all_ns);
  return Ok();
}

// The root of a broadcast is through once the data are on their way: who has them last says what it takes.
std::int64_t TransferOf(const merge::Timeline& timeline, std::size_t collective) {
  const auto& c = timeline.tables.collectives;
  if (static_cast<CollectiveKind>(c.kind[collective]) != CollectiveKind::kBroadcast) return c.transfer_ns[collective];
  const auto& of = timeline.tables.collective_ranks.transfer_ns;
  return *std::max_element(of.begin() + static_cast<std::ptrdiff_t>(timeline.FirstMember(collective)),
                           of.begin() + static_cast<std::ptrdiff_t>(timeline.FirstMember(collective + 1)));
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
    if (whole && (!inside || c.bytes[i] <= rules::kTinyTransferBytes) && c.transfer_ns[i] > 0 && !c.censored[i])
      run.beside.push_back({c.comm_id[i], static_cast<CollectiveKind>(c.kind[i]), c.bytes[i], TransferOf(timeline, i)});
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
    const std::function<void(std::size_t r, const schema::RankTables& tables, const merge::ClockMap& clock)>& read,
    const std::function<StepsOfRank(std::size_t r)>& steps) {
  std::unordered_map<std::int32_t, schema::Clock> clock_of;
  for (std::size_t i = 0; i < timeline.tables.clock.rows(); ++i)
    clock_of[timeline.tables.clock.rank[i]].Append(timeline.tables.clock.Get(i));
  std::vector<std::optional<Error>> errors(run.ranks.size());
  merge::ParallelFor(options.jobs, run.ranks.size(), [&](std::size_t r) {
    const Result<schema::RankTables> tables = steps ? ReadAround(timeline, options, run.ranks[r], steps(r))
                                              : options.read_rank ? options.read_rank(run.ranks[r])
                                                                  : timeline.ReadRank(run.ranks[r]);
    const auto clock = clock_of.find(run.ranks[r]);
    if (tables.ok())
      read(r, tables.value(),
           clock == clock_of.end() ? merge::ClockMap() : merge::ClockMap(clock->second, run.ranks[r]));
    else
      errors[r] = tables.error();
  });
  for (const auto& error : errors)
    if (error) return *error;
  return Ok();
}

}  // namespace lockstep::replay
