#include "merge/clock/corridor.h"

#include <tbb/parallel_sort.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>

#include "core/hash.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"
#include "merge/clock/align.h"
#include "merge/rules/clock.h"

namespace lockstep::merge {
namespace {

std::int32_t Saturated(std::int64_t ns) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(ns, std::numeric_limits<std::int32_t>::max()));
}

// Of several bounds the one that binds most with its error: a begin that is later by a nanosecond, of a clock that is
// known to 20 us, says less than the other of a clock that is known.
void Join(InstanceBounds* into, const InstanceBounds& other) {
  if (other.last_begin_ns - other.begin_error_ns > into->last_begin_ns - into->begin_error_ns) {
    into->last_begin_ns = other.last_begin_ns;
    into->begin_error_ns = other.begin_error_ns;
  }
  if (other.first_end_ns + other.end_error_ns < into->first_end_ns + into->end_error_ns) {
    into->first_end_ns = other.first_end_ns;
    into->end_error_ns = other.end_error_ns;
  }
  into->last_end_ns = std::max(into->last_end_ns, other.last_end_ns);
  into->gpu &= other.gpu;
  into->hard &= other.hard;
  into->shortest_ns = std::min(into->shortest_ns, other.shortest_ns);
}

bool ByKey(const InstanceBounds& a, const InstanceBounds& b) { return a.key < b.key; }

void JoinSorted(std::vector<InstanceBounds>* all) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all->size(); ++i) {
    if (kept > 0 && (*all)[kept - 1].key == (*all)[i].key) {
      Join(&(*all)[kept - 1], (*all)[i]);
    } else {
      (*all)[kept++] = (*all)[i];
    }
  }
  all->resize(kept);
}

std::int64_t TimeOf(const Corridor& c) { return c.bounds.high_at_ns + (c.bounds.low_at_ns - c.bounds.high_at_ns) / 2; }

struct Window {
  OffsetKnot knot;
  std::size_t count;
};

// Intersects the corridors of each window of `length_ns`, moved to its middle along
// `rate`, which the clock may leave by `wander`.
std::vector<Window> Windows(const std::vector<Corridor>& corridors, std::int64_t length_ns, double rate,
                            double wander = rules::kClockWander) {
  std::vector<Window> windows;
  for (std::size_t i = 0; i < corridors.size();) {
    const std::int64_t begin = TimeOf(corridors[i]);
    std::size_t end = i;
    while (end < corridors.size() && TimeOf(corridors[end]) - begin < length_ns) ++end;
    const std::int64_t at = begin + (TimeOf(corridors[end - 1]) - begin) / 2;
    std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
    std::int64_t least_error = 0;
    std::vector<std::int64_t> differences;
    for (std::size_t j = i; j < end; ++j) {
      const Corridor& c = corridors[j];
      const auto moved = [&](std::int64_t bound, std::int64_t from, double sign) {
        const auto distance = static_cast<double>(at - from);
        return bound + static_cast<std::int64_t>(std::llround(rate * distance + sign * wander * std::abs(distance)));
      };
      low = std::max(low, moved(c.bounds.low_ns, c.bounds.low_at_ns, -1) - c.low_error_ns);
      high = std::min(high, moved(c.bounds.high_ns, c.bounds.high_at_ns, 1) + c.high_error_ns);
      if (c.gpu) differences.push_back(moved(c.end_difference_ns, TimeOf(c), 0));
    }
    if (low > high) {  // The clock moved more than allowed for: both values are close, but neither is a bound.
      const std::int64_t excess = low - high;
      std::swap(low, high);
      low -= excess;
      high += excess;
    }
    if (differences.size() == end - i) {
      // Kernels of one collective end within microseconds of each other while they may start milliseconds apart, so the
      // ends are a much better estimate than the middle of the corridor.
      const std::int64_t median = UpperMedian(differences);
      std::vector<std::int64_t> deviations;
      for (const std::int64_t d : differences) deviations.push_back(std::llabs(d - median));
      const std::int64_t error = std::max(rules::kGpuEndErrorNs, rules::kGpuEndMads * UpperMedian(deviations));
      const std::int64_t middle = std::clamp(median, low, high);
      low = std::max(low, middle - error);
      high = std::min(high, middle + error);
      least_error = error;
    }
    windows.push_back({{at, low, high, least_error}, end - i});
    i = end;
  }
  return windows;
}

// Chooses the window length with the smallest error: short windows hold few collectives, long ones much wander.
std::vector<Window> BestWindows(const std::vector<Corridor>& corridors, std::int64_t span_ns, double rate,
                                double wander) {
  std::vector<Window> best;
  double best_cost = std::numeric_limits<double>::max();
  for (std::int64_t length = rules::kCorridorShortestWindowNs; length <= rules::kCorridorLongestWindowNs; length *= 2) {
    auto windows = Windows(corridors, length, rate, wander);
    std::vector<std::int64_t> widths;
    for (const Window& w : windows) widths.push_back(w.knot.high_ns - w.knot.low_ns);
    const double cost = static_cast<double>(UpperMedian(widths)) / 2 + wander * static_cast<double>(length) / 2;
    if (cost < best_cost) {
      best_cost = cost;
      best = std::move(windows);
    }
    if (length > span_ns) break;
  }
  return best;
}

}  // namespace

std::vector<InstanceBounds> InstancesOf(const std::vector<const std::vector<AlignCollective>*>& ranks) {
  std::vector<InstanceBounds> all;
  std::size_t total = 0;
  for (const auto* rank : ranks) total += rank->size();
  all.reserve(total);
  for (const auto* rank : ranks) {
    for (const AlignCollective& c : *rank) {
      if (c.end_ns < c.begin_ns) continue;
      Hash64 hash;
      hash.Add(c.comm);
      hash.Add(c.seq);
      hash.Add(c.start);
      all.push_back(
          {hash.value(), c.begin_ns, c.end_ns, c.end_ns, 0, 0, c.gpu != 0, !c.uneven, c.end_ns - c.begin_ns, c.sort});
    }
  }
  std::sort(all.begin(), all.end(), ByKey);
  JoinSorted(&all);
  return all;
}

void AddMapped(const std::vector<InstanceBounds>& domain, const ClockMap& map, std::vector<InstanceBounds>* mapped) {
  for (InstanceBounds instance : domain) {
    instance.begin_error_ns = Saturated(map.ErrorAt(instance.last_begin_ns));
    instance.end_error_ns = Saturated(map.ErrorAt(instance.first_end_ns));
    instance.last_begin_ns = map.ToCluster(instance.last_begin_ns);
    instance.first_end_ns = map.ToCluster(instance.first_end_ns);
    instance.last_end_ns = map.ToCluster(instance.last_end_ns);
    mapped->push_back(instance);
  }
}

void JoinInstances(std::vector<InstanceBounds>* instances) {
  // The order of two equal extremes must not depend on threads.
  tbb::parallel_sort(instances->begin(), instances->end(), [](const InstanceBounds& a, const InstanceBounds& b) {
    return std::tie(a.key, a.last_begin_ns, a.begin_error_ns, a.first_end_ns, a.end_error_ns, a.last_end_ns) <
           std::tie(b.key, b.last_begin_ns, b.begin_error_ns, b.first_end_ns, b.end_error_ns, b.last_end_ns);
  });
  JoinSorted(instances);
}

std::vector<Corridor> CorridorsOf(const std::vector<InstanceBounds>& domain,
                                  const std::vector<InstanceBounds>& mapped) {
  std::vector<Corridor> corridors;
  ForEachShared(domain, mapped, [&](const InstanceBounds& own, const InstanceBounds& other) {
    if (own.hard == 0 || other.hard == 0) return;
    Corridor c;
    // others' begin <= own end + offset; own begin + offset <= others' end.
    c.bounds = {own.first_end_ns, other.last_begin_ns - own.first_end_ns, own.last_begin_ns,
                other.first_end_ns - own.last_begin_ns};
    c.low_error_ns = other.begin_error_ns;
    c.high_error_ns = other.end_error_ns;
    c.end_difference_ns = other.end_ns() - own.end_ns();
    c.gpu = own.gpu != 0 && other.gpu != 0;
    corridors.push_back(c);
  });
  std::sort(corridors.begin(), corridors.end(), [](const Corridor& a, const Corridor& b) {
    const std::int64_t x = TimeOf(a), y = TimeOf(b);
    return x != y ? x < y : a.bounds.low_ns < b.bounds.low_ns;
  });
  return corridors;
}

std::vector<OffsetKnot> KnotsOfCorridors(const std::vector<Corridor>& corridors) {
  if (corridors.empty()) return {};
  const std::int64_t span = TimeOf(corridors.back()) - TimeOf(corridors.front());
  // The drift first: median slope between windows half the run apart, refined because windows may be longer once the
  // drift is known better.
  double rate = 0, wander = rules::kClockCrystalsDrift;
  for (const double part : {rules::kCorridorFirstPart, rules::kCorridorSecondPart}) {
    const auto windows = Windows(
        corridors, std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(span) * part)), rate);
    std::vector<double> rates;
    for (std::size_t a = 0, b = windows.size() / 2; b < windows.size(); ++a, ++b) {
      const OffsetKnot &first = windows[a].knot, &second = windows[b].knot;
      const auto dt = static_cast<double>(second.local_ns - first.local_ns);
      // Windows of few collectives whose members wait long for each other, on one side more than on the other, have
      // middles that are far from the truth: their slope is no drift.
      const auto widths = static_cast<double>((first.high_ns - first.low_ns) + (second.high_ns - second.low_ns));
      if (dt > 0 && widths / 2 <= rules::kClockCrystalsDrift * dt)
        rates.push_back(static_cast<double>(second.mid_ns() - first.mid_ns()) / dt);
    }
    if (rates.empty()) continue;
    rate = UpperMedian(rates);
    wander = rules::kClockWander;
  }
  std::vector<Window> best = BestWindows(corridors, span, rate, wander);
  // A clock that left its common rate by more gets that as its allowance.
  std::vector<double> leaves;
  for (std::size_t i = 1; i < best.size(); ++i) {
    const OffsetKnot &a = best[i - 1].knot, &b = best[i].knot;
    if (b.local_ns > a.local_ns)
      leaves.push_back(
          std::abs(static_cast<double>(b.mid_ns() - a.mid_ns()) / static_cast<double>(b.local_ns - a.local_ns) - rate));
  }
  if (leaves.size() >= rules::kScatter) {
    const auto nearly_all = static_cast<std::size_t>(rules::kNearlyAll * static_cast<double>(leaves.size()));
    const double most_leave_by = NthElement(leaves, nearly_all);
    if (most_leave_by > wander) best = BestWindows(corridors, span, rate, most_leave_by);
  }
  std::vector<OffsetKnot> knots;
  for (const Window& window : best)
    if (knots.empty() || window.knot.local_ns > knots.back().local_ns) knots.push_back(window.knot);
  return knots;
}

void NarrowGaps(const std::vector<Corridor>& corridors, DomainFit* fit) {
  for (std::size_t i = 0; i < fit->gaps.size(); ++i) {
    DomainFit::Gap& gap = fit->gaps[i];
    const FitPiece &left = fit->pieces[i], &right = fit->pieces[i + 1];
    auto at = std::lower_bound(corridors.begin(), corridors.end(), gap.begin_ns,
                               [](const Corridor& c, std::int64_t t) { return c.bounds.low_at_ns < t; });
    std::int64_t begin = gap.begin_ns, end = gap.end_ns;
    for (; at != corridors.end() && at->bounds.high_at_ns < gap.end_ns; ++at) {
      const OffsetBounds& b = at->bounds;
      const auto too_low = [&](const FitPiece& piece) {
        const MapKnot k = piece.At(b.low_at_ns);
        return k.offset_ns + k.base_error_ns + at->low_error_ns < b.low_ns;
      };
      const auto too_high = [&](const FitPiece& piece) {
        const MapKnot k = piece.At(b.high_at_ns);
        return k.offset_ns - k.base_error_ns - at->high_error_ns > b.high_ns;
      };
      // The bounds refute either the old offset, so that the clock had jumped by then, or the new one, so that it had
      // not jumped yet.
      if (too_high(left))
        end = std::min(end, b.high_at_ns);
      else if (too_low(left))
        end = std::min(end, b.low_at_ns);
      if (too_low(right))
        begin = std::max(begin, b.low_at_ns);
      else if (too_high(right))
        begin = std::max(begin, b.high_at_ns);
    }
    if (begin < end) gap = {std::max(begin, gap.begin_ns), std::min(end, gap.end_ns)};
  }
}

CorridorCheck ApplyCorridors(const std::vector<Corridor>& corridors, ClockMap* map) {
  CorridorCheck check;
  // Finds the largest contradiction in each stretch between two knots; the next round checks the repaired map.
  for (int round = 0; round < rules::kCorridorRepairs; ++round) {
    struct Worst {
      std::int64_t at_ns = 0, shift_ns = 0, excess_ns = 0;
    };
    std::vector<Worst> worst(map->knots.size() + 1);
    bool any = false;
    const auto note = [&](std::int64_t at, std::int64_t shift, std::int64_t error) {
      const std::int64_t excess = std::llabs(shift) - error - map->ErrorAt(at);
      if (shift == 0 || excess <= 0) return;
      if (round == 0) {
        ++check.violated;
        check.worst_ns = std::max(check.worst_ns, excess);
      }
      const auto next = std::upper_bound(map->knots.begin(), map->knots.end(), at,
                                         [](std::int64_t t, const MapKnot& k) { return t < k.local_ns; });
      Worst& w = worst[static_cast<std::size_t>(next - map->knots.begin())];
      if (excess > w.excess_ns) w = {at, shift, excess};
      any = true;
    };
    for (const Corridor& c : corridors) {
      if (round == 0) ++check.checked;
      note(c.bounds.low_at_ns, std::max<std::int64_t>(0, c.bounds.low_ns - map->OffsetAt(c.bounds.low_at_ns)),
           c.low_error_ns);
      note(c.bounds.high_at_ns, std::min<std::int64_t>(0, c.bounds.high_ns - map->OffsetAt(c.bounds.high_at_ns)),
           c.high_error_ns);
    }
    if (!any) break;
    std::vector<MapKnot> repaired = map->knots;
    for (std::size_t i = 0; i < worst.size(); ++i) {
      const Worst& w = worst[i];
      if (w.excess_ns == 0) continue;
      // The bound itself is the least correction; the true offset may be beyond it, by as much again.
      const std::int64_t size = std::llabs(w.shift_ns);
      std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
      for (const std::size_t k : {i - 1, i})
        if (k < map->knots.size())
          nearest = std::min<std::int64_t>(nearest, std::llabs(map->knots[k].local_ns - w.at_ns));
      const double distance_s = std::max(rules::kCorridorLeastRepairS, static_cast<double>(nearest) * 1e-9);
      const auto slew =
          static_cast<std::int64_t>(std::min(rules::kCorridorMostSlewPpb, static_cast<double>(size) / distance_s));
      repaired.push_back({w.at_ns, map->OffsetAt(w.at_ns) + w.shift_ns, map->ErrorAt(w.at_ns) + size, slew});
      for (const std::size_t k : {i - 1, i})
        if (k < map->knots.size()) repaired[k].slew_ppb = std::max(repaired[k].slew_ppb, slew);
    }
    Normalise(&repaired);
    map->knots = std::move(repaired);
  }
  return check;
}

}  // namespace lockstep::merge
