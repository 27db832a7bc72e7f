// Finds what changed between two runs and explains their difference.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/diff/compare.h"
#include "analysis/passes.h"

namespace lockstep::diff {
namespace {

constexpr std::size_t kMostOfAKind = 4;
// Launches per step, clocks: smaller changes count as none.
constexpr double kCountShare = 0.02, kClockShare = 0.03;

std::string Ns(double ns) { return analysis::Duration(static_cast<std::int64_t>(std::llround(std::fabs(ns)))); }
std::string Change(double now, double base) {
  return base > 0 ? fmt::format("{:+.1f} %", 100 * (now - base) / base) : "new";
}
std::string PerStep(double count) {
  return std::fabs(count - std::round(count)) < 0.005 ? analysis::Count(std::llround(count))
                                                      : fmt::format("{:.2f}", count);
}

class Causes {
 public:
  Causes(const RunSample& base, const RunSample& now, const NameChanges& names)
      : base_(base), now_(now), names_(names), blocked_known_(base.BlockedKnown() && now.BlockedKnown()) {
    if (const MeasureSample* step = base.Find("step_ns")) worth_ns_ = analysis::kWorthShare * step->spread.center;
  }

  std::vector<Cause> All() {
    Ranks();
    Blocked();
    Buckets();
    Collectives();
    Phases();
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

  void Add(std::string kind, std::int32_t rank, std::string what, std::string sentence, const Difference& difference) {
    causes_.push_back({std::move(kind), rank, std::move(what), std::move(sentence), difference.value,
                       std::pair(difference.low, difference.high)});
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
          ranks.push_back({&base, &now, DifferenceOf(base.work_ns, now.work_ns, kWiden99)});
          changes.push_back(ranks.back().difference.value);
          blocked_changes.push_back(now.blocked_ns - base.blocked_ns);
        }
    if (ranks.empty()) return;
    // A change that all ranks have in common is not one rank's. With two ranks the one that changed less shows it.
    double common = LowerMedian(changes);
    if (changes.size() == 2) common = std::fabs(changes[0]) < std::fabs(changes[1]) ? changes[0] : changes[1];
    const double common_blocked = LowerMedian(blocked_changes);
    Difference all{common, common, common};
    const MeasureSample *base_compute = base_.Find("compute_ns"), *now_compute = now_.Find("compute_ns");
    if (base_compute != nullptr && now_compute != nullptr) {
      double base_own = base_compute->spread.center;
      const auto widen = [&](const MeasureSample& base, const MeasureSample& now) {
        const Difference mean = DifferenceOf(base.spread, now.spread, kWiden99);
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
        Add("all_ranks", -1, "compute",
            fmt::format("all ranks {} {} {} per step ({})",
                        !blocked_known_                         ? "compute or are blocked"
                        : MostlyBlocked(common_blocked, common) ? "are blocked"
                                                                : "compute",
                        Ns(common), common > 0 ? "longer" : "less", Change(base_own + common, base_own)),
            all);
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
    for (std::size_t i = 0; i < std::min(own.size(), kMostOfAKind); ++i) {
      const Both& rank = own[i];
      const bool longer = rank.difference.value > 0;
      std::string sentence = fmt::format(
          "rank {}{} {} {} {} per step ({}){}", rank.now->rank, rank.now->node.empty() ? "" : " on " + rank.now->node,
          !blocked_known_ ? "computes or is blocked"
          : MostlyBlocked(rank.now->blocked_ns - rank.base->blocked_ns - common_blocked, rank.difference.value)
              ? "is blocked"
              : "computes",
          Ns(rank.difference.value), longer ? "longer" : "less",
          Change(rank.now->work_ns.center, rank.base->work_ns.center),
          !longer || ranks.size() < 2 ? ""
          : Counts(all)               ? ", beyond what all do"
                                      : "; the others do not");
      if (longer && !rank.now->straggler.empty() && rank.now->straggler != "unknown")
        sentence += fmt::format("; it is a straggler now, cause: {}", rank.now->straggler);
      if (!rank.base->node.empty() && !rank.now->node.empty() && rank.base->node != rank.now->node)
        sentence += fmt::format("; it was on {}", rank.base->node);
      Add("rank", rank.now->rank, "compute", std::move(sentence), rank.difference);
    }
    if (own.size() > kMostOfAKind) {
      std::vector<std::int32_t> rest;
      for (std::size_t i = kMostOfAKind; i < own.size(); ++i) rest.push_back(own[i].now->rank);
      std::sort(rest.begin(), rest.end());
      causes_.push_back(
          {"rank", -1, "compute", "so do, by less, " + analysis::RankNames(rest), std::nullopt, std::nullopt});
    }
    Stragglers();
  }

  // Half of a change of the rank's own time is.
  static bool MostlyBlocked(double blocked_ns, double own_ns) {
    return blocked_ns * own_ns > 0 && 2 * std::fabs(blocked_ns) >= std::fabs(own_ns);
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
      const Difference difference = DifferenceOf(both.first, both.second, kWiden99);
      if (!Counts(difference)) continue;
      found.push_back(
          {"blocked", -1, what,
           fmt::format("blocked {} {} per step ({}): {}", Ns(difference.value),
                       difference.value > 0 ? "longer" : "less", Change(both.second.center, both.first.center), what),
           difference.value, std::pair(difference.low, difference.high)});
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
      if (named || now.straggler.empty() || before == base_.rank_samples.end() || !before->straggler.empty()) continue;
      causes_.push_back({"straggler", now.rank, now.straggler,
                         fmt::format("rank {} holds the others back now, cause: {}", now.rank, now.straggler),
                         std::nullopt, std::nullopt});
    }
  }

  using Sizes = std::map<std::uint64_t, double>;  // Bytes -> per step.
  static std::string Text(const Sizes& sizes) {
    std::string text;
    std::size_t shown = 0;
    for (auto at = sizes.rbegin(); at != sizes.rend(); ++at) {
      if (shown++ == kMostOfAKind) return text + fmt::format(" + {} other sizes", sizes.size() - kMostOfAKind);
      text += fmt::format("{}{} x {}", text.empty() ? "" : " + ", PerStep(at->second), analysis::Bytes(at->first));
    }
    return text.empty() ? "none" : text;
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
          // One more launch in a hundred steps comes from a checkpoint or an evaluation.
          return std::fabs(a - b) > std::max(0.1, kCountShare * std::max(a, b));
        });
      };
      if (!differs(sides.base) && !differs(sides.now)) continue;
      std::string sentence = fmt::format("{} of {} per step: {} became {}", key.first,
                                         analysis::Plural(key.second, "rank"), Text(sides.base), Text(sides.now));
      Cause cause{"buckets", -1, key.first, std::move(sentence), std::nullopt, std::nullopt};
      if (sides.known) {
        cause.change_ns = sides.now_ns - sides.base_ns;
        cause.sentence += fmt::format("; they transfer for {} instead of {}", Ns(sides.now_ns), Ns(sides.base_ns));
      }
      if (base_.bucket_cap_mb && now_.bucket_cap_mb && *base_.bucket_cap_mb != *now_.bucket_cap_mb)
        cause.sentence += fmt::format("; bucket_cap_mb {:g} became {:g}", *base_.bucket_cap_mb, *now_.bucket_cap_mb);
      causes_.push_back(std::move(cause));
    }
  }

  // The same collectives, slower or faster.
  void Collectives() {
    std::vector<Cause> found;
    for (const CollectiveSample& now : now_.collectives)
      for (const CollectiveSample& base : base_.collectives) {
        if (std::tie(base.op, base.members, base.bytes) != std::tie(now.op, now.members, now.bytes)) continue;
        // Buckets() reports these.
        if (std::fabs(base.per_step - now.per_step) > kCountShare * base.per_step) continue;
        if (base.transfer_ns.count == 0 || now.transfer_ns.count == 0) continue;
        const Difference difference = DifferenceOf(base.transfer_ns, now.transfer_ns, kWiden99);
        if (!Counts(difference)) continue;
        found.push_back(
            {"collective", -1, now.op,
             fmt::format("{} x {} of {}: transfer {} {} per step ({})", PerStep(now.per_step), now.op,
                         analysis::Bytes(now.bytes), Ns(difference.value), difference.value > 0 ? "longer" : "less",
                         Change(now.transfer_ns.center, base.transfer_ns.center)),
             difference.value, std::pair(difference.low, difference.high)});
      }
    Take(std::move(found));
  }

  void Phases() {
    std::vector<Cause> found;
    for (const PhaseSample& now : now_.phases)
      for (const PhaseSample& base : base_.phases) {
        if (base.name != now.name || base.spread.count == 0 || now.spread.count == 0) continue;
        const Difference difference = DifferenceOf(base.spread, now.spread, kWiden99);
        if (!Counts(difference)) continue;
        found.push_back(
            {"phase", -1, now.name,
             fmt::format("{} takes {} {} per step ({}), its waiting included", now.name, Ns(difference.value),
                         difference.value > 0 ? "longer" : "less", Change(now.spread.center, base.spread.center)),
             difference.value, std::pair(difference.low, difference.high)});
      }
    Take(std::move(found));
  }

  // Counts without an interval, and names whose time changed by enough: the measures decide whether the step did.
  void Names() {
    if (base_.names.kernels_per_step && now_.names.kernels_per_step) {
      const double before = *base_.names.kernels_per_step, after = *now_.names.kernels_per_step;
      if (std::fabs(after - before) > kCountShare * std::max(before, after))
        causes_.push_back(
            {"kernels_per_step", -1, "",
             fmt::format("{} kernels per step became {} ({})", PerStep(before), PerStep(after), Change(after, before)),
             std::nullopt, std::nullopt});
    }
    for (const NameKind kind : {NameKind::kKernel, NameKind::kOperator}) {
      std::vector<Cause> found;
      for (const NameResult& result : names_.rows) {
        const double change = result.difference_ns.value, base = result.base_ns.center;
        // Single steps do not tell how much a time varies by itself; what changed much is listed all the same.
        const bool single = result.verdict == NameVerdict::kCannotTell && std::fabs(change) >= kFewStepsShare * base &&
                            result.base_launches.count > 0 && result.now_launches.count > 0;
        if (result.kind != kind || !(result.Changed() || single) || std::fabs(change) < worth_ns_ || change == 0)
          continue;
        found.push_back({std::string(Noun(kind)), -1, result.name, SentenceOf(result), change, std::nullopt});
      }
      Take(std::move(found));
    }
  }

  static std::string SentenceOf(const NameResult& result) {
    const std::string_view calls = result.kind == NameKind::kKernel ? "launches" : "calls";
    const std::string name = fmt::format("{} {}", Noun(result.kind), result.name);
    const double base_ns = result.base_ns.center, now_ns = result.now_ns.center;
    const std::string before = PerStep(result.base_launches.center), after = PerStep(result.now_launches.center);
    if (result.verdict == NameVerdict::kNew)
      return fmt::format("{} is new: {} per step in {} {}", name, Ns(now_ns), after, calls);
    if (result.verdict == NameVerdict::kGone)
      return fmt::format("{} is gone: it took {} per step in {} {}", name, Ns(base_ns), before, calls);
    const bool other = result.verdict == NameVerdict::kMore || result.verdict == NameVerdict::kFewer;
    return fmt::format(
        "{}: {} {} per step ({}), {}", name, Ns(now_ns - base_ns), now_ns > base_ns ? "longer" : "less",
        Change(now_ns, base_ns),
        other ? fmt::format("{} {} became {}", before, calls, after) : fmt::format("in as many {} ({})", calls, after));
  }

  void Clocks() {
    std::vector<Cause> found;
    for (const RankSample& now : now_.rank_samples)
      for (const RankSample& base : base_.rank_samples) {
        if (base.rank != now.rank || !base.sm_clock_mhz || !now.sm_clock_mhz || *base.sm_clock_mhz <= 0) continue;
        const auto before = static_cast<double>(*base.sm_clock_mhz), after = static_cast<double>(*now.sm_clock_mhz);
        if (std::fabs(after - before) < kClockShare * before) continue;
        found.push_back({"gpu_clock", now.rank, "",
                         fmt::format("rank {}'s GPU runs at {} MHz instead of {} ({})", now.rank, *now.sm_clock_mhz,
                                     *base.sm_clock_mhz, Change(after, before)),
                         std::nullopt, std::nullopt});
      }
    Take(std::move(found));
  }

  void Take(std::vector<Cause> found) {
    std::stable_sort(found.begin(), found.end(), [](const Cause& a, const Cause& b) {
      return std::fabs(a.change_ns.value_or(0)) > std::fabs(b.change_ns.value_or(0));
    });
    if (found.size() > kMostOfAKind) found.resize(kMostOfAKind);
    causes_.insert(causes_.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }

  const RunSample &base_, &now_;
  const NameChanges& names_;
  const bool blocked_known_;  // In both runs.
  double worth_ns_ = 0;
  std::vector<Cause> causes_;
};

}  // namespace

std::vector<Cause> FindCauses(const RunSample& base, const RunSample& now, const NameChanges& names) {
  return Causes(base, now, names).All();
}

}  // namespace lockstep::diff
