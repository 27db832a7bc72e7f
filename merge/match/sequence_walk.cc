#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>

#include "core/order_statistics.h"
#include "core/rules/common.h"
#include "merge/match/sequence_parts.h"
#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

// Follows the clock difference: the median of the latest, moved on by the drift they show.
class Tracker {
 public:
  Tracker(std::int64_t difference_ns, std::int64_t at_ns) : now_ns_(difference_ns), at_ns_(at_ns) {}
  std::int64_t At(std::int64_t own_ns) const {
    return now_ns_ + std::llround(rate_ * static_cast<double>(own_ns - at_ns_));
  }
  // The possible change by drift since then.
  std::int64_t Doubt(std::int64_t own_ns) const {
    return std::llround((rate_known_ ? rules::kWalkSteadyDrift : kMostDrift) *
                        static_cast<double>(std::llabs(own_ns - at_ns_)));
  }
  void Add(std::int64_t own_ns, std::int64_t difference_ns) {
    recent_[count_++ % recent_.size()] = {own_ns, difference_ns};
    if (count_ < rules::kMiddle) return;
    const auto newest = MedianOfPart(0);
    now_ns_ = newest.second, at_ns_ = newest.first;
    if (count_ < recent_.size()) return;
    const auto oldest = MedianOfPart(recent_.size() - kPart);
    const std::int64_t span = std::llabs(newest.first - oldest.first);
    rate_known_ = span >= rules::kWalkRateSpanNs;
    rate_ = rate_known_ ? std::clamp(static_cast<double>(newest.second - oldest.second) /
                                         static_cast<double>(newest.first - oldest.first),
                                     -kMostDrift, kMostDrift)
                        : 0;
  }
  void Reset(std::int64_t own_ns, std::int64_t difference_ns) { *this = Tracker(difference_ns, own_ns); }

 private:
  static constexpr std::size_t kPart = rules::kWalkTrackMedian;

  // The lower median of the first n, without a copy on the heap: once per operation. Reorders them.
  static std::int64_t MiddleOf(std::array<std::int64_t, kPart>& values, std::size_t n) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((n - 1) / 2);
    std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(n));
    return *middle;
  }

  // Time and difference at the middle of kPart, from the `back`-th latest on.
  std::pair<std::int64_t, std::int64_t> MedianOfPart(std::size_t back) const {
    std::array<std::int64_t, kPart> times{}, differences{};
    const std::size_t n = std::min(kPart, count_);
    for (std::size_t k = 0; k < n; ++k) {
      const auto& [time, difference] = recent_[(count_ - 1 - back - k) % recent_.size()];
      times[k] = time, differences[k] = difference;
    }
    return {MiddleOf(times, n), MiddleOf(differences, n)};
  }

  std::array<std::pair<std::int64_t, std::int64_t>, rules::kWalkTrackKept> recent_{};
  std::size_t count_ = 0;
  std::int64_t now_ns_, at_ns_;
  double rate_ = 0;
  bool rate_known_ = false;
};

class Walker {
 public:
  Walker(const std::vector<OrderedOp>& spine, const std::vector<OrderedOp>& own, SequenceMatch& match)
      : spine_(spine), own_(own), match_(match) {}

  void Walk(const Candidate& c) {
    tolerance_ = std::max<std::int64_t>(rules::kLeaveTogetherNs,
                                        std::llround(rules::kOutlier * static_cast<double>(c.spread_ns)));
    differences_.reserve(own_.size());
    const auto seed = static_cast<std::int64_t>(c.seed);
    Tracker offset(c.offset_ns, own_[c.seed].end_ns);
    Go({spine_, seed + c.shift, 1}, {own_, seed, 1}, offset);
    if (seed > 0 && seed + c.shift > 0) Go({spine_, seed + c.shift - 1, -1}, {own_, seed - 1, -1}, offset);
    match_.offset_ns = c.offset_ns;
    if (!differences_.empty()) {
      match_.offset_ns = LowerMedian(differences_);
      if (differences_.size() >= rules::kMiddle) match_.spread_ns = c.spread_ns;
    }
    for (const std::int32_t to : match_.to) match_.matched += to >= 0;
  }

 private:
  // A sequence from a position onwards, in either direction.
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

  // How badly the operations from (i, j) on fit, in operations.
  double Cost(const View& s, const View& o, std::size_t i, std::size_t j, const Tracker& offset) const {
    double cost = 0;
    std::size_t k = 0;
    const auto lookahead = static_cast<std::size_t>(rules::kPositionLookNear);
    for (; k < lookahead && i + k < s.size() && j + k < o.size(); ++k) {
      const OrderedOp &a = s[i + k], &b = o[j + k];
      cost += !Compatible(a, b);
      if (a.together && b.together) cost += Late(a, b, offset) ? 1 : 0;
    }
    // Beyond the end nothing is known: it counts as neither good nor bad.
    return cost + static_cast<double>(lookahead - k) / 2;
  }

  std::int64_t Slack(const OrderedOp& b, const Tracker& offset) const { return tolerance_ + offset.Doubt(b.end_ns); }
  static std::int64_t Off(const OrderedOp& a, const OrderedOp& b, const Tracker& offset) {
    return std::llabs(a.end_ns - b.end_ns - offset.At(b.end_ns));
  }
  bool Late(const OrderedOp& a, const OrderedOp& b, const Tracker& offset) const {
    return Off(a, b, offset) > Slack(b, offset);
  }

  void Pair(const View& s, const View& o, std::size_t i, std::size_t j, Tracker& offset) {
    const OrderedOp &a = s[i], &b = o[j];
    match_.to[o.at(j)] = static_cast<std::int32_t>(s.at(i));
    if (!Compatible(a, b)) ++match_.disagree;
    if (!a.together || !b.together) return;
    offset.Add(b.end_ns, a.end_ns - b.end_ns);
    differences_.push_back(a.end_ns - b.end_ns);
  }

  void Go(const View& s, const View& o, Tracker offset) {
    std::size_t i = 0, j = 0;
    while (i < s.size() && j < o.size()) {
      const OrderedOp &a = s[i], &b = o[j];
      const bool timed = a.together && b.together;
      if (Compatible(a, b) && (!timed || !Late(a, b, offset))) {
        Pair(s, o, i++, j++, offset);
        continue;
      }
      if (Jump(s, o, &i, &j, offset) || Bridge(s, o, &i, &j, offset)) continue;
      // Order and symbols agree, but the time does not and stays different: the clock was set.
      if (timed && Compatible(a, b)) offset.Reset(b.end_ns, a.end_ns - b.end_ns);
      Pair(s, o, i++, j++, offset);
    }
  }

  // A hole longer than Bridge examines: continue where, by the clock, the other side continues.
  bool Jump(const View& s, const View& o, std::size_t* i, std::size_t* j, const Tracker& offset) {
    const std::int64_t now = offset.At(o[*j].end_ns);
    const std::size_t ahead_s = Reach(s, *i, o[*j].end_ns + now), ahead_o = Reach(o, *j, s[*i].end_ns - now);
    const bool in_spine = ahead_s >= ahead_o;
    const std::size_t jump = in_spine ? ahead_s : ahead_o;
    if (jump < rules::kWalkWindow / 2) return false;
    double best = Cost(s, o, *i, *j, offset);
    std::size_t skip = 0;
    for (std::size_t k = jump - rules::kWalkJumpSearch; k <= jump + rules::kWalkJumpSearch; ++k) {
      const std::size_t x = *i + (in_spine ? k : 0), y = *j + (in_spine ? 0 : k);
      if (x > s.size() || y > o.size()) break;
      const double cost = Cost(s, o, x, y, offset) + rules::kWalkGapCost;
      if (cost < best) best = cost, skip = k;
    }
    if (skip == 0) return false;
    Slide(s, o, *i, *j, in_spine ? skip : 0, in_spine ? 0 : skip, offset);
    (in_spine ? *i : *j) += skip;
    return true;
  }

  // No member leaves an operation before all have come, so the two may be the same operation.
  bool Overlap(const OrderedOp& a, const OrderedOp& b, const Tracker& offset) const {
    const std::int64_t at = offset.At(b.end_ns), slack = Slack(b, offset);
    return a.begin_ns - at <= b.end_ns + slack && b.begin_ns + at <= a.end_ns + slack;
  }

  double PairCost(const OrderedOp& a, const OrderedOp& b, const Tracker& offset) const {
    const bool fits = Compatible(a, b);
    const double late_cost = rules::kWalkWrongCost + rules::kWalkNearCost;
    if (!a.together || !b.together) return fits ? 0 : 2 * late_cost;
    const std::int64_t off = Off(a, b, offset), slack = Slack(b, offset);
    // Of several that fit, the nearest.
    if (off <= slack)
      return (fits ? 0 : rules::kWalkWrongCost) +
             rules::kWalkNearCost * static_cast<double>(off) / static_cast<double>(slack);
    // One operation overlaps on all members; a pair that is wrong twice is none.
    return fits && Overlap(a, b, offset) ? late_cost : std::numeric_limits<double>::infinity();
  }

  // The cost if one of the two, the earlier one, has no partner.
  double GapCost(const View& s, std::size_t i, const View& o, std::size_t j, bool in_spine,
                 const Tracker& offset) const {
    const OrderedOp &a = s[i], &b = o[j];
    if (!a.together || !b.together || Overlap(a, b, offset)) return rules::kWalkGapCost;
    const std::int64_t lead = s.direction * (a.end_ns - b.end_ns - offset.At(b.end_ns));
    return (in_spine ? lead < 0 : lead > 0) ? rules::kWalkGapByTimeCost : rules::kWalkGapCost;
  }

  enum Step : std::uint8_t { kPair, kSkipSpine, kSkipOwn };
  using Steps = std::array<std::array<Step, rules::kWalkWindow + 1>, rules::kWalkWindow + 1>;

  // The cheapest path through the next operations of both, n from s[i] and m from o[j]: which are pairs, and which are
  // missing on either side.
  Steps CheapestWay(const View& s, const View& o, std::size_t i, std::size_t j, std::size_t n, std::size_t m,
                    const Tracker& offset) const {
    std::array<std::array<double, rules::kWalkWindow + 1>, rules::kWalkWindow + 1> cost;
    Steps step;
    // From the end backwards: what is left after the end of a window may or may not fit, after that of a sequence it
    // needs no partner.
    for (std::size_t x = n + 1; x-- > 0;)
      for (std::size_t y = m + 1; y-- > 0;) {
        cost[x][y] = 0;
        if (x == n && y == m) continue;
        if (x == n || y == m) {
          const bool open = x == n ? n == rules::kWalkWindow : m == rules::kWalkWindow;
          const std::size_t left = x == n ? m - y : n - x;
          step[x][y] = x == n ? kSkipOwn : kSkipSpine;
          cost[x][y] = static_cast<double>(left) * (open ? rules::kWalkGapCost / 2 : rules::kWalkNearCost);
          continue;
        }
        cost[x][y] = cost[x + 1][y + 1] + PairCost(s[i + x], o[j + y], offset);
        step[x][y] = kPair;
        const double skip_spine = cost[x + 1][y] + GapCost(s, i + x, o, j + y, true, offset);
        const double skip_own = cost[x][y + 1] + GapCost(s, i + x, o, j + y, false, offset);
        if (skip_spine < cost[x][y]) cost[x][y] = skip_spine, step[x][y] = kSkipSpine;
        if (skip_own < cost[x][y]) cost[x][y] = skip_own, step[x][y] = kSkipOwn;
      }
    return step;
  }

  // Follows the cheapest path until order and time agree again. Returns false if it consists of gaps only.
  bool Bridge(const View& s, const View& o, std::size_t* i, std::size_t* j, Tracker& tracker) {
    const std::size_t n = std::min(rules::kWalkWindow, s.size() - *i), m = std::min(rules::kWalkWindow, o.size() - *j);
    const Tracker offset = tracker;  // As at the beginning: costs must not change on the way.
    const Steps step = CheapestWay(s, o, *i, *j, n, m, offset);
    const std::size_t first_i = *i, first_j = *j;
    const auto good = [&](std::size_t x, std::size_t y) {
      return step[x][y] == kPair && PairCost(s[first_i + x], o[first_j + y], offset) <= rules::kWalkNearCost;
    };
    bool any_good = n <= 1 || m <= 1;
    for (std::size_t x = 0, y = 0; x < n && y < m && !any_good;) {
      any_good = good(x, y);
      const Step taken = step[x][y];
      x += taken != kSkipOwn, y += taken != kSkipSpine;
    }
    if (!any_good) return false;
    std::size_t x = 0, y = 0, run = 0;
    bool gap = false;
    while (x < n && y < m && (run < rules::kRecurs || !gap)) {
      const Step taken = step[x][y];
      if (taken == kPair) {
        run = good(x, y) ? run + 1 : 0;
        gap |= run == 0;
        Pair(s, o, first_i + x, first_j + y, tracker);
        ++x, ++y;
        continue;
      }
      run = 0;
      gap = true;
      std::size_t skip_s = 0, skip_o = 0;
      while (x + skip_s < n && y + skip_o < m && step[x + skip_s][y + skip_o] == taken)
        taken == kSkipSpine ? ++skip_s : ++skip_o;
      Slide(s, o, first_i + x, first_j + y, skip_s, skip_o, offset);
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

  // One side has more operations than the other before (i, j). Where operations repeat, the hole may also be earlier;
  // times decide where, and if they do not, it stays open.
  void Slide(const View& s, const View& o, std::size_t i, std::size_t j, std::size_t skip_s, std::size_t skip_o,
             const Tracker& offset) {
    std::int64_t cost = 0, least = 0;
    std::size_t best = 0;
    std::vector<std::int64_t> costs{0};
    for (std::size_t t = 1; t <= std::min({i, j, rules::kWalkSlide}); ++t) {
      if (match_.to[o.at(j - t)] != static_cast<std::int32_t>(s.at(i - t))) break;
      const OrderedOp &in_spine = s[i - t + skip_s], &own = o[j - t + skip_o];
      if (!Compatible(in_spine, own)) break;
      cost += Off(in_spine, own, offset) - Off(s[i - t], o[j - t], offset);
      costs.push_back(cost);
      if (cost < least) least = cost, best = t;
      if (cost > rules::kWalkSlideTolerances * tolerance_) break;
    }
    if (best > 0) {
      for (std::size_t t = 1; t <= best; ++t) match_.to[o.at(j - t)] = kExtraOp;
      for (std::size_t t = best; t >= 1; --t)
        match_.to[o.at(j - t + skip_o)] = static_cast<std::int32_t>(s.at(i - t + skip_s));
    }
    // If several positions are about as good as the best, the operations in between stay open.
    std::size_t nearest = best, farthest = best;
    for (std::size_t t = 0; t < costs.size(); ++t) {
      if (costs[t] > least + tolerance_) continue;
      nearest = std::min(nearest, t);
      farthest = std::max(farthest, t);
    }
    for (std::size_t t = nearest + 1; t <= farthest; ++t) match_.to[o.at(j - t)] = kAmbiguousOp;
  }

  const std::vector<OrderedOp>& spine_;
  const std::vector<OrderedOp>& own_;
  SequenceMatch& match_;
  std::int64_t tolerance_ = 0;
  std::vector<std::int64_t> differences_;
};

}  // namespace

void WalkFrom(const Candidate& position, const std::vector<OrderedOp>& spine, const std::vector<OrderedOp>& own,
              SequenceMatch* match) {
  Walker(spine, own, *match).Walk(position);
}

}  // namespace lockstep::merge
