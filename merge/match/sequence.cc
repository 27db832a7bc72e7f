#include "merge/match/sequence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/hash.h"

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
// What wall clocks are usually within of one another (NTP); a step must be much longer to be told by them.
constexpr std::int64_t kWallNs = 10'000'000;
constexpr double kDriftLimit = 200e-6;
// Members leave within this of one another before a difference is looked into.
constexpr std::int64_t kLeastTolerance = 30'000;
constexpr std::size_t kLookahead = 12, kSlide = 256;
// Where order and time part: a stretch of this many on both sides is looked at as a whole,
// until so many in a row fit again.
constexpr std::size_t kWindow = 32, kResync = 4;
// What speaks against a pair. Two operations without partner cost less than one pair
// that is wrong twice, more than one that is wrong once.
constexpr double kGap = 0.5, kNear = 0.05, kLate = 0.9, kWrong = 0.85, kWrongUntimed = 0.9, kVeryLate = 1.5,
                 kWrongAndLate = 1.6;

std::int64_t MedianOf(std::vector<std::int64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool Compatible(const OrderedOp& a, const OrderedOp& b) {
  return a.symbol == b.symbol || a.symbol == 0 || b.symbol == 0;
}

std::uint64_t GramAt(const std::vector<OrderedOp>& ops, std::size_t at, std::size_t length) {
  Hash64 hash;
  for (std::size_t i = at; i < at + length; ++i) hash.Add(ops[i].symbol);
  return hash.value();
}

}  // namespace

// Own operation j lies at spine position j + shift, around operation `seed`.
struct Candidate {
  std::int64_t shift = 0;
  std::size_t seed = 0;
  std::size_t pairs = 0, agree = 0, together = 0;
  double contradicted = 0;
  double steps = -1;  // Share of pairs with equal step numbers, -1 no numbers.
  std::int64_t offset_ns = 0, spread_ns = 0;
  bool viable = false;
};

class SequenceMatcher {
 public:
  SequenceMatcher(const Spine& spine, const std::vector<OrderedOp>& own, const OffsetPrior& prior)
      : index_(spine), spine_(spine.ops()), own_(own), prior_(prior) {}

  SequenceMatch Run() {
    match_.to.assign(own_.size(), kExtraOp);
    if (spine_.empty() || own_.empty()) return std::move(match_);
    const std::optional<Candidate> chosen = Choose();
    if (!chosen) return std::move(match_);
    Walk(*chosen);
    // Between the first and the last pair most have a partner, or the place was wrong.
    const auto placed = [](std::int32_t to) { return to >= 0; };
    const auto first = std::find_if(match_.to.begin(), match_.to.end(), placed);
    const auto last = std::find_if(match_.to.rbegin(), match_.to.rend(), placed).base();
    const bool fits = first < last && 2 * match_.matched > static_cast<std::size_t>(last - first);
    match_.placed = fits ? Placed::kPlaced : Placed::kNowhere;
    if (!fits) match_.to.assign(own_.size(), kExtraOp);
    return std::move(match_);
  }

 private:
  std::int64_t Difference(std::size_t i, std::size_t j) const { return spine_[i].end_ns - own_[j].end_ns; }

  // --- Which shift.

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
    const std::uint64_t hash = GramAt(own_, at, index_.gram_);
    const auto range = std::equal_range(index_.grams_.begin(), index_.grams_.end(), std::pair{hash, 0u},
                                        [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto it = range.first; it != range.second; ++it) {
      Candidate c;
      c.shift = static_cast<std::int64_t>(it->second) - static_cast<std::int64_t>(at);
      c.seed = at + index_.gram_ / 2;
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

  enum class Means : std::uint8_t { kRhythm, kSteps, kClock };

  // Closely around a place first, where the least is missing; then far around it, which
  // tells steps apart whose operations follow one another always alike.
  std::optional<Candidate> Choose() {
    for (const auto& [means, look] : {std::pair{Means::kRhythm, kLookNear},
                                      {Means::kRhythm, kLookFar},
                                      {Means::kSteps, kLookFar},
                                      {Means::kSteps, kLookNear},
                                      {Means::kClock, kLookFar},
                                      {Means::kClock, kLookNear}}) {
      if (own_.size() <= kShort && spine_.size() <= kShort)
        if (auto best = Decide(AllShifts(), look, means)) return best;
      if (own_.size() < index_.gram_ || index_.grams_.empty()) continue;
      // From the middle outwards: 4/8, 3/8, 5/8, ...
      for (std::size_t s = 0; s <= kSeeds; ++s) {
        const std::size_t part = s % 2 == 1 ? kSeeds / 2 - (s + 1) / 2 : kSeeds / 2 + s / 2;
        if (auto best = Decide(AtSeed((own_.size() - index_.gram_) * part / kSeeds), look, means)) return best;
      }
    }
    return std::nullopt;
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
    match_.placed = Placed::kAmbiguous;
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

  // --- Which operation, once the shift at one place is known.

  // The two sequences from a place onwards, in either direction.
  struct View {
    const std::vector<OrderedOp>& ops;
    std::int64_t origin, direction;
    std::size_t size() const {
      return static_cast<std::size_t>(direction > 0 ? static_cast<std::int64_t>(ops.size()) - origin : origin + 1);
    }
    std::size_t at(std::size_t k) const {
      return static_cast<std::size_t>(origin + direction * static_cast<std::int64_t>(k));
    }
    const OrderedOp& operator[](std::size_t k) const { return ops[at(k)]; }
  };

  // The clock difference as it goes along: median of the latest.
  class Tracker {
   public:
    explicit Tracker(std::int64_t first) : now_(first) {}
    std::int64_t now() const { return now_; }
    void Add(std::int64_t difference) {
      recent_[count_++ % recent_.size()] = difference;
      std::array<std::int64_t, 9> sorted = recent_;
      const auto n = static_cast<std::ptrdiff_t>(std::min(count_, recent_.size()));
      std::nth_element(sorted.begin(), sorted.begin() + (n - 1) / 2, sorted.begin() + n);
      if (n >= 3) now_ = sorted[static_cast<std::size_t>((n - 1) / 2)];
    }
    void Reset(std::int64_t difference) { count_ = 0, now_ = difference; }

   private:
    std::array<std::int64_t, 9> recent_{};
    std::size_t count_ = 0;
    std::int64_t now_;
  };

  void Walk(const Candidate& c) {
    tolerance_ = std::max(kLeastTolerance, 6 * std::max<std::int64_t>(0, c.spread_ns));
    differences_.reserve(own_.size());
    const auto seed = static_cast<std::int64_t>(c.seed);
    Go({spine_, seed + c.shift, 1}, {own_, seed, 1}, c.offset_ns);
    if (seed > 0 && seed + c.shift > 0) Go({spine_, seed + c.shift - 1, -1}, {own_, seed - 1, -1}, c.offset_ns);
    match_.offset_ns = c.offset_ns;
    if (!differences_.empty()) {
      match_.offset_ns = MedianOf(differences_);
      if (differences_.size() >= 3) match_.spread_ns = c.spread_ns;
    }
    for (const std::int32_t to : match_.to) match_.matched += to >= 0;
  }

  // How badly the operations from (i, j) on fit, in operations.
  double Cost(const View& s, const View& o, std::size_t i, std::size_t j, std::int64_t offset,
              std::int64_t slack) const {
    double cost = 0;
    std::size_t k = 0;
    for (; k < kLookahead && i + k < s.size() && j + k < o.size(); ++k) {
      const OrderedOp &a = s[i + k], &b = o[j + k];
      cost += !Compatible(a, b);
      if (a.together && b.together) cost += Late(a, b, offset, slack) ? 1 : 0;
    }
    // Beyond the end nothing is known: neither good nor bad.
    return cost + 0.5 * static_cast<double>(kLookahead - k);
  }

  static bool Late(const OrderedOp& a, const OrderedOp& b, std::int64_t offset, std::int64_t slack) {
    return std::llabs(a.end_ns - b.end_ns - offset) > slack;
  }

  void Pair(const View& s, const View& o, std::size_t i, std::size_t j, Tracker& offset) {
    const OrderedOp &a = s[i], &b = o[j];
    match_.to[o.at(j)] = static_cast<std::int32_t>(s.at(i));
    if (!Compatible(a, b)) ++match_.disagree;
    if (!a.together || !b.together) return;
    offset.Add(a.end_ns - b.end_ns);
    differences_.push_back(a.end_ns - b.end_ns);
  }

  void Go(const View& s, const View& o, std::int64_t first_offset) {
    Tracker offset(first_offset);
    std::size_t i = 0, j = 0;
    std::int64_t last_ns = own_[o.at(0)].end_ns;
    while (i < s.size() && j < o.size()) {
      const OrderedOp &a = s[i], &b = o[j];
      const bool timed = a.together && b.together;
      // A pause leaves room for drift.
      const std::int64_t now = offset.now();
      const std::int64_t slack =
          tolerance_ + std::llround(kDriftLimit * static_cast<double>(std::llabs(b.end_ns - last_ns)));
      if (Compatible(a, b) && (!timed || !Late(a, b, now, slack))) {
        Pair(s, o, i++, j++, offset);
        last_ns = b.end_ns;
        continue;
      }
      last_ns = b.end_ns;
      if (Jump(s, o, &i, &j, now, slack) || Bridge(s, o, &i, &j, offset, slack)) continue;
      // Order and symbols hold, the time does not and does not come back: the clock was set.
      if (timed && Compatible(a, b)) offset.Reset(a.end_ns - b.end_ns);
      Pair(s, o, i++, j++, offset);
    }
  }

  // A hole longer than Bridge looks: on where the clock says the other one goes on.
  bool Jump(const View& s, const View& o, std::size_t* i, std::size_t* j, std::int64_t now, std::int64_t slack) {
    const std::size_t ahead_s = Reach(s, *i, o[*j].end_ns + now), ahead_o = Reach(o, *j, s[*i].end_ns - now);
    const bool in_spine = ahead_s >= ahead_o;
    const std::size_t jump = in_spine ? ahead_s : ahead_o;
    if (jump < kWindow / 2) return false;
    double best = Cost(s, o, *i, *j, now, slack);
    std::size_t skip = 0;
    for (std::size_t k = jump - 2; k <= jump + 2; ++k) {
      const std::size_t x = *i + (in_spine ? k : 0), y = *j + (in_spine ? 0 : k);
      if (x > s.size() || y > o.size()) break;
      const double cost = Cost(s, o, x, y, now, slack) + 0.5;
      if (cost < best) best = cost, skip = k;
    }
    if (skip == 0) return false;
    Slide(s, o, *i, *j, in_spine ? skip : 0, in_spine ? 0 : skip, now);
    (in_spine ? *i : *j) += skip;
    return true;
  }

  double PairCost(const OrderedOp& a, const OrderedOp& b, std::int64_t now, std::int64_t slack) const {
    const bool fits = Compatible(a, b);
    if (!a.together || !b.together) return fits ? 0 : kWrongUntimed;
    const std::int64_t off = std::llabs(a.end_ns - b.end_ns - now);
    // Of several that fit the nearest.
    if (off <= slack) return (fits ? 0 : kWrong) + kNear * static_cast<double>(off) / static_cast<double>(slack);
    if (off <= 10 * slack) return fits ? kLate : kWrongAndLate;
    return fits ? kVeryLate : kWrongAndLate;
  }

  // The cheapest way through the next operations of both: which pairs, which are missing
  // on either side. False: nothing but gaps.
  bool Bridge(const View& s, const View& o, std::size_t* i, std::size_t* j, Tracker& offset, std::int64_t slack) {
    const std::size_t n = std::min(kWindow, s.size() - *i), m = std::min(kWindow, o.size() - *j);
    const std::int64_t now = offset.now();
    enum Step : std::uint8_t { kPair, kSkipSpine, kSkipOwn };
    std::array<std::array<double, kWindow + 1>, kWindow + 1> cost;
    std::array<std::array<Step, kWindow + 1>, kWindow + 1> step;
    // From the end backwards: where one window ends the rest is open.
    for (std::size_t x = n + 1; x-- > 0;)
      for (std::size_t y = m + 1; y-- > 0;) {
        cost[x][y] = 0;
        if (x == n && y == m) continue;
        if (x == n || y == m) {
          const bool open = x == n ? n == kWindow : m == kWindow;
          const std::size_t left = x == n ? m - y : n - x;
          step[x][y] = x == n ? kSkipOwn : kSkipSpine;
          // What is left over at the sequence's own end has no partner, and needs none.
          cost[x][y] = kGap * static_cast<double>(left) * (open ? 0.5 : 0.1);
          continue;
        }
        cost[x][y] = cost[x + 1][y + 1] + PairCost(s[*i + x], o[*j + y], now, slack);
        step[x][y] = kPair;
        if (cost[x + 1][y] + kGap < cost[x][y]) cost[x][y] = cost[x + 1][y] + kGap, step[x][y] = kSkipSpine;
        if (cost[x][y + 1] + kGap < cost[x][y]) cost[x][y] = cost[x][y + 1] + kGap, step[x][y] = kSkipOwn;
      }
    std::size_t clean = 0;
    for (std::size_t x = 0, y = 0; x < n && y < m;) {
      clean += step[x][y] == kPair && PairCost(s[*i + x], o[*j + y], now, slack) <= kNear;
      const Step taken = step[x][y];
      x += taken != kSkipOwn, y += taken != kSkipSpine;
    }
    if (clean == 0 && n > 1 && m > 1) return false;
    const std::size_t first_i = *i, first_j = *j;
    std::size_t x = 0, y = 0, run = 0;
    bool gap = false;
    while (x < n && y < m && (run < kResync || !gap)) {
      const Step taken = step[x][y];
      if (taken == kPair) {
        const bool good = PairCost(s[first_i + x], o[first_j + y], now, slack) <= kNear;
        run = good ? run + 1 : 0;
        gap |= !good;
        Pair(s, o, first_i + x, first_j + y, offset);
        ++x, ++y;
        continue;
      }
      run = 0;
      gap = true;
      std::size_t skip_s = 0, skip_o = 0;
      while (x + skip_s < n && y + skip_o < m && step[x + skip_s][y + skip_o] == taken)
        taken == kSkipSpine ? ++skip_s : ++skip_o;
      Slide(s, o, first_i + x, first_j + y, skip_s, skip_o, now);
      x += skip_s, y += skip_o;
    }
    *i = first_i + x, *j = first_j + y;
    return x + y > 0;
  }

  // Operations of `v` from k on until the first that ends at `at` or later (in its direction).
  static std::size_t Reach(const View& v, std::size_t k, std::int64_t at) {
    std::size_t low = k, high = v.size();
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (v.direction > 0 ? v[middle].end_ns < at : v[middle].end_ns > at)
        low = middle + 1;
      else
        high = middle;
    }
    return low - k;
  }

  // One side has operations more than the other before (i, j). Where operations repeat,
  // the hole may lie earlier as well; times say where, and where they do not it stays open.
  void Slide(const View& s, const View& o, std::size_t i, std::size_t j, std::size_t skip_s, std::size_t skip_o,
             std::int64_t offset) {
    std::int64_t cost = 0, least = 0;
    std::size_t best = 0;
    std::vector<std::int64_t> costs{0};
    for (std::size_t t = 1; t <= std::min({i, j, kSlide}); ++t) {
      if (match_.to[o.at(j - t)] != static_cast<std::int32_t>(s.at(i - t))) break;
      const OrderedOp &in_spine = s[i - t + skip_s], &own = o[j - t + skip_o];
      if (!Compatible(in_spine, own)) break;
      cost +=
          std::llabs(in_spine.end_ns - own.end_ns - offset) - std::llabs(s[i - t].end_ns - o[j - t].end_ns - offset);
      costs.push_back(cost);
      if (cost < least) least = cost, best = t;
      if (cost > 64 * tolerance_) break;
    }
    if (best > 0) {
      for (std::size_t t = 1; t <= best; ++t) match_.to[o.at(j - t)] = kExtraOp;
      for (std::size_t t = best; t >= 1; --t)
        match_.to[o.at(j - t + skip_o)] = static_cast<std::int32_t>(s.at(i - t + skip_s));
    }
    // Every place about as good as the best leaves the operations in between open.
    std::size_t nearest = best, farthest = best;
    for (std::size_t t = 0; t < costs.size(); ++t) {
      if (costs[t] > least + tolerance_) continue;
      nearest = std::min(nearest, t);
      farthest = std::max(farthest, t);
    }
    for (std::size_t t = nearest + 1; t <= farthest; ++t) match_.to[o.at(j - t)] = kAmbiguousOp;
  }

  const Spine& index_;
  const std::vector<OrderedOp>& spine_;
  const std::vector<OrderedOp>& own_;
  const OffsetPrior& prior_;
  SequenceMatch match_;
  std::int64_t tolerance_ = 0;
  std::vector<std::int64_t> differences_;
};

Spine::Spine(std::vector<OrderedOp> ops) : ops_(std::move(ops)) {
  gram_ = std::min(kGram, std::max<std::size_t>(1, ops_.size()));
  if (ops_.size() < gram_) return;
  for (std::size_t i = 0; i + gram_ <= ops_.size(); ++i)
    grams_.emplace_back(GramAt(ops_, i, gram_), static_cast<std::uint32_t>(i));
  std::sort(grams_.begin(), grams_.end());
}

Spine::~Spine() = default;

SequenceMatch Spine::Match(const std::vector<OrderedOp>& own, const OffsetPrior& prior) const {
  return SequenceMatcher(*this, own, prior).Run();
}

}  // namespace lockstep
