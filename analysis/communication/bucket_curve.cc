// Computes by replay how long a step would take with gradients in other buckets, for every bucketing that differs from
// the others, and chooses which of them to recommend.

#include "analysis/communication/bucket_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "analysis/choose_findings.h"
#include "analysis/core/rates.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/replay/graph/bucket_rule.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"
#include "analysis/rules/replay.h"
#include "analysis/rules/run.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"
#include "merge/parallel.h"

namespace lockstep::analysis {
namespace {

using replay::Answer;
using replay::BucketSequence;
using replay::Question;

constexpr double kMiB = 1 << 20;

// If the framework reported the buckets, they are the ones that were reduced.
bool MadeByHooks(const Buckets& buckets, const BucketSequence& sequence) {
  std::vector<std::uint64_t> told;
  for (const BucketRow& row : buckets.rows)
    if (row.model == buckets.rows.front().model) told.push_back(row.bytes);
  return !told.empty() && told == sequence.bytes;
}

// Whether DDP closed the first bucket at the cap, as versions of 2 do where a cap is given, and not at a constant: the
// buckets that it made cannot be explained otherwise.
bool FirstFollowsCap(const Buckets& buckets, const BucketSequence& sequence) {
  if (buckets.recognised_by != "hooks" || sequence.gradients.empty() || !buckets.current_cap_mb) return false;
  const auto cap = static_cast<std::uint64_t>(std::llround(*buckets.current_cap_mb * kMiB));
  return SizesFor(sequence, std::min(cap, rules::kDdpFirstBucketBytes), cap).bytes != sequence.bytes &&
         SizesFor(sequence, cap, cap).bytes == sequence.bytes;
}

// The limit of the first bucket: DDP has a constant; a job without that constant has a smaller first bucket on purpose.
std::uint64_t FirstLimit(const Buckets& buckets, const BucketSequence& sequence, std::uint64_t cap) {
  if (FirstFollowsCap(buckets, sequence)) return cap;
  if (buckets.recognised_by == "hooks") return std::min(cap, rules::kDdpFirstBucketBytes);
  if (sequence.bytes.size() > 1 && sequence.bytes[0] < sequence.bytes[1]) return std::min(cap, sequence.bytes[0]);
  return cap;
}

struct Candidate {
  double cap_mb;
  std::vector<std::uint64_t> bytes;
  bool one_bucket;
};

// How many buckets a candidate may have; no fewer than there are now.
std::size_t MostBuckets(const replay::RecordedRun& run, const BucketSequence& sequence) {
  const std::size_t fit = rules::kBucketReductions / std::max<std::size_t>(1, run.ranks.size() * run.steps.size());
  return std::max(std::clamp(fit, rules::kBucketLeastBuckets, rules::kBucketBuckets),
                  std::min(sequence.bytes.size(), rules::kBucketBuckets));
}

// Of caps that give these buckets one that is short to write and not above this one, which is the largest: who writes
// more than that in a program gets others.
double ShortCap(const Buckets& buckets, const BucketSequence& sequence, double cap_mb,
                const std::vector<std::uint64_t>& sizes) {
  for (int digits = 1; digits <= rules::kBucketCapDigits; ++digits) {
    const double unit = std::pow(10, std::floor(std::log10(cap_mb)) + 1 - digits);
    // Not a multiple of the unit, whose own error would show.
    const double rounded =
        std::strtod(fmt::format("{:.{}g}", std::floor(cap_mb / unit) * unit, digits).c_str(), nullptr);
    // Programs cut off what is less than a byte.
    const auto bytes = static_cast<std::uint64_t>(rounded * kMiB);
    if (rounded <= cap_mb && bytes > 0 &&
        SizesFor(sequence, FirstLimit(buckets, sequence, bytes), bytes).bytes == sizes &&
        SizesFor(sequence, FirstLimit(buckets, sequence, bytes + 1), bytes + 1).bytes == sizes)
      return rounded;
  }
  return cap_mb;
}

// Returns one cap for each bucketing if the gradients are known, otherwise caps in half octaves; and the present one.
// Of caps that give the same buckets it returns the largest, or a shorter one.
std::vector<Candidate> Candidates(const Buckets& buckets, const BucketSequence& sequence, std::size_t most,
                                  std::size_t most_buckets) {
  const auto total = static_cast<double>(sequence.total_bytes()) / kMiB;
  std::vector<double> caps;
  for (double cap = std::exp2(std::floor(std::log2(total / static_cast<double>(most_buckets)))); cap < total;
       cap *= 2) {
    caps.push_back(cap);
    if (cap * rules::kBucketCapStep < total) caps.push_back(cap * rules::kBucketCapStep);
  }
  if (!sequence.gradients.empty()) {
    caps.clear();
    const std::uint64_t first = FirstFollowsCap(buckets, sequence) ? UINT64_MAX : rules::kDdpFirstBucketBytes;
    for (const std::uint64_t cap :
         replay::DistinctCaps(sequence.gradients, first, rules::kBucketPoints * rules::kBucketCapsPerPoint, true))
      caps.push_back(static_cast<double>(cap) / kMiB);
  }
  if (buckets.current_cap_mb && *buckets.current_cap_mb < total) caps.push_back(*buckets.current_cap_mb);
  std::sort(caps.begin(), caps.end());
  std::vector<Candidate> found;
  for (const double cap : caps) {
    const auto bytes = static_cast<std::uint64_t>(std::llround(cap * kMiB));
    std::vector<std::uint64_t> sizes = SizesFor(sequence, FirstLimit(buckets, sequence, bytes), bytes).bytes;
    if (sizes.size() > most_buckets || sizes.size() < 2) continue;
    if (!found.empty() && found.back().bytes == sizes)
      found.back().cap_mb = cap;
    else
      found.push_back({cap, std::move(sizes), false});
  }
  // The caps are evenly spread over those found and include the present one.
  const std::size_t room = std::max<std::size_t>(2, most - 1);
  if (found.size() > room) {
    std::vector<Candidate> spread;
    for (std::size_t i = 0; i < room; ++i) spread.push_back(found[i * (found.size() - 1) / (room - 1)]);
    if (buckets.current_cap_mb)
      for (const Candidate& each : found)
        if (each.bytes == sequence.bytes &&
            std::none_of(spread.begin(), spread.end(), [&](const Candidate& c) { return c.bytes == each.bytes; }))
          spread.push_back(each);
    std::sort(spread.begin(), spread.end(), [](const Candidate& a, const Candidate& b) { return a.cap_mb < b.cap_mb; });
    found = std::move(spread);
  }
  if (!sequence.gradients.empty())
    for (Candidate& each : found)
      if (each.cap_mb != buckets.current_cap_mb) each.cap_mb = ShortCap(buckets, sequence, each.cap_mb, each.bytes);
  found.push_back({total, {sequence.total_bytes()}, true});
  return found;
}

std::optional<BucketCosts> CostsOf(const replay::WhatIf& what_if) {
  BucketCosts costs;
  for (const replay::CostModel::Knot& knot : what_if.costs().knots())
    costs.table.push_back({knot.bytes, std::llround(knot.transfer_ns), static_cast<std::int64_t>(knot.samples),
                           knot.samples >= rules::kFewest ? OptReal(knot.spread) : std::nullopt,
                           knot.doubt != replay::CostModel::Doubt::kNothing});
  if (costs.table.empty()) return std::nullopt;
  if (const auto line = what_if.costs().AlphaBeta()) {
    costs.alpha_ns = line->alpha_ns;
    costs.beta_ns_per_byte = line->beta_ns_per_byte;
    costs.line_error = line->median_error;
  }
  if (const replay::InterferenceEstimate& interference = what_if.interference(); interference.samples > 0) {
    costs.interference_compute = interference.value.compute_slowdown;
    costs.interference_transfer = interference.value.transfer_slowdown;
  }
  return costs;
}

// Whether something is to be named of which only a bound is known: it may gain anything from `least_ns` to `most_ns`,
// and is taken to gain what lies in the middle. Two jobs over gloo whose cores had no room for transfers beside work
// were promised at most 2.6 and 3.6 % by smaller buckets; they gained nothing (bench/torch_faults/run).
bool WorthABound(std::int64_t least_ns, std::int64_t most_ns, std::int64_t step_ns) {
  return 0.5 * static_cast<double>(least_ns + most_ns) >= rules::kNameShare * static_cast<double>(step_ns);
}

class Recommendation {
 public:
  Recommendation(const ReplayedRun& replayed, const std::vector<Candidate>& candidates,
                 const std::vector<Answer>& answers)
      : replayed_(replayed), candidates_(candidates), answers_(answers) {}

  void Make(Analysis& analysis) const {
    const std::int64_t step = replayed_.what_if().replayed_step_ns();
    const auto worth = static_cast<std::int64_t>(rules::kWorthShare * static_cast<double>(step));
    // The present bucketing is not recommended, and nothing is whose gain may be chance, if another's is not.
    // Candidates that differ from the best by less than is worth reporting count as equally good. Of these the one
    // whose costs were measured is chosen, if there is one, then the smallest change.
    const bool any_shown = std::any_of(answers_.begin(), answers_.end(), Shown);
    std::size_t best = answers_.size();
    for (std::size_t i = 0; i < answers_.size(); ++i)
      if ((!any_shown || Shown(answers_[i])) &&
          (best == answers_.size() || answers_[i].step_ns < answers_[best].step_ns))
        best = i;
    const auto as_good = [&](std::size_t i) { return answers_[i].step_ns <= answers_[best].step_ns + worth; };
    std::size_t chosen = best;
    for (std::size_t i = 0; i < answers_.size(); ++i)
      if (as_good(i) && (!any_shown || Shown(answers_[i])) && Rank(i) < Rank(chosen)) chosen = i;
    if (candidates_[chosen].bytes == replayed_.what_if().buckets()->bytes) return;
    if (replayed_.what_if().self_error() > rules::kMostSelfError) return;
    if (answers_[chosen].gain_ns <= worth || !Shown(answers_[chosen])) return;
    if (SmallerThanMeasured(chosen) &&
        !WorthABound(answers_[chosen].gain_interval_ns->first, answers_[chosen].gain_ns, step))
      return;

    Buckets& buckets = analysis.buckets;
    buckets.recommended_cap_mb = candidates_[chosen].cap_mb;
    const Question question = QuestionOfCap(buckets, *replayed_.what_if().buckets(), candidates_[chosen].cap_mb,
                                            candidates_[chosen].one_bucket);
    buckets.recommended_cap_bytes = question.cap_bytes;
    buckets.recommended_first_bytes = question.first_bytes;
    std::size_t low = chosen, high = chosen;
    while (low > 0 && as_good(low - 1)) --low;
    while (high + 1 < answers_.size() && as_good(high + 1)) ++high;
    buckets.flat_cap_mb = {candidates_[low].cap_mb, candidates_[high].cap_mb};
    buckets.recommended_extrapolated = answers_[chosen].extrapolated;
    buckets.try_it = Rendered(ActionFor(buckets, candidates_[chosen]));
    analysis.findings.push_back(MakeFinding(analysis, chosen));
  }

 private:
  // Without an interval it is not shown that the gain is more than chance.
  static bool Shown(const Answer& answer) { return answer.gain_interval_ns && answer.gain_interval_ns->first > 0; }
  // The smaller value is the better one.
  std::pair<bool, double> Rank(std::size_t i) const {
    const auto largest = [](const std::vector<std::uint64_t>& bytes) {
      return std::log(static_cast<double>(*std::max_element(bytes.begin(), bytes.end())));
    };
    return {answers_[i].extrapolated,
            std::abs(largest(candidates_[i].bytes) - largest(replayed_.what_if().buckets()->bytes))};
  }

  // All of its sizes lie below what the steps moved. Smaller transfers move no more bytes per second, and they move
  // beside work, which takes cores and memory from them as they do from it: how much, neither larger ones after the
  // work show nor such that moved outside of the steps.
  bool SmallerThanMeasured(std::size_t chosen) const {
    std::uint64_t least = UINT64_MAX;
    for (const replay::CostModel::Knot& knot : replayed_.what_if().costs().knots())
      if (knot.doubt == replay::CostModel::Doubt::kNothing && !knot.beside) least = std::min(least, knot.bytes);
    const std::vector<std::uint64_t>& sizes = candidates_[chosen].bytes;
    return *std::max_element(sizes.begin(), sizes.end()) < least;
  }

  Clause ActionFor(const Buckets& buckets, const Candidate& candidate) const {
    const Clause setting = SettingOf(buckets, candidate);
    return buckets.recommended_extrapolated ? Say(Word::kBucketsExtrapolatedAction, {{"setting", Clauses{{setting}}}})
                                            : setting;
  }
  Clause SettingOf(const Buckets& buckets, const Candidate& candidate) const {
    if (replayed_.run().torch)
      return Say(Word::kReplayedSetting,
                 {{"setting", replay::DdpSettings(buckets.recommended_first_bytes, buckets.recommended_cap_bytes,
                                                  replayed_.what_if().buckets()->total_bytes())}});
    return Say(candidate.one_bucket ? Word::kBucketsOneAction : Word::kBucketsOfCapAction,
               {{"cap", Real{candidate.cap_mb}}});
  }

  Finding MakeFinding(const Analysis& analysis, std::size_t chosen) const {
    const Buckets& buckets = analysis.buckets;
    const Answer& answer = answers_[chosen];
    const std::int64_t step = replayed_.what_if().replayed_step_ns();
    const bool steps = !replayed_.run().whole_window;
    const bool at_most = SmallerThanMeasured(chosen);
    const auto largest = [](const std::vector<std::uint64_t>& bytes) {
      return Size{*std::max_element(bytes.begin(), bytes.end())};
    };
    const auto count = [](const std::vector<std::uint64_t>& bytes) { return static_cast<std::int64_t>(bytes.size()); };
    const Candidate& candidate = candidates_[chosen];
    const Clauses other{
        {Say(candidate.one_bucket ? Word::kBucketsOne : Word::kBucketsOfCap, {{"cap", Real{candidate.cap_mb}}})}};
    const Clauses present{{buckets.current_cap_mb
                               ? Say(Word::kBucketsPresentCap, {{"present_cap", Real{*buckets.current_cap_mb}}})
                               : Say(Word::kBucketsPresentCount, {{"present_buckets", Num{count(buckets.sizes)}}})}};
    Finding finding;
    finding.id = FindingId::kBucketsCap;
    finding.said.headline = {Say(Word::kBucketsOther, {{"other", other},
                                                       {"at_most", at_most},
                                                       {"gain", Ns{answer.gain_ns}},
                                                       {"step", Ns{step}},
                                                       {"present", present}})};
    finding.said.brief = {Say(Word::kBucketsOtherBrief, {{"other", other}, {"present", present}})};
    finding.said.evidence = {Say(Word::kBucketsOtherEvidence, {{"step", Ns{step}},
                                                               {"present_buckets", Index{count(buckets.sizes)}},
                                                               {"present_largest", largest(buckets.sizes)},
                                                               {"other_step", Ns{answer.step_ns}},
                                                               {"other_buckets", Index{count(candidate.bytes)}},
                                                               {"other_largest", largest(candidate.bytes)}})};
    // Unless they read the same.
    if (const auto [from, to] = *buckets.flat_cap_mb; fmt::format("{:.4g}", from) != fmt::format("{:.4g}", to))
      finding.said.evidence.push_back(
          Say(Word::kBucketsAsGoodEvidence, {{"least_cap", Real{from}}, {"most_cap", Real{to}}}));
    if (answer.extrapolated) SayExtrapolated(finding);
    if (at_most)
      finding.said.evidence.push_back(
          Say(answer.extrapolated ? Word::kBucketsNotMeasuredEvidence : Word::kBucketsBesideWorkEvidence));
    finding.upper_bound = at_most;
    finding.said.action = {ActionFor(buckets, candidate)};
    if (steps) {
      finding.saves_ns_per_step = answer.gain_ns;
      finding.saves_interval_ns = answer.gain_interval_ns;
    }
    finding.then = answer.limit;
    finding.replayed = true;
    finding.explain.columns = {"buckets", "largest_bytes", "step_ns", "low_ns", "high_ns", "extrapolated"};
    for (std::size_t i = 0; i < answers_.size(); ++i)
      finding.explain.rows.push_back(
          {static_cast<std::int64_t>(candidates_[i].bytes.size()),
           static_cast<std::int64_t>(*std::max_element(candidates_[i].bytes.begin(), candidates_[i].bytes.end())),
           answers_[i].step_ns, answers_[i].step_interval_ns ? answers_[i].step_interval_ns->first : Evidence::kUnknown,
           answers_[i].step_interval_ns ? answers_[i].step_interval_ns->second : Evidence::kUnknown,
           answers_[i].extrapolated});
    return finding;
  }

  const ReplayedRun& replayed_;
  const std::vector<Candidate>& candidates_;
  const std::vector<Answer>& answers_;
};

// On the rank in the middle. What moves beside work shares the cores with it, so that it takes longer than the same
// outside of the steps says nothing of its size.
bool MostlyHidden(const Analysis& analysis) {
  std::vector<double> fractions;
  for (const RankRow& row : analysis.ranks)
    if (row.overlap_fraction) fractions.push_back(*row.overlap_fraction);
  return !fractions.empty() && LowerMedian(std::move(fractions)) > rules::kHalf;
}

// What fewer buckets gain at most: none of them takes less than one of the smaller ones of now.
std::int64_t MostOfFewer(const ReplayedRun& replayed, const Buckets& buckets,
                         const std::vector<Candidate>& candidates) {
  std::int64_t most_ns = 0;
  const BucketSequence& now = *replayed.what_if().buckets();
  for (const Candidate& candidate : candidates) {
    if (candidate.bytes.size() >= now.bytes.size()) continue;
    Question question = QuestionOfCap(buckets, now, candidate.cap_mb, candidate.one_bucket);
    question.same_for_all = true;
    const Result<Answer> answer = replayed.what_if().Ask(question, false);
    if (answer.ok()) most_ns = std::max(most_ns, answer.value().gain_ns);
  }
  return most_ns;
}

// Small buckets that take longer than more bytes did outside of the steps: something other than their size makes each
// of them slow (the cores that move them are busy, they wait for a call that moves them). Fewer may be as slow each, or
// slower: a second recording decides, and what there is to gain is known at most.
void TellOtherSizesUnknown(const ReplayedRun& replayed, const std::vector<Candidate>& candidates, Analysis& analysis) {
  const replay::CostModel& costs = replayed.what_if().costs();
  const Index count{static_cast<std::int64_t>(analysis.buckets.sizes.size())};
  if (!costs.contradiction() || count.value < 2) return;
  const replay::CostModel::Knot& own = costs.knots().front();
  const Clauses transfers{
      {Say(Word::kBucketsSlowTransfers, {{"buckets", count},
                                         {"bytes", Size{own.bytes}},
                                         {"each", Ns{std::llround(own.transfer_ns)}},
                                         {"bytes_outside", Size{costs.contradiction()->bytes}},
                                         {"each_outside", Ns{std::llround(costs.contradiction()->transfer_ns)}}})}};
  const IdentityTerms& terms = analysis.summary.terms;
  const std::int64_t exposed_ns = terms.exposed_transfer_ns + terms.exposed_unsplit_ns;
  if (static_cast<double>(exposed_ns) < rules::kWorthShare * static_cast<double>(terms.Sum())) {
    analysis.remarks.push_back(Told(Word::kBucketsSlowRemark, {{"transfers", transfers}}));
    return;
  }
  if (!replayed.HoldsInSteps()) return;
  if (MostlyHidden(analysis)) return;
  const std::int64_t step_ns = replayed.what_if().replayed_step_ns();
  const std::int64_t most_ns = MostOfFewer(replayed, analysis.buckets, candidates);
  // However little larger ones take, the step waits for something else.
  if (!WorthABound(0, most_ns, step_ns)) return;
  Finding finding;
  finding.id = FindingId::kBucketsCap;
  finding.said.headline = {Say(Word::kBucketsSlow, {{"buckets", count}, {"bytes", Size{own.bytes}}}),
                           Say(Word::kBucketsSlowGain, {{"gain", Ns{most_ns}}, {"step", Ns{step_ns}}})};
  finding.said.brief = {Say(Word::kBucketsSlowBrief, {{"buckets", count}, {"bytes", Size{own.bytes}}})};
  finding.said.evidence = {Say(Word::kBucketsSlowEvidence, {{"transfers", transfers}})};
  finding.saves_ns_per_step = most_ns;
  finding.upper_bound = true;
  finding.replayed = true;
  const double cap_mb = std::max(static_cast<double>(rules::kDdpBucketCapBytes) / kMiB,
                                 rules::kBucketSlowCapTimes * analysis.buckets.current_cap_mb.value_or(0));
  finding.said.action = {replayed.run().torch ? Say(Word::kBucketsSlowDdpAction, {{"cap", Real{cap_mb}}})
                                              : Say(Word::kBucketsSlowAction)};
  analysis.findings.push_back(std::move(finding));
}

// Whether these may be reductions of gradients, whose results nobody needs before the last one: a framework's, made in
// a backward pass, on a GPU, or posted. What a program reduces in blocking calls between its work, as a solver does,
// may be what that work needs, and cannot be put together.
bool MayWaitForTheLast(const Context& context, const ReplayedRun& replayed, const Buckets& buckets) {
  constexpr std::uint8_t kBackward = schema::Phase::kBackward;
  const auto& phases = context.tables().step_phases.phase;
  return buckets.recognised_by == "hooks" || replayed.run().torch || replayed.job().posted > 0 ||
         std::find(phases.begin(), phases.end(), kBackward) != phases.end() ||
         std::any_of(context.tables().ranks.gpu.begin(), context.tables().ranks.gpu.end(),
                     [](auto gpu) { return gpu != 0; });
}

}  // namespace

Question QuestionOfCap(const Buckets& buckets, const BucketSequence& sequence, double cap_mb, bool one_bucket) {
  Question question;
  question.kind = Question::kBucketCap;
  question.cap_bytes = one_bucket ? UINT64_MAX : static_cast<std::uint64_t>(std::llround(cap_mb * kMiB));
  question.first_bytes = one_bucket ? UINT64_MAX : FirstLimit(buckets, sequence, question.cap_bytes);
  return question;
}

void PredictBuckets(const Context& context, Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  Buckets& buckets = analysis.buckets;
  if (replayed == nullptr || !replayed->what_if().buckets()) return;
  const BucketSequence& sequence = *replayed->what_if().buckets();
  buckets.sizes = sequence.bytes;
  buckets.recognised_by = MadeByHooks(buckets, sequence) ? "hooks" : "sequence";
  buckets.exact_sizes = !sequence.gradients.empty();
  buckets.cost_model = CostsOf(replayed->what_if());

  const std::size_t points = replayed->Plays(rules::kBucketLeastPoints * rules::kBucketPlaysPerPoint,
                                             rules::kBucketPoints * rules::kBucketPlaysPerPoint) /
                             rules::kBucketPlaysPerPoint;
  std::vector<Candidate> candidates = Candidates(buckets, sequence, points, MostBuckets(replayed->run(), sequence));
  std::vector<std::optional<Answer>> asked(candidates.size());
  merge::ParallelFor(context.options().jobs, candidates.size(), [&](std::size_t i) {
    const Result<Answer> answer =
        replayed->what_if().Ask(QuestionOfCap(buckets, sequence, candidates[i].cap_mb, candidates[i].one_bucket));
    if (answer.ok()) asked[i] = answer.value();
  });
  std::vector<Answer> answers;
  std::vector<Candidate> answered;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!asked[i]) continue;
    answers.push_back(std::move(*asked[i]));
    answered.push_back(std::move(candidates[i]));
    const Answer& answer = answers.back();
    const Candidate& candidate = answered.back();
    OptInt low, high;
    if (answer.step_interval_ns && answer.step_interval_ns->first < answer.step_interval_ns->second) {
      low = answer.step_interval_ns->first;
      high = answer.step_interval_ns->second;
    }
    buckets.curve.push_back({candidate.cap_mb, candidate.bytes.size(), answer.step_ns, low, high, answer.extrapolated,
                             candidate.one_bucket});
  }
  if (!MayWaitForTheLast(context, *replayed, buckets)) return;
  if (!answers.empty()) Recommendation(*replayed, answered, answers).Make(analysis);
  if (!buckets.recommended_cap_mb) TellOtherSizesUnknown(*replayed, answered, analysis);
}

}  // namespace lockstep::analysis
