#include "merge/match/sequence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/hash.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"
#include "merge/match/sequence_parts.h"
#include "merge/rules/clock.h"
#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

// Within which the clock difference of neighbours stays in a stretch: coarsely, and finely.
std::array<std::int64_t, 2> RunNs() { return {rules::kLeaveTogetherNs, rules::kRhythmFineNs}; }

std::uint64_t GramAt(const std::vector<OrderedOp>& ops, std::size_t at, std::size_t length) {
  Hash64 hash;
  for (std::size_t i = at; i < at + length; ++i) hash.Add(ops[i].symbol);
  return hash.value();
}

class Finder {
 public:
  Finder(const Spine& spine, const std::vector<OrderedOp>& own, const OffsetPrior& prior)
      : index_(spine), spine_(spine.ops()), own_(own), prior_(prior) {}

  // The position that symbols, rhythm, step numbers or clocks select.
  std::optional<Candidate> Find() {
    if (spine_.empty() || own_.empty()) return std::nullopt;
    return Choose();
  }
  // There were several possible positions.
  bool several() const { return several_; }

 private:
  std::int64_t Difference(std::size_t i, std::size_t j) const { return spine_[i].end_ns - own_[j].end_ns; }

  // Positions in the spine where the own operations around one look alike; all shifts if both are short.
  using Candidates = std::vector<Candidate>;  // By shift.

  Candidates AllShifts() const {
    Candidates found;
    const auto n = static_cast<std::int64_t>(own_.size()), m = static_cast<std::int64_t>(spine_.size());
    for (std::int64_t shift = 1 - n; shift < m; ++shift) {
      Candidate c;
      c.shift = shift;
      const std::int64_t first = std::max<std::int64_t>(0, -shift), last = std::min(n, m - shift) - 1;
      c.seed = static_cast<std::size_t>(first + (last - first) / 2);
      found.push_back(c);
    }
    return found;
  }

  Candidates AtSeed(std::size_t at) const {
    Candidates found;
    const std::uint64_t hash = GramAt(own_, at, index_.gram());
    const auto range = std::equal_range(index_.grams().begin(), index_.grams().end(), std::pair{hash, 0u},
                                        [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto it = range.first; it != range.second; ++it) {
      Candidate c;
      c.shift = static_cast<std::int64_t>(it->second) - static_cast<std::int64_t>(at);
      c.seed = at + index_.gram() / 2;
      found.push_back(c);
    }
    return found;
  }

  // Coarse clock difference at a shift, used to try likely shifts first.
  std::int64_t Off(const Candidate& c) const {
    return std::llabs(Difference(static_cast<std::size_t>(static_cast<std::int64_t>(c.seed) + c.shift), c.seed) -
                      prior_.offset_ns);
  }

  void Score(Candidate& c, std::int64_t look) const {
    const auto n = static_cast<std::int64_t>(own_.size()), m = static_cast<std::int64_t>(spine_.size());
    const auto seed = static_cast<std::int64_t>(c.seed);
    const std::int64_t first = std::max({std::int64_t{0}, -c.shift, seed - look});
    const std::int64_t last = std::min({n, m - c.shift, seed + look + 1});
    std::vector<std::int64_t> times, differences;
    std::vector<std::array<std::int64_t, 2>> bounds;
    std::size_t numbered = 0, same = 0;
    std::array<std::vector<std::size_t>, 2> runs;  // Own operations of the current stretch.
    std::size_t symbols = 0;
    const std::array<std::int64_t, 2> run_ns = RunNs();
    for (std::int64_t j = first; j < last; ++j) {
      const OrderedOp &a = spine_[static_cast<std::size_t>(j + c.shift)], &b = own_[static_cast<std::size_t>(j)];
      ++c.pairs;
      const bool agree = Compatible(a, b);
      c.agree += agree;
      if (a.step >= 0 && b.step >= 0) ++numbered, same += a.step == b.step;
      symbols = agree ? symbols + 1 : 0;
      c.symbols = std::max(c.symbols, symbols);
      if (!agree)
        for (auto& run : runs) run.clear();
      if (!agree || !a.together || !b.together) continue;
      for (std::size_t r = 0; r < runs.size(); ++r) Extend(c, runs[r], j, run_ns[r], &c.runs[r]);
      times.push_back(b.end_ns);
      differences.push_back(a.end_ns - b.end_ns);
      bounds.push_back({a.begin_ns - b.end_ns, a.end_ns - b.begin_ns});
    }
    c.together = differences.size();
    if (numbered > 0) c.steps = static_cast<double>(same) / static_cast<double>(numbered);
    if (differences.empty()) {
      c.offset_ns = Difference(static_cast<std::size_t>(seed + c.shift), c.seed);
      c.spread_ns = -1;
    } else {
      const double rate = Rate(times, differences);
      std::vector<std::int64_t> flat = differences;
      for (std::size_t i = 0; i < flat.size(); ++i)
        flat[i] -= std::llround(rate * static_cast<double>(times[i] - times[0]));
      std::vector<std::int64_t> copy = flat;
      const std::int64_t middle = LowerMedian(copy);
      c.offset_ns = middle + std::llround(rate * static_cast<double>(own_[c.seed].end_ns - times[0]));
      std::size_t outside = 0;
      const std::int64_t together_ns = rules::kLeaveTogetherNs;
      for (std::size_t i = 0; i < flat.size(); ++i) {
        const std::int64_t offset = middle + std::llround(rate * static_cast<double>(times[i] - times[0]));
        // It leaves the corridor by more than members' ends may differ.
        outside += offset < bounds[i][0] - together_ns || offset > bounds[i][1] + together_ns;
        copy[i] = std::llabs(flat[i] - middle);
      }
      c.contradicted = static_cast<double>(outside) / static_cast<double>(flat.size());
      // Of few operations all must keep the clock difference: a smaller share agrees by chance somewhere.
      const std::size_t rank =
          copy.size() < rules::kScatter ? copy.size() - 1 : copy.size() * rules::kRhythmPercent / 100;
      c.spread_ns = NthElement(copy, rank);
    }
    c.viable = c.pairs > 0 && NearlyAllOf(c.agree, c.pairs) &&
               (c.together < rules::kMiddle || c.contradicted <= rules::kPositionContradicted);
    if (prior_.within_ns > 0) c.viable &= std::llabs(c.offset_ns - prior_.offset_ns) <= prior_.within_ns;
  }

  // Adds one more operation of a candidate and tests whether it keeps the clock difference.
  void Extend(const Candidate& c, std::vector<std::size_t>& run, std::int64_t j, std::int64_t limit_ns,
              Candidate::Run* longest) const {
    const auto difference = [&](std::size_t own) {
      return Difference(static_cast<std::size_t>(static_cast<std::int64_t>(own) + c.shift), own);
    };
    const auto at = static_cast<std::size_t>(j);
    if (!run.empty()) {
      const std::int64_t drift = DriftWithin(own_[at].end_ns - own_[run.back()].end_ns);
      if (std::llabs(difference(at) - difference(run.back())) > limit_ns + drift) run.clear();
    }
    run.push_back(at);
    if (run.size() > longest->length) *longest = {run.size(), run[run.size() / 2], difference(run[run.size() / 2])};
  }

  // Drift between the medians of the halves, limited to what clocks may drift.
  static double Rate(const std::vector<std::int64_t>& times, const std::vector<std::int64_t>& differences) {
    const std::size_t n = differences.size(), half = n / 2;
    if (n < 2 * rules::kRhythmOperations) return 0;
    std::vector<double> rates;
    for (std::size_t i = 0; i + half < n; ++i)
      if (times[i + half] > times[i])
        rates.push_back(static_cast<double>(differences[i + half] - differences[i]) /
                        static_cast<double>(times[i + half] - times[i]));
    if (rates.empty()) return 0;
    return std::clamp(UpperMedian(rates), -kMostDrift, kMostDrift);
  }

  static bool Sharper(const Candidate& best, const Candidate& other) {
    return static_cast<double>(other.spread_ns) >=
           rules::kRhythmRatio * static_cast<double>(best.spread_ns) + static_cast<double>(rules::kRhythmFloorNs);
  }

  enum class Method : std::uint8_t { kRhythm, kVotes, kStepNumbers, kClock };

  // First compares closely around a position, where the least is missing; then far around it, which distinguishes steps
  // whose operations always have the same order.
  std::optional<Candidate> Choose() {
    for (const auto& [method, look] : {std::pair{Method::kRhythm, rules::kPositionLookNear},
                                       {Method::kRhythm, rules::kPositionLookFar},
                                       {Method::kVotes, rules::kPositionLookFar},
                                       {Method::kStepNumbers, rules::kPositionLookFar},
                                       {Method::kStepNumbers, rules::kPositionLookNear},
                                       {Method::kClock, rules::kPositionLookFar},
                                       {Method::kClock, rules::kPositionLookNear}}) {
      if (method == Method::kVotes) {
        if (auto best = PositionByVotes(spine_, own_, prior_)) return best;
        continue;
      }
      if (own_.size() <= rules::kPositionShortOperations && spine_.size() <= rules::kPositionShortOperations)
        if (auto best = Decide(AllShifts(), look, method)) return best;
      if (own_.size() < index_.gram() || index_.grams().empty()) continue;
      // From the middle outwards: 4/8, 3/8, 5/8, ...
      for (std::size_t s = 0; s <= rules::kPositionSeeds; ++s) {
        const std::size_t part =
            s % 2 == 1 ? rules::kPositionSeeds / 2 - (s + 1) / 2 : rules::kPositionSeeds / 2 + s / 2;
        if (auto best = Decide(AtSeed((own_.size() - index_.gram()) * part / rules::kPositionSeeds), look, method))
          return best;
      }
    }
    return std::nullopt;
  }

  // Likely positions: the same index, and the nearest by the clock. If one of them keeps the rhythm and its neighbours
  // do not, the others are not examined.
  std::optional<Candidate> Likely(const Candidates& all, std::int64_t look) const {
    const auto nearest = std::min_element(all.begin(), all.end(),
                                          [&](const Candidate& a, const Candidate& b) { return Off(a) < Off(b); });
    const auto zero = std::lower_bound(all.begin(), all.end(), std::int64_t{0},
                                       [](const Candidate& c, std::int64_t shift) { return c.shift < shift; });
    for (const auto it : {zero, nearest}) {
      if (it == all.end()) continue;
      const auto at = it - all.begin(), n = static_cast<std::ptrdiff_t>(all.size());
      Candidates near(all.begin() + std::max<std::ptrdiff_t>(0, at - rules::kPositionNeighbours),
                      all.begin() + std::min(n, at + rules::kPositionNeighbours + 1));
      for (Candidate& c : near) Score(c, look);
      const auto best = ByRuns(near);
      if (best && best->shift == it->shift && best->together > static_cast<std::size_t>(look)) return best;
    }
    return std::nullopt;
  }

  std::optional<Candidate> Decide(Candidates all, std::int64_t look, Method method) {
    if (all.size() > 2 * rules::kPositionShortOperations && method == Method::kRhythm)
      if (auto best = Likely(all, look)) return best;
    if (all.size() > rules::kPositionCandidates) {
      std::nth_element(all.begin(), all.begin() + rules::kPositionCandidates, all.end(),
                       [&](const Candidate& a, const Candidate& b) {
                         const std::int64_t x = Off(a), y = Off(b);
                         return x != y ? x < y : a.shift < b.shift;
                       });
      all.resize(rules::kPositionCandidates);
    }
    Candidates fits;
    for (Candidate& c : all) {
      Score(c, look);
      if (c.viable) fits.push_back(c);
    }
    // A hole makes the true position look wrong as a whole, but its stretches still support it.
    if (method == Method::kRhythm)
      if (auto best = ByRuns(all)) return best;
    if (fits.empty()) return std::nullopt;
    several_ = true;
    std::sort(fits.begin(), fits.end(), [](const Candidate& a, const Candidate& b) { return a.shift < b.shift; });
    return Pick(all, fits, look, method);
  }

  std::optional<Candidate> Pick(const Candidates& all, const Candidates& fits, std::int64_t look, Method method) const {
    std::size_t most = 0;
    for (const Candidate& c : fits) most = std::max(most, c.agree);
    Candidates rivals;
    for (const Candidate& c : fits)  // Little overlap fits easily.
      if (MostOf(c.agree, most) || Supported(c)) rivals.push_back(c);
    const std::size_t possible = std::min({own_.size(), spine_.size(), static_cast<std::size_t>(2 * look + 1)});
    if (rivals.size() == 1) {
      const Candidate& only = rivals[0];
      const bool large = MostOf(only.pairs, possible);
      // Where something is missing nearby, the true position looks wrong as a whole, and a wrong one may be the only
      // one left: no other may have a long stretch.
      const bool alone = std::all_of(all.begin(), all.end(), [&](const Candidate& c) {
        return c.shift == only.shift || StandsOut(only.symbols, c.symbols);
      });
      if (large && alone && (only.together < Enough() || method == Method::kClock) &&
          (fits.size() == 1 || Supported(only) || only.together == 0))
        return only;
    }
    switch (method) {
      case Method::kRhythm:
        return ByRhythm(rivals, look);
      case Method::kStepNumbers:
        return BySteps(rivals);
      case Method::kVotes:
      case Method::kClock:
        break;
    }
    return ByClock(rivals);
  }

  bool Sharp(const Candidate& c) const { return c.together >= Enough() && c.spread_ns <= rules::kLeaveTogetherNs; }

  bool Supported(const Candidate& c) const {
    return c.steps >= rules::kStepNumbersAgree || Sharp(c) || std::llabs(c.offset_ns - prior_.offset_ns) <= WallLimit();
  }

  // The number of operations that make a rhythm significant; one alone has none.
  std::size_t Enough() const {
    return std::max<std::size_t>(2, std::min({rules::kRhythmOperations, own_.size(), spine_.size()}));
  }

  std::int64_t WallLimit() const { return prior_.within_ns > 0 ? prior_.within_ns : rules::kWallClockErrorNs; }

  // The position with the longest stretch that keeps the difference, if it is clearly longer than at any other.
  std::optional<Candidate> ByRuns(const Candidates& all) const {
    const std::array<std::int64_t, 2> run_ns = RunNs();
    for (std::size_t r = 0; r < run_ns.size(); ++r) {
      const Candidate* best = nullptr;
      for (const Candidate& c : all)
        if (InReach(c.runs[r]) && (best == nullptr || c.runs[r].length > best->runs[r].length)) best = &c;
      if (best == nullptr || best->runs[r].length < Enough()) continue;
      const Candidate::Run& longest = best->runs[r];
      const bool clear = std::all_of(all.begin(), all.end(), [&](const Candidate& c) {
        const Candidate::Run& run = c.runs[r];
        if (&c == best || !InReach(run) || StandsOut(longest.length, run.length)) return true;
        // After a hole the shift is another one, but the clocks are the same.
        return std::llabs(run.offset_ns - longest.offset_ns) <=
               rules::kLeaveTogetherNs + DriftWithin(own_[run.middle].end_ns - own_[longest.middle].end_ns);
      });
      if (!clear || Regular(all, *best, r)) continue;
      Candidate position = *best;
      position.seed = longest.middle;
      position.offset_ns = longest.offset_ns;
      position.spread_ns = std::min(position.spread_ns, run_ns[r]);
      position.together = longest.length;
      return position;
    }
    return std::nullopt;
  }

  // If steps all take the same time, every shift keeps the difference; holes on both sides then favour one by chance.
  // Each sequence shows this by itself: shifted by the distance to the other candidates, it resembles itself.
  bool Regular(const Candidates& all, const Candidate& best, std::size_t r) const {
    const Candidate::Run& run = best.runs[r];
    std::vector<std::int64_t> shifts;
    for (const Candidate& c : all)
      if (c.shift != best.shift) shifts.push_back(c.shift - best.shift);
    const std::size_t n = std::min(shifts.size(), rules::kRhythmSelfShifts);
    std::partial_sort(
        shifts.begin(), shifts.begin() + static_cast<std::ptrdiff_t>(n), shifts.end(),
        [](std::int64_t a, std::int64_t b) { return std::pair(std::llabs(a), a) < std::pair(std::llabs(b), b); });
    shifts.resize(n);
    // A stretch across a hole resembles no other, but the steps around it repeat all the same.
    for (std::int64_t shift = 1; shift <= rules::kPositionLookFar / 2; ++shift)
      shifts.push_back(shift), shifts.push_back(-shift);
    const std::int64_t limit_ns = RunNs()[r];
    const auto half = static_cast<std::int64_t>(run.length / 2), middle = static_cast<std::int64_t>(run.middle);
    return std::any_of(shifts.begin(), shifts.end(), [&](std::int64_t shift) {
      const std::int64_t at = middle + best.shift;
      return !StandsOut(run.length, SelfRun(own_, middle - half, middle + half, shift, limit_ns)) ||
             !StandsOut(run.length, SelfRun(spine_, at - half, at + half, shift, limit_ns));
    });
  }

  static std::size_t SelfRun(const std::vector<OrderedOp>& ops, std::int64_t first, std::int64_t last,
                             std::int64_t shift, std::int64_t limit_ns) {
    const auto size = static_cast<std::int64_t>(ops.size());
    std::size_t run = 0, longest = 0;
    std::int64_t before = 0, before_end = 0;
    for (std::int64_t i = std::max<std::int64_t>(0, first); i <= std::min(last, size - 1); ++i) {
      if (i + shift < 0 || i + shift >= size) continue;
      const OrderedOp &a = ops[static_cast<std::size_t>(i)], &b = ops[static_cast<std::size_t>(i + shift)];
      if (!Compatible(a, b)) {
        run = 0;
        continue;
      }
      if (!a.together || !b.together) continue;
      const std::int64_t difference = b.end_ns - a.end_ns;
      const bool keeps = run > 0 && std::llabs(difference - before) <= limit_ns + DriftWithin(a.end_ns - before_end);
      run = keeps ? run + 1 : 1;
      before = difference, before_end = a.end_ns;
      longest = std::max(longest, run);
    }
    return longest;
  }

  bool InReach(const Candidate::Run& run) const {
    return run.length > 0 &&
           (prior_.within_ns == 0 || std::llabs(run.offset_ns - prior_.offset_ns) <= prior_.within_ns);
  }

  std::optional<Candidate> ByRhythm(const Candidates& fits, std::int64_t look) const {
    const Candidate* best = nullptr;
    for (const Candidate& c : fits)
      if (c.together >= Enough() && (best == nullptr || c.spread_ns < best->spread_ns)) best = &c;
    if (best == nullptr) return std::nullopt;
    bool compared = false;
    for (const Candidate& c : fits) {
      if (&c == best || c.together < Enough()) continue;
      compared = true;
      if (!Sharper(*best, c)) return std::nullopt;
    }
    // If members leave apart, the rhythm is blurred: many operations, and other candidates to compare with, are then
    // required.
    if (!compared || look < rules::kPositionLookFar || best->together < rules::kRhythmBlurredOperations)
      return std::nullopt;
    return *best;
  }

  static std::optional<Candidate> BySteps(const Candidates& fits) {
    const Candidate* best = nullptr;
    for (const Candidate& c : fits)
      if (c.steps >= rules::kStepNumbersAgree &&
          (best == nullptr || c.steps > best->steps || (c.steps == best->steps && c.pairs > best->pairs)))
        best = &c;
    if (best == nullptr) return std::nullopt;
    for (const Candidate& c : fits) {
      if (&c == best || c.steps <= best->steps - rules::kStepNumbersAgree / 2) continue;
      // Within one step: the position that leaves no operation over.
      if (best->steps < rules::kStepNumbersWhole || c.pairs >= best->pairs) return std::nullopt;
    }
    return *best;
  }

  std::optional<Candidate> ByClock(const Candidates& fits) const {
    const auto off = [&](const Candidate& c) { return std::llabs(c.offset_ns - prior_.offset_ns); };
    const Candidate* best = &fits[0];
    for (const Candidate& c : fits)
      if (off(c) < off(*best)) best = &c;
    if (off(*best) > WallLimit()) return std::nullopt;
    // Clocks that another communicator has related are reliable.
    const double times = prior_.within_ns > 0 ? rules::kStandsOut : rules::kWallClockRatio;
    const double least = times * static_cast<double>(off(*best));
    for (const Candidate& c : fits)
      if (&c != best && static_cast<double>(off(c) - rules::kLeaveTogetherNs) < least) return std::nullopt;
    return *best;
  }

  const Spine& index_;
  const std::vector<OrderedOp>& spine_;
  const std::vector<OrderedOp>& own_;
  const OffsetPrior& prior_;
  bool several_ = false;
};

}  // namespace

Spine::Spine(std::vector<OrderedOp> ops) : ops_(std::move(ops)) {
  gram_ = std::min(rules::kPositionGram, std::max<std::size_t>(1, ops_.size()));
  if (ops_.size() < gram_) return;
  for (std::size_t i = 0; i + gram_ <= ops_.size(); ++i)
    grams_.emplace_back(GramAt(ops_, i, gram_), static_cast<std::uint32_t>(i));
  std::sort(grams_.begin(), grams_.end());
}

SequenceMatch Spine::Match(const std::vector<OrderedOp>& own, const OffsetPrior& prior) const {
  SequenceMatch match;
  match.to.assign(own.size(), kExtraOp);
  Finder finder(*this, own, prior);
  const std::optional<Candidate> position = finder.Find();
  if (!position) {
    match.fit = finder.several() ? Fit::kAmbiguous : Fit::kNone;
    return match;
  }
  WalkFrom(*position, ops_, own, &match);
  // Between the first and the last pair most operations must have a partner, or the position was wrong.
  const auto paired = [](std::int32_t to) { return to >= 0; };
  const auto first = std::find_if(match.to.begin(), match.to.end(), paired);
  const auto last = std::find_if(match.to.rbegin(), match.to.rend(), paired).base();
  if (first < last && MostOf(match.matched, last - first)) {
    match.fit = Fit::kUnique;
  } else {
    match.to.assign(own.size(), kExtraOp);
    match.matched = match.disagree = 0;
  }
  return match;
}

}  // namespace lockstep::merge
