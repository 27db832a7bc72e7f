// Where a step goes: the identity's terms, as means over the usable steps and over ranks; and how much steps differ.

#include <algorithm>
#include <cmath>

#include "analysis/core/identity.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

// Of a part of a term: the floored mean over the rows. In floating point a damaged trace's times cannot overflow.
std::int64_t MeanOfRows(const std::vector<std::int64_t>& column, const std::vector<std::size_t>& rows) {
  long double sum = 0;
  for (const std::size_t row : rows) sum += static_cast<long double>(column[row]);
  return static_cast<std::int64_t>(std::floor(sum / static_cast<long double>(rows.size())));
}

// Of what is a part of the terms.
template <typename Table>
void AverageParts(const Context& context, const Table& t, const std::vector<std::size_t>& rows, Summary& s) {
  const auto mean = [&](const std::vector<std::int64_t>& column) { return MeanOfRows(column, rows); };
  const auto known_mean = [&](const std::vector<std::int64_t>& column) -> std::optional<std::int64_t> {
    for (const std::size_t row : rows)
      if (column[row] < 0) return std::nullopt;
    return mean(column);
  };
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
  s.blocked_sleep_ns = mean(t.blocked_sleep_ns);
  s.blocked_lock_ns = mean(t.blocked_lock_ns);
  s.blocked_python_ns = mean(t.blocked_python_ns);
  s.blocked_file_ns = mean(t.blocked_file_ns);
  s.blocked_socket_ns = mean(t.blocked_socket_ns);
  s.blocked_unplaced_ns = mean(t.blocked_unplaced_ns);
  s.helper_wait_ns = mean(t.helper_wait_ns);
  s.message_wait_ns = mean(t.message_wait_ns);
  s.cpu_ns = known_mean(t.cpu_ns);
  s.offcpu_ns = known_mean(t.offcpu_ns);
}

// What the mean does not show: that no step is as long.
void SayLongSteps(const Context& context, Analysis& analysis) {
  Summary& s = analysis.summary;
  const auto& steps = context.tables().steps;
  std::vector<std::int64_t> lengths_ns;
  for (const std::size_t row : context.usable_steps()) lengths_ns.push_back(steps.step_ns[row]);
  const std::size_t all = lengths_ns.size();
  const std::optional<TwoGroups> groups = FindTwoGroups(std::move(lengths_ns));
  if (!groups) return;
  s.long_steps = static_cast<std::int64_t>(groups->count);
  s.long_step_ns_mean = groups->mean_ns;
  s.other_step_ns_mean = groups->other_ns;
  Names listed;
  for (const std::size_t row : context.usable_steps())
    if (steps.step_ns[row] >= groups->least_ns && groups->count <= rules::kLongStepsListed)
      listed.values.push_back(std::to_string(steps.index[row]));
  const bool named = !listed.values.empty();
  analysis.remarks.push_back(Told(named ? Word::kLongStepsNamed : Word::kLongSteps,
                                  {{"steps", named ? Value(listed) : Value(Index{static_cast<std::int64_t>(all)})},
                                   {"long_steps", Index{s.long_steps}},
                                   {"others", Index{static_cast<std::int64_t>(all - listed.values.size())}},
                                   {"long_step", Ns{groups->mean_ns}},
                                   {"averaged", groups->count > 1},
                                   {"other_step", Ns{groups->other_ns}}}));
}

void RemarkOnHelperWaits(Analysis& analysis) {
  const Summary& s = analysis.summary;
  if (s.helper_wait_ns <= 0 ||
      static_cast<double>(s.helper_wait_ns) < rules::kNameShare * static_cast<double>(s.terms.Sum()))
    return;
  analysis.remarks.push_back(Told(Word::kHelperWaits, {{"wait", Ns{s.helper_wait_ns}}, {"per_step", s.per_step}}));
}

}  // namespace

void Summarize(const Context& context, Analysis& analysis) {
  const auto& tables = context.tables();
  Summary& s = analysis.summary;
  std::vector<std::size_t> rows;
  std::vector<merge::TermValues> of_steps;
  std::vector<std::pair<std::int64_t, std::size_t>> by_length;  // The earlier of equally long ones comes first.
  for (const std::size_t step : context.usable_steps()) {
    std::vector<merge::TermValues> of_ranks;
    for (std::size_t p = 0; p < context.ranks().size(); ++p)
      if (const std::size_t cell = context.Cell(step, p); cell != kNowhere) {
        of_ranks.push_back(merge::TermsOfRow(tables.step_ranks, cell));
        rows.push_back(cell);
      }
    if (of_ranks.empty()) continue;  // A damaged timeline may have a step of no rank.
    of_steps.push_back(merge::MeanOfTerms(of_ranks).terms);
    by_length.emplace_back(tables.steps.step_ns[step], step);
  }
  if (!rows.empty()) {
    const auto [median_ns, median] = LowerMedian(by_length);
    s.per_step = true;
    s.median_step = tables.steps.index[median];
    s.step_ns_median = s.job_step_ns_median = median_ns;
    if (by_length.size() >= rules::kP10Steps) s.job_step_ns_p10 = LowerQuantile(by_length, 0.10).first;
    if (by_length.size() >= rules::kP99Steps) s.job_step_ns_p99 = LowerQuantile(by_length, 0.99).first;
    const auto [shortest, longest] = std::minmax_element(by_length.begin(), by_length.end());
    s.job_step_ns_min = shortest->first, s.job_step_ns_max = longest->first;
    s.terms = IdentityOf(merge::MeanOfTerms(of_steps).terms);
    s.step_ns_mean = s.terms.Sum();
    SayLongSteps(context, analysis);
    AverageParts(context, tables.step_ranks, rows, s);
  } else if (tables.rank_totals.rows() > 0) {
    std::vector<merge::TermValues> of_ranks;
    for (std::size_t i = 0; i < tables.rank_totals.rows(); ++i) {
      rows.push_back(i);
      of_ranks.push_back(merge::TermsOfRow(tables.rank_totals, i));
    }
    s.terms = IdentityOf(merge::MeanOfTerms(of_ranks).terms);
    AverageParts(context, tables.rank_totals, rows, s);
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
