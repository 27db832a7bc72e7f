// One price for one time: where the run replays well, what a step gains by a finding's remedy takes the place of the
// time that the finding takes on the timeline, which is at most that.

#include "analysis/replayed/prices.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/named_ranks.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/replay/questions/larger_units.h"
#include "analysis/replayed/link_price.h"
#include "analysis/replayed/replay_price.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

using replay::Answer;
using replay::Question;

const ReplayedRun* Held(const Context& context) {
  const ReplayedRun* replayed = context.Replayed();
  return replayed != nullptr && replayed->Holds() ? replayed : nullptr;
}

// The one rank that is named is priced by its input alone (Pricing::OfInputOnly).
bool PricedByInput(const Analysis& analysis) {
  if (analysis.stragglers.size() != 1) return false;
  const Straggler& only = analysis.stragglers.front();
  return only.cause == CauseId::kInput && only.priced_by == "replay" && only.price_ns && only.replayed_saves_ns &&
         rules::kPriceInputTimes * static_cast<double>(*only.price_ns) < static_cast<double>(*only.replayed_saves_ns);
}

bool IsWaiting(FindingId id) {
  return id == FindingId::kWaitTurns || id == FindingId::kP2pLateSender || id == FindingId::kP2pLateReceiver;
}

// Gains by step.
struct Gains {
  std::vector<std::int64_t> by_step;
  std::vector<double> weights;  // As RecordedRun::step_weights.
  bool intermittent = false;    // Only some of the steps gain.
  std::int64_t Mean() const { return static_cast<std::int64_t>(std::floor(MeanOf(Weighted(by_step, weights)))); }
  std::optional<std::pair<std::int64_t, std::int64_t>> Interval(std::uint64_t seed) const {
    if (by_step.size() < rules::kFewest) return std::nullopt;
    const std::vector<double> values = Weighted(by_step, weights);
    const auto [low, high] = BootstrapInterval(values, BlockLength({values}), Statistic::kMean, seed);
    // The mean, which is a whole number as well, is within.
    return std::pair{static_cast<std::int64_t>(std::floor(low)), static_cast<std::int64_t>(std::ceil(high))};
  }
};

class Pricing {
 public:
  Pricing(const Context& context, const ReplayedRun& replayed, Analysis& analysis)
      : context_(context), replayed_(replayed), what_if_(replayed.what_if()), analysis_(analysis) {}

  void Run() {
    PriceStragglers();
    for (Finding& finding : analysis_.findings) Price(finding);
    LeaveToNamed();
    JoinWaiting();
  }

 private:
  using Lengths = std::vector<std::int64_t>;

  // `then`: what the step consists of most after that.
  std::optional<Lengths> LengthsOf(const std::vector<Question>& parts, std::string* then = nullptr) const {
    if (parts.empty()) return what_if_.replayed_lengths();
    Question all{.kind = Question::kTogether};
    all.together = parts;
    const Result<Answer> answer = what_if_.Ask(parts.size() == 1 ? parts.front() : all, false);
    if (!answer.ok()) return std::nullopt;
    if (then != nullptr) *then = answer.value().limit;
    return answer.value().step_lengths_ns;
  }
  std::optional<Gains> Between(const std::optional<Lengths>& before, const std::optional<Lengths>& after) const {
    if (!before || !after || before->empty() || before->size() != after->size()) return std::nullopt;
    Gains gains{.weights = replayed_.run().step_weights};
    for (std::size_t i = 0; i < before->size(); ++i) gains.by_step.push_back((*before)[i] - (*after)[i]);
    return gains;
  }
  static Question Without(std::vector<std::int32_t> ranks) {
    return {.kind = Question::kWithoutRanks, .ranks = std::move(ranks)};
  }
  // Of which steps, where these are not all.
  Fact Sampled() const { return {"sampled", std::string(replayed_.sampled())}; }

  // Over the steps that the rank's kind is about. Nothing where these are not the ones that are replayed: what happens
  // now and then is not seen in a part of the steps.
  std::optional<Gains> OfItsSteps(std::optional<Gains> gains, const std::vector<const Straggler*>& ranks) const {
    if (!gains) return std::nullopt;
    std::optional<std::int64_t> onset;
    for (const Straggler* straggler : ranks) {
      if (straggler->kind == StragglerKind::kTransient) {
        if (!replayed_.sampled().empty()) return std::nullopt;
        gains->intermittent = true;
      }
      if (straggler->onset_step) onset = std::min(onset.value_or(INT64_MAX), *straggler->onset_step);
    }
    if (!onset) return SeenBy(std::move(*gains));
    const std::vector<std::int64_t>& steps = replayed_.run().steps;
    const std::size_t first = steps.size() - gains->by_step.size();
    Gains since;
    for (std::size_t i = 0; i < gains->by_step.size(); ++i) {
      if (steps[first + i] < *onset) continue;
      since.by_step.push_back(gains->by_step[i]);
      if (!gains->weights.empty()) since.weights.push_back(gains->weights[i]);
    }
    if (since.by_step.empty()) return std::nullopt;
    since.intermittent = gains->intermittent;
    return SeenBy(std::move(since));
  }
  Gains SeenBy(Gains gains) const {
    const auto whole = static_cast<double>(analysis_.summary.terms.Sum());
    gains.intermittent |= IsIntermittent(gains.by_step, rules::kWorthShare * whole);
    return gains;
  }

  // What the input alone costs of a rank that is late by it, and by turns with others by its work: made ordinary it
  // would end their turns as well. Nothing if its input is most of what slows it, or not the cause.
  std::optional<Gains> OfInputOnly(const Straggler& straggler, const std::optional<Gains>& ordinary) const {
    if (straggler.cause != CauseId::kInput || !ordinary) return std::nullopt;
    const std::optional<Question> remedy = WithoutMoreInput(context_, {straggler.rank});
    if (!remedy) return std::nullopt;
    std::optional<Gains> gains = OfItsSteps(Between(LengthsOf({}), LengthsOf({*remedy})), {&straggler});
    if (gains && (gains->Mean() <= 0 || rules::kPriceInputTimes * static_cast<double>(gains->Mean()) >=
                                            static_cast<double>(ordinary->Mean())))
      gains.reset();
    return gains;
  }

  void PriceStragglers() {
    const std::vector<std::int32_t> all = StragglerRanks(analysis_);
    if (all.empty()) return;
    const std::optional<Lengths> without_all = LengthsOf({Without(all)});
    if (all.size() == 1) {
      Straggler& only = analysis_.stragglers.front();
      const std::optional<Gains> ordinary = OfItsSteps(Between(LengthsOf({}), without_all), {&only});
      if (const auto of_input = OfInputOnly(only, ordinary)) return PriceInput(only, *of_input, ordinary->Mean());
    }
    bool replayed = true, bound = false;
    std::vector<const Straggler*> rows;
    std::size_t room = replayed_.Plays(rules::kPriceLeastRows, rules::kPriceRows);
    for (Straggler& straggler : analysis_.stragglers) {
      rows.push_back(&straggler);
      // Costliest first; beyond what may be played a row says what the others wait.
      if (room == 0) continue;
      --room;
      std::vector<std::int32_t> others;
      std::copy_if(all.begin(), all.end(), std::back_inserter(others),
                   [&](std::int32_t rank) { return rank != straggler.rank; });
      // Alone: were the other named ranks on time, as its waiting is priced, too.
      const std::optional<Lengths> before = others.empty() ? LengthsOf({}) : LengthsOf({Without(std::move(others))});
      const std::optional<Gains> gains = OfItsSteps(Between(before, without_all), {&straggler});
      if (gains) straggler.replayed_saves_ns = gains->Mean();
      const bool plays =
          gains && (straggler.cause != CauseId::kUnknown || HalfOf(*straggler.replayed_saves_ns, straggler.saves_ns));
      replayed &= plays;
      // The replay shows no more than part of it: what the others wait is then at most what there is to gain.
      bound |= gains && !plays;
      if (!plays) continue;
      straggler.price_ns = std::max<std::int64_t>(0, *straggler.replayed_saves_ns);
      straggler.priced_by = "replay";
    }
    std::stable_sort(analysis_.stragglers.begin(), analysis_.stragglers.end(),
                     [](const auto& a, const auto& b) { return a.price_ns.value_or(0) > b.price_ns.value_or(0); });
    for (Finding& finding : analysis_.findings)
      if (bound && finding.id == FindingId::kStragglerArrival) finding.upper_bound = true;
    if (!replayed) return;
    const std::optional<Gains> together = OfItsSteps(Between(LengthsOf({}), without_all), rows);
    if (!together) return;
    for (Finding& finding : analysis_.findings)
      if (finding.id == FindingId::kStragglerArrival) {
        Take(*together, finding);
        finding.intermittent |= together->intermittent;
        finding.upper_bound = false;
        SetGain(finding, Say(Word::kWithoutWhatSlows, {{"stragglers", Num{static_cast<std::int64_t>(all.size())}},
                                                       {"shorter", Shorter(finding)},
                                                       {"spread", IfSpread(*together)}}));
      }
  }

  // More CPU time is more work, which can be spread, or a slower core: nothing recorded tells which.
  Value IfSpread(const Gains& together) {
    const auto takes_cpu = [](const Straggler& straggler) { return straggler.more_cpu_ns.value_or(0) > 0; };
    if (!std::ranges::all_of(analysis_.stragglers, takes_cpu)) return {};
    const std::optional<Gains> spread = Between(LengthsOf({}), LengthsOf({Question{.kind = Question::kEqualRanks}}));
    if (!spread) return {};
    const std::int64_t gain_ns = spread->Mean();
    for (Straggler& straggler : analysis_.stragglers) straggler.spread_saves_ns = gain_ns;
    if (static_cast<double>(gain_ns) < rules::kWorthShare * static_cast<double>(analysis_.summary.terms.Sum()) ||
        static_cast<double>(gain_ns) > rules::kPriceSpreadShare * static_cast<double>(together.Mean()))
      return {};
    return Ns{gain_ns};
  }

  void PriceInput(Straggler& straggler, const Gains& gains, std::int64_t ordinary_ns) {
    straggler.replayed_saves_ns = ordinary_ns;
    straggler.price_ns = gains.Mean();
    straggler.priced_by = "replay";
    for (Finding& finding : analysis_.findings)
      if (finding.id == FindingId::kStragglerArrival) {
        Take(gains, finding);
        finding.intermittent |= gains.intermittent;
        finding.upper_bound = false;
        SetGain(finding, Say(Word::kWithNoMoreInput, {{"shorter", Shorter(finding)}}));
      }
  }

  // The claim stays, and what it gains takes the place of what it costs.
  static void SetGain(Finding& finding, Clause gain) {
    finding.said.headline.resize(1);
    finding.said.headline.push_back(std::move(gain));
  }
  // A claim that has named the step need not name it again.
  static bool NamesStep(const std::vector<Clause>& clauses) {
    return std::ranges::any_of(clauses, [](const Clause& clause) {
      return std::ranges::any_of(clause.facts, [](const Fact& fact) {
        const Part* part = std::get_if<Part>(&fact.value);
        return part != nullptr && part->per_step;
      });
    });
  }
  Clauses Shorter(const Finding& finding) const {
    const std::int64_t gain = PriceNs(analysis_, finding).value_or(0), whole = WholeOf(analysis_, finding);
    const bool steps = analysis_.summary.per_step;
    if (static_cast<double>(gain) < rules::kWorthShare * static_cast<double>(whole))
      return {{Say(steps ? Word::kStepNotShorter : Word::kRunNotShorter, {Sampled()})}};
    const bool named = finding.id != FindingId::kStragglerArrival && NamesStep(finding.said.headline);
    return {{Say(!steps  ? Word::kRunShorter
                 : named ? Word::kItShorter
                         : Word::kStepShorter,
                 {{"whole", Ns{whole}}, {"gain", Ns{gain}}, {"average", finding.intermittent}, Sampled()})}};
  }

  void Take(const Gains& gains, Finding& finding) const {
    finding.took_ns = PriceNs(analysis_, finding);
    SetPrice(analysis_.summary, std::max<std::int64_t>(0, gains.Mean()), finding);
    finding.saves_interval_ns = gains.Interval(context_.options().seed + rules::kPriceSeed);
    finding.replayed = true;
  }

  void Price(Finding& finding) {
    const std::optional<Question> remedy = RemedyOf(context_, analysis_, finding);
    if (!remedy || !PriceNs(analysis_, finding) || finding.replayed) return;
    switch (finding.id) {
      case FindingId::kTransferExposed:
      case FindingId::kProgressWaitOnly: {
        std::string then;
        const std::optional<Gains> gains = Between(LengthsOf({}), LengthsOf({*remedy}, &then));
        if (!gains) return;
        const std::int64_t exposed = *PriceNs(analysis_, finding);
        Take(*gains, finding);
        if (const std::int64_t price = *PriceNs(analysis_, finding);
            price > exposed && Duration(price) != Duration(exposed))
          finding.said.evidence.push_back(Say(Word::kGainsMoreThanExposed));
        // Nobody has a network that takes no time.
        finding.upper_bound = true;
        const bool transfer = finding.id == FindingId::kTransferExposed;
        finding.said.headline.resize(1);
        // Where nothing is gained the reason is what is worth knowing.
        const bool reason = GainShare(analysis_, finding) < rules::kWorthShare;
        SetGain(finding, Say(transfer ? Word::kIfTransfersTookNoTime : Word::kIfItMovedMeanwhile,
                             {{"shorter", Shorter(finding)}, {"limit", reason ? then : std::string()}}));
        finding.then = std::move(then);
        return;
      }
      case FindingId::kLinkSlow: {
        const std::optional<Gains> gains = Between(LengthsOf({}), LengthsOf({*remedy}));
        if (!gains) return;
        Take(*gains, finding);
        finding.upper_bound = remedy->kind == Question::kFreeCommunication;
        finding.said.headline.resize(1);
        if (finding.upper_bound)
          return SetGain(
              finding, Say(Word::kLinkCostsReplayed, {{"blamed", Clauses{finding.blamed}},
                                                      {"cost", PartOf(analysis_.summary, *PriceNs(analysis_, finding))},
                                                      Sampled()}));
        SetGain(finding, Say(Word::kLinkAsFastAsOthers, {{"shorter", Shorter(finding)}}));
        if (*finding.took_ns > *PriceNs(analysis_, finding))
          finding.said.evidence.push_back(
              Say(Word::kLinkTakesAtMost, {{"cost", PartOf(analysis_.summary, *finding.took_ns)}}));
        return;
      }
      case FindingId::kWaitTurns:
      case FindingId::kP2pLateSender:
      case FindingId::kP2pLateReceiver: {
        // Beyond what the named ranks cost.
        std::vector<Question> parts;
        if (const std::vector<std::int32_t> named = StragglerRanks(analysis_); !named.empty())
          parts.push_back(Without(named));
        const std::optional<Lengths> before = LengthsOf(parts);
        parts.push_back(*remedy);
        const std::optional<Lengths> after = LengthsOf(parts);
        const std::optional<Gains> gains = Between(before, after), in_all = Between(LengthsOf({}), after);
        if (!gains || !in_all) return;
        Take(*gains, finding);
        finding.upper_bound = false;
        // The named ranks made it: without them it is gone already.
        if (parts.size() > 1 && GainShare(analysis_, finding) < rules::kWorthShare &&
            HalfOf(in_all->Mean(), *finding.took_ns))
          of_named_.push_back(finding.id);
        finding.said.headline.push_back(
            Say(remedy->kind == Question::kWithoutRanks ? Word::kWaitWithoutWhatSlows : Word::kWaitWithEqualWork,
                {{"shorter", Shorter(finding)}}));
        return;
      }
      default:
        return;
    }
  }

  static bool IsMessage(FindingId id) { return id == FindingId::kP2pLateSender || id == FindingId::kP2pLateReceiver; }

  // Waiting that goes with the named ranks is theirs, and told with them.
  void LeaveToNamed() {
    auto& findings = analysis_.findings;
    const auto named = std::find_if(findings.begin(), findings.end(),
                                    [](const Finding& f) { return f.id == FindingId::kStragglerArrival; });
    if (named == findings.end()) return;
    for (const FindingId id : of_named_) {
      const auto at = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.id == id; });
      named->said.evidence.push_back(Say(Word::kSameWaiting, {{"brief", Clauses{at->said.brief}}, {"took", {}}}));
      named->tells_also.push_back(id);
    }
    std::erase_if(findings, [&](const Finding& f) {
      return std::find(of_named_.begin(), of_named_.end(), f.id) != of_named_.end();
    });
  }

  // Sends that wait though the work is even: what it is worth at most if they waited for nobody.
  void PriceEarlierReceives(Finding& finding) const {
    const std::optional<Gains> gains = Between(LengthsOf({}), LengthsOf({Question{.kind = Question::kSendsGo}}));
    if (!gains) return;
    const std::optional<std::int64_t> took_ns = finding.took_ns;
    Take(*gains, finding);
    finding.took_ns = took_ns;
    finding.said.evidence.push_back(Say(Word::kIfNoSendWaited, {{"shorter", Shorter(finding)}}));
    finding.upper_bound = GainShare(analysis_, finding) >= rules::kWorthShare;
    if (finding.upper_bound) return;
    DropPrice(finding);
    finding.said.action = {Say(Word::kNothingFromEarlierReceives)};
  }
  static void DropPrice(Finding& finding) {
    finding.saves_ns_per_step.reset();
    finding.saves_share.reset();
    finding.saves_interval_ns.reset();
  }

  // All waiting has one remedy, so it is one time: it is told once, by what says for whom, else by what takes most.
  // Messages whose waiting equal work does not shorten wait for their order, which no replay here changes: they stay,
  // without a price.
  void JoinWaiting() {
    auto& findings = analysis_.findings;
    std::size_t first = findings.size();
    const auto key = [](const Finding& f) {
      return std::pair(f.id == FindingId::kWaitTurns && f.rank >= 0, f.took_ns);
    };
    for (std::size_t i = 0; i < findings.size(); ++i)
      if (IsWaiting(findings[i].id) && findings[i].replayed &&
          (first == findings.size() || key(findings[i]) > key(findings[first])))
        first = i;
    if (first == findings.size()) return;
    Finding kept = findings[first];
    for (const Finding& other : findings)
      if (IsWaiting(other.id) && other.replayed && other.id != kept.id) {
        kept.said.evidence.push_back(
            Say(Word::kSameWaiting, {{"brief", Clauses{other.said.brief}}, {"took", Ns{other.took_ns.value_or(0)}}}));
        kept.tells_also.push_back(other.id);
      }
    if (IsMessage(kept.id) && GainShare(analysis_, kept) < rules::kWorthShare) {
      DropPrice(kept);
      kept.said.action = kept.action_of_equal;
      if (kept.id == FindingId::kP2pLateReceiver) PriceEarlierReceives(kept);
    }
    std::erase_if(findings, [](const Finding& f) { return IsWaiting(f.id) && f.replayed; });
    findings.push_back(std::move(kept));
  }

  const Context& context_;
  const ReplayedRun& replayed_;
  const replay::WhatIf& what_if_;
  Analysis& analysis_;
  std::vector<FindingId> of_named_;  // Waiting for named ranks.
};

}  // namespace

std::optional<Question> RemedyOf(const Context& context, const Analysis& analysis, const Finding& finding) {
  const ReplayedRun* replayed = Held(context);
  if (replayed == nullptr) return std::nullopt;
  std::optional<Question> question;
  switch (finding.id) {
    case FindingId::kStragglerArrival:
      question = Question{.kind = Question::kWithoutRanks, .ranks = StragglerRanks(analysis)};
      if (PricedByInput(analysis)) question = WithoutMoreInput(context, question->ranks);
      break;
    case FindingId::kTransferExposed:
      question = Question{.kind = Question::kFreeCommunication};
      break;
    case FindingId::kLinkSlow:
      question = WithoutSlowLink(context, analysis);
      break;
    case FindingId::kProgressWaitOnly:
      // The replay saw nothing move in a wait only: it has nothing to change.
      if (replayed->job().moved_in_wait > 0) question = Question{.kind = Question::kProgress};
      break;
    case FindingId::kWaitTurns:
    case FindingId::kP2pLateSender:
    case FindingId::kP2pLateReceiver:
      question = Question{.kind = Question::kEqualRanks};
      // Who is waited for in a run without steps is known by what that costs in all.
      if (finding.id == FindingId::kWaitTurns && finding.rank >= 0 && replayed->run().whole_window)
        question = Question{.kind = Question::kWithoutRanks, .ranks = {finding.rank}};
      break;
    case FindingId::kBucketsCap:
      if (!analysis.buckets.recommended_cap_mb) break;  // No size is known to be better.
      question = Question{.kind = Question::kBucketCap,
                          .first_bytes = analysis.buckets.recommended_first_bytes,
                          .cap_bytes = analysis.buckets.recommended_cap_bytes};
      break;
    case FindingId::kFsdpPrefetch:
      question = Question{.kind = Question::kPrefetch};
      question->depth = analysis.fsdp.recommended_depth;
      break;
    case FindingId::kFsdpUnits:
      if (analysis.fsdp.recommended_together == 0) break;  // What larger ones take is not known.
      question = WithLargerUnits(replayed->run(), CostsOfUnits(replayed->run(), replayed->job()),
                                 analysis.fsdp.recommended_together);
      break;
    case FindingId::kInputBound:
      if (finding.replayed) question = WithoutRanges(context, schema::Category::kInput);
      break;
    case FindingId::kSyncHost:
      if (finding.replayed) question = WithoutSyncs(context);
      break;
    default:
      break;
  }
  if (question && !replayed->what_if().Answerable(*question).ok()) return std::nullopt;
  return question;
}

std::optional<std::int64_t> GainTogether(const Context& context, const Analysis& analysis,
                                         const std::vector<const Finding*>& findings) {
  const ReplayedRun* replayed = Held(context);
  if (replayed == nullptr) return std::nullopt;
  Question all{.kind = Question::kTogether};
  for (const Finding* finding : findings) {
    std::optional<Question> remedy = RemedyOf(context, analysis, *finding);
    if (!remedy) return std::nullopt;
    all.together.push_back(std::move(*remedy));
  }
  const Result<Answer> answer = replayed->what_if().Ask(all, false);
  if (!answer.ok()) return std::nullopt;
  return answer.value().gain_ns;
}

void PriceFindings(const Context& context, Analysis& analysis) {
  for (Straggler& straggler : analysis.stragglers) {
    straggler.price_ns = context.units_are_steps() ? straggler.saves_ns_per_step : straggler.saves_ns;
    if (straggler.price_ns) straggler.priced_by = "waiting";
  }
  if (const ReplayedRun* replayed = Held(context)) Pricing(context, *replayed, analysis).Run();
}

}  // namespace lockstep::analysis
