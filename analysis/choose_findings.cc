#include "analysis/choose_findings.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/passes.h"
#include "analysis/replayed/prices.h"
#include "analysis/rules/run.h"
#include "analysis/stacks/blocked_places.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// A rank that does something every n steps is late in those: one cause with one price, told once, by what says more.
void DropStragglerOfBurst(Analysis& analysis) {
  const auto burst = std::find_if(analysis.findings.begin(), analysis.findings.end(), [&](const Finding& f) {
    return f.id == FindingId::kBurstPeriodic && f.rank >= 0 && GainShare(analysis, f) >= rules::kWorthShare;
  });
  if (burst == analysis.findings.end()) return;
  const std::int32_t rank = burst->rank;
  const bool transient = std::all_of(analysis.stragglers.begin(), analysis.stragglers.end(), [&](const Straggler& s) {
    return s.rank == rank && s.kind == StragglerKind::kTransient;
  });
  if (!transient || analysis.stragglers.empty()) return;
  std::erase_if(analysis.findings, [](const Finding& f) { return f.id == FindingId::kStragglerArrival; });
}

Names Numbers(const std::vector<std::size_t>& numbers) {
  Names names;
  for (const std::size_t number : numbers) names.values.push_back(std::to_string(number));
  return names;
}

// What all findings gain together, in one place: those whose remedies are replayed by one replay of all of them, the
// rest by its prices, of which those of the same time count once, as the larger. At most the step, as far as there is
// one, and at least the largest of them.
void AddUp(const Context& context, Analysis& analysis) {
  const std::int64_t whole = analysis.summary.terms.Sum();
  if (whole <= 0) return;
  std::vector<const Finding*> replayed;
  std::vector<std::size_t> priced, overlapping;
  double sum = 0, largest = 0;
  bool at_most = false;
  for (const Finding& finding : analysis.findings)
    if (finding.replayed && GainShare(analysis, finding) >= 0) replayed.push_back(&finding);
  std::optional<std::int64_t> together;
  if (replayed.size() > 1) together = GainTogether(context, analysis, replayed);
  const auto in_replay = [&](std::size_t i) { return together && analysis.findings[i].replayed; };
  if (together) sum = static_cast<double>(std::max<std::int64_t>(0, *together)) / static_cast<double>(whole);
  for (std::size_t i = 0; i < analysis.findings.size(); ++i) {
    const double gain = GainShare(analysis, analysis.findings[i]);
    if (gain < 0) continue;
    at_most |= analysis.findings[i].upper_bound;
    largest = std::max(largest, gain);
    bool alone = true;
    for (const std::size_t other : priced)
      if (Overlap(analysis.findings[other - 1], analysis.findings[i])) {
        alone = false;
        if (std::find(overlapping.begin(), overlapping.end(), other) == overlapping.end()) overlapping.push_back(other);
      }
    priced.push_back(i + 1);
    if (!alone) overlapping.push_back(i + 1);
    if (alone && !in_replay(i)) sum += gain;
  }
  if (priced.size() < 2) return;
  sum = std::clamp(sum, largest, 1.0);
  std::sort(overlapping.begin(), overlapping.end());
  const bool steps = analysis.summary.per_step, all_replayed = together && replayed.size() == priced.size();
  const auto total_ns = static_cast<std::int64_t>(sum * static_cast<double>(whole) + 0.5);
  analysis.additivity = Told(all_replayed          ? Word::kReplayedTogether
                             : overlapping.empty() ? Word::kSeparateParts
                                                   : Word::kPricesOverlap,
                             {{"findings", Numbers(all_replayed ? priced : overlapping)},
                              {"at_most", at_most},
                              {"per_step", steps},
                              {"total", steps ? Value(Ns{total_ns}) : Value(Share{sum})},
                              {"share", If(steps, Share{sum})}});
}

double Weight(const Context& context, const Analysis& analysis, const Finding& finding) {
  if (finding.id == FindingId::kStallOnce)  // It took that, and no step has it.
    return static_cast<double>(*finding.took_ns) / static_cast<double>(context.recorded_ns());
  return GainShare(analysis, finding) * (finding.upper_bound ? rules::kUpperBoundWeight : 1.0);
}

// Of two bounds the one that says what to change comes before the one that says what transfers cost in all.
void PutRemedyFirst(Analysis& analysis) {
  auto& findings = analysis.findings;
  const auto transfer = std::find_if(findings.begin(), findings.end(),
                                     [](const Finding& f) { return f.id == FindingId::kTransferExposed; });
  const auto remedy = std::find_if(transfer, findings.end(), [&](const Finding& f) {
    return (f.id == FindingId::kBucketsCap || f.id == FindingId::kFsdpUnits) && f.upper_bound &&
           HalfOf(GainShare(analysis, f), GainShare(analysis, *transfer));
  });
  if (remedy != findings.end()) std::rotate(transfer, remedy, remedy + 1);
}

// Of findings that price the same time the one that says what is broken comes before those that say what it costs or
// what would hide it: nobody should post communication earlier that a slow network delays.
void PutCauseFirst(Analysis& analysis) {
  auto& findings = analysis.findings;
  const auto link =
      std::find_if(findings.begin(), findings.end(), [](const Finding& f) { return f.id == FindingId::kLinkSlow; });
  const auto before = std::find_if(findings.begin(), link, [](const Finding& f) {
    return KindOf(f.id).same_time_as == KindOf(FindingId::kLinkSlow).same_time_as;
  });
  if (link != findings.end()) std::rotate(before, link, link + 1);
}

// Ranks that lack cores: what anything else takes in this run is no longer what it takes where each has its own.
void PutContentionFirst(const Context& context, Analysis& analysis) {
  const auto at = std::find_if(analysis.findings.begin(), analysis.findings.end(),
                               [](const Finding& f) { return f.id == FindingId::kStarved; });
  if (at == analysis.findings.end()) return;
  for (const Finding& finding : analysis.findings)
    if (Weight(context, analysis, finding) > analysis.without_core_share) return;
  std::rotate(analysis.findings.begin(), at, at + 1);
  const bool cause_of_rank =
      std::any_of(analysis.stragglers.begin(), analysis.stragglers.end(), [](const Straggler& straggler) {
        return (straggler.cause == CauseId::kWaiting && !straggler.blocked) || straggler.cause == CauseId::kStarved ||
               straggler.cause == CauseId::kUnknown;
      });
  for (Finding& finding : analysis.findings) {
    const bool own_work = finding.id == FindingId::kStragglerArrival && !cause_of_rank;
    if (WaitsForOthers(finding.id) && !own_work) finding.said.action = {Say(Word::kCoresFirstAction)};
  }
}

// Passes do not know at which place theirs will be: they say 0, which no count of hosts or ranks is.
void Number(std::vector<Clause>& clauses, std::int64_t number) {
  for (Clause& clause : clauses)
    for (Fact& fact : clause.facts) {
      if (fact == Fact{"number", Index{0}}) fact.value = Index{number};
      if (auto* nested = std::get_if<Clauses>(&fact.value)) Number(nested->all, number);
    }
}

// Makes the texts.
void Phrase(Analysis& analysis) {
  std::int64_t number = 0;
  for (Finding& finding : analysis.findings) {
    ++number;
    for (auto* clauses : {&finding.said.evidence, &finding.said.action}) Number(*clauses, number);
    finding.headline = HeadlineOf(finding);
    finding.brief = Joined(finding.said.brief);
    finding.evidence = Joined(finding.said.evidence);
    finding.action = Joined(finding.said.action);
  }
}

}  // namespace

std::string HeadlineOf(const Finding& finding) { return Concatenated(finding.said.headline) + "."; }

Part PartOf(const Summary& summary, std::int64_t ns) { return {ns, summary.terms.Sum(), summary.per_step}; }

void SetPrice(const Summary& summary, std::int64_t ns, Finding& finding) {
  if (summary.per_step)
    finding.saves_ns_per_step = ns;
  else if (const std::int64_t whole_ns = summary.terms.Sum(); whole_ns > 0)
    finding.saves_share = static_cast<double>(ns) / static_cast<double>(whole_ns);
}

std::optional<std::int64_t> PriceNs(const Analysis& analysis, const Finding& finding) {
  if (!finding.saves_share) return finding.saves_ns_per_step;
  return std::llround(*finding.saves_share * static_cast<double>(analysis.summary.terms.Sum()));
}

double GainShare(const Analysis& analysis, const Finding& finding) {
  const std::int64_t whole = WholeOf(analysis, finding);
  if (finding.saves_ns_per_step && whole > 0)
    return static_cast<double>(*finding.saves_ns_per_step) / static_cast<double>(whole);
  return finding.saves_share.value_or(-1);
}

void SayExtrapolated(Finding& finding) {
  finding.extrapolated = true;
  finding.said.headline.push_back(Say(Word::kExtrapolated));
  finding.said.evidence.push_back(Say(Word::kExtrapolatedEvidence));
}

bool Overlap(const Finding& a, const Finding& b) {
  const FindingId p = KindOf(a.id).same_time_as, q = KindOf(b.id).same_time_as;
  // Calls that block share time if they are of one place.
  if (a.blocked && b.blocked) return SamePlace(*a.blocked, *b.blocked);
  if (p == q) return true;
  const auto either = [&](FindingId x, FindingId y) { return (p == x && q == y) || (p == y && q == x); };
  // What is in some steps only makes these longer.
  if ((p == FindingId::kBurstPeriodic && b.intermittent) || (q == FindingId::kBurstPeriodic && a.intermittent))
    return true;
  // Waiting for a rank that is busy with its burst.
  if (either(FindingId::kStragglerArrival, FindingId::kBurstPeriodic)) return a.rank == b.rank && a.rank >= 0;
  // Other buckets hide transfer; what is exposed is that.
  return either(FindingId::kTransferExposed, FindingId::kBucketsCap);
}

bool WaitsForOthers(FindingId id) {
  return id == FindingId::kStragglerArrival || id == FindingId::kTransferExposed ||
         id == FindingId::kProgressWaitOnly || id == FindingId::kWaitTurns || id == FindingId::kP2pLateSender ||
         id == FindingId::kP2pLateReceiver;
}

void ChooseFindings(const Context& context, Analysis& analysis) {
  DropStragglerOfBurst(analysis);
  const std::int64_t whole = analysis.summary.terms.Sum();
  std::set<FindingId> told;
  std::erase_if(analysis.findings, [&](const Finding& finding) {
    const double gain = GainShare(analysis, finding);
    // What takes more than there is was counted twice or of something else: whatever it says is not to be relied on.
    if (gain > 1) {
      ++analysis.impossible_findings;
      return true;
    }
    if (gain < 0 || gain >= rules::kWorthShare) return false;
    // Much time, and the replay has it that it is spent anyway: told, but nothing to fix.
    if (finding.replayed && finding.took_ns &&
        static_cast<double>(*finding.took_ns) >= rules::kNameShare * static_cast<double>(whole))
      analysis.remarks.push_back(HeadlineOf(finding)), told.insert(finding.id);
    return true;
  });
  for (const Finding& finding : analysis.findings) told.insert(finding.id);
  TellOtherIdle(context, told, analysis);
  // Without a price: a rank that is named comes first, as its price is in its sentence; what only warns comes last.
  // What says only that time is idle comes after all that has a cause.
  const auto key = [&](const Finding& finding) {
    if (finding.id == FindingId::kIdleOther) return 0.0;
    const bool named = finding.id == FindingId::kStragglerArrival || finding.id == FindingId::kLinkCut;
    return GainShare(analysis, finding) < 0 && named ? 2.0 : Weight(context, analysis, finding);
  };
  std::stable_sort(analysis.findings.begin(), analysis.findings.end(),
                   [&](const Finding& a, const Finding& b) { return key(a) > key(b); });
  PutCauseFirst(analysis);
  PutRemedyFirst(analysis);
  PutContentionFirst(context, analysis);
  if (analysis.findings.size() > rules::kFindingsListed) analysis.findings.resize(rules::kFindingsListed);
  Phrase(analysis);
  AddUp(context, analysis);
}

}  // namespace lockstep::analysis
