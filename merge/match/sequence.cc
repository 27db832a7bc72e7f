#include "merge/match/sequence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <tuple>

#include "core/hash.h"
#include "merge/match/sequence_parts.h"

namespace lockstep {
namespace {

// Sequences up to this long are tried at every shift; longer ones where a gram fits.
constexpr std::size_t kShort = 256, kGram = 8;
constexpr std::size_t kSeeds = 8, kCandidates = 4096;
constexpr std::int64_t kLookFar = 96, kLookNear = 12;  // Operations to both sides of a place that judge it.
// A candidate's symbols agree, and its corridors are not contradicted, on so many of its operations.
constexpr double kAgree = 0.9, kContradicted = 0.2;
// The rhythm decides when the best place is so much better than any other.
constexpr double kRhythmRatio = 4;
constexpr std::int64_t kRhythmFloorNs = 5'000, kSharpNs = 30'000;
constexpr std::size_t kRhythmPairs = 6, kManyPairs = 64;
// Share of equal step numbers that speaks for a place: kernels start late in their step, so never all agree.
constexpr double kSteps = 0.6, kStepsMargin = 0.3, kStepsWhole = 0.95;
// Votes for a clock difference: of how many operations, and how many more than any other has.
constexpr std::size_t kVoteOps = 64, kVoteSpine = 20'000, kVotesLeast = 3, kVotesRatio = 2;
// What wall clocks are usually within of one another (NTP); a step must be much longer to be told by them.
constexpr std::int64_t kWallNs = 10'000'000;

std::uint64_t GramAt(const std::vector<OrderedOp>& ops, std::size_t at, std::size_t length) {
  Hash64 hash;
  for (std::size_t i = at; i < at + length; ++i) hash.Add(ops[i].symbol);
  return hash.value();
}

class Finder {
 public:
  Finder(const Spine& spine, const std::vector<OrderedOp>& own, const OffsetPrior& prior)
      : index_(spine), spine_(spine.ops()), own_(own), prior_(prior) {}

  std::optional<Candidate> Find(bool* several) {
    if (spine_.empty() || own_.empty()) return std::nullopt;
    std::optional<Candidate> best = Choose();
    *several = several_;
    return best;
  }

 private:
  std::int64_t Difference(std::size_t i, std::size_t j) const { return spine_[i].end_ns - own_[j].end_ns; }

  // Places in the spine where the own operations around one look alike; all shifts if both are short.
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

  // Coarse clock difference at a shift, to try likely ones first.
  std::int64_t Off(const Candidate& c) const {
    return std::llabs(Difference(static_cast<std::size_t>(static_cast<std::int64_t>(c.seed) + c.shift), c.seed) -
                      prior_.offset_ns);
  }

  void Judge(Candidate& c, std::int64_t look) const {
    const auto n = static_cast<std::int64_t>(own_.size()), m = static_cast<std::int64_t>(spine_.size());
    const auto seed = static_cast<std::int64_t>(c.seed);
    const std::int64_t first = std::max({std::int64_t{0}, -c.shift, seed - look});
    const std::int64_t last = std::min({n, m - c.shift, seed + look + 1});
    std::vector<std::int64_t> times, differences;
    std::vector<std::array<std::int64_t, 2>> bounds;
    std::size_t numbered = 0, same = 0;
    for (std::int64_t j = first; j < last; ++j) {
      const OrderedOp &a = spine_[static_cast<std::size_t>(j + c.shift)], &b = own_[static_cast<std::size_t>(j)];
      ++c.pairs;
      const bool agree = Compatible(a, b);
      c.agree += agree;
      if (a.step >= 0 && b.step >= 0) ++numbered, same += a.step == b.step;
      if (!agree || !a.together || !b.together) continue;
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
      const std::int64_t middle = MedianOf(copy);
      c.offset_ns = middle + std::llround(rate * static_cast<double>(own_[c.seed].end_ns - times[0]));
      std::size_t outside = 0;
      for (std::size_t i = 0; i < flat.size(); ++i) {
        const std::int64_t offset = middle + std::llround(rate * static_cast<double>(times[i] - times[0]));
        // Leaves the corridor by more than members' ends may differ.
        outside += offset < bounds[i][0] - kLeastTolerance || offset > bounds[i][1] + kLeastTolerance;
        copy[i] = std::llabs(flat[i] - middle);
      }
      c.contradicted = static_cast<double>(outside) / static_cast<double>(flat.size());
      // Three of four, all of a few: less agrees by chance somewhere.
      const std::size_t rank = copy.size() < kRhythmPairs + 2 ? copy.size() - 1 : copy.size() * 3 / 4;
      std::nth_element(copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(rank), copy.end());
      c.spread_ns = copy[rank];
    }
    c.viable = c.pairs > 0 && static_cast<double>(c.agree) >= kAgree * static_cast<double>(c.pairs) &&
               (c.together < 3 || c.contradicted <= kContradicted);
    if (prior_.within_ns > 0) c.viable &= std::llabs(c.offset_ns - prior_.offset_ns) <= prior_.within_ns;
  }

  // Drift between the halves' medians, as far as clocks may drift.
  static double Rate(const std::vector<std::int64_t>& times, const std::vector<std::int64_t>& differences) {
    const std::size_t n = differences.size(), half = n / 2;
    if (n < 2 * kRhythmPairs) return 0;
    std::vector<double> rates;
    for (std::size_t i = 0; i + half < n; ++i)
      if (times[i + half] > times[i])
        rates.push_back(static_cast<double>(differences[i + half] - differences[i]) /
                        static_cast<double>(times[i + half] - times[i]));
    if (rates.empty()) return 0;
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    return std::clamp(*middle, -kDriftLimit, kDriftLimit);
  }

  static bool Sharper(const Candidate& best, const Candidate& other) {
    return static_cast<double>(other.spread_ns) >=
           kRhythmRatio * static_cast<double>(best.spread_ns) + static_cast<double>(kRhythmFloorNs);
  }

  enum class Means : std::uint8_t { kRhythm, kVotes, kSteps, kClock };

  // Closely around a place first, where the least is missing; then far around it, which
  // tells steps apart whose operations follow one another always alike.
  std::optional<Candidate> Choose() {
    for (const auto& [means, look] : {std::pair{Means::kRhythm, kLookNear},
                                      {Means::kRhythm, kLookFar},
                                      {Means::kVotes, kLookFar},
                                      {Means::kSteps, kLookFar},
                                      {Means::kSteps, kLookNear},
                                      {Means::kClock, kLookFar},
                                      {Means::kClock, kLookNear}}) {
      if (means == Means::kVotes) {
        if (auto best = ByVotes()) return best;
        continue;
      }
      if (own_.size() <= kShort && spine_.size() <= kShort)
        if (auto best = Decide(AllShifts(), look, means)) return best;
      if (own_.size() < index_.gram() || index_.grams().empty()) continue;
      // From the middle outwards: 4/8, 3/8, 5/8, ...
      for (std::size_t s = 0; s <= kSeeds; ++s) {
        const std::size_t part = s % 2 == 1 ? kSeeds / 2 - (s + 1) / 2 : kSeeds / 2 + s / 2;
        if (auto best = Decide(AtSeed((own_.size() - index_.gram()) * part / kSeeds), look, means)) return best;
      }
    }
    return std::nullopt;
  }

  // Where so much is missing that no stretch fits as a whole: each pair of operations that
  // look alike votes for the clock difference under which they would be one. The true one
  // gets a vote of nearly every operation, any other by chance.
  std::optional<Candidate> ByVotes() const {
    if (spine_.size() > kVoteSpine) return std::nullopt;
    const std::size_t n = std::min(own_.size(), kVoteOps), begin = (own_.size() - n) / 2;
    struct Vote {
      std::int64_t difference_ns;
      std::uint32_t own, spine;
    };
    std::vector<Vote> votes;
    for (std::size_t j = begin; j < begin + n; ++j)
      for (std::size_t i = 0; i < spine_.size(); ++i)
        if (own_[j].together && spine_[i].together && Compatible(spine_[i], own_[j]))
          votes.push_back({Difference(i, j), static_cast<std::uint32_t>(j), static_cast<std::uint32_t>(i)});
    if (votes.empty()) return std::nullopt;
    std::sort(votes.begin(), votes.end(), [](const Vote& a, const Vote& b) {
      return std::tie(a.difference_ns, a.own, a.spine) < std::tie(b.difference_ns, b.own, b.spine);
    });
    const std::int64_t span = std::llabs(own_[begin + n - 1].end_ns - own_[begin].end_ns);
    const std::int64_t width = kSharpNs + std::llround(kDriftLimit / 2 * static_cast<double>(span));
    // Votes within a width, from each on; the best, and the best that is not the same once more.
    std::vector<std::size_t> ends(votes.size());
    std::size_t best = 0, end = 0;
    for (std::size_t k = 0; k < votes.size(); ++k) {
      while (end < votes.size() && votes[end].difference_ns - votes[k].difference_ns <= width) ++end;
      ends[k] = end;
      if (end - k > ends[best] - best) best = k;
    }
    std::size_t second = 0;
    for (std::size_t k = 0; k < votes.size(); ++k)
      if (std::llabs(votes[k].difference_ns - votes[best].difference_ns) > 2 * width)
        second = std::max(second, ends[k] - k);
    const std::size_t count = ends[best] - best;
    if (count < kVotesLeast || 2 * count < std::min(n, spine_.size()) || kVotesRatio * second > count)
      return std::nullopt;
    const Vote& middle = votes[best + count / 2];
    Candidate c;
    c.shift = static_cast<std::int64_t>(middle.spine) - static_cast<std::int64_t>(middle.own);
    c.seed = middle.own;
    c.pairs = c.agree = c.together = count;
    c.offset_ns = middle.difference_ns;
    c.spread_ns = (votes[ends[best] - 1].difference_ns - votes[best].difference_ns) / 2;
    if (prior_.within_ns > 0 && std::llabs(c.offset_ns - prior_.offset_ns) > prior_.within_ns) return std::nullopt;
    return c;
  }

  // The likely ones: same index, and nearest by the clock. If such a one keeps the rhythm
  // and its neighbours do not, the others need no look.
  std::optional<Candidate> Likely(const Candidates& all, std::int64_t look) const {
    const auto nearest = std::min_element(all.begin(), all.end(),
                                          [&](const Candidate& a, const Candidate& b) { return Off(a) < Off(b); });
    const auto zero = std::lower_bound(all.begin(), all.end(), std::int64_t{0},
                                       [](const Candidate& c, std::int64_t shift) { return c.shift < shift; });
    for (const auto it : {zero, nearest}) {
      if (it == all.end()) continue;
      Candidate best = *it;
      Judge(best, look);
      if (!best.viable || best.together < kRhythmPairs || best.spread_ns > kSharpNs) continue;
      bool clear = true;
      const auto at = it - all.begin(), n = static_cast<std::ptrdiff_t>(all.size());
      for (auto k = std::max<std::ptrdiff_t>(0, at - 2); k < std::min(n, at + 3); ++k) {
        if (k == at) continue;
        Candidate other = all[static_cast<std::size_t>(k)];
        Judge(other, look);
        clear &= !other.viable || other.together < kRhythmPairs || Sharper(best, other);
      }
      if (clear) return best;
    }
    return std::nullopt;
  }

  std::optional<Candidate> Decide(Candidates all, std::int64_t look, Means means) {
    if (all.size() > 2 * kShort && means == Means::kRhythm)
      if (auto best = Likely(all, look)) return best;
    if (all.size() > kCandidates) {
      std::nth_element(all.begin(), all.begin() + kCandidates, all.end(), [&](const Candidate& a, const Candidate& b) {
        const std::int64_t x = Off(a), y = Off(b);
        return x != y ? x < y : a.shift < b.shift;
      });
      all.resize(kCandidates);
    }
    Candidates fits;
    for (Candidate& c : all) {
      Judge(c, look);
      if (c.viable) fits.push_back(c);
    }
    if (fits.empty()) return std::nullopt;
    several_ = true;
    std::sort(fits.begin(), fits.end(), [](const Candidate& a, const Candidate& b) { return a.shift < b.shift; });
    return Pick(fits, look, means);
  }

  std::optional<Candidate> Pick(const Candidates& fits, std::int64_t look, Means means) const {
    // Shifts that leave little in common fit more easily: without any other support
    // they are no rivals of one that fits on more than twice as much.
    std::size_t most = 0;
    for (const Candidate& c : fits) most = std::max(most, c.agree);
    Candidates rivals;
    for (const Candidate& c : fits)
      if (2 * c.agree > most || Supported(c)) rivals.push_back(c);
    const std::size_t possible = std::min({own_.size(), spine_.size(), static_cast<std::size_t>(2 * look + 1)});
    if (rivals.size() == 1) {
      const Candidate& only = rivals[0];
      const bool large = 2 * only.pairs > possible;
      // Where something is missing nearby the true place looks wrong, and a wrong one may be left:
      // unless its rhythm speaks for it, other places are asked first.
      if (large && (Sharp(only) || only.together < Enough() || means == Means::kClock) &&
          (fits.size() == 1 || Supported(only) || only.together == 0))
        return only;
    }
    switch (means) {
      case Means::kRhythm:
        return ByRhythm(rivals, look);
      case Means::kSteps:
        return BySteps(rivals);
      case Means::kVotes:
      case Means::kClock:
        break;
    }
    return ByClock(rivals);
  }

  bool Sharp(const Candidate& c) const { return c.together >= Enough() && c.spread_ns <= kSharpNs; }

  bool Supported(const Candidate& c) const {
    return c.steps >= kSteps || Sharp(c) || std::llabs(c.offset_ns - prior_.offset_ns) <= WallLimit();
  }

  // Operations whose rhythm means something: two or three agree by chance somewhere, unless there are no more.
  std::size_t Enough() const { return std::max<std::size_t>(2, std::min({kRhythmPairs, own_.size(), spine_.size()})); }

  std::int64_t WallLimit() const { return prior_.within_ns > 0 ? prior_.within_ns : kWallNs; }

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
    // Members that leave apart blur it; then many operations, and others to compare with, make up for it.
    if (!Sharp(*best) && (!compared || look < kLookFar || best->together < kManyPairs)) return std::nullopt;
    return *best;
  }

  static std::optional<Candidate> BySteps(const Candidates& fits) {
    const Candidate* best = nullptr;
    for (const Candidate& c : fits)
      if (c.steps >= kSteps &&
          (best == nullptr || c.steps > best->steps || (c.steps == best->steps && c.pairs > best->pairs)))
        best = &c;
    if (best == nullptr) return std::nullopt;
    for (const Candidate& c : fits) {
      if (&c == best || c.steps <= best->steps - kStepsMargin) continue;
      // Within one step: the one that leaves nothing over.
      if (best->steps < kStepsWhole || c.pairs >= best->pairs) return std::nullopt;
    }
    return *best;
  }

  std::optional<Candidate> ByClock(const Candidates& fits) const {
    const auto off = [&](const Candidate& c) { return std::llabs(c.offset_ns - prior_.offset_ns); };
    const Candidate* best = &fits[0];
    for (const Candidate& c : fits)
      if (off(c) < off(*best)) best = &c;
    if (off(*best) > WallLimit()) return std::nullopt;
    for (const Candidate& c : fits)
      if (&c != best && off(c) < (prior_.within_ns > 0 ? 2 : 8) * off(*best) + kLeastTolerance) return std::nullopt;
    return *best;
  }

  const Spine& index_;
  const std::vector<OrderedOp>& spine_;
  const std::vector<OrderedOp>& own_;
  const OffsetPrior& prior_;
  bool several_ = false;
};

}  // namespace

std::optional<Candidate> FindPlace(const Spine& spine, const std::vector<OrderedOp>& own, const OffsetPrior& prior,
                                   bool* several) {
  *several = false;
  return Finder(spine, own, prior).Find(several);
}

Spine::Spine(std::vector<OrderedOp> ops) : ops_(std::move(ops)) {
  gram_ = std::min(kGram, std::max<std::size_t>(1, ops_.size()));
  if (ops_.size() < gram_) return;
  for (std::size_t i = 0; i + gram_ <= ops_.size(); ++i)
    grams_.emplace_back(GramAt(ops_, i, gram_), static_cast<std::uint32_t>(i));
  std::sort(grams_.begin(), grams_.end());
}

SequenceMatch Spine::Match(const std::vector<OrderedOp>& own, const OffsetPrior& prior) const {
  SequenceMatch match;
  match.to.assign(own.size(), kExtraOp);
  bool several = false;
  const std::optional<Candidate> place = FindPlace(*this, own, prior, &several);
  if (!place) {
    match.placed = several ? Placed::kAmbiguous : Placed::kNowhere;
    return match;
  }
  WalkFrom(*place, ops_, own, &match);
  // Between the first and the last pair most have a partner, or the place was wrong.
  const auto placed = [](std::int32_t to) { return to >= 0; };
  const auto first = std::find_if(match.to.begin(), match.to.end(), placed);
  const auto last = std::find_if(match.to.rbegin(), match.to.rend(), placed).base();
  if (first < last && 2 * match.matched > static_cast<std::size_t>(last - first)) {
    match.placed = Placed::kPlaced;
  } else {
    match.to.assign(own.size(), kExtraOp);
    match.matched = match.disagree = 0;
  }
  return match;
}

}  // namespace lockstep
