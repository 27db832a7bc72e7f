// Finds what changed between two runs and explains their difference.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "analysis/core/statistics.h"
#include "analysis/diff/compare.h"
#include "analysis/rules/diff.h"
#include "analysis/rules/stragglers.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"

namespace lockstep::diff {
namespace {

using analysis::Clauses;
using analysis::If;
using analysis::Index;
using analysis::Ns;
using analysis::Num;
using analysis::Real;
using analysis::Value;
using analysis::Word;

// The amount, whatever its sign.
Ns Amount(double ns) { return {std::llround(std::fabs(ns))}; }
Clauses ChangeOf(double now, double base) {
  return {{base > 0 ? Say(Word::kDiffChange, {{"change", Real{100 * (now - base) / base}}}) : Say(Word::kDiffNew)}};
}
Value PerStep(double count) {
  if (std::fabs(count - std::round(count)) < rules::kDiffWholeCount) return Num{std::llround(count)};
  return Clauses{{Say(Word::kDiffFraction, {{"count", Real{count}}})}};
}

class Causes {
 public:
  Causes(const RunSample& base, const RunSample& now, const NameChanges& names)
      : base_(base), now_(now), names_(names), blocked_known_(base.BlockedKnown() && now.BlockedKnown()) {
    if (const MeasureSample* step = base.Find("step_ns")) worth_ns_ = rules::kWorthShare * step->spread.center;
  }

  std::vector<Cause> All() {
    Ranks();
    Blocked();
    Buckets();
    Collectives();
    Phases();
    RankPhases();
    Names();
    Clocks();
    return std::move(causes_);
  }

 private:
  // Certainly different from 0, and large enough to report.
  bool Counts(const Difference& difference) const {
    return (difference.low > 0 || difference.high < 0) && std::fabs(difference.value) >= worth_ns_ &&
           difference.value != 0;
  }

  static Cause Sure(CauseKind kind, std::int32_t rank, std::string what, std::string sentence,
                    const Difference& difference) {
    return {
        kind, rank, std::move(what), std::move(sentence), difference.value, std::pair(difference.low, difference.high)};
  }

  void Ranks() {
    struct Both {
      const RankSample *base, *now;
      Difference difference;
    };
    std::vector<Both> ranks;
    std::vector<double> changes, blocked_changes;
    for (const RankSample& now : now_.rank_samples)
      for (const RankSample& base : base_.rank_samples)
        if (base.rank == now.rank && base.work_ns.count > 0 && now.work_ns.count > 0) {
          ranks.push_back({&base, &now, DifferenceOf(base.work_ns, now.work_ns, rules::kDiffWiden99)});
          changes.push_back(ranks.back().difference.value);
          blocked_changes.push_back(now.blocked_ns - base.blocked_ns);
        }
    if (ranks.empty()) return;
    // A change that all ranks have in common is not one rank's.
    const double common = analysis::CommonChange(changes);
    const double common_blocked = LowerMedian(blocked_changes);
    Difference all{common, common, common};
    const MeasureSample *base_compute = base_.Find("compute_ns"), *now_compute = now_.Find("compute_ns");
    if (base_compute != nullptr && now_compute != nullptr) {
      double base_own = base_compute->spread.center;
      const auto widen = [&](const MeasureSample& base, const MeasureSample& now) {
        const Difference mean = DifferenceOf(base.spread, now.spread, rules::kDiffWiden99);
        all.low += mean.low - mean.value;
        all.high += mean.high - mean.value;
      };
      widen(*base_compute, *now_compute);
      const MeasureSample *base_blocked = base_.Find("blocked_ns"), *now_blocked = now_.Find("blocked_ns");
      if (base_blocked != nullptr && now_blocked != nullptr) {
        widen(*base_blocked, *now_blocked);
        base_own += base_blocked->spread.center;
      }
      if (Counts(all))
        causes_.push_back(Sure(CauseKind::kAllRanks, -1, "compute",
                               Told(Word::kDiffAllRanks, {{"do", Does(false, common_blocked, common)},
                                                          {"by", Amount(common)},
                                                          {"longer", common > 0},
                                                          {"change", ChangeOf(base_own + common, base_own)}}),
                               all));
    }
    std::vector<Both> own;
    for (Both& rank : ranks) {
      rank.difference.value -= common;
      rank.difference.low -= common;
      rank.difference.high -= common;
      if (ranks.size() > 1 && Counts(rank.difference)) own.push_back(rank);
    }
    std::stable_sort(own.begin(), own.end(), [](const Both& a, const Both& b) {
      return std::fabs(a.difference.value) > std::fabs(b.difference.value);
    });
    for (std::size_t i = 0; i < std::min(own.size(), rules::kDiffCausesOfAKind); ++i) {
      const RankSample &base = *own[i].base, &now = *own[i].now;
      const double by_ns = own[i].difference.value;
      const bool longer = by_ns > 0, beside = longer && ranks.size() > 1;
      const bool straggler = longer && now.straggler && *now.straggler != analysis::CauseId::kUnknown;
      const bool moved = !base.node.empty() && !now.node.empty() && base.node != now.node;
      causes_.push_back(
          Sure(CauseKind::kRank, now.rank, "compute",
               Told(Word::kDiffRank, {{"rank", Index{now.rank}},
                                      {"host", now.node},
                                      {"does", Does(true, now.blocked_ns - base.blocked_ns - common_blocked, by_ns)},
                                      {"by", Amount(by_ns)},
                                      {"longer", longer},
                                      {"change", ChangeOf(now.work_ns.center, base.work_ns.center)},
                                      {"beside_all", beside && Counts(all)},
                                      {"alone", beside && !Counts(all)},
                                      {"cause", straggler ? Value(std::string(NameOf(*now.straggler))) : Value()},
                                      {"host_before", If(moved, base.node)}}),
               own[i].difference));
    }
    if (own.size() > rules::kDiffCausesOfAKind) {
      std::vector<std::int32_t> rest;
      for (std::size_t i = rules::kDiffCausesOfAKind; i < own.size(); ++i) rest.push_back(own[i].now->rank);
      std::sort(rest.begin(), rest.end());
      causes_.push_back({CauseKind::kRank, -1, "compute",
                         Told(Word::kDiffOtherChanged, {{"ranks", analysis::Ranks{rest}}}), std::nullopt,
                         std::nullopt});
    }
    Stragglers();
  }

  // What a rank does longer or less, or all ranks do.
  Clauses Does(bool one, double blocked_ns, double own_ns) const {
    const bool blocked = blocked_ns * own_ns > 0 && HalfOf(std::fabs(blocked_ns), std::fabs(own_ns));
    const Word word = !blocked_known_ ? Word::kDiffComputesOrIsBlocked
                      : blocked       ? Word::kDiffIsBlocked
                                      : Word::kDiffComputes;
    return {{Say(word, {{"one", one}})}};
  }

  void Blocked() {
    std::map<std::string, std::pair<Spread, Spread>> places;
    // At places that are none the other time it is 0.
    const auto of = [](const RunSample& run) {
      const MeasureSample* measure = run.Find("blocked_ns");
      return Spread{0, 0, 0, measure == nullptr ? 0 : measure->spread.count};
    };
    if (!blocked_known_) return;
    for (const BlockedSample& place : base_.blocked) places[place.what] = {place.spread, of(now_)};
    for (const BlockedSample& place : now_.blocked)
      places.try_emplace(place.what, std::pair(of(base_), place.spread)).first->second.second = place.spread;
    std::vector<Cause> found;
    for (const auto& [what, both] : places) {
      const Difference difference = DifferenceOf(both.first, both.second, rules::kDiffWiden99);
      if (!Counts(difference)) continue;
      found.push_back(Sure(CauseKind::kBlocked, -1, what,
                           Told(Word::kDiffBlockedIn, {{"by", Amount(difference.value)},
                                                       {"longer", difference.value > 0},
                                                       {"change", ChangeOf(both.second.center, both.first.center)},
                                                       {"place", what}}),
                           difference));
    }
    Take(std::move(found));
  }

  // Where the breakdown shows nothing, the analysis may: a rank that is late for another reason than computing.
  void Stragglers() {
    for (const RankSample& now : now_.rank_samples) {
      const auto named = std::any_of(causes_.begin(), causes_.end(), [&](const Cause& cause) {
        return cause.rank == now.rank && cause.change_ns.value_or(0) > 0;
      });
      const auto before = std::find_if(base_.rank_samples.begin(), base_.rank_samples.end(),
                                       [&](const RankSample& base) { return base.rank == now.rank; });
      if (named || !now.straggler || before == base_.rank_samples.end() || before->straggler) continue;
      const std::string cause(NameOf(*now.straggler));
      causes_.push_back({CauseKind::kStraggler, now.rank, cause,
                         Told(Word::kDiffHoldsBack, {{"rank", Index{now.rank}}, {"cause", cause}}), std::nullopt,
                         std::nullopt});
    }
  }

  using Sizes = std::map<std::uint64_t, double>;  // Bytes -> per step.
  static std::string Text(const Sizes& sizes) {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " + ") + part; };
    std::size_t listed = 0;
    for (auto at = sizes.rbegin(); at != sizes.rend() && listed < rules::kDiffSizesListed; ++at, ++listed)
      add(Told(Word::kDiffSize, {{"count", PerStep(at->second)}, {"bytes", analysis::Size{at->first}}}));
    if (listed < sizes.size())
      add(Told(Word::kDiffOtherSizes, {{"sizes", Num{static_cast<std::int64_t>(sizes.size() - listed)}}}));
    return text.empty() ? Told(Word::kDiffNone) : text;
  }

  // Collectives of other sizes, or another number of them: another bucket cap, another model.
  void Buckets() {
    struct Sides {
      Sizes base, now;
      double base_ns = 0, now_ns = 0;
      bool known = true;
    };
    std::map<std::pair<std::string, std::int64_t>, Sides> groups;
    const auto collect = [&](const RunSample& run, Sizes Sides::*sizes, double Sides::*ns) {
      for (const CollectiveSample& row : run.collectives) {
        Sides& sides = groups[{row.op, row.members}];
        (sides.*sizes)[row.bytes] += row.per_step;
        sides.*ns += row.transfer_ns.center;
        sides.known = sides.known && row.transfer_ns.count > 0;
      }
    };
    collect(base_, &Sides::base, &Sides::base_ns);
    collect(now_, &Sides::now, &Sides::now_ns);
    for (const auto& [key, sides] : groups) {
      const auto count = [](const Sizes& sizes, std::uint64_t bytes) {
        const auto at = sizes.find(bytes);
        return at == sizes.end() ? 0.0 : at->second;
      };
      const auto differs = [&](const Sizes& from) {
        return std::any_of(from.begin(), from.end(), [&](const auto& size) {
          const double a = count(sides.base, size.first), b = count(sides.now, size.first);
          return std::fabs(a - b) > std::max(rules::kDiffCountMargin, rules::kNameShare * std::max(a, b));
        });
      };
      if (!differs(sides.base) && !differs(sides.now)) continue;
      const bool caps = base_.bucket_cap_mb && now_.bucket_cap_mb && *base_.bucket_cap_mb != *now_.bucket_cap_mb;
      causes_.push_back({CauseKind::kBuckets, -1, key.first,
                         Told(Word::kDiffBuckets, {{"op", key.first},
                                                   {"members", Num{key.second}},
                                                   {"base", Text(sides.base)},
                                                   {"now", Text(sides.now)},
                                                   {"now_transfer", If(sides.known, Amount(sides.now_ns))},
                                                   {"base_transfer", If(sides.known, Amount(sides.base_ns))},
                                                   {"base_cap", If(caps, Real{base_.bucket_cap_mb.value_or(0)})},
                                                   {"now_cap", If(caps, Real{now_.bucket_cap_mb.value_or(0)})}}),
                         sides.known ? std::optional(sides.now_ns - sides.base_ns) : std::nullopt, std::nullopt});
    }
  }

  // The same collectives, slower or faster.
  void Collectives() {
    std::vector<Cause> found;
    for (const CollectiveSample& now : now_.collectives)
      for (const CollectiveSample& base : base_.collectives) {
        if (std::tie(base.op, base.members, base.bytes) != std::tie(now.op, now.members, now.bytes)) continue;
        // Buckets() reports these.
        if (std::fabs(base.per_step - now.per_step) > rules::kNameShare * base.per_step) continue;
        if (base.transfer_ns.count == 0 || now.transfer_ns.count == 0) continue;
        const Difference difference = DifferenceOf(base.transfer_ns, now.transfer_ns, rules::kDiffWiden99);
        if (!Counts(difference)) continue;
        found.push_back(
            Sure(CauseKind::kCollective, -1, now.op,
                 Told(Word::kDiffTransfer, {{"count", PerStep(now.per_step)},
                                            {"op", now.op},
                                            {"bytes", analysis::Size{now.bytes}},
                                            {"by", Amount(difference.value)},
                                            {"longer", difference.value > 0},
                                            {"change", ChangeOf(now.transfer_ns.center, base.transfer_ns.center)}}),
                 difference));
      }
    Take(std::move(found));
  }

  void Phases() {
    std::vector<Cause> found;
    for (const PhaseSample& now : now_.phases)
      for (const PhaseSample& base : base_.phases) {
        if (base.name != now.name || base.spread.count == 0 || now.spread.count == 0) continue;
        const Difference difference = DifferenceOf(base.spread, now.spread, rules::kDiffWiden99);
        if (!Counts(difference)) continue;
        found.push_back(Sure(CauseKind::kPhase, -1, now.name,
                             Told(Word::kDiffPhase, {{"phase", now.name},
                                                     {"by", Amount(difference.value)},
                                                     {"longer", difference.value > 0},
                                                     {"change", ChangeOf(now.spread.center, base.spread.center)}}),
                             difference));
      }
    Take(std::move(found));
  }

  // What a rank does itself in a phase. Of all ranks only what Phases(), by the length of it, does not say.
  void RankPhases() {
    const double step_ns = worth_ns_ / rules::kWorthShare;
    std::vector<Cause> found;
    std::map<std::string, double> by_single_ranks;  // Phase -> the part of the change of its mean.
    for (const PhaseChange& row :
         CompareRankPhases(base_.rank_phases, now_.rank_phases, std::min(base_.steps, now_.steps), step_ns)) {
      const bool all = row.rank == -1, grew = row.change.value > 0;
      const auto said = [&](const Cause& cause) {
        return cause.kind == CauseKind::kPhase && cause.what == row.phase && (*cause.change_ns > 0) == grew;
      };
      if (all && std::any_of(causes_.begin(), causes_.end(), said)) continue;
      if (!all) by_single_ranks[row.phase] += row.change.value / static_cast<double>(now_.rank_samples.size());
      const Clauses phase{{Say(Word::kDiffOwnPhase, {{"phase", row.phase}, {"kernels", row.kernels}})}};
      const Clauses change = ChangeOf(row.now_ns, row.base_ns);
      found.push_back(
          Sure(CauseKind::kRankPhase, row.rank, row.phase,
               all ? Told(Word::kDiffPhaseOfAll,
                          {{"phase", phase}, {"grew", grew}, {"by", Amount(row.change.value)}, {"change", change}})
                   : Told(Word::kDiffPhaseOfRank, {{"rank", Index{row.rank}},
                                                   {"phase", phase},
                                                   {"grew", row.now_ns > row.base_ns},
                                                   {"base", Amount(row.base_ns)},
                                                   {"now", Amount(row.now_ns)},
                                                   {"change", change},
                                                   {"common", If(row.common_ns != 0, Amount(row.common_ns))},
                                                   {"common_grew", row.common_ns > 0}}),
               row.change));
    }
    // What single ranks changed is theirs: the mean over all of them would say that all did.
    std::erase_if(causes_, [&](const Cause& cause) {
      if (cause.kind != CauseKind::kPhase) return false;
      const double own_ns = by_single_ranks[cause.what], mean_ns = *cause.change_ns;
      return own_ns * mean_ns > 0 && HalfOf(std::fabs(own_ns), std::fabs(mean_ns));
    });
    Take(std::move(found));
  }

  // Counts without an interval, and names whose time changed by enough: the measures decide whether the step did.
  void Names() {
    if (base_.names.kernels_per_step && now_.names.kernels_per_step) {
      const double before = *base_.names.kernels_per_step, after = *now_.names.kernels_per_step;
      if (std::fabs(after - before) > rules::kNameShare * std::max(before, after))
        causes_.push_back(
            {CauseKind::kKernelsPerStep, -1, "",
             Told(Word::kDiffKernels,
                  {{"base", PerStep(before)}, {"now", PerStep(after)}, {"change", ChangeOf(after, before)}}),
             std::nullopt, std::nullopt});
    }
    for (const NameKind kind : {NameKind::kKernel, NameKind::kOperator}) {
      std::vector<Cause> found;
      for (const NameResult& result : names_.rows) {
        const double change = result.difference_ns.value, base = result.base_ns.center;
        // Single steps do not tell how much a time varies by itself; what changed much is listed all the same.
        const bool single = result.verdict == NameVerdict::kCannotTell && std::fabs(change) >= rules::kLittle * base &&
                            result.base_launches.count > 0 && result.now_launches.count > 0;
        if (result.kind != kind || !(result.Changed() || single) || std::fabs(change) < worth_ns_ || change == 0)
          continue;
        found.push_back({kind == NameKind::kKernel ? CauseKind::kKernel : CauseKind::kOperator, -1, result.name,
                         SentenceOf(result), change, std::nullopt});
      }
      Take(std::move(found));
    }
  }

  static std::string SentenceOf(const NameResult& result) {
    const std::string kind = Noun(result.kind);
    const bool launches = result.kind == NameKind::kKernel;
    const double base_ns = result.base_ns.center, now_ns = result.now_ns.center;
    const Value before = PerStep(result.base_launches.center), after = PerStep(result.now_launches.center);
    const bool came = result.verdict == NameVerdict::kNew;
    if (came || result.verdict == NameVerdict::kGone)
      return Told(came ? Word::kDiffNameNew : Word::kDiffNameGone, {{"kind", kind},
                                                                    {"name", result.name},
                                                                    {"time", Amount(came ? now_ns : base_ns)},
                                                                    {"count", came ? after : before},
                                                                    {"launches", launches}});
    const bool other = result.verdict == NameVerdict::kMore || result.verdict == NameVerdict::kFewer;
    return Told(Word::kDiffNameChanged, {{"kind", kind},
                                         {"name", result.name},
                                         {"by", Amount(now_ns - base_ns)},
                                         {"longer", now_ns > base_ns},
                                         {"change", ChangeOf(now_ns, base_ns)},
                                         {"launches", launches},
                                         {"base", If(other, before)},
                                         {"now", If(other, after)},
                                         {"same", If(!other, after)}});
  }

  void Clocks() {
    std::vector<Cause> found;
    for (const RankSample& now : now_.rank_samples)
      for (const RankSample& base : base_.rank_samples) {
        if (base.rank != now.rank || !base.sm_clock_mhz || !now.sm_clock_mhz || *base.sm_clock_mhz <= 0) continue;
        const auto before = static_cast<double>(*base.sm_clock_mhz), after = static_cast<double>(*now.sm_clock_mhz);
        if (std::fabs(after - before) < (1 - rules::kSlowGpuClock) * before) continue;
        found.push_back({CauseKind::kGpuClock, now.rank, "",
                         Told(Word::kDiffClock, {{"rank", Index{now.rank}},
                                                 {"now", Index{*now.sm_clock_mhz}},
                                                 {"base", Index{*base.sm_clock_mhz}},
                                                 {"change", ChangeOf(after, before)}}),
                         std::nullopt, std::nullopt});
      }
    Take(std::move(found));
  }

  void Take(std::vector<Cause> found) {
    std::stable_sort(found.begin(), found.end(), [](const Cause& a, const Cause& b) {
      return std::fabs(a.change_ns.value_or(0)) > std::fabs(b.change_ns.value_or(0));
    });
    if (found.size() > rules::kDiffCausesOfAKind) found.resize(rules::kDiffCausesOfAKind);
    causes_.insert(causes_.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }

  const RunSample &base_, &now_;
  const NameChanges& names_;
  const bool blocked_known_;  // In both runs.
  double worth_ns_ = 0;
  std::vector<Cause> causes_;
};

}  // namespace

std::string_view Name(CauseKind kind) {
  static constexpr std::string_view kNames[] = {"rank",    "all_ranks",  "blocked",   "straggler",
                                                "buckets", "collective", "phase",     "kernels_per_step",
                                                "kernel",  "operator",   "gpu_clock", "rank_phase"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<Cause> FindCauses(const RunSample& base, const RunSample& now, const NameChanges& names) {
  return Causes(base, now, names).All();
}

}  // namespace lockstep::diff
