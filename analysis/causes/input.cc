// Time in ranges marked as input.

#include <algorithm>

#include "analysis/choose_findings.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/replayed/replay_price.h"
#include "core/rules/common.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
// Reports CPU ranks only. What input costs a rank with a GPU is the idle time of the GPU that it causes:
// input_source.cc.
void FindInputBound(const Context& context, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  const std::vector<std::uint8_t>& gpu = context.tables().ranks.gpu;
  if (std::any_of(gpu.begin(), gpu.end(), [](std::uint8_t any) { return any != 0; })) return;
  Finding finding;
  finding.explain.columns = {"rank", "input_ns", "span_ns"};
  std::vector<std::int64_t> shares_ppb;
  for (const RankRow& row : analysis.ranks) {
    finding.explain.rows.push_back({row.rank, row.input_ns, row.span_ns});
    if (row.span_ns > 0)
      shares_ppb.push_back(
          static_cast<std::int64_t>(1e9 * static_cast<double>(row.input_ns) / static_cast<double>(row.span_ns)));
  }
  // The median rank decides: a single rank with slow input is a straggler, not an input-bound job.
  std::int64_t input = 0;
  if (s.per_step) {
    std::vector<std::int64_t> of_ranks;
    for (std::size_t p = 0; p < context.ranks().size(); ++p) {
      std::vector<std::int64_t> values;
      for (const std::size_t step : context.usable_steps())
        if (const std::size_t cell = context.Cell(step, p); cell != kNowhere)
          values.push_back(context.tables().step_ranks.input_ns[cell]);
      of_ranks.push_back(merge::MeanLength(values));
    }
    input = LowerMedian(std::move(of_ranks));
  } else {
    input = static_cast<std::int64_t>(1e-9 * static_cast<double>(LowerMedian(shares_ppb)) * static_cast<double>(whole));
  }
  if (whole <= 0 || static_cast<double>(input) < rules::kNameShare * static_cast<double>(whole)) return;
  finding.id = FindingId::kInputBound;
  finding.said.headline = {Say(Word::kInputWaits, {{"ranks", Num{static_cast<std::int64_t>(context.ranks().size())}},
                                                   {"input", PartOf(s, input)}})};
  finding.said.brief = {Say(Word::kInputWaitsBrief)};
  SetPrice(s, input, finding);
  finding.upper_bound = true;
  finding.said.evidence = {
      s.per_step
          ? Say(Word::kInputPerStep, {{"input", Ns{input}}})
          : Say(Word::kInputOfWindow, {{"share", Share{static_cast<double>(input) / static_cast<double>(whole)}}})};
  if (constexpr std::uint8_t kInput = schema::Category::kInput;
      const auto price = s.per_step ? PriceWithoutRanges(context, kInput) : std::nullopt) {
    finding.saves_ns_per_step = std::max<std::int64_t>(0, price->gain_ns);
    finding.saves_interval_ns = price->interval;
    finding.took_ns = input;
    finding.said.headline.push_back(Say(Word::kInputReplayed, {{"gain", Ns{*finding.saves_ns_per_step}}}));
    finding.replayed = true;
    finding.upper_bound = false;
    finding.said.evidence.push_back(Say(Word::kInputStepsReplayed, {{"steps", Num{price->steps}}}));
  }
  finding.said.action = {Say(Word::kInputAction)};
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
