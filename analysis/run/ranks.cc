// Totals per rank over the analysis window, its part of the job's mean step, its lateness and
// its straggler score.

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "analysis/core/identity.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"
#include "merge/parallel.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

// The work of a rank itself in a step. CPU ranks: compute, awake. GPU ranks: compute and own gaps, that is everything
// but communication.
double WorkNs(const Context& context, std::size_t cell, bool gpu) {
  const IdentityTerms terms = context.TermsOf(cell);
  return static_cast<double>(gpu ? terms.Sum() - terms.ExposedComm() : terms.Own());
}

// score[position] and its interval, from ln(work) relative to the step's median rank.
void Score(const Context& context, std::vector<RankRow>& rows) {
  const std::size_t n = context.ranks().size();
  if (n < 2 || context.usable_steps().size() < 2) return;
  std::vector<std::vector<double>> deviation(n);
  std::vector<double> logs(n);
  for (const std::size_t step : context.usable_steps()) {
    bool whole = true;
    for (std::size_t p = 0; p < n && whole; ++p) {
      const std::size_t cell = context.Cell(step, p);
      const double work =
          cell == kNowhere ? 0 : WorkNs(context, cell, context.tables().ranks.gpu[context.RankRow(p)] != 0);
      whole = work > 0;
      if (whole) logs[p] = std::log(work);
    }
    if (!whole) continue;
    std::vector<double> sorted = logs;
    std::sort(sorted.begin(), sorted.end());
    // The mean of the middle two: with two ranks their deviations are symmetric.
    const double median = 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
    for (std::size_t p = 0; p < n; ++p) deviation[p].push_back(logs[p] - median);
  }
  if (deviation[0].size() < 2) return;
  const std::size_t block = BlockLength(deviation, context.options().jobs);
  const std::size_t rounds = n > rules::kScoreRanks ? rules::kScoreRounds : rules::kBootstrapRounds;
  merge::ParallelFor(context.options().jobs, n, [&](std::size_t p) {
    rows[p].straggler_score = LowerMedian(deviation[p]);
    rows[p].straggler_interval =
        BootstrapInterval(deviation[p], block, Statistic::kMedian, context.options().seed + p, rounds);
  });
}

void AddLateness(const Context& context, const Analysis& analysis, std::vector<RankRow>& rows) {
  const auto& members = context.tables().collective_ranks;
  std::vector<std::vector<std::int64_t>> late(rows.size());
  for (std::size_t c = 0; c < context.tables().collectives.rows(); ++c) {
    if (!context.Comparable(c)) continue;
    const std::size_t first = context.timeline().FirstMember(c), last = context.timeline().FirstMember(c + 1);
    const std::int64_t median = context.MedianArrival(c);
    for (std::size_t m = first; m < last; ++m) {
      const std::size_t p = context.Position(members.rank[m]);
      if (p == kNowhere) continue;
      late[p].push_back(members.arrival_ns[m] - median);
    }
  }
  for (std::size_t p = 0; p < rows.size(); ++p) {
    if (late[p].empty()) continue;
    rows[p].late_ns_median = LowerMedian(std::move(late[p]));
    if (p < analysis.arrivals.size() && analysis.arrivals[p].collectives > 0)
      rows[p].last_fraction =
          static_cast<double>(analysis.arrivals[p].last) / static_cast<double>(analysis.arrivals[p].collectives);
  }
}

// Of the steps that the summary is of; nothing of a rank without any.
void AddMeanStep(const Context& context, std::size_t position, RankRow& row) {
  const auto& t = context.tables().step_ranks;
  std::vector<merge::TermValues> of_steps;
  std::vector<std::int64_t> comm_ns, overlap_ns;
  for (const std::size_t step : context.usable_steps()) {
    const std::size_t cell = context.Cell(step, position);
    if (cell == kNowhere) continue;
    of_steps.push_back(merge::TermsOfRow(t, cell));
    comm_ns.push_back(t.comm_ns[cell]);
    overlap_ns.push_back(t.overlap_ns[cell]);
  }
  if (of_steps.empty()) return;
  row.step_terms = IdentityOf(merge::MeanOfTerms(of_steps).terms, context.DeviceUnknown(row.rank));
  row.step_comm_ns = merge::MeanLength(comm_ns);
  row.step_overlap_ns = merge::MeanLength(overlap_ns);
}

}  // namespace

void TabulateRanks(const Context& context, Analysis& analysis) {
  const auto& tables = context.tables();
  const auto& t = tables.rank_totals;
  std::unordered_map<std::int32_t, std::size_t> totals;
  for (std::size_t i = 0; i < t.rows(); ++i) totals.emplace(t.rank[i], i);
  std::vector<RankRow>& rows = analysis.ranks;
  rows.resize(context.ranks().size());
  for (std::size_t p = 0; p < rows.size(); ++p) {
    RankRow& row = rows[p];
    row.rank = context.ranks()[p];
    row.node = context.timeline().Text(tables.ranks.node[context.RankRow(p)]);
    AddMeanStep(context, p, row);
    const auto at = totals.find(row.rank);
    if (at == totals.end()) continue;
    const std::size_t i = at->second;
    row.span_ns = SpanOf(t, i);
    row.terms = IdentityOf(merge::TermsOfRow(t, i), context.DeviceUnknown(row.rank));
    row.comm_ns = t.comm_ns[i];
    row.overlap_ns = t.overlap_ns[i];
    row.comm_high_ns = t.comm_high_ns[i];
    row.overlap_high_ns = t.overlap_high_ns[i];
    row.copy_ns = t.copy_ns[i];
    row.mpi_other_ns = t.mpi_other_ns[i];
    row.mpi_io_ns = t.mpi_io_ns[i];
    row.mpi_rma_ns = t.mpi_rma_ns[i];
    row.mpi_setup_ns = t.mpi_setup_ns[i];
    row.late_sender_ns = t.late_sender_ns[i];
    row.late_receiver_ns = t.late_receiver_ns[i];
    row.input_ns = t.input_ns[i];
    row.blocked_sleep_ns = t.blocked_sleep_ns[i];
    row.blocked_lock_ns = t.blocked_lock_ns[i];
    row.blocked_python_ns = t.blocked_python_ns[i];
    row.blocked_file_ns = t.blocked_file_ns[i];
    row.blocked_socket_ns = t.blocked_socket_ns[i];
    row.blocked_unplaced_ns = t.blocked_unplaced_ns[i];
    row.helper_wait_ns = t.helper_wait_ns[i];
    row.message_wait_ns = t.message_wait_ns[i];
    if (t.comm_ns[i] > 0)
      row.overlap_fraction = static_cast<double>(t.overlap_ns[i]) / static_cast<double>(t.comm_ns[i]);
    if (t.cpu_ns[i] >= 0) row.cpu_ns = t.cpu_ns[i];
    if (t.offcpu_ns[i] >= 0) row.offcpu_ns = t.offcpu_ns[i];
  }
  AddLateness(context, analysis, rows);
  Score(context, rows);
}

}  // namespace lockstep::analysis
