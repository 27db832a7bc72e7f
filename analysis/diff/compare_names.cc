// Which names came, went, or run more often or longer than before.

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "analysis/core/statistics.h"
#include "analysis/diff/compare.h"
#include "analysis/diff/names.h"
#include "analysis/rules/diff.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"

namespace lockstep::diff {
namespace {

bool Occurs(const Spread& launches) { return launches.count > 0 && launches.high > 0; }

class NameComparer {
 public:
  NameComparer(const NamesSample& base, const NamesSample& now, std::int64_t steps, double step_ns)
      : base_(base), now_(now), steps_(steps), worth_ns_(rules::kDiffNameOfStep * step_ns) {}

  NameChanges All() {
    std::map<std::pair<NameKind, std::string>, NameResult> rows;
    const auto row = [&](const NameSample& sample) -> NameResult& {
      NameResult& result = rows[{sample.kind, sample.name}];
      result.kind = sample.kind;
      result.name = sample.name;
      return result;
    };
    const auto both = [&](NameKind kind) { return base_.recorded[Index(kind)] && now_.recorded[Index(kind)]; };
    for (const NameSample& sample : base_.rows)
      if (both(sample.kind)) row(sample).base_launches = sample.launches, row(sample).base_ns = sample.time_ns;
    for (const NameSample& sample : now_.rows)
      if (both(sample.kind)) row(sample).now_launches = sample.launches, row(sample).now_ns = sample.time_ns;
    NameChanges changes;
    for (auto& [key, result] : rows) {
      result.difference_ns = Apart(result.base_ns, result.now_ns);
      result.verdict = ByCount(result);
      changes.rows.push_back(std::move(result));
    }
    FindCommon(changes);
    for (NameResult& result : changes.rows)
      if (result.verdict == NameVerdict::kSame) result.verdict = ByTime(result, changes.common[Index(result.kind)]);
    std::stable_sort(changes.rows.begin(), changes.rows.end(), [](const NameResult& a, const NameResult& b) {
      if (a.Changed() != b.Changed()) return a.Changed();
      const auto weight = [](const NameResult& r) {
        return r.Changed() ? std::fabs(r.difference_ns.value) : std::max(r.base_ns.center, r.now_ns.center);
      };
      return weight(a) > weight(b);
    });
    return changes;
  }

 private:
  static std::size_t Index(NameKind kind) { return static_cast<std::size_t>(kind); }

  Difference Apart(const Spread& base, const Spread& now) const {
    return std::cmp_greater_equal(steps_, rules::kEnough) ? DifferenceOf(base, now, rules::kDiffWidenNames)
                                                          : DifferenceOfFew(base, now, rules::kDiffWidenNames);
  }

  // The time of what a run left out of its sample, at most.
  static double LeftOut(const NamesSample& sample, NameKind kind) {
    double least = 0;
    for (const NameSample& row : sample.rows)
      if (row.kind == kind) least = row.time_ns.center;
    return least;
  }

  // kSame: it runs as often.
  NameVerdict ByCount(const NameResult& result) const {
    const bool before = Occurs(result.base_launches), after = Occurs(result.now_launches);
    if (before != after) {
      const Spread& launches = before ? result.base_launches : result.now_launches;
      // What happens in some steps only need not happen in those of a short recording.
      if (launches.center <= 0) return NameVerdict::kCannotTell;
      const NamesSample& other = before ? now_ : base_;
      const double ns = before ? result.base_ns.center : result.now_ns.center;
      if (other.more[Index(result.kind)] && ns <= LeftOut(other, result.kind)) return NameVerdict::kCannotTell;
      return before ? NameVerdict::kGone : NameVerdict::kNew;
    }
    const Difference count = Apart(result.base_launches, result.now_launches);
    const double most = std::max(result.base_launches.center, result.now_launches.center);
    if (!(count.low > 0 || count.high < 0) || std::fabs(count.value) <= rules::kNameShare * most)
      return NameVerdict::kSame;
    return count.value > 0 ? NameVerdict::kMore : NameVerdict::kFewer;
  }

  // A lower clock or a busier machine makes all of a kind slower: that is no change of each name.
  void FindCommon(NameChanges& changes) const {
    if (std::cmp_less(steps_, rules::kMiddle)) return;
    for (std::size_t kind = 0; kind < kNameKinds; ++kind) {
      std::vector<double> factors;
      for (const NameResult& result : changes.rows)
        if (Index(result.kind) == kind && result.verdict == NameVerdict::kSame && result.base_ns.center >= worth_ns_ &&
            result.base_ns.center > 0)
          factors.push_back(result.now_ns.center / result.base_ns.center);
      if (factors.size() >= rules::kFewest) changes.common[kind] = LowerMedian(std::move(factors));
    }
  }

  // Of one that runs as often.
  NameVerdict ByTime(const NameResult& result, double common) const {
    if (std::cmp_less(steps_, rules::kMiddle)) return NameVerdict::kCannotTell;
    const double base = result.base_ns.center, shared = base * (common - 1);
    const Difference own{result.difference_ns.value - shared, result.difference_ns.low - shared,
                         result.difference_ns.high - shared};
    const bool few = std::cmp_less(steps_, rules::kEnough);
    const double least = std::max(worth_ns_, (few ? rules::kLittle : rules::kChangedShare) * base);
    const bool certain = few ? own.low > least || own.high < -least : own.low > 0 || own.high < 0;
    if (!certain || std::fabs(own.value) < least) return NameVerdict::kSame;
    return own.value > 0 ? NameVerdict::kSlower : NameVerdict::kFaster;
  }

  const NamesSample &base_, &now_;
  const std::int64_t steps_;
  const double worth_ns_;
};

}  // namespace

const char* Noun(NameKind kind) {
  switch (kind) {
    case NameKind::kKernel:
      return "kernel";
    case NameKind::kOperator:
      return "operator";
    case NameKind::kRange:
      break;
  }
  return "range";
}

std::string_view Name(NameVerdict verdict) {
  using analysis::Word;
  static constexpr Word kWords[] = {Word::kDiffSame,      Word::kDiffNew,    Word::kDiffGone,   Word::kDiffMoreOften,
                                    Word::kDiffLessOften, Word::kDiffSlower, Word::kDiffFaster, Word::kDiffCannotTell};
  return TextOf(kWords[static_cast<std::size_t>(verdict)]);
}

NameChanges CompareNames(const NamesSample& base, const NamesSample& now, std::int64_t steps, double step_ns) {
  return NameComparer(base, now, steps, step_ns).All();
}

}  // namespace lockstep::diff
