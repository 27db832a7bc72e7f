#include "analysis/replay/graph/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/rules/replay.h"
#include "analysis/rules/run.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

double LogBytes(std::uint64_t bytes) { return std::log(static_cast<double>(std::max<std::uint64_t>(bytes, 1))); }

// The value on the line through two knots, both axes logarithmic.
double Between(const CostModel::Knot& a, const CostModel::Knot& b, std::uint64_t bytes) {
  const double along = (LogBytes(bytes) - LogBytes(a.bytes)) / (LogBytes(b.bytes) - LogBytes(a.bytes));
  return std::exp(std::log(a.transfer_ns) + along * (std::log(b.transfer_ns) - std::log(a.transfer_ns)));
}

// The most by which Between() can miss, as a logarithm: more bytes take no less time, and no more than in proportion,
// or than the square of what they do from one knot to the other where that is more.
double MostOff(const CostModel::Knot& a, const CostModel::Knot& b, std::uint64_t bytes) {
  const double from_a = LogBytes(bytes) - LogBytes(a.bytes), to_b = LogBytes(b.bytes) - LogBytes(bytes);
  const double slope = std::log(b.transfer_ns / a.transfer_ns) / (from_a + to_b);
  // Times that fall with bytes are not bounded by each other.
  if (slope < 0) return std::numeric_limits<double>::infinity();
  const double steepest = std::max(1.0, rules::kCostSteepestFactor * slope);
  const double above = std::min((steepest - slope) * from_a, slope * to_b);
  const double below = std::min(slope * from_a, (steepest - slope) * to_b);
  return std::max(above, below);
}

// Robust standard deviation of logarithms around 0. Where times are of two kinds (a core was free, or somebody had it
// first), their median deviation is that between the kinds: no more than what 90 % of them show.
double SpreadOf(const std::vector<double>& logs) {
  std::vector<double> away;
  for (const double log : logs) away.push_back(std::abs(log));
  const double spread = rules::kMadToSigma * MiddleMedian(away);
  if (logs.size() < rules::kEnough) return spread;
  std::vector<double> sorted = logs;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t beyond = sorted.size() / 20;
  return std::min(spread, std::max(-sorted[beyond], sorted[sorted.size() - 1 - beyond]) / rules::kNormal95Below);
}

}  // namespace

void CostModel::Add(std::uint64_t bytes, std::int64_t transfer_ns) {
  if (transfer_ns > 0) samples_.push_back({bytes, transfer_ns});
}

void CostModel::AddBeside(std::uint64_t bytes, std::int64_t transfer_ns, bool same_kind) {
  if (transfer_ns > 0) beside_.push_back({bytes, transfer_ns, same_kind});
}

std::vector<CostModel::Knot> CostModel::KnotsOf(std::vector<Sample> samples) {
  std::stable_sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.bytes < b.bytes; });
  std::vector<Knot> knots;
  for (std::size_t i = 0; i < samples.size();) {
    std::vector<double> values, logs;
    const std::uint64_t bytes = samples[i].bytes;
    for (; i < samples.size() && samples[i].bytes == bytes; ++i)
      values.push_back(static_cast<double>(samples[i].transfer_ns));
    const double middle = MiddleMedian(values);
    for (const double value : values) logs.push_back(std::log(value / middle));
    knots.push_back({bytes, middle, LowerQuantile(values, rules::kCostQuickShare), SpreadOf(logs), values.size()});
  }
  return knots;
}

// One size says nothing of others. Of few times of a size beside it the fastest, because first times are slow; few
// samples do not show how far they spread: not less than those of the steps.
void CostModel::UseThoseBeside() {
  const Knot own = knots_.front();
  const auto rate_of = [](std::uint64_t bytes, double ns) { return static_cast<double>(bytes) / ns; };
  const double own_rate = rate_of(own.bytes, own.transfer_ns);
  // What each transfer costs whatever its size is in the quick ones, too. What is in the others only came and went.
  const double quick_rate = rate_of(own.bytes, own.quick_ns);
  for (const Sample& each : beside_) {
    const auto ns = static_cast<double>(each.transfer_ns);
    const double rate = rate_of(each.bytes, ns);
    if (!each.same_kind || each.bytes <= own.bytes || ns > own.transfer_ns || !StandsOut(rate, quick_rate) ||
        rate > rules::kCostImpossibleBytesPerNs)
      continue;
    if (!contradiction_ || std::pair(each.bytes, -ns) > std::pair(contradiction_->bytes, -contradiction_->transfer_ns))
      contradiction_ = Knot{each.bytes, ns, ns, own.spread, 1};
  }
  if (contradiction_) {
    latency_ns_ = 0;
    return;
  }
  // More bytes that took no longer, or fewer that took longer or next to nothing: not the same operation as in the
  // steps. It is no reason to leave out another of the same size.
  std::erase_if(beside_, [&](const Sample& each) {
    const auto ns = static_cast<double>(each.transfer_ns);
    const double rate = rate_of(each.bytes, ns);
    return each.bytes == own.bytes || rate > rules::kCostImpossibleBytesPerNs ||
           (each.bytes > own.bytes) != (ns > own.transfer_ns) ||
           (each.bytes < own.bytes && rate > rules::kCostCacheFactor * own_rate);
  });
  // Another kind of operation stands for the steps' only where none of that kind tells: of more bytes, of fewer. One of
  // more bytes that moved fewer per second was slow for another reason (a first time).
  for (const bool more : {false, true}) {
    const auto there = [&](const Sample& each) { return (each.bytes > own.bytes) == more; };
    const auto tells = [&](const Sample& each) {
      return there(each) && each.same_kind &&
             (!more ||
              rules::kCostUsualFactor * rate_of(each.bytes, static_cast<double>(each.transfer_ns)) >= own_rate);
    };
    if (std::any_of(beside_.begin(), beside_.end(), tells))
      std::erase_if(beside_, [&](const Sample& each) { return there(each) && !each.same_kind; });
  }
  std::sort(beside_.begin(), beside_.end(), [](const Sample& a, const Sample& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.transfer_ns < b.transfer_ns;
  });
  std::vector<Sample> chosen;
  for (auto begin = beside_.begin(); begin != beside_.end();) {
    const auto end = std::find_if(begin, beside_.end(), [&](const Sample& each) { return each.bytes != begin->bytes; });
    const auto count = static_cast<std::size_t>(end - begin);
    chosen.push_back(begin[count < rules::kMiddle ? 0 : static_cast<std::ptrdiff_t>((count - 1) / 2)]);
    begin = end;
  }
  for (Knot& knot : KnotsOf(std::move(chosen))) {
    knot.spread = std::max(knot.spread, own.spread);
    knot.beside = true;
    knots_.push_back(knot);
  }
  std::sort(knots_.begin(), knots_.end(), [](const Knot& a, const Knot& b) { return a.bytes < b.bytes; });
}

void CostModel::Fit() {
  knots_ = KnotsOf(std::move(samples_));
  FindDoubtful();
  if (knots_.size() == 1 && knots_.front().doubt == Doubt::kNothing) UseThoseBeside();
  for (const Knot& knot : knots_)
    if (knot.doubt == Doubt::kNothing) usable_.push_back(knot);
  std::vector<double> errors;
  for (const double error : LeaveOneOut()) errors.push_back(std::abs(std::log1p(error)));
  between_ = rules::kMadToSigma * MiddleMedian(std::move(errors));
}

void CostModel::FindDoubtful() {
  for (Knot& knot : knots_)
    if (static_cast<double>(knot.bytes) > rules::kCostImpossibleBytesPerNs * knot.transfer_ns)
      knot.doubt = Doubt::kImpossible;
  // An operation that takes no longer for a thousand times the bytes does not move them: operations in the same table
  // that are as fast at smaller sizes are the same operation.
  double nothing_ns = 0;
  for (const Knot& knot : knots_)
    if (knot.doubt == Doubt::kImpossible) nothing_ns = std::max(nothing_ns, knot.transfer_ns);
  for (Knot& knot : knots_)
    if (knot.transfer_ns <= nothing_ns * rules::kCostNothingMovedFactor) knot.doubt = Doubt::kImpossible;
  std::vector<Knot*> real;
  for (Knot& knot : knots_)
    if (knot.doubt == Doubt::kNothing) real.push_back(&knot);
  for (std::size_t i = 0; i < real.size(); ++i) {
    // At the ends, one neighbour and the one after it must suffice: the time decreases for more bytes in both steps.
    const bool first = i == 0, last = i + 1 == real.size();
    if (real.size() <= 2 || last) continue;
    const double after = real[i + 1]->transfer_ns;
    const double before = first ? real[i + 2]->transfer_ns : real[i - 1]->transfer_ns;
    // Without the point, the points on its two sides must agree with each other.
    const double around = std::max(after, before);
    if (real[i]->transfer_ns > rules::kCostUsualFactor * around) real[i]->doubt = Doubt::kOutlier;
  }
}

std::optional<CostModel::Estimate> CostModel::Interpolate(const std::vector<Knot>& knots, std::uint64_t bytes) const {
  if (knots.empty()) return std::nullopt;
  const auto after = std::lower_bound(knots.begin(), knots.end(), bytes,
                                      [](const Knot& knot, std::uint64_t wanted) { return knot.bytes < wanted; });
  Estimate estimate{0, 0, 0, false, 1};
  double sigma = 0;  // The deviation of single transfers.
  const auto of_median = [](const Knot& knot) { return knot.spread / std::sqrt(static_cast<double>(knot.samples)); };
  if (after != knots.end() && after->bytes == bytes) {
    estimate.ns = after->transfer_ns;
    sigma = after->spread;
    estimate.factor = std::exp(rules::kNormal95Below * of_median(*after));
  } else if (after != knots.begin() && after != knots.end()) {
    estimate.ns = Between(after[-1], *after, bytes);
    // However badly sizes are interpolated elsewhere, these two bound it.
    const double off =
        std::min(rules::kNormal95Below * between_, MostOff(after[-1], *after, bytes)) / rules::kNormal95Below;
    sigma = std::hypot(std::max(after[-1].spread, after->spread), off);
    estimate.factor =
        std::exp(rules::kNormal95Below * std::hypot(std::max(of_median(after[-1]), of_median(*after)), off));
  } else {
    estimate.extrapolated = true;
    const bool below = after == knots.begin();
    const Knot& end = below ? knots.front() : knots.back();
    const double doublings = std::abs(LogBytes(bytes) - LogBytes(end.bytes)) / std::log(2.0);
    sigma = std::hypot(end.spread, between_) + rules::kCostExtrapolationPerDoubling * doublings;
    estimate.factor = std::exp(rules::kNormal95Below * (std::hypot(of_median(end), between_) +
                                                        rules::kCostExtrapolationPerDoubling * doublings));
    if (knots.size() == 1) {
      // The time is proportional if it is all bandwidth, and constant if it is all latency.
      const double proportional = end.transfer_ns * static_cast<double>(std::max<std::uint64_t>(bytes, 1)) /
                                  static_cast<double>(std::max<std::uint64_t>(end.bytes, 1));
      if (latency_ns_ > 0 && latency_ns_ < end.transfer_ns) {
        const auto along = [&](double latency_ns) {
          return latency_ns + proportional * (1 - latency_ns / end.transfer_ns);
        };
        estimate.ns = along(latency_ns_);
        double off = rules::kCostUsualFactor;
        // Beyond the one size, a latency that is off by so much turns the line.
        if (!below)
          off = std::max({off, along(latency_ns_ / rules::kCostUsualFactor) / estimate.ns,
                          estimate.ns / along(std::min(latency_ns_ * rules::kCostUsualFactor, end.transfer_ns))});
        estimate.factor = off * std::exp(rules::kNormal95Below * of_median(end));
        estimate.low_ns = estimate.ns / off * std::exp(-rules::kNormal95Below * end.spread);
        estimate.high_ns = estimate.ns * off * std::exp(rules::kNormal95Below * end.spread);
        return estimate;
      }
      estimate.ns = below ? std::sqrt(proportional * end.transfer_ns) : proportional;
      estimate.low_ns = std::min(proportional, end.transfer_ns) * std::exp(-rules::kNormal95Below * sigma);
      estimate.high_ns = std::max(proportional, end.transfer_ns) * std::exp(rules::kNormal95Below * sigma);
      estimate.factor *= std::max(estimate.ns / std::min(proportional, end.transfer_ns),
                                  std::max(proportional, end.transfer_ns) / estimate.ns);
      return estimate;
    }
    // The straight line through the two last knots, but with neither a higher cost per byte nor a lower cost per call
    // than there.
    const Knot& other = below ? knots[1] : knots[knots.size() - 2];
    const double beta = std::max(0.0, (end.transfer_ns - other.transfer_ns) /
                                          (static_cast<double>(end.bytes) - static_cast<double>(other.bytes)));
    const double line = end.transfer_ns + beta * (static_cast<double>(bytes) - static_cast<double>(end.bytes));
    const double proportional = end.transfer_ns * static_cast<double>(std::max<std::uint64_t>(bytes, 1)) /
                                static_cast<double>(std::max<std::uint64_t>(end.bytes, 1));
    estimate.ns = below ? std::clamp(line, std::min(proportional, end.transfer_ns), end.transfer_ns)
                        : std::clamp(line, end.transfer_ns, proportional);
  }
  estimate.low_ns = estimate.ns * std::exp(-rules::kNormal95Below * sigma);
  estimate.high_ns = estimate.ns * std::exp(rules::kNormal95Below * sigma);
  return estimate;
}

std::optional<CostModel::Estimate> CostModel::At(std::uint64_t bytes) const {
  if (same_for_all_ns_ > 0) return Estimate{same_for_all_ns_, same_for_all_ns_, same_for_all_ns_, false, 1};
  return Interpolate(usable_, bytes);
}

CostModel CostModel::SameForAll(double transfer_ns) {
  CostModel model;
  model.same_for_all_ns_ = transfer_ns;
  return model;
}

std::vector<double> CostModel::LeaveOneOut() const {
  std::vector<double> errors;
  for (std::size_t i = 1; i + 1 < usable_.size(); ++i)
    errors.push_back(Between(usable_[i - 1], usable_[i + 1], usable_[i].bytes) / usable_[i].transfer_ns - 1);
  return errors;
}

std::optional<CostModel::Line> CostModel::AlphaBeta() const {
  if (usable_.size() < 2 || std::any_of(usable_.begin(), usable_.end(), [](const Knot& k) { return k.beside; }))
    return std::nullopt;
  // Minimises sum((alpha + beta s - t) / t)^2.
  double w = 0, ws = 0, wss = 0, wt = 0, wst = 0;
  for (const Knot& knot : usable_) {
    const double weight = 1 / (knot.transfer_ns * knot.transfer_ns), s = static_cast<double>(knot.bytes);
    w += weight;
    ws += weight * s;
    wss += weight * s * s;
    wt += weight * knot.transfer_ns;
    wst += weight * s * knot.transfer_ns;
  }
  const double determinant = w * wss - ws * ws;
  Line line{};
  if (determinant > rules::kCostDeterminantPrecision * w * wss) {
    line.alpha_ns = (wss * wt - ws * wst) / determinant;
    line.beta_ns_per_byte = (w * wst - ws * wt) / determinant;
  }
  // Without latency it is the line through 0, except if the slope is what makes the solution invalid.
  if (determinant <= rules::kCostDeterminantPrecision * w * wss || (line.alpha_ns < 0 && line.beta_ns_per_byte > 0))
    line = {0, wss > 0 ? wst / wss : 0, std::nullopt};
  if (!(line.beta_ns_per_byte > 0)) return std::nullopt;
  std::vector<double> errors;
  for (const Knot& knot : usable_)
    errors.push_back(
        std::abs(line.alpha_ns + line.beta_ns_per_byte * static_cast<double>(knot.bytes) - knot.transfer_ns) /
        knot.transfer_ns);
  if (usable_.size() > 2) line.median_error = MiddleMedian(std::move(errors));
  return line;
}

}  // namespace lockstep::replay
