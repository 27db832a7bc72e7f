// Where a step goes: the identity's terms, as means over ranks of the median step.

#include <fmt/format.h>

#include <algorithm>

#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

// The terms sum to the length (merge/timeline/step_length.h); of what is a part of them, the floors of the means.
template <typename Table>
void Average(const Context& context, const Table& t, const std::vector<std::size_t>& rows, Summary& s) {
  const auto n = static_cast<std::int64_t>(rows.size());
  const auto mean = [&](const std::vector<std::int64_t>& column) {
    std::int64_t sum = 0;
    for (const std::size_t row : rows) sum += column[row];
    return sum / n;
  };
  const auto known_mean = [&](const std::vector<std::int64_t>& column) -> std::optional<std::int64_t> {
    for (const std::size_t row : rows)
      if (column[row] < 0) return std::nullopt;
    return mean(column);
  };
  std::vector<merge::SixTerms> of_ranks;
  for (const std::size_t row : rows) of_ranks.push_back(merge::TermsOfRow(t, row));
  const merge::SixTerms terms = merge::MeanOfRanks(of_ranks).terms;
  s.terms = {terms[0], terms[1], terms[2], terms[3], terms[4], terms[5]};
  s.terms.device_unknown =
      std::any_of(rows.begin(), rows.end(), [&](std::size_t row) { return context.DeviceUnknown(t.rank[row]); });
  s.comm_ns = mean(t.comm_ns);
  s.hidden_comm_ns = mean(t.overlap_ns);
  s.comm_high_ns = mean(t.comm_high_ns);
  s.hidden_comm_high_ns = mean(t.overlap_high_ns);
  s.mpi_other_ns = mean(t.mpi_other_ns);
  s.mpi_io_ns = mean(t.mpi_io_ns);
  s.mpi_rma_ns = mean(t.mpi_rma_ns);
  s.mpi_setup_ns = mean(t.mpi_setup_ns);
  s.late_sender_ns = mean(t.late_sender_ns);
  s.late_receiver_ns = mean(t.late_receiver_ns);
  s.input_ns = mean(t.input_ns);
  s.helper_wait_ns = mean(t.helper_wait_ns);
  s.cpu_ns = known_mean(t.cpu_ns);
  s.offcpu_ns = known_mean(t.offcpu_ns);
}

// Inferred from CPU time, not observed in a call.
void RemarkOnHelperWaits(Analysis& analysis) {
  const Summary& s = analysis.summary;
  if (s.helper_wait_ns <= 0 || static_cast<double>(s.helper_wait_ns) < kNameShare * static_cast<double>(s.terms.Sum()))
    return;
  analysis.remarks.push_back(
      fmt::format("For {} of the exposed communication{}, the training thread sleeps until another thread's "
                  "collectives end. None of "
                  "its own calls shows this; its CPU time does.",
                  Duration(s.helper_wait_ns), s.per_step ? " per step" : ""));
}

}  // namespace

void Summarize(const Context& context, Analysis& analysis) {
  const auto& tables = context.tables();
  Summary& s = analysis.summary;
  std::vector<std::size_t> rows;
  if (!context.usable_steps().empty()) {
    std::vector<std::pair<std::int64_t, std::size_t>> by_length;  // The earlier of equally long ones comes first.
    for (const std::size_t row : context.usable_steps()) by_length.emplace_back(tables.steps.step_ns[row], row);
    const std::size_t median = LowerMedian(by_length).second;
    for (std::size_t p = 0; p < context.ranks().size(); ++p)
      if (const std::size_t cell = context.Cell(median, p); cell != kNowhere) rows.push_back(cell);
    // A damaged timeline may have a step of no rank.
    if (!rows.empty()) {
      s.per_step = true;
      s.median_step = tables.steps.index[median];
      s.job_step_ns_median = tables.steps.step_ns[median];
      s.job_step_ns_p10 = LowerQuantile(by_length, 0.10).first;
      s.job_step_ns_p99 = LowerQuantile(by_length, 0.99).first;
      Average(context, tables.step_ranks, rows, s);
      s.step_ns_median = s.terms.Sum();
    }
  }
  if (!s.per_step) {
    for (std::size_t i = 0; i < tables.rank_totals.rows(); ++i) rows.push_back(i);
    if (!rows.empty()) Average(context, tables.rank_totals, rows, s);
  }
  const auto fraction = [](std::int64_t part, std::int64_t whole) -> std::optional<double> {
    if (whole <= 0) return std::nullopt;
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  s.overlap_fraction = fraction(s.hidden_comm_ns, s.comm_ns);
  s.overlap_low = s.overlap_fraction;
  s.overlap_high = fraction(s.hidden_comm_high_ns, s.comm_high_ns);
  // The certain part may be null if no operation certainly moved data.
  if (!s.overlap_low && s.overlap_high) s.overlap_low = 0.0;
  RemarkOnHelperWaits(analysis);
}

}  // namespace lockstep::analysis
