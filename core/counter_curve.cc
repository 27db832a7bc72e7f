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
  before_.resize(edges_.size(), -1);
  since_.resize(edges_.size(), -1);
}

void CounterCurve::Add(std::int64_t time_ns, std::int64_t value) {
  if (readings_ == 0) {
    first_ = last_ = {time_ns, value};
    while (known_ < edges_.size() && edges_[known_] <= time_ns) values_[known_++] = 0;
    if (known_ > 0 && edges_[known_ - 1] == time_ns) before_[known_ - 1] = since_[known_ - 1] = value;
    readings_ = 1;
    return;
  }
  const auto [t0, v0] = last_;
  if (time_ns <= t0 || value < v0) return;
  for (; known_ < edges_.size() && edges_[known_] < time_ns; ++known_) {
    before_[known_] = v0;
    since_[known_] = edges_[known_] == t0 ? v0 : value;
    values_[known_] = static_cast<double>(v0 - first_.second) +
                      static_cast<double>(value - v0) *
                          (static_cast<double>(edges_[known_] - t0) / static_cast<double>(time_ns - t0));
  }
  // Edges at this reading are passed by the next one.
  if (known_ < edges_.size() && edges_[known_] == time_ns) before_[known_] = since_[known_] = value;
  last_ = {time_ns, value};
  ++readings_;
}

std::size_t CounterCurve::EdgeAt(std::int64_t time_ns) const {
  return static_cast<std::size_t>(std::lower_bound(edges_.begin(), edges_.end(), time_ns) - edges_.begin());
}

double CounterCurve::At(std::int64_t time_ns) const {
  const std::size_t at = EdgeAt(time_ns);
  return at < known_ ? values_[at] : static_cast<double>(last_.second - first_.second);
}

std::int64_t CounterCurve::Within(std::size_t window) const {
  const Interval& w = windows_[window];
  if (readings_ < 2 || w.end <= first_.first || w.begin >= last_.first) return -1;
  return static_cast<std::int64_t>(std::llround(At(w.end) - At(w.begin)));
}

std::int64_t CounterCurve::AtMost(std::size_t from, std::size_t to) const {
  const std::int64_t before = before_[EdgeAt(windows_[from].begin)], since = since_[EdgeAt(windows_[to].end)];
  return before < 0 || since < 0 ? -1 : since - before;
}

}  // namespace lockstep
