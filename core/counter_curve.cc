#include "core/counter_curve.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

CounterCurve::CounterCurve(const std::vector<Interval>& windows) : windows_(windows) {
  for (const Interval& window : windows_) {
    edges_.push_back(window.begin);
    edges_.push_back(window.end);
  }
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  values_.resize(edges_.size());
}

void CounterCurve::Add(std::int64_t time_ns, std::int64_t value) {
  if (readings_ == 0) {
    first_ = last_ = {time_ns, value};
    while (known_ < edges_.size() && edges_[known_] <= time_ns) values_[known_++] = 0;
    readings_ = 1;
    return;
  }
  const auto [t0, v0] = last_;
  if (time_ns <= t0 || value < v0) return;
  for (; known_ < edges_.size() && edges_[known_] < time_ns; ++known_)
    values_[known_] = static_cast<double>(v0 - first_.second) +
                      static_cast<double>(value - v0) *
                          (static_cast<double>(edges_[known_] - t0) / static_cast<double>(time_ns - t0));
  last_ = {time_ns, value};
  ++readings_;
}

double CounterCurve::At(std::int64_t time_ns) const {
  const auto at = static_cast<std::size_t>(std::lower_bound(edges_.begin(), edges_.end(), time_ns) - edges_.begin());
  return at < known_ ? values_[at] : static_cast<double>(last_.second - first_.second);
}

std::int64_t CounterCurve::Within(std::size_t window) const {
  const Interval& w = windows_[window];
  if (readings_ < 2 || w.end <= first_.first || w.begin >= last_.first) return -1;
  return static_cast<std::int64_t>(std::llround(At(w.end) - At(w.begin)));
}

}  // namespace lockstep
