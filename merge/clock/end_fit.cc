#include "merge/clock/end_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/order_statistics.h"
#include "core/rules/common.h"
#include "merge/rules/clock.h"

namespace lockstep::merge {
namespace {

// The median distance from the median.
std::int64_t MadOf(std::vector<std::int64_t> values) {
  const std::int64_t middle = LowerMedian(values);
  for (std::int64_t& value : values) value = std::llabs(value - middle);
  return LowerMedian(values);
}

std::int64_t Along(double rate, std::int64_t distance_ns) {
  return std::llround(rate * static_cast<double>(distance_ns));
}

class Fitter {
 public:
  Fitter(std::vector<EndSample> samples, std::int64_t begin_ns, std::int64_t end_ns)
      : all_(std::move(samples)), begin_ns_(begin_ns), end_ns_(end_ns) {}

  EndFit Run() {
    std::sort(all_.begin(), all_.end(), [](const EndSample& a, const EndSample& b) {
      return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.difference_ns < b.difference_ns;
    });
    Choose();
    origin_ns_ = used_[0].at_ns;
    FindRate();
    Windows();
    Systematic();
    Bound();
    Emit();
    return std::move(fit_);
  }

 private:
  struct Window {
    std::size_t first, end;  // Of used_.
    std::int64_t at_ns = 0, offset_ns = 0, error_ns = 0;
  };

  // During a long transfer ranks may leave far apart, so only the shorter half is used.
  void Choose() {
    std::vector<std::int64_t> transfers;
    for (const EndSample& s : all_) transfers.push_back(s.transfer_ns);
    const std::int64_t limit = std::max(rules::kEndShortTransferNs, LowerMedian(transfers));
    for (const EndSample& s : all_)
      if (s.transfer_ns <= limit) used_.push_back(s);
    fit_.samples = used_.size();
  }

  // The common drift: median slope between samples half the span apart.
  void FindRate() {
    const std::size_t n = used_.size();
    span_ns_ = used_.back().at_ns - used_.front().at_ns;
    if (n < rules::kScatter || span_ns_ < rules::kClockDriftSpanNs) return;
    std::vector<double> rates;
    for (std::size_t a = 0, b = 0; a < n; ++a) {
      while (b < n && used_[b].at_ns - used_[a].at_ns < span_ns_ / 2) ++b;
      if (b == n) break;
      rates.push_back(static_cast<double>(used_[b].difference_ns - used_[a].difference_ns) /
                      static_cast<double>(used_[b].at_ns - used_[a].at_ns));
    }
    if (rates.size() < rules::kScatter / 2) return;
    rate_ = UpperMedian(rates);
    rate_known_ = true;
  }

  std::int64_t Flat(const EndSample& s) const { return s.difference_ns - Along(rate_, s.at_ns - origin_ns_); }

  // Medians of stretches that are long enough to average the skew and short enough to follow the wander.
  void Windows() {
    std::vector<std::int64_t> flat;
    for (const EndSample& s : used_) flat.push_back(Flat(s));
    const std::int64_t length = rate_known_ ? std::max(rules::kEndWindowNs, span_ns_ / rules::kEndWindows)
                                            : std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < used_.size();) {
      std::size_t end = i;
      while (end < used_.size() &&
             (end - i < rules::kEndWindowOperations || used_[end].at_ns - used_[i].at_ns < length))
        ++end;
      if (used_.size() - end < rules::kEndWindowOperations) end = used_.size();
      windows_.push_back({i, end});
      i = end;
    }
    std::vector<std::int64_t> residuals(used_.size());
    for (Window& w : windows_) {
      const auto at = [&](std::size_t i) { return flat.begin() + static_cast<std::ptrdiff_t>(i); };
      const std::int64_t middle = LowerMedian(std::vector<std::int64_t>(at(w.first), at(w.end)));
      w.at_ns = used_[w.first].at_ns + (used_[w.end - 1].at_ns - used_[w.first].at_ns) / 2;
      w.offset_ns = middle + Along(rate_, w.at_ns - origin_ns_);
      for (std::size_t i = w.first; i < w.end; ++i) residuals[i] = flat[i] - middle;
    }
    const std::int64_t skew = rules::kGpuEndMads * MadOf(residuals);
    fit_.skew_ns = skew;
    for (Window& w : windows_) {
      // The error of a stretch may be larger than that of the whole; a smaller one may be chance.
      const auto at = [&](std::size_t i) { return residuals.begin() + static_cast<std::ptrdiff_t>(i); };
      w.error_ns = std::max({rules::kGpuEndErrorNs, skew, rules::kGpuEndMads * MadOf({at(w.first), at(w.end)})});
      std::vector<std::int64_t> partner, transfers;
      for (std::size_t i = w.first; i < w.end; ++i) {
        partner.push_back(used_[i].partner_error_ns);
        transfers.push_back(used_[i].transfer_ns);
      }
      const std::int64_t transfer = LowerMedian(transfers);
      w.error_ns = std::max(w.error_ns, Along(rules::kEndExitOrderShare, transfer));
      if (used_.size() < rules::kEndSpreadOperations)
        w.error_ns = std::max(w.error_ns, transfer / static_cast<std::int64_t>(2 * used_.size()));
      partner_error_ns_.push_back(LowerMedian(partner));
    }
  }

  // If kinds and sizes disagree, ranks leave in a fixed order; any of them may be right.
  void Systematic() {
    std::vector<std::pair<std::uint64_t, std::int64_t>> by_sort;
    for (const Window& w : windows_)
      for (std::size_t i = w.first; i < w.end; ++i)
        by_sort.emplace_back(used_[i].sort,
                             used_[i].difference_ns - w.offset_ns - Along(rate_, used_[i].at_ns - w.at_ns));
    std::sort(by_sort.begin(), by_sort.end());
    for (std::size_t i = 0; i < by_sort.size();) {
      std::size_t end = i;
      std::vector<std::int64_t> residuals;
      for (; end < by_sort.size() && by_sort[end].first == by_sort[i].first; ++end)
        residuals.push_back(by_sort[end].second);
      if (residuals.size() >= rules::kMiddle)
        fit_.systematic_ns = std::max<std::int64_t>(fit_.systematic_ns, std::llabs(LowerMedian(residuals)));
      i = end;
    }
    for (Window& w : windows_) w.error_ns = std::max(w.error_ns, fit_.systematic_ns);
  }

  // Corridors of the window's operations: the estimate stays inside, and the error need not extend beyond.
  void Bound() {
    const double doubt = rate_known_ ? rules::kClockWander : rules::kClockCrystalsDrift;
    std::size_t next = 0;
    for (std::size_t k = 0; k < windows_.size(); ++k) {
      Window& w = windows_[k];
      const std::int64_t until =
          k + 1 < windows_.size() ? used_[w.end].at_ns : std::numeric_limits<std::int64_t>::max();
      std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
      for (; next < all_.size() && all_[next].at_ns < until; ++next) {
        const EndSample& s = all_[next];
        if (!s.hard) continue;
        const std::int64_t distance = w.at_ns - s.at_ns;
        // The bounds are up to the operation's length before its end; the uncertainty of the drift grows over both.
        const std::int64_t slack = Along(doubt, std::llabs(distance) + (s.high_ns - s.low_ns)) +
                                   Along(std::abs(rate_), s.high_ns - s.low_ns) + s.partner_error_ns;
        const std::int64_t moved_low = s.low_ns + Along(rate_, distance) - slack;
        const std::int64_t moved_high = s.high_ns + Along(rate_, distance) + slack;
        fit_.violated += w.offset_ns < moved_low || w.offset_ns > moved_high;
        low = std::max(low, moved_low);
        high = std::min(high, moved_high);
      }
      if (low > high) {  // They contradict each other: there is no bound, and the spread is not reliable either.
        w.error_ns = std::max(w.error_ns, low - high);
        continue;
      }
      const std::int64_t inside = std::clamp(w.offset_ns, low, high);
      w.error_ns += std::llabs(inside - w.offset_ns);
      w.offset_ns = inside;
      if (low != std::numeric_limits<std::int64_t>::min() && high != std::numeric_limits<std::int64_t>::max())
        w.error_ns = std::clamp(std::max(high - inside, inside - low), rules::kGpuEndErrorNs, w.error_ns);
    }
  }

  void Emit() {
    std::vector<MapKnot>& knots = fit_.knots;
    const std::size_t n = windows_.size();
    for (std::size_t k = 0; k < n; ++k) {
      // Between neighbours the clock may leave the line through them by as much again.
      double slew = n < rules::kFewest ? rules::kClockWander : rules::kClockLeastSlew;
      for (std::size_t j = k < 2 ? 1 : k - 1; j + 1 < n && j <= k + 1; ++j) {
        const Window &a = windows_[j - 1], &b = windows_[j], &c = windows_[j + 1];
        const double share = static_cast<double>(b.at_ns - a.at_ns) / static_cast<double>(c.at_ns - a.at_ns);
        const double line = static_cast<double>(a.offset_ns) + share * static_cast<double>(c.offset_ns - a.offset_ns);
        // A difference that the skew of a few operations explains is not wander.
        const double off = std::abs(static_cast<double>(b.offset_ns) - line) -
                           static_cast<double>(fit_.skew_ns) / static_cast<double>(rules::kGpuEndMads);
        if (off > 0)
          slew = std::max(slew, rules::kClockLeaveTimes * off / (static_cast<double>(c.at_ns - a.at_ns) / 2));
      }
      knots.push_back({windows_[k].at_ns, windows_[k].offset_ns, windows_[k].error_ns + partner_error_ns_[k],
                       static_cast<std::int64_t>(std::ceil((rate_known_ ? slew : rules::kClockCrystalsDrift) * 1e9))});
    }
    // Beyond the middles of the outer windows the common line continues, and its uncertainty grows.
    double doubt = rules::kClockCrystalsDrift;
    if (rate_known_)
      doubt =
          std::min(doubt, rules::kClockWander + 2 * static_cast<double>(std::max(rules::kGpuEndErrorNs, fit_.skew_ns)) /
                                                    static_cast<double>(span_ns_));
    const auto beyond = [&](MapKnot& edge, std::int64_t at) {
      const std::int64_t distance = at - edge.local_ns;
      const double slew = std::max(doubt, static_cast<double>(edge.slew_ppb) * 1e-9);
      edge.slew_ppb = static_cast<std::int64_t>(std::ceil(slew * 1e9));
      return MapKnot{at, edge.offset_ns + Along(rate_, distance),
                     edge.base_error_ns + Along(slew, std::llabs(distance)), edge.slew_ppb};
    };
    const std::int64_t first = std::min(begin_ns_ <= end_ns_ ? begin_ns_ : used_.front().at_ns, used_.front().at_ns);
    const std::int64_t last = std::max(begin_ns_ <= end_ns_ ? end_ns_ : used_.back().at_ns, used_.back().at_ns);
    std::vector<MapKnot> ends;
    if (first < knots.front().local_ns) ends.push_back(beyond(knots.front(), first));
    if (last > knots.back().local_ns) ends.push_back(beyond(knots.back(), last));
    knots.insert(knots.end(), ends.begin(), ends.end());
    Normalise(&knots);
  }

  std::vector<EndSample> all_, used_;
  std::int64_t begin_ns_, end_ns_;
  std::int64_t origin_ns_ = 0, span_ns_ = 0;
  double rate_ = 0;
  bool rate_known_ = false;
  std::vector<Window> windows_;
  std::vector<std::int64_t> partner_error_ns_;
  EndFit fit_;
};

}  // namespace

EndFit FitEnds(std::vector<EndSample> samples, std::int64_t begin_ns, std::int64_t end_ns) {
  return Fitter(std::move(samples), begin_ns, end_ns).Run();
}

}  // namespace lockstep::merge
