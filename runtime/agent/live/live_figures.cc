#include "runtime/agent/live/live_figures.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

#include "core/censored.h"
#include "core/interval.h"

namespace lockstep::agent {
namespace {

struct Clock {
  std::int64_t offset_ns = 0, error_ns = -1;  // -1: unknown.
};

// One rank of a domain measures, and all ranks of the domain use the result. Rank 0's domain is the reference.
std::vector<Clock> ClocksOf(const std::vector<const LiveRank*>& ranks) {
  std::map<std::uint64_t, Clock> domains;
  for (const LiveRank* rank : ranks)
    if (rank->error_ns >= 0) domains[rank->domain] = {rank->offset_ns, rank->error_ns};
  if (!ranks.empty() && ranks.front()->rank == 0) domains[ranks.front()->domain] = {0, 0};
  std::vector<Clock> clocks;
  for (const LiveRank* rank : ranks) {
    const auto known = domains.find(rank->domain);
    clocks.push_back(known == domains.end() ? Clock{} : known->second);
  }
  return clocks;
}

struct Arrivals {
  std::int64_t last_ns = std::numeric_limits<std::int64_t>::min(), second_ns = last_ns;
  std::int64_t last_error_ns = 0, second_error_ns = 0;
  std::size_t last = 0;       // Index of the rank.
  bool last_in_step = false;  // As in the merge, a collective is of the step in which the last rank came.
  std::uint32_t seen = 0, members = 0;

  void Add(std::size_t rank, std::int64_t at_ns, std::int64_t error_ns, bool in_step) {
    ++seen;
    if (at_ns > last_ns) {
      second_ns = last_ns;
      second_error_ns = last_error_ns;
      last_ns = at_ns;
      last_error_ns = error_ns;
      last = rank;
      last_in_step = in_step;
    } else if (at_ns > second_ns) {
      second_ns = at_ns;
      second_error_ns = error_ns;
    }
  }
  bool whole() const { return seen == members && seen > 1; }
};

struct Terms {
  std::int64_t wait_ns = 0, transfer_ns = 0, unsplit_ns = 0;
  // Whether the split is known for some operation; without any exposed communication both are known to be 0.
  bool knows_wait = false, knows_transfer = false;
};

// Decides as the merge does, for the calls of the thread that marks steps: time that another thread spent in MPI, or
// that is outside the step, counts as outside.
bool Censored(const LiveOperation& one, std::int64_t all_there_ns, const IntervalSet& in_comm) {
  if (one.end_low_ns >= one.end_ns) return false;  // Blocking.
  const std::int64_t transfer_ns = one.end_ns - all_there_ns;
  const std::int64_t inside_ns = Total(Clip(in_comm, {all_there_ns, one.end_ns}));
  return transfer_ns > 0 &&
         IsCensored(transfer_ns, one.end_ns - std::max(one.end_low_ns, all_there_ns), transfer_ns - inside_ns);
}

// By docs/definitions.md each exposed instant counts once, transfer before wait before unsplit.
Terms TermsOf(const LiveStep& step, const Clock& clock, const std::unordered_map<std::uint64_t, Arrivals>& arrivals) {
  Terms terms;
  if (step.gpu_exposed_ns >= 0) {
    terms.unsplit_ns = step.gpu_exposed_ns;
    return terms;
  }
  std::vector<Interval> waits, transfers;
  for (const LiveOperation& one : step.operations) {
    const auto found = arrivals.find(one.key);
    if (one.splits == 0 || clock.error_ns < 0 || found == arrivals.end() || !found->second.whole()) continue;
    const std::int64_t all_there = std::clamp(found->second.last_ns - clock.offset_ns, one.begin_ns, one.end_ns);
    waits.push_back({one.begin_ns, all_there});
    terms.knows_wait = true;
    if (Censored(one, all_there, step.in_comm)) continue;
    transfers.push_back({all_there, one.end_ns});
    terms.knows_transfer = true;
  }
  const IntervalSet moving = Intersect(step.in_comm, Normalize(std::move(transfers)));
  const IntervalSet waiting = Subtract(Intersect(step.in_comm, Normalize(std::move(waits))), moving);
  terms.transfer_ns = Total(moving);
  terms.wait_ns = Total(waiting);
  terms.unsplit_ns = Total(step.in_comm) - terms.transfer_ns - terms.wait_ns;
  return terms;
}

const LiveStep* FindStep(const LiveRank& rank, std::int64_t index) {
  for (const LiveStep& step : rank.steps)
    if (step.index == index) return &step;
  return nullptr;
}

// The steps that all ranks with any sample have sampled.
std::vector<std::int64_t> CommonSteps(const std::vector<const LiveRank*>& ranks) {
  std::map<std::int64_t, std::size_t> seen;
  std::size_t sampling = 0;
  for (const LiveRank* rank : ranks) {
    sampling += rank->steps.empty() ? 0 : 1;
    for (const LiveStep& step : rank->steps) ++seen[step.index];
  }
  std::vector<std::int64_t> common;
  for (const auto& [index, count] : seen)
    if (count == sampling) common.push_back(index);
  return common;
}

// One step on all ranks; null for a rank that did not sample it.
using Row = std::vector<const LiveStep*>;

std::unordered_map<std::uint64_t, Arrivals> ArrivalsOf(const Row& row, const std::vector<Clock>& clocks) {
  std::unordered_map<std::uint64_t, Arrivals> arrivals;
  for (std::size_t r = 0; r < row.size(); ++r) {
    if (row[r] == nullptr || clocks[r].error_ns < 0) continue;
    for (const LiveOperation& one : row[r]->operations) {
      if (one.splits == 0) continue;
      Arrivals& arrival = arrivals[one.key];
      arrival.members = one.members;
      const bool in_step = one.begin_ns >= row[r]->window.begin && one.begin_ns < row[r]->window.end;
      arrival.Add(r, one.begin_ns + clocks[r].offset_ns, clocks[r].error_ns, in_step);
    }
  }
  return arrivals;
}

// The mean of the ranks' own windows (docs/definitions.md), so no clock of another rank is involved.
std::int64_t StepNs(const Row& row) {
  std::int64_t sum = 0, members = 0;
  for (const LiveStep* step : row) {
    if (step == nullptr) continue;
    sum += step->window.end - step->window.begin;
    ++members;
  }
  return sum / members;
}

// Means over ranks.
Terms MeanTerms(const Row& row, const std::vector<Clock>& clocks,
                const std::unordered_map<std::uint64_t, Arrivals>& arrivals) {
  Terms sum;
  std::int64_t members = 0;
  for (std::size_t r = 0; r < row.size(); ++r) {
    if (row[r] == nullptr) continue;
    const Terms terms = TermsOf(*row[r], clocks[r], arrivals);
    sum.wait_ns += terms.wait_ns;
    sum.transfer_ns += terms.transfer_ns;
    sum.unsplit_ns += terms.unsplit_ns;
    sum.knows_wait |= terms.knows_wait;
    sum.knows_transfer |= terms.knows_transfer;
    ++members;
  }
  const bool none = sum.wait_ns + sum.transfer_ns + sum.unsplit_ns == 0;
  return {sum.wait_ns / members, sum.transfer_ns / members, sum.unsplit_ns / members, none || sum.knows_wait,
          none || sum.knows_transfer};
}

void AddWhatRanksSay(const std::vector<const LiveRank*>& ranks, const std::vector<Clock>& clocks,
                     LiveFigures& figures) {
  std::int64_t sharing = 0;
  double share = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const LiveRank& rank = *ranks[r];
    figures.records += rank.records;
    figures.dropped += rank.dropped;
    figures.recording = figures.recording || rank.recording;
    if (r == 0 || rank.steps_ended < figures.steps_ended) {
      figures.steps_ended = rank.steps_ended;
      figures.open_step = rank.open_step;
      figures.open_ns = rank.open_ns;
      figures.open_rank = rank.rank;
    }
    if (rank.mpi_share >= 0) {
      ++sharing;
      share += rank.mpi_share;
      if (rank.mpi_share > figures.most_mpi_share || sharing == 1)
        figures.most_mpi_rank = rank.rank, figures.most_mpi_share = rank.mpi_share;
      if (rank.mpi_share < figures.least_mpi_share || sharing == 1)
        figures.least_mpi_rank = rank.rank, figures.least_mpi_share = rank.mpi_share;
    }
    figures.clock_error_ns = figures.clock_error_ns < 0 || clocks[r].error_ns < 0
                                 ? -1
                                 : std::max(figures.clock_error_ns, clocks[r].error_ns);
  }
  if (sharing > 0) figures.mpi_share = share / static_cast<double>(sharing);
  if (sharing < 2) figures.most_mpi_rank = figures.least_mpi_rank = -1;
}

// Counts which rank arrived last, over all steps.
class LastArrivals {
 public:
  explicit LastArrivals(std::size_t ranks) : charges_ns_(ranks), counts_(ranks) {}
  void Add(const std::unordered_map<std::uint64_t, Arrivals>& arrivals, LiveFigures& figures) {
    for (const auto& [key, arrival] : arrivals) {
      if (!arrival.whole() || !arrival.last_in_step) continue;
      ++figures.collectives;
      const std::int64_t margin = arrival.last_ns - arrival.second_ns;
      if (margin <= 2 * (arrival.last_error_ns + arrival.second_error_ns)) {
        ++figures.ties;
        continue;
      }
      charges_ns_[arrival.last] += margin;
      ++counts_[arrival.last];
    }
  }
  void Report(const std::vector<const LiveRank*>& ranks, LiveFigures& figures) const {
    const auto most = std::max_element(charges_ns_.begin(), charges_ns_.end());
    if (most == charges_ns_.end() || *most == 0) return;
    const auto r = static_cast<std::size_t>(most - charges_ns_.begin());
    figures.last_rank = ranks[r]->rank;
    figures.last_count = counts_[r];
    figures.last_late_ns = charges_ns_[r] / counts_[r];
  }

 private:
  std::vector<std::int64_t> charges_ns_, counts_;
};

}  // namespace

void LiveHearing::Update(std::vector<LiveRank>& ranks, std::int64_t epoch) {
  for (LiveRank& rank : ranks) {
    const auto [heard, first] = heard_.try_emplace(rank.rank, Heard{rank.epoch, epoch});
    if (heard->second.theirs != rank.epoch) heard->second = {rank.epoch, epoch};
    rank.epoch = heard->second.ours;
  }
}

LiveFigures ComputeLiveFigures(std::span<const LiveRank> reports, std::int32_t expected, std::int64_t epoch) {
  LiveFigures figures;
  std::vector<const LiveRank*> ranks;
  std::vector<bool> heard(static_cast<std::size_t>(std::max(expected, 0)));
  for (const LiveRank& rank : reports) {
    if (rank.epoch < epoch - 1) continue;
    ranks.push_back(&rank);
    if (rank.rank >= 0 && rank.rank < expected) heard[static_cast<std::size_t>(rank.rank)] = true;
  }
  for (std::size_t rank = 0; rank < heard.size(); ++rank)
    if (!heard[rank]) figures.silent.push_back(static_cast<std::int32_t>(rank));
  std::sort(ranks.begin(), ranks.end(), [](const LiveRank* a, const LiveRank* b) { return a->rank < b->rank; });
  figures.ranks = static_cast<std::int64_t>(ranks.size());
  const std::vector<Clock> clocks = ClocksOf(ranks);

  AddWhatRanksSay(ranks, clocks, figures);

  std::vector<std::int64_t> step_ns, wait_ns, transfer_ns, unsplit_ns;
  std::int64_t knows_wait = 0, knows_transfer = 0;  // The number of steps.
  LastArrivals last(ranks.size());
  for (const std::int64_t index : CommonSteps(ranks)) {
    Row row;
    for (const LiveRank* rank : ranks) row.push_back(FindStep(*rank, index));
    const auto arrivals = ArrivalsOf(row, clocks);
    last.Add(arrivals, figures);
    const Terms mean = MeanTerms(row, clocks, arrivals);
    step_ns.push_back(StepNs(row));
    wait_ns.push_back(mean.wait_ns);
    transfer_ns.push_back(mean.transfer_ns);
    knows_wait += mean.knows_wait;
    knows_transfer += mean.knows_transfer;
    unsplit_ns.push_back(mean.unsplit_ns);
    figures.last_step = index;
    if (figures.steps++ == 0) figures.first_step = index;
  }
  const auto mean = [&](const std::vector<std::int64_t>& of_steps) {
    return figures.steps == 0 ? -1 : std::reduce(of_steps.begin(), of_steps.end()) / figures.steps;
  };
  figures.step_ns = mean(step_ns);
  // As in the trace, the mean is over all steps; it is reported if it is known for more than half of them.
  if (2 * knows_wait > figures.steps) figures.exposed_wait_ns = mean(wait_ns);
  if (2 * knows_transfer > figures.steps) figures.exposed_transfer_ns = mean(transfer_ns);
  figures.exposed_unsplit_ns = mean(unsplit_ns);
  last.Report(ranks, figures);
  return figures;
}

}  // namespace lockstep::agent
