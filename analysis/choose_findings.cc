#include "analysis/choose_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/passes.h"
#include "analysis/replayed/replayed_run.h"

namespace lockstep::analysis {
namespace {

constexpr std::size_t kMaxFindings = 5;

// A rank that does something every n steps is late in those: one cause, told once, by what says more.
void DropStragglerOfBurst(Analysis& analysis) {
  const auto burst = std::find_if(analysis.findings.begin(), analysis.findings.end(),
                                  [](const Finding& f) { return f.id == FindingId::kBurstPeriodic && f.rank >= 0; });
  if (burst == analysis.findings.end()) return;
  const std::int32_t rank = burst->rank;
  const bool transient = std::all_of(analysis.stragglers.begin(), analysis.stragglers.end(), [&](const Straggler& s) {
    return s.rank == rank && s.kind == StragglerKind::kTransient;
  });
  if (!transient || analysis.stragglers.empty()) return;
  std::erase_if(analysis.findings, [](const Finding& f) { return f.id == FindingId::kStragglerArrival; });
}

std::string Numbers(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  return text;
}

// Prices of separate parts of the step add up, as far as there is a step; of one part the largest counts.
void AddUp(Analysis& analysis) {
  const std::int64_t whole = analysis.summary.terms.Sum();
  std::vector<std::size_t> priced, overlapping;
  double sum = 0;
  for (std::size_t i = 0; i < analysis.findings.size(); ++i) {
    const double gain = GainShare(analysis, analysis.findings[i]);
    if (gain < 0) continue;
    bool alone = true;
    for (const std::size_t other : priced)
      if (Overlap(analysis.findings[other - 1], analysis.findings[i])) {
        alone = false;
        if (std::find(overlapping.begin(), overlapping.end(), other) == overlapping.end()) overlapping.push_back(other);
      }
    priced.push_back(i + 1);
    if (alone)
      sum += gain;  // By gain: what came before and overlaps is the larger one.
    else
      overlapping.push_back(i + 1);
  }
  if (priced.size() < 2 || whole <= 0) return;
  sum = std::min(sum, 1.0);
  std::sort(overlapping.begin(), overlapping.end());
  const std::string total =
      analysis.summary.per_step
          ? fmt::format("{} ({})", Duration(static_cast<std::int64_t>(sum * static_cast<double>(whole) + 0.5)),
                        Percent(sum))
          : Percent(sum);
  analysis.additivity = overlapping.empty()
                            ? fmt::format("These are separate parts of the step: together at most {}.", total)
                            : fmt::format("The prices of {} overlap: all findings together save at most {}.",
                                          Numbers(overlapping), total);
}

// What other buckets gain without the late ranks: the two are one replay, so that neither counts what the other has
// gained already.
void ReplayTogether(const Context& context, Analysis& analysis) {
  const auto number = [&](FindingId id) -> std::size_t {
    for (std::size_t i = 0; i < analysis.findings.size(); ++i)
      if (analysis.findings[i].id == id) return i + 1;
    return 0;
  };
  const std::size_t late = number(FindingId::kStragglerArrival), cap = number(FindingId::kBucketsCap);
  if (late == 0 || cap == 0 || analysis.stragglers.empty() || !analysis.buckets.recommended_cap_mb) return;
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->what_if().replayed_step_ns() <= 0) return;
  replay::Question without{.kind = replay::Question::kWithoutRanks}, buckets{.kind = replay::Question::kBucketCap},
      both{.kind = replay::Question::kTogether};
  for (const Straggler& straggler : analysis.stragglers) without.ranks.push_back(straggler.rank);
  std::sort(without.ranks.begin(), without.ranks.end());
  buckets.cap_bytes = analysis.buckets.recommended_cap_bytes;
  buckets.first_bytes = analysis.buckets.recommended_first_bytes;
  both.together = {without, buckets};
  const Result<replay::Answer> answer = replayed->what_if().Ask(both);
  if (!answer.ok()) return;
  analysis.additivity +=
      fmt::format("{}Replayed together, {} and {} gain {} ({}).", analysis.additivity.empty() ? "" : " ",
                  std::min(late, cap), std::max(late, cap), Duration(answer.value().gain_ns),
                  Percent(answer.value().gain_ns, replayed->what_if().replayed_step_ns()));
}

}  // namespace

std::string OfTheStep(const Summary& summary, std::int64_t ns) {
  const std::int64_t whole = summary.terms.Sum();
  return summary.per_step ? fmt::format("{} of each {} step", Duration(ns), Duration(whole))
                          : fmt::format("{} of the time", Percent(ns, whole));
}

double GainShare(const Analysis& analysis, const Finding& finding) {
  const std::int64_t whole = analysis.summary.terms.Sum();
  if (finding.saves_ns_per_step && whole > 0)
    return static_cast<double>(*finding.saves_ns_per_step) / static_cast<double>(whole);
  return finding.saves_share.value_or(-1);
}

bool Overlap(const Finding& a, const Finding& b) {
  const FindingId p = KindOf(a.id).same_time_as, q = KindOf(b.id).same_time_as;
  if (p == q) return true;
  const auto either = [&](FindingId x, FindingId y) { return (p == x && q == y) || (p == y && q == x); };
  // Waiting for a rank that is busy with its burst.
  if (either(FindingId::kStragglerArrival, FindingId::kBurstPeriodic)) return a.rank == b.rank && a.rank >= 0;
  // Other buckets hide transfer; what is exposed is that.
  return either(FindingId::kTransferExposed, FindingId::kBucketsCap);
}

void ChooseFindings(const Context& context, Analysis& analysis) {
  DropStragglerOfBurst(analysis);
  std::erase_if(analysis.findings, [&](const Finding& finding) {
    const double gain = GainShare(analysis, finding);
    return gain >= 0 && gain < kWorthShare;
  });
  // Without a price: a rank that is named comes first, as its price is in its sentence; what only warns comes last.
  const auto key = [&](const Finding& finding) {
    const double gain = GainShare(analysis, finding);
    return gain < 0 && finding.id == FindingId::kStragglerArrival ? 2.0 : gain;
  };
  std::stable_sort(analysis.findings.begin(), analysis.findings.end(),
                   [&](const Finding& a, const Finding& b) { return key(a) > key(b); });
  if (analysis.findings.size() > kMaxFindings) analysis.findings.resize(kMaxFindings);
  AddUp(analysis);
  ReplayTogether(context, analysis);
}

}  // namespace lockstep::analysis
