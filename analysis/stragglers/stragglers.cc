// Finds the ranks that make the others wait, and what that costs per step.
//
// A rank is named only if its cost is high enough (straggler_price.h) and it is later than the others more consistently
// than by chance. Ranks that pass this test are suspected together: each is compared with those that do not, so that
// both of two equally slow ranks are found.

#include "analysis/rules/stragglers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "analysis/choose_findings.h"
#include "analysis/passes.h"
#include "analysis/stragglers/hidden_waiting.h"
#include "analysis/stragglers/late_stretch.h"
#include "analysis/stragglers/own_lateness.h"
#include "analysis/stragglers/straggler_cause.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"
#include "merge/parallel.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
namespace {

struct Named {
  std::size_t position;
  Assessment assessment;
  StragglerCause cause;
};

class Search {
 public:
  Search(const Context& context, Analysis& analysis, std::int64_t length)
      : context_(context), analysis_(analysis), length_(length), whole_ns_(analysis.summary.terms.Sum()) {}

  void Run() {
    late_ = Lateness(context_);
    if (context_.units().size() >= rules::kFewest && length_ > 0 && Suspect()) NameLate();
    if (named_.empty()) NameByWork();
    if (named_.empty()) return ReportResolution();
    FindPlaces();
    if (named_.size() == 1) Report(named_[0]);
    if (named_.size() > 1) ReportTogether();
  }

 private:
  void NameLate() {
    waiting_ = WaitingRanks(context_);
    const std::vector<std::size_t> late = positions_;
    Narrow([&](const Prices& prices, const Suspects&, std::size_t r) { return WorthAtLeast(prices.of[r], limit_); });
    PassedOn();
    if (!positions_.empty()) {
      ReadActivities();
      Name();
    }
    // Beside those that most ranks wait for: whoever makes only the root of a gather wait, say.
    const std::vector<std::size_t> named = std::exchange(positions_, late);
    std::erase_if(positions_, [&](std::size_t r) { return std::ranges::count(named, r) > 0; });
    messengers_.clear();
    PassedOn();
    NameWorth(Say(Word::kStragglerOthersWork), named);
  }

  // Where ranks wait for messages lateness goes from one to the next, and collectives need not show whose it is; where
  // they wait at the end only, no lateness is seen before: whoever has more work than the others in every step.
  void NameByWork() {
    const bool steps = context_.units_are_steps();
    const std::int64_t end_ns = WaitAtTheEnd(context_);
    const bool messages = context_.tables().p2p_pairs.rows() > 0, unseen = WaitsUnseen(context_, analysis_);
    if (!messages && end_ns == 0 && !unseen) return;
    // Without steps files are read for it: for nothing, where no replay says what it costs.
    if (!steps && (analysis_.run.cores_scarce || context_.Replayed() == nullptr)) return;
    LatenessTable arrivals = std::exchange(late_, WorkBeyond(context_));
    if (!steps) limit_ = rules::kNameShare * static_cast<double>(whole_ns_) / static_cast<double>(late_.mean_ns.size());
    positions_.clear();
    by_work_ = Suspect();
    if (by_work_) {
      waiting_ = WaitingRanks(context_);
      NameWorth(end_ns > 0 ? Say(Word::kStragglerFinalize, {{"finalize_wait", Ns{end_ns}}})
                           : Say(messages ? Word::kStragglerMessages : Word::kStragglerPostedEarly));
    }
    by_work_ = !named_.empty();
    if (!by_work_) late_ = std::move(arrivals);
  }

  // The cheapest test is the first: most healthy runs end here.
  bool Suspect() {
    const std::size_t n = context_.ranks().size(), units = late_.mean_ns.size();
    for (std::size_t r = 0; r < n; ++r)
      if (WorthAtLeast(Behind(r), limit_)) positions_.push_back(r);
    if (positions_.empty()) return false;
    // A rank can be late as a rule or from some unit on, or late by much and more often than others. These are two
    // tests, so each gets half of the false alarm rate.
    std::vector<std::vector<double>> much(units, std::vector<double>(n));
    for (std::size_t u = 0; u < units; ++u)
      for (std::size_t r = 0; r < n; ++r) {
        const auto by = static_cast<double>(late_.behind_ns[u][r]);
        much[u][r] = by >= limit_ ? by : 0;
      }
    std::vector<std::vector<double>> rounded = late_.mean_ns;
    for (std::vector<double>& unit : rounded)
      for (double& value : unit) value = std::round(value / (rules::kMuch * limit_));
    p_.assign(n, 1.0);
    const auto also = [&](std::size_t r, double p) { p_[r] = std::min(p_[r], std::min(1.0, 2 * p)); };
    const auto [seed, jobs] = std::pair(context_.options().seed, context_.options().jobs);
    const PermutationOptions how{
        .rounds = rules::kNamedPermutations, .interesting = rules::kChance / 2, .asked = positions_, .jobs = jobs};
    if (n == 2) {
      Pair(also);
    } else {
      const std::size_t block = BlockLengthApartFromShift(ByRank(rounded), jobs);
      const std::vector<double> p = ConsistencyTest(rounded, block, seed, how);
      for (std::size_t r = 0; r < n; ++r) also(r, p[r]);
    }
    const std::size_t block = BlockLengthApartFromShift(LargeOf(ByRank(much)), jobs);
    const std::vector<double> p = RareExcessTest(much, block, seed, how);
    for (std::size_t r = 0; r < n; ++r) also(r, p[r]);
    stretches_.assign(n, std::nullopt);
    for (const std::size_t r : positions_) {
      stretches_[r] = LateStretchOf(late_, r, limit_);
      if (stretches_[r] && stretches_[r]->p_value >= rules::kChance / 2) stretches_[r].reset();
      if (stretches_[r]) also(r, stretches_[r]->p_value);
    }
    std::erase_if(positions_, [&](std::size_t r) { return p_[r] >= rules::kChance; });
    return !positions_.empty();
  }

  // Drops suspects that, since they last left a collective, did not work longer than others. They are not named, but
  // other ranks are not compared with them either: they stay late as long as the cause exists, which is another rank's
  // lateness that reached them in messages, or data that reach them later.
  void PassedOn() {
    const std::vector<std::size_t> suspects = positions_;
    std::erase_if(positions_, [&](std::size_t r) {
      const auto at = std::find(suspects.begin(), suspects.end(), r);
      if (static_cast<std::size_t>(at - suspects.begin()) >= rules::kSuspectsRead) return false;
      const OwnLateness lateness = OwnLatenessOf(context_, r, suspects);
      // It compares sums: if a rank is late now and then, the noise of the other steps contains no information.
      double late = 0, own = 0;
      for (std::size_t u = 0; u < lateness.late_ns.size(); ++u) {
        if (static_cast<double>(late_.behind_ns[u][r]) < limit_) continue;
        late += static_cast<double>(lateness.late_ns[u]);
        own += static_cast<double>(lateness.own_ns[u]);
      }
      // However late others make it, what it adds itself in most units is worth naming by itself.
      const std::int64_t added_ns = LowerMedian(lateness.own_most_ns);
      if (lateness.compared > 0) own_late_ns_[r] = added_ns;
      const bool adds = static_cast<double>(added_ns) >= limit_;
      const bool passed = late > 0 && !HalfOf(own, late) && !adds;
      if (passed) messengers_.push_back(r);
      return passed;
    });
  }

  // If no rank is named, reports when the clocks could not have shown a rank that is worth naming.
  void ReportResolution() {
    std::int64_t worst = 0;
    std::int32_t ranks = 0;
    for (std::size_t r = 0; r < context_.ranks().size(); ++r) {
      std::vector<std::int64_t> blurred;
      for (const auto& unit : late_.blurred_ns) blurred.push_back(unit[r]);
      const std::int64_t typical = LowerMedian(std::move(blurred));
      if (static_cast<double>(typical) >= limit_) worst = std::max(worst, typical), ++ranks;
    }
    if (ranks == 0) return;
    analysis_.remarks.push_back(
        Told(Word::kStragglersUnresolved, {{"difference", Ns{worst}},
                                           {"per_step", context_.units_are_steps()},
                                           {"clock_error", Ns{analysis_.trust.clock_error_ns_max.value_or(0)}}}));
  }

  // If there are two ranks, one is slower by as much as the other is faster: a permutation of the labels has little
  // power, the sizes have more.
  template <typename Also>
  void Pair(Also&& also) const {
    for (const std::size_t r : positions_) {
      const std::size_t from = OnsetOf(Behind(r), static_cast<std::int64_t>(limit_)).value_or(0);
      std::vector<double> all;
      for (const auto& unit : late_.mean_ns) all.push_back(unit[r] - unit[1 - r]);
      also(r, PairedP(all, from, context_.options().seed + rules::kStragglerSeedPair, rules::kNamedPermutations));
    }
  }

  std::vector<std::int64_t> Behind(std::size_t position) const {
    std::vector<std::int64_t> behind;
    for (const auto& unit : late_.behind_ns) behind.push_back(unit[position]);
    return behind;
  }

  // Drops suspects until all that remain are worth naming beside those dropped.
  template <typename Worth>
  void Narrow(Worth&& worth) {
    for (bool dropped = true; dropped && !positions_.empty();) {
      std::vector<std::size_t> apart = positions_;
      apart.insert(apart.end(), messengers_.begin(), messengers_.end());
      suspects_.emplace(context_, apart);
      prices_ = PriceOf(context_, waiting_, *suspects_, read_);
      dropped = std::erase_if(positions_, [&](std::size_t r) { return !worth(prices_, *suspects_, r); }) > 0;
    }
  }

  void ReadActivities() {
    std::vector<std::size_t> read = positions_;
    std::stable_sort(read.begin(), read.end(), [&](std::size_t a, std::size_t b) {
      return LowerMedian(prices_.of[a]) > LowerMedian(prices_.of[b]);
    });
    read.resize(std::min(read.size(), rules::kSuspectsRead));
    read.insert(read.end(), waiting_.begin(), waiting_.end());
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    std::vector<std::optional<ExposedActivity>> activities(read.size());
    merge::ParallelFor(context_.options().jobs, read.size(), [&](std::size_t i) {
      const std::int32_t rank = context_.ranks()[read[i]];
      const Result<schema::RankTables> tables = context_.ReadActivity(rank);
      if (tables.ok()) activities[i] = ActivityOf(tables.value(), merge::ClockMap(context_.tables().clock, rank));
    });
    read_.exact = true;
    for (std::size_t i = 0; i < read.size(); ++i) {
      read_.exact &= activities[i].has_value();
      if (!activities[i]) continue;
      read_.activities.push_back(std::move(*activities[i]));
      read_.positions.push_back(read[i]);
    }
  }

  std::optional<Assessment> AssessmentOf(const Prices& prices, const Suspects& suspects, std::size_t r,
                                         bool sharing) const {
    std::optional<Assessment> assessment = Assess(context_, prices, suspects, r, Behind(r), p_[r], length_, sharing);
    const std::optional<LateStretch>& stretch = stretches_[r];
    if (!stretch || (assessment && assessment->straggler.kind != StragglerKind::kTransient))
      return OfAll(context_, std::move(assessment), prices.of[r], whole_ns_);
    if (!assessment && !sharing) assessment = AssessStretch(context_, *stretch, prices.of[r], r, limit_);
    if (!assessment) return assessment;
    if (!context_.units_are_steps()) return OfAll(context_, std::move(assessment), prices.of[r], whole_ns_);
    const auto step = [&](std::size_t unit) { return context_.tables().steps.index[context_.units()[unit].step]; };
    assessment->straggler.first_step = step(stretch->first_unit);
    assessment->straggler.last_step = step(stretch->last_unit);
    return assessment;
  }

  Named WithCause(std::size_t r, Assessment assessment) const {
    Named named{r, std::move(assessment), {}};
    Straggler& straggler = named.assessment.straggler;
    named.cause = Explain(context_, analysis_, r, read_, prices_.of[r], named.assessment, limit_);
    straggler.cause = named.cause.id;
    if (named.cause.id == CauseId::kCompute && !named.cause.gpu) straggler.more_cpu_ns = named.cause.more_cpu_ns;
    straggler.gpu = named.cause.gpu;
    if (const auto own = own_late_ns_.find(r); own != own_late_ns_.end()) straggler.own_late_ns = own->second;
    if (r < analysis_.ranks.size()) {
      straggler.score = analysis_.ranks[r].straggler_score.value_or(0);
      straggler.interval = analysis_.ranks[r].straggler_interval.value_or(std::pair{0.0, 0.0});
    }
    return named;
  }

  void Name() {
    const bool sharing = analysis_.run.cores_scarce;
    for (bool again = true; again;) {
      again = false;
      named_.clear();
      Narrow([&](const Prices& prices, const Suspects& suspects, std::size_t r) {
        return AssessmentOf(prices, suspects, r, sharing).has_value();
      });
      for (const std::size_t r : positions_)
        named_.push_back(WithCause(r, *AssessmentOf(prices_, *suspects_, r, sharing)));
      // Ranks that share cores, or whose cores others use, take turns at lacking one, so a lack of a core is not this
      // rank's property. In this case its own compute or input must be longer. The same where ranks take turns at being
      // last for whatever reason: which of them was last more often may be this run's chance (two healthy ranks over
      // gloo, whose transfers end with the scheduler's ticks: 52 % of 2,249 collectives).
      const std::vector<std::size_t> all = positions_;  // Not to be read while some of them are erased.
      again = std::erase_if(positions_, [&](std::size_t r) {
                const auto named =
                    std::find_if(named_.begin(), named_.end(), [&](const Named& each) { return each.position == r; });
                // The root of a gather and a broadcast passes on whoever came late to it. Of a run without steps one
                // replay says what a rank costs, however often it was late.
                const bool steps = context_.units_are_steps();
                if (!steps || named->assessment.straggler.kind == StragglerKind::kTransient) {
                  std::vector<std::size_t> others = all;
                  std::erase(others, r);
                  const std::optional<std::int64_t> gain_ns = GainBeside(context_, std::move(others), r);
                  const double least_ns = steps ? limit_ : rules::kNameShare * static_cast<double>(whole_ns_);
                  if (gain_ns && static_cast<double>(*gain_ns) < least_ns) return true;
                }
                return (sharing || named->assessment.mutual) &&
                       (named->cause.id == CauseId::kStarved || named->cause.id == CauseId::kUnknown);
              }) > 0;
    }
    std::stable_sort(named_.begin(), named_.end(), [](const Named& a, const Named& b) {
      return a.assessment.straggler.saves_ns > b.assessment.straggler.saves_ns;
    });
    for (const Named& named : named_) analysis_.stragglers.push_back(named.assessment.straggler);
  }

  void FindPlaces() {
    for (std::size_t i = 0; i < std::min(named_.size(), rules::kNamedExplained); ++i) {
      Straggler& straggler = named_[i].assessment.straggler;
      const double share = static_cast<double>(straggler.saves_ns) /
                           static_cast<double>(context_.units_are_steps() ? length_ : whole_ns_);
      lockstep::analysis::FindPlaces(context_, named_[i].position, read_, share, named_[i].cause, straggler);
      for (Straggler& known : analysis_.stragglers)
        if (known.rank == straggler.rank) known = straggler;
    }
  }

  // "": imported traces need not say where they were recorded.
  std::string NodeOf(std::size_t position) const {
    return std::string(context_.timeline().Text(context_.tables().ranks.node[context_.RankRow(position)]));
  }
  void Report(const Named& named) {
    const Straggler& straggler = named.assessment.straggler;
    const std::string node = NodeOf(named.position);
    const Fact rank{"rank", Index{straggler.rank}};
    const bool pair = context_.ranks().size() == 2;
    Finding finding;
    finding.id = FindingId::kStragglerArrival;
    finding.rank = straggler.rank;
    finding.said.headline = {
        Say(pair ? Word::kStragglerHoldsOther : Word::kStragglerHolds, {rank, {"when", StretchOf(straggler)}}),
        Say(pair ? Word::kStragglerOtherWaits : Word::kStragglerWait,
            {{"wait", PartSince(straggler.saves_ns, named.assessment.from_unit)}})};
    SetPriceSince(straggler.saves_ns, named.assessment.from_unit, finding);
    finding.said.brief = {
        Say(Word::kStragglerBrief, {rank, {"host", node}, {"does", Clauses{{BriefFor(named.cause)}}}})};
    // How often it comes last in collectives says nothing of messages.
    finding.said.evidence = EvidenceFor(analysis_, by_work_ ? kNowhere : named.position, named.cause, straggler);
    AddTo(finding.said.evidence, why_);
    finding.said.action = {ActionFor(named.cause, {straggler.rank}, {node})};
    finding.upper_bound = !read_.exact;
    finding.explain = RowsFor(context_, prices_.of[named.position], late_, named.position, by_work_);
    analysis_.findings.push_back(std::move(finding));
  }

  // Nobody is seen to wait for these as long as would be worth naming, but for their work the step is longer by that.
  // `named`: ranks that are named already.
  void NameWorth(Clause why, const std::vector<std::size_t>& named = {}) {
    const bool steps = context_.units_are_steps();
    if ((!steps && !by_work_) || analysis_.run.cores_scarce) return;
    // What happens in some steps only is another matter: the replay's sure gain says nothing about it.
    std::erase_if(positions_, [&](std::size_t r) { return !IsPersistent(Behind(r), limit_); });
    if (positions_.empty()) return;
    positions_.insert(positions_.end(), named.begin(), named.end());
    positions_ =
        WorthByReplay(context_, positions_, steps ? limit_ : rules::kNameShare * static_cast<double>(whole_ns_));
    const auto is_named = [&](std::size_t r) { return std::ranges::count(named, r) > 0; };
    if (std::ranges::all_of(positions_, is_named)) return;
    if (named.empty()) why_ = {std::move(why)};
    std::sort(positions_.begin(), positions_.end());
    suspects_.emplace(context_, positions_);
    read_ = {};
    prices_ = PriceOf(context_, waiting_, *suspects_, read_);
    ReadActivities();
    for (const std::size_t r : positions_) {
      if (is_named(r)) continue;
      named_.push_back(WithCause(
          r, AssessHidden(context_, steps ? prices_.of[r] : std::vector{GainByReplay(context_, r)}, r, p_[r])));
      analysis_.stragglers.push_back(named_.back().assessment.straggler);
    }
  }

  // Reports them in one finding: their costs overlap, so repairing one of two equally slow ranks gains nothing.
  void ReportTogether() {
    std::vector<std::int32_t> ranks;
    std::set<std::string> hosts;
    std::size_t from = SIZE_MAX;
    double worst_p = 0;
    std::int64_t least = 0;
    for (const Named& named : named_) {
      ranks.push_back(named.assessment.straggler.rank);
      hosts.insert(NodeOf(named.position));
      from = std::min(from, named.assessment.from_unit);
      worst_p = std::max(worst_p, named.assessment.straggler.p_value);
      least = std::max(least, named.assessment.straggler.saves_ns);
    }
    const std::int32_t costliest = ranks.front();
    std::sort(ranks.begin(), ranks.end());
    const double together_ns = context_.units_are_steps() ? MeanCost(context_, prices_.together, from).ns
                                                          : CostInAll(context_, prices_.together, from);
    const std::int64_t saves = std::max(least, static_cast<std::int64_t>(std::llround(together_ns)));
    Finding finding;
    finding.id = FindingId::kStragglerArrival;
    finding.rank = costliest;
    SayWho(ranks, hosts, finding.said);
    finding.said.headline.push_back(Say(Word::kStragglersWait, {{"wait", PartSince(saves, from)}}));
    SetPriceSince(saves, from, finding);
    std::vector<Clause>& evidence = finding.said.evidence;
    for (std::size_t i = 0; i < std::min(named_.size(), rules::kNamedExplained); ++i) {
      std::vector<Clause> each = BriefEvidenceFor(analysis_, named_[i].position, named_[i].cause,
                                                  named_[i].assessment.straggler, NodeOf(named_[i].position));
      if (i > 0) each = {Say(Word::kStragglersNextRank, {{"rank_evidence", Clauses{std::move(each)}}})};
      AddTo(evidence, std::move(each));
    }
    AddTo(evidence, why_);
    evidence.push_back(Say(worst_p < rules::kNamedSmallP ? Word::kStragglersSmallChance : Word::kStragglersChance,
                           {{"p_value", Probability{worst_p}}}));
    if (named_.size() > rules::kNamedExplained)
      evidence.push_back(Say(
          Word::kStragglersMore,
          {{"more", Index{static_cast<std::int64_t>(named_.size() - rules::kNamedExplained)}}, {"number", Index{0}}}));
    finding.said.action = ActionsByCause();
    finding.upper_bound = !read_.exact;
    finding.explain = {{"rank", "others_wait_ns", "low_ns", "high_ns", "arrives_late_ns"}, {}};
    for (const Named& named : named_) {
      const Straggler& straggler = named.assessment.straggler;
      std::vector<std::int64_t> late;
      for (const auto& unit : late_.mean_ns) late.push_back(static_cast<std::int64_t>(unit[named.position]));
      finding.explain.rows.push_back({straggler.rank, straggler.saves_ns, straggler.saves_interval_ns.first,
                                      straggler.saves_interval_ns.second, LowerMedian(std::move(late))});
    }
    analysis_.findings.push_back(std::move(finding));
  }

  // If they are all on one of several hosts, the host is named.
  void SayWho(const std::vector<std::int32_t>& ranks, const std::set<std::string>& hosts, Said& said) const {
    const bool one_host = hosts.size() == 1 && analysis_.run.nodes > 1;
    std::size_t there = 0;
    for (std::size_t p = 0; one_host && p < context_.ranks().size(); ++p) there += hosts.contains(NodeOf(p));
    const bool all = there == ranks.size();
    const auto say = [&](Word some, Word of_host, Word all_of_host) {
      return std::vector{Say(all        ? all_of_host
                             : one_host ? of_host
                                        : some,
                             {{"ranks", Ranks{ranks}}, {"host", If(one_host, *hosts.begin())}})};
    };
    said.headline = say(Word::kStragglersHold, Word::kStragglersHoldOf, Word::kStragglersHoldAllOf);
    said.brief = say(Word::kStragglersHoldBrief, Word::kStragglersHoldOfBrief, Word::kStragglersHoldAllOfBrief);
  }

  void SetPriceSince(std::int64_t saves_ns, std::size_t from_unit, Finding& finding) const {
    finding.of_step_ns = StepsSince(context_, from_unit);
    SetPrice(analysis_.summary, saves_ns, finding);
  }

  std::vector<Clause> ActionsByCause() const {
    std::vector<CauseId> listed;
    std::vector<Clause> actions;
    for (const Named& first : named_) {
      if (std::find(listed.begin(), listed.end(), first.cause.id) != listed.end()) continue;
      listed.push_back(first.cause.id);
      std::vector<std::int32_t> ranks;
      std::set<std::string> hosts;
      for (const Named& named : named_) {
        if (named.cause.id != first.cause.id) continue;
        ranks.push_back(named.assessment.straggler.rank);
        hosts.insert(NodeOf(named.position));
      }
      std::sort(ranks.begin(), ranks.end());
      actions.push_back(ActionFor(first.cause, ranks, hosts));
    }
    return actions;
  }

  Part PartSince(std::int64_t ns, std::size_t from_unit) const {
    const bool steps = context_.units_are_steps();
    return {ns, steps ? StepsSince(context_, from_unit).value_or(whole_ns_) : whole_ns_, steps};
  }

  const Context& context_;
  Analysis& analysis_;
  const std::int64_t length_, whole_ns_;  // Of an ordinary unit; of the step or the recording.
  double limit_ = rules::kNameShare * static_cast<double>(length_);
  LatenessTable late_;
  std::vector<double> p_;
  std::vector<std::optional<LateStretch>> stretches_;  // By rank; only those that chance does not explain.
  std::vector<std::size_t> positions_, waiting_;       // The positions of the suspects, and of the ranks that wait.
  std::vector<std::size_t> messengers_;                // Ranks that are late because of another rank.
  std::map<std::size_t, std::int64_t> own_late_ns_;    // By position: what a suspect adds itself, median over units.
  std::optional<Suspects> suspects_;
  RankActivities read_;
  Prices prices_;
  std::vector<Named> named_;
  std::vector<Clause> why_;  // The waiting for them is not exposed: for what reason.
  bool by_work_ = false;     // late_ is of work, not of arrivals.
};

}  // namespace

void FindStragglers(const Context& context, Analysis& analysis) {
  const bool pieces =
      !context.units_are_steps() && (context.tables().p2p_pairs.rows() > 0 || WaitAtTheEnd(context) > 0);
  if ((context.units().size() >= rules::kFewest || pieces) && analysis.summary.terms.Sum() > 0)
    Search(context, analysis, UnitLength(context)).Run();
}

}  // namespace lockstep::analysis
