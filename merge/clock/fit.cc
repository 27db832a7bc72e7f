#include "merge/clock/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/order_statistics.h"
#include "core/rules/common.h"
#include "merge/rules/clock.h"

namespace lockstep::merge {
namespace {

constexpr double kCrystalsDriftPpb = rules::kClockCrystalsDrift * 1e9;
double WanderPpb() { return rules::kClockWander * 1e9; }
// The noises of exchanges that are tried, in widths of a knot.
constexpr double kNoiseScales[] = {0.05, 0.1, 0.2, 0.4, 0.8};

struct State {
  double x, f;  // Offset, ns; frequency, ns per s.
  double pxx, pxf, pff;
};

struct Sample {
  double t_s;       // Since the piece's first knot.
  double z, sigma;  // ns, relative to the first knot's middle.
};

// Runs the filter; returns the log likelihood. `states` may be null.
double Filter(const std::vector<Sample>& samples, double q, double scale, double first_rate,
              std::vector<State>* filtered, std::vector<State>* predicted) {
  State s{samples[0].z, first_rate, 0, 0, kCrystalsDriftPpb * kCrystalsDriftPpb};
  s.pxx = samples[0].sigma * samples[0].sigma * scale * scale;
  if (filtered != nullptr) {
    filtered->assign(1, s);
    predicted->assign(1, s);
  }
  double likelihood = 0;
  for (std::size_t k = 1; k < samples.size(); ++k) {
    const double dt = samples[k].t_s - samples[k - 1].t_s;
    State p;
    p.x = s.x + s.f * dt;
    p.f = s.f;
    p.pxx = s.pxx + 2 * dt * s.pxf + dt * dt * s.pff + q * dt * dt * dt / 3;
    p.pxf = s.pxf + dt * s.pff + q * dt * dt / 2;
    p.pff = s.pff + q * dt;
    const double r = samples[k].sigma * samples[k].sigma * scale * scale;
    const double variance = p.pxx + r;
    const double residual = samples[k].z - p.x;
    // The first innovation only sets the frequency; it does not depend on the noises.
    if (k >= 2) likelihood -= 0.5 * (std::log(variance) + residual * residual / variance);
    const double gain_x = p.pxx / variance, gain_f = p.pxf / variance;
    s.x = p.x + gain_x * residual;
    s.f = p.f + gain_f * residual;
    s.pxx = p.pxx * r / variance;  // (1 - gain_x) p.pxx, without the cancellation.
    s.pxf = p.pxf * r / variance;
    s.pff = p.pff - gain_f * p.pxf;
    if (filtered != nullptr) {
      filtered->push_back(s);
      predicted->push_back(p);
    }
  }
  return likelihood;
}

// Rauch-Tung-Striebel: from the end backwards.
std::vector<State> Smooth(const std::vector<Sample>& samples, double q, double scale, double first_rate) {
  std::vector<State> filtered, predicted;
  Filter(samples, q, scale, first_rate, &filtered, &predicted);
  std::vector<State> smooth = filtered;
  for (std::size_t k = samples.size() - 1; k-- > 0;) {
    const double dt = samples[k + 1].t_s - samples[k].t_s;
    const State &a = filtered[k], &p = predicted[k + 1], &n = smooth[k + 1];
    const double det = p.pxx * p.pff - p.pxf * p.pxf;
    if (!(det > 0)) continue;
    // C = P_k F' inverse(P_predicted)
    const double m00 = a.pxx + dt * a.pxf, m01 = a.pxf, m10 = a.pxf + dt * a.pff, m11 = a.pff;
    const double c00 = (m00 * p.pff - m01 * p.pxf) / det, c01 = (m01 * p.pxx - m00 * p.pxf) / det;
    const double c10 = (m10 * p.pff - m11 * p.pxf) / det, c11 = (m11 * p.pxx - m10 * p.pxf) / det;
    const double dx = n.x - p.x, df = n.f - p.f;
    smooth[k].x = a.x + c00 * dx + c01 * df;
    smooth[k].f = a.f + c10 * dx + c11 * df;
    const double dxx = n.pxx - p.pxx, dxf = n.pxf - p.pxf, dff = n.pff - p.pff;
    smooth[k].pff = a.pff + c10 * (c10 * dxx + c11 * dxf) + c11 * (c10 * dxf + c11 * dff);
  }
  return smooth;
}

// Rates of the offset that are possible, ns per ns.
struct RateRange {
  double low, high;
  double middle() const { return (low + high) / 2; }
};

// The rates that the bounds of two knots allow. Their middles are not used: on a busy host round trips take
// milliseconds, nearly all of it in one direction.
RateRange RatesBetween(const OffsetKnot& a, const OffsetKnot& b) {
  const auto dt = static_cast<double>(b.local_ns - a.local_ns);
  return {static_cast<double>(b.low_ns - a.high_ns) / dt, static_cast<double>(b.high_ns - a.low_ns) / dt};
}

// Drift of the offset over the whole run, robust against jumps: most neighbours have none between them, so the medians
// of both bounds enclose it.
RateRange CommonRates(const std::vector<OffsetKnot>& knots) {
  std::vector<double> low, high;
  for (std::size_t a = 0, b = 0; a < knots.size(); ++a) {
    while (b < knots.size() && knots[b].local_ns - knots[a].local_ns < rules::kClockDriftSpanNs) ++b;
    if (b == knots.size()) break;
    const RateRange range = RatesBetween(knots[a], knots[b]);
    low.push_back(range.low);
    high.push_back(range.high);
  }
  const double believed = rules::kClockDriftBelieved * rules::kClockCrystalsDrift;
  RateRange common{-believed, believed};
  // Of fewer than three stretches between knots, one with a jump would determine the rate.
  if (knots.size() <= rules::kMiddle || low.empty()) return common;
  common.low = std::max(common.low, UpperMedian(low));
  common.high = std::min(common.high, UpperMedian(high));
  if (common.low > common.high) return {-believed, believed};
  return common;
}

// The first knots of the pieces after the first piece.
std::vector<std::size_t> Jumps(const std::vector<OffsetKnot>& knots) {
  std::vector<std::size_t> starts;
  const RateRange common = CommonRates(knots);
  for (std::size_t k = 1; k < knots.size(); ++k) {
    const auto dt = static_cast<double>(knots[k].local_ns - knots[k - 1].local_ns);
    const double least = static_cast<double>(knots[k].low_ns - knots[k - 1].high_ns) - common.high * dt;
    const double most = static_cast<double>(knots[k].high_ns - knots[k - 1].low_ns) - common.low * dt;
    const double limit = rules::kFitJumpNs + rules::kFitJumpRate * dt;
    if (least > limit || most < -limit) starts.push_back(k);
  }
  return starts;
}

// The mean rate between knots k and k + 1: the rates that their bounds and those of the knots around allow, when a rate
// differs from another by at most `wander` or, if that is more, by `bend` for each segment between them; limited to the
// drift of two crystals where that is possible.
RateRange SegmentRates(const std::vector<OffsetKnot>& knots, std::size_t k, double wander, double bend) {
  constexpr std::size_t around = rules::kFitKnotsAround;
  const RateRange own = RatesBetween(knots[k], knots[k + 1]);
  RateRange range = own;
  for (std::size_t i = k < around ? 0 : k - around; i <= k; ++i)
    for (std::size_t j = k + 1; j < std::min(knots.size(), k + 2 + around); ++j) {
      if (i == k && j == k + 1) continue;
      const RateRange wider = RatesBetween(knots[i], knots[j]);
      const double segments = static_cast<double>(knots[j].local_ns - knots[i].local_ns) /
                              static_cast<double>(knots[k + 1].local_ns - knots[k].local_ns);
      const double allowed = std::max(wander, bend * segments);
      range.low = std::max(range.low, wider.low - allowed);
      range.high = std::min(range.high, wider.high + allowed);
    }
  if (range.low > range.high) range = own;
  if (range.low <= rules::kClockCrystalsDrift && range.high >= -rules::kClockCrystalsDrift) {
    range.low = std::max(range.low, -rules::kClockCrystalsDrift);
    range.high = std::min(range.high, rules::kClockCrystalsDrift);
  }
  return range;
}

// Per knot, the largest rate in ppb at which the smoothed clock leaves the line through its own neighbours, taken over
// those on both sides. Only tight knots can show it; -1 where there are too few.
std::vector<double> Slews(const std::vector<OffsetKnot>& all, const std::vector<State>& all_states) {
  std::int64_t least_half = std::numeric_limits<std::int64_t>::max();
  for (const OffsetKnot& knot : all) least_half = std::min(least_half, knot.half_ns());
  std::vector<OffsetKnot> knots;
  std::vector<State> states;
  std::vector<std::size_t> tight_before(all.size());  // The number of tight knots before each.
  for (std::size_t k = 0; k < all.size(); ++k) {
    tight_before[k] = knots.size();
    if (all[k].half_ns() > rules::kFitTightTimes * least_half + rules::kFitTightNs) continue;
    knots.push_back(all[k]);
    states.push_back(all_states[k]);
  }
  const std::size_t n = knots.size();
  std::vector<double> own(n, -1);
  for (std::size_t k = 1; k + 1 < n; ++k) {
    std::size_t left = k, right = k;
    while (left > 0 && knots[k].local_ns - knots[left].local_ns < rules::kClockDriftSpanNs) --left;
    while (right + 1 < n && knots[right].local_ns - knots[k].local_ns < rules::kClockDriftSpanNs) ++right;
    const double before = static_cast<double>(knots[k].local_ns - knots[left].local_ns) * 1e-9;
    const double after = static_cast<double>(knots[right].local_ns - knots[k].local_ns) * 1e-9;
    if (before <= 0 || after <= 0 || before + after < 2 * 1e-9 * static_cast<double>(rules::kClockDriftSpanNs))
      continue;
    const double line = states[left].x + (states[right].x - states[left].x) * before / (before + after);
    own[k] = std::abs(states[k].x - line) / ((before + after) / 2);
  }
  std::vector<double> slew(all.size(), -1);
  const std::size_t around = rules::kFitSlewKnots;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const std::size_t at = tight_before[k];
    double largest = -1;
    for (std::size_t j = at < around ? 0 : at - around; j < std::min(n, at + around + 1); ++j)
      largest = std::max(largest, own[j]);
    if (largest >= 0) slew[k] = std::max(rules::kClockLeastSlew * 1e9, rules::kClockLeaveTimes * largest);
  }
  return slew;
}

// The knots as the filter sees them. A round trip above the least one has lost its symmetry by an unknown part of the
// excess.
std::vector<Sample> SamplesOf(const std::vector<OffsetKnot>& knots) {
  const auto least_half = static_cast<double>(std::ranges::min_element(knots, {}, &OffsetKnot::half_ns)->half_ns());
  std::vector<Sample> samples;
  for (const OffsetKnot& knot : knots)
    samples.push_back({static_cast<double>(knot.local_ns - knots[0].local_ns) * 1e-9,
                       static_cast<double>(knot.mid_ns() - knots[0].mid_ns()),
                       rules::kFitLeastAsymmetry * least_half + (static_cast<double>(knot.half_ns()) - least_half) +
                           rules::kFitReadNoiseNs});
  return samples;
}

// Smoothed with the noises under which the samples are most likely.
std::vector<State> SmoothLikeliest(const std::vector<Sample>& samples, double first_rate) {
  if (samples.size() < rules::kFewest) return Smooth(samples, rules::kFitFewNoise, rules::kFitStartScale, first_rate);
  double best_q = rules::kFitLeastNoise, best_scale = rules::kFitStartScale,
         best = -std::numeric_limits<double>::infinity();
  for (double q = rules::kFitLeastNoise; q <= rules::kFitMostNoise; q *= 10)
    for (const double scale : kNoiseScales) {
      const double likelihood = Filter(samples, q, scale, first_rate, nullptr, nullptr);
      if (likelihood > best) best = likelihood, best_q = q, best_scale = scale;
    }
  return Smooth(samples, best_q, best_scale, first_rate);
}

// Bounds of the offset at one knot, relative to the first knot's middle.
struct Bounds {
  double low, high;
};

// A bound also holds at other knots, moved by the rates that are possible on the way. `rates`: between neighbours.
std::vector<Bounds> BoundsAtKnots(const std::vector<OffsetKnot>& knots, const std::vector<RateRange>& rates) {
  const std::size_t n = knots.size();
  std::vector<Bounds> own;
  for (const OffsetKnot& knot : knots)
    own.push_back(
        {static_cast<double>(knot.low_ns - knots[0].mid_ns()), static_cast<double>(knot.high_ns - knots[0].mid_ns())});
  std::vector<Bounds> bounds = own;
  const auto after = [&](std::size_t k) { return static_cast<double>(knots[k + 1].local_ns - knots[k].local_ns); };
  for (std::size_t k = 0; k + 1 < n; ++k) {
    bounds[k + 1].low = std::max(bounds[k + 1].low, bounds[k].low + rates[k].low * after(k));
    bounds[k + 1].high = std::min(bounds[k + 1].high, bounds[k].high + rates[k].high * after(k));
  }
  for (std::size_t k = n - 1; k-- > 0;) {
    bounds[k].low = std::max(bounds[k].low, bounds[k + 1].low - rates[k].high * after(k));
    bounds[k].high = std::min(bounds[k].high, bounds[k + 1].high - rates[k].low * after(k));
  }
  for (std::size_t k = 0; k < n; ++k)
    // Contradiction: only what was measured at this knot is used.
    if (bounds[k].low > bounds[k].high) bounds[k] = own[k];
  return bounds;
}

// The piece's knots: the smoothed offsets, whose error is the range that the bounds allow.
std::vector<MapKnot> MapKnotsOf(const std::vector<OffsetKnot>& knots, const std::vector<State>& states,
                                const std::vector<Bounds>& bounds, const std::vector<double>& slew) {
  std::vector<MapKnot> out;
  for (std::size_t k = 0; k < knots.size(); ++k) {
    const double open = std::max(bounds[k].high - states[k].x, states[k].x - bounds[k].low);
    const auto error = std::max(knots[k].least_error_ns, static_cast<std::int64_t>(std::ceil(open)));
    // Neighbours share a segment: the nearer knot's slew is used, so both carry the larger one.
    double larger = slew[k];
    if (k > 0) larger = std::max(larger, slew[k - 1]);
    if (k + 1 < knots.size()) larger = std::max(larger, slew[k + 1]);
    out.push_back({knots[k].local_ns, knots[0].mid_ns() + std::llround(states[k].x), error + rules::kClockReadsNs,
                   static_cast<std::int64_t>(std::ceil(larger))});
  }
  return out;
}

// Fits a stretch without a jump.
FitPiece FitOne(const std::vector<OffsetKnot>& knots) {
  FitPiece piece;
  if (knots.size() == 1) {
    constexpr auto kUnknownPpb = static_cast<std::int64_t>(kCrystalsDriftPpb);
    piece.knots.push_back({knots[0].local_ns, knots[0].mid_ns(),
                           std::max(knots[0].least_error_ns, knots[0].half_ns()) + rules::kClockReadsNs, kUnknownPpb});
    piece.begin_slew_ppb = piece.end_slew_ppb = kUnknownPpb;
    return piece;
  }
  std::vector<State> states = SmoothLikeliest(SamplesOf(knots), CommonRates(knots).middle() * 1e9);
  std::vector<double> slew = Slews(knots, states);
  std::vector<RateRange> rates;
  for (std::size_t k = 0; k + 1 < knots.size(); ++k) {
    const double larger = std::max(slew[k], slew[k + 1]);
    rates.push_back(larger < 0 ? SegmentRates(knots, k, rules::kFitUnknownWanderPpb * 1e-9, 0)
                               : SegmentRates(knots, k, WanderPpb() * 1e-9, larger * 1e-9));
  }
  // The bounds are proven, the smoothing is not.
  const std::vector<Bounds> bounds = BoundsAtKnots(knots, rates);
  for (std::size_t k = 0; k < knots.size(); ++k) states[k].x = std::clamp(states[k].x, bounds[k].low, bounds[k].high);
  slew = Slews(knots, states);
  for (double& value : slew)
    if (value < 0) value = rules::kFitUnknownSlewPpb;
  piece.knots = MapKnotsOf(knots, states, bounds, slew);
  // Beyond the ends the line continues with the smoothed frequency as far as the bounds allow; its uncertainty is the
  // remaining range of the bounds, plus the wander.
  const auto end_of = [&](const State& state, const RateRange& possible, double edge_slew, double* rate) {
    *rate = std::clamp(state.f * 1e-9, possible.low, possible.high);
    const double doubt = std::max(possible.high - *rate, *rate - possible.low) * 1e9 + std::max(WanderPpb(), edge_slew);
    return static_cast<std::int64_t>(std::ceil(std::min(doubt, 2 * kCrystalsDriftPpb)));
  };
  piece.begin_slew_ppb = end_of(states.front(), rates.front(), slew.front(), &piece.begin_rate);
  piece.end_slew_ppb = end_of(states.back(), rates.back(), slew.back(), &piece.end_rate);
  return piece;
}

// Counts knots of a piece whose exchanges took so much longer than usual that the filter hardly uses them.
std::uint64_t CountWide(const std::vector<OffsetKnot>& knots) {
  std::vector<std::int64_t> halves;
  for (const OffsetKnot& knot : knots) halves.push_back(knot.half_ns());
  const std::int64_t usual = UpperMedian(halves);
  return static_cast<std::uint64_t>(std::ranges::count_if(
      halves, [&](std::int64_t half) { return half > rules::kFitWideTimes * usual + rules::kFitWideNs; }));
}

}  // namespace

MapKnot FitPiece::At(std::int64_t t) const {
  const auto beyond = [&](const MapKnot& edge, double rate, std::int64_t slew_ppb) {
    const auto distance = static_cast<double>(t - edge.local_ns);
    return MapKnot{t, edge.offset_ns + std::llround(rate * distance),
                   edge.base_error_ns + std::llround(std::abs(distance) * 1e-9 * static_cast<double>(slew_ppb)),
                   slew_ppb};
  };
  if (t <= knots.front().local_ns) return beyond(knots.front(), begin_rate, begin_slew_ppb);
  if (t >= knots.back().local_ns) return beyond(knots.back(), end_rate, end_slew_ppb);
  ClockMap map;
  map.knots = knots;
  return {t, map.OffsetAt(t), map.ErrorAt(t), knots.front().slew_ppb};
}

std::vector<MapKnot> DomainFit::Flatten(std::int64_t begin_ns, std::int64_t end_ns) const {
  std::vector<MapKnot> out;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const FitPiece& piece = pieces[i];
    const std::int64_t first = piece.knots.front().local_ns, last = piece.knots.back().local_ns;
    const std::int64_t from = i > 0 ? gaps[i - 1].end_ns : std::min(begin_ns <= end_ns ? begin_ns : first, first);
    const std::int64_t to = i < gaps.size() ? gaps[i].begin_ns : std::max(begin_ns <= end_ns ? end_ns : last, last);
    if (from < first) out.push_back(piece.At(from));
    const std::size_t own = out.size();
    out.insert(out.end(), piece.knots.begin(), piece.knots.end());
    // A knot's slew applies on both its sides.
    if (from < first) out[own].slew_ppb = std::max(out[own].slew_ppb, piece.begin_slew_ppb);
    if (to > last) {
      out.back().slew_ppb = std::max(out.back().slew_ppb, piece.end_slew_ppb);
      out.push_back(piece.At(to));
    }
    if (i >= gaps.size()) continue;
    // Within the gap either side may be right, so the error covers both.
    const MapKnot left = piece.At(gaps[i].begin_ns), right = pieces[i + 1].At(gaps[i].end_ns);
    const std::int64_t jump = std::llabs(right.offset_ns - left.offset_ns);
    if (right.local_ns - left.local_ns > 2) {
      out.push_back({left.local_ns + 1, left.offset_ns, left.base_error_ns + jump, left.slew_ppb});
      out.push_back({right.local_ns - 1, right.offset_ns, right.base_error_ns + jump, right.slew_ppb});
    }
  }
  if (out.size() == 1) out.push_back(pieces[0].At(out[0].local_ns + rules::kFitSecondKnotNs));
  Normalise(&out);
  return out;
}

DomainFit FitKnots(const std::vector<OffsetKnot>& knots) {
  DomainFit fit;
  std::vector<std::size_t> starts = Jumps(knots);
  starts.push_back(knots.size());
  std::size_t first = 0;
  for (const std::size_t next : starts) {
    const auto at = [&](std::size_t i) { return knots.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::vector<OffsetKnot> of_piece(at(first), at(next));
    fit.pieces.push_back(FitOne(of_piece));
    fit.wide += CountWide(of_piece);
    if (next < knots.size()) fit.gaps.push_back({knots[next - 1].local_ns, knots[next].local_ns});
    first = next;
  }
  // A lone knot beside a jump: the crystal, and so its rate, is still the same.
  for (std::size_t i = 0; i < fit.pieces.size(); ++i) {
    FitPiece& piece = fit.pieces[i];
    if (piece.knots.size() != 1 || fit.pieces.size() == 1) continue;
    const FitPiece& other = i > 0 && (i + 1 == fit.pieces.size() || fit.pieces[i - 1].knots.size() > 1)
                                ? fit.pieces[i - 1]
                                : fit.pieces[i + 1];
    if (other.knots.size() == 1) continue;
    piece.begin_rate = piece.end_rate = i > 0 && &other == &fit.pieces[i - 1] ? other.end_rate : other.begin_rate;
    piece.begin_slew_ppb = piece.end_slew_ppb = piece.knots[0].slew_ppb =
        static_cast<std::int64_t>(rules::kFitUnknownSlewPpb);
  }
  return fit;
}

}  // namespace lockstep::merge
