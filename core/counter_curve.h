#pragma once
// How much a counter that is read now and then grew within windows of time.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/interval.h"

namespace lockstep {

// Growth within windows of a cumulative counter read at some times (thread CPU time,
// run-queue delay), linear in between. Keeps nothing but the values at the windows' edges.
class CounterCurve {
 public:
  explicit CounterCurve(const std::vector<Interval>& windows);
  // Times must not decrease; a reading below its predecessor is dropped.
  void Add(std::int64_t time_ns, std::int64_t value);
  // Growth within a window; -1 if fewer than two readings or none near it: the window
  // must overlap the readings' span.
  std::int64_t Within(std::size_t window) const;
  // The most that it may have grown from the begin of one window to the end of another; -1 if no reading bounds it.
  std::int64_t AtMost(std::size_t from, std::size_t to) const;

 private:
  std::size_t EdgeAt(std::int64_t time_ns) const;
  double At(std::int64_t time_ns) const;
  std::vector<Interval> windows_;
  std::vector<std::int64_t> edges_;
  std::vector<std::int64_t> before_, since_;  // The last reading up to each edge, and the first since; -1 none.
  std::vector<double> values_;                // Since the first reading; of the edges before `known_`.
  std::size_t known_ = 0, readings_ = 0;
  std::pair<std::int64_t, std::int64_t> first_{0, 0}, last_{0, 0};
};

}  // namespace lockstep
