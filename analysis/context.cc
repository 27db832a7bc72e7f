#include "analysis/context.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "analysis/core/identity.h"
#include "analysis/core/statistics.h"
#include "analysis/core/unrecorded.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/run.h"
#include "analysis/run/warmup.h"
#include "core/loss.h"
#include "core/rules/common.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
Context::Context(const merge::Timeline& timeline, const AnalyzeOptions& options)
    : timeline_(timeline), options_(options) {
  const auto& ranks = tables().ranks;
  rank_rows_.resize(ranks.rows());
  std::iota(rank_rows_.begin(), rank_rows_.end(), std::size_t{0});
  std::erase_if(rank_rows_, [&](std::size_t row) { return !merge::IsPresent(ranks.state[row]); });
  std::sort(rank_rows_.begin(), rank_rows_.end(),
            [&](std::size_t a, std::size_t b) { return ranks.rank[a] < ranks.rank[b]; });
  for (const std::size_t row : rank_rows_) ranks_.push_back(ranks.rank[row]);
  without_gpus_ = FindUnrecorded(timeline_).without_gpus;
  const auto& losses = tables().losses;
  for (std::size_t i = 0; i < losses.rows(); ++i)
    if (timeline_.Text(losses.name[i]) == Info(Loss::kBlockedNotRecorded).name) without_blocked_.insert(losses.rank[i]);
  IndexSteps();
  SliceIntoUnits();
}

Context::~Context() = default;

std::size_t Context::Position(std::int32_t rank) const {
  // Mostly all ranks are there.
  if (rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size() && ranks_[static_cast<std::size_t>(rank)] == rank)
    return static_cast<std::size_t>(rank);
  const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return at != ranks_.end() && *at == rank ? static_cast<std::size_t>(at - ranks_.begin()) : kNowhere;
}

void Context::IndexSteps() {
  const auto& steps = tables().steps;
  steps_.resize(steps.rows());
  std::iota(steps_.begin(), steps_.end(), std::size_t{0});
  std::stable_sort(steps_.begin(), steps_.end(),
                   [&](std::size_t a, std::size_t b) { return steps.index[a] < steps.index[b]; });
  const std::int64_t first = timeline_.MetaNumber("window_first_step", -1);
  const std::int64_t last = timeline_.MetaNumber("window_last_step", -1);
  if (first >= 0 && last >= first) {
    first_step_ = first;
    last_step_ = last;
  }
  std::unordered_map<std::int64_t, std::size_t> row_of;
  for (const std::size_t row : steps_) {
    row_of.emplace(steps.index[row], row);
    if (!InWindow(steps.index[row])) {
      narrowed_ |= steps.complete[row] != 0;
      continue;
    }
    if (steps.complete[row] && !steps.warmup[row] && steps.step_ns[row] >= 0) usable_.push_back(row);
  }
  cells_.assign(steps.rows() * ranks_.size(), kNowhere);
  const auto& cells = tables().step_ranks;
  for (std::size_t i = 0; i < cells.rows(); ++i) {
    const auto step = row_of.find(cells.index[i]);
    const std::size_t position = Position(cells.rank[i]);
    if (step != row_of.end() && position != kNowhere) cells_[step->second * ranks_.size() + position] = i;
  }
  LeaveOutSlowStart();
}

void Context::LeaveOutSlowStart() {
  std::vector<std::int64_t> own_ns;
  for (const std::size_t row : usable_) {
    // The rank in the middle: one that is late makes the others wait, which is no warm-up.
    std::vector<std::int64_t> of_ranks;
    for (std::size_t p = 0; p < ranks_.size(); ++p)
      if (const std::size_t cell = Cell(row, p); cell != kNowhere) {
        const IdentityTerms terms = TermsOf(cell);
        of_ranks.push_back(terms.Sum() - terms.exposed_wait_ns);
      }
    own_ns.push_back(LowerMedian(std::move(of_ranks)));
  }
  // The first step on a GPU also holds the host work before its first kernel, and the last one lacks that of a next
  // one (merge/timeline/gpu_windows.h): by what the last one is shorter, the first one is longer without being slow.
  const auto& gpu = tables().ranks.gpu;
  if (own_ns.size() > 1 && std::find(gpu.begin(), gpu.end(), 1) != gpu.end())
    own_ns.front() -= std::max<std::int64_t>(0, LowerMedian(own_ns) - own_ns.back());
  const auto first = static_cast<std::ptrdiff_t>(CountWarmup(own_ns));
  slow_start_.assign(usable_.begin(), usable_.begin() + first);
  usable_.erase(usable_.begin(), usable_.begin() + first);
}

void Context::SliceIntoUnits() {
  const auto& steps = tables().steps;
  for (const std::size_t row : usable_)
    if (steps.end_ns[row] > steps.begin_ns[row]) units_.push_back({{steps.begin_ns[row], steps.end_ns[row]}, row});
  units_are_steps_ = !units_.empty();
  if (!units_are_steps_) {
    const auto& t = tables().collectives;
    std::vector<std::int64_t> cuts;  // What the first one was waited for belongs to the first slice.
    std::int64_t first_ns = INT64_MAX;
    for (std::size_t c = 0; c < t.rows(); ++c) {
      if (!Comparable(c) && !WaitsForOne(c)) continue;
      cuts.push_back(LastAwaited(c));
      first_ns = std::min(first_ns, t.first_arrival_ns[c]);
    }
    if (!cuts.empty()) cuts.push_back(first_ns);
    std::sort(cuts.begin(), cuts.end());
    // Slices are of time, so that a thousand collectives of a moment count no more than that moment. Half-open after
    // the boundary's arrival: its wait lies before it and belongs to the slice it ends.
    const std::int64_t least_ns = cuts.empty() ? 0 : (cuts.back() - cuts.front()) / rules::kRunSlices;
    for (std::size_t begin = 0, end = 1; end < cuts.size(); ++end) {
      const bool whole = cuts[end] - cuts[begin] >= least_ns && HalfOf(cuts.back() - cuts[end], least_ns);
      if ((!whole && end + 1 < cuts.size()) || cuts[end] == cuts[begin]) continue;
      units_.push_back({{cuts[begin] + 1, cuts[end] + 1}, kNowhere});
      begin = end;
    }
  }
  std::sort(units_.begin(), units_.end(), [](const Unit& a, const Unit& b) { return a.window.begin < b.window.begin; });
}

std::int64_t Context::recorded_ns() const {
  std::int64_t sum = 0;
  for (const Unit& unit : units_) sum += unit.length_ns();
  return sum;
}

std::size_t Context::UnitAt(std::int64_t cluster_ns) const {
  auto after = std::upper_bound(units_.begin(), units_.end(), cluster_ns,
                                [](std::int64_t t, const Unit& unit) { return t < unit.window.begin; });
  if (after == units_.begin()) return kNowhere;
  --after;
  return cluster_ns < after->window.end ? static_cast<std::size_t>(after - units_.begin()) : kNowhere;
}

IdentityTerms Context::TermsOf(std::size_t i) const {
  const auto& cells = tables().step_ranks;
  return IdentityOf(merge::TermsOfRow(cells, i), DeviceUnknown(cells.rank[i]));
}

bool Context::Sound(std::size_t c) const {
  const auto& t = tables().collectives;
  return Counts(c) && !t.mismatch[c] && !t.violation[c] && !OfSameKernel(c);
}

bool Context::Comparable(std::size_t c) const {
  const auto& t = tables().collectives;
  return t.splits[c] && t.seen[c] >= 2 && Sound(c);
}

bool Context::WaitsForOne(std::size_t c) const {
  const auto& t = tables().collectives;
  return !t.splits[c] && t.last_rank[c] >= 0 && Sound(c);
}

std::size_t Context::MemberRow(std::size_t c, std::int32_t rank) const {
  const auto& ranks = tables().collective_ranks.rank;
  const auto first = ranks.begin() + static_cast<std::ptrdiff_t>(timeline_.FirstMember(c));
  const auto last = ranks.begin() + static_cast<std::ptrdiff_t>(timeline_.FirstMember(c + 1));
  const auto at = std::lower_bound(first, last, rank);
  return at == last || *at != rank ? kNowhere : static_cast<std::size_t>(at - ranks.begin());
}

std::int64_t Context::LastAwaited(std::size_t c) const {
  const auto& t = tables().collectives;
  const std::size_t m = t.splits[c] || t.last_rank[c] < 0 ? kNowhere : MemberRow(c, t.last_rank[c]);
  return m == kNowhere ? t.last_arrival_ns[c] : tables().collective_ranks.arrival_ns[m];
}

// Instances are in order of their first arrival, then communicator: a group's are neighbours.
bool Context::OfSameKernel(std::size_t c) const {
  const auto& t = tables().collectives;
  return c > 0 && t.operations[c] > 1 && t.operations[c - 1] > 1 && t.comm_id[c] == t.comm_id[c - 1] &&
         t.first_arrival_ns[c] == t.first_arrival_ns[c - 1] && t.last_arrival_ns[c] == t.last_arrival_ns[c - 1] &&
         t.end_ns[c] == t.end_ns[c - 1];
}

std::int64_t Context::MedianArrival(std::size_t c) const {
  const auto begin = tables().collective_ranks.arrival_ns.begin();
  return LowerMedian(std::vector<std::int64_t>(begin + static_cast<std::ptrdiff_t>(timeline_.FirstMember(c)),
                                               begin + static_cast<std::ptrdiff_t>(timeline_.FirstMember(c + 1))));
}

const ReplayedRun* Context::Replayed() const {
  if (replay_tried_) return replayed_.get();
  replay_tried_ = true;
  if (!options_.replay) {
    replay_skipped_ = "not asked for (--no-replay)";
    return nullptr;
  }
  Result<std::unique_ptr<const ReplayedRun>> made = ReplayedRun::Make(*this);
  if (made.ok())
    replayed_ = std::move(made).value();
  else
    replay_skipped_ = made.error().what;
  return replayed_.get();
}

Result<schema::RankTables> Context::ReadRank(std::int32_t rank) const {
  return options_.read_rank ? options_.read_rank(rank) : timeline_.ReadRank(rank);
}

Result<schema::RankTables> Context::ReadActivity(std::int32_t rank) const {
  return options_.read_rank ? options_.read_rank(rank) : merge::ReadRankActivity(timeline_, rank);
}

}  // namespace lockstep::analysis
