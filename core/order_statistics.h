#pragma once
// Medians and quantiles: one definition of each for all folders.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

// The element at this position of the sorted values, which it reorders. `at` must be less than their number.
template <typename T>
T NthElement(std::vector<T>& values, std::size_t at) {
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

// Of an even number of values, the lower of the middle two; `none` if there are no values.
template <typename T>
T LowerMedian(std::vector<T> values, T none = T{}) {
  return values.empty() ? none : NthElement(values, (values.size() - 1) / 2);
}
// The upper of the middle two.
template <typename T>
T UpperMedian(std::vector<T> values, T none = T{}) {
  return values.empty() ? none : NthElement(values, values.size() / 2);
}
// The mean of the middle two, as numpy and pandas define it; 0 if there are no values.
template <typename T>
double MiddleMedian(std::vector<T> values) {
  if (values.empty()) return 0;
  const auto upper = static_cast<double>(NthElement(values, values.size() / 2));
  if (values.size() % 2 != 0) return upper;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  return (upper + static_cast<double>(*std::max_element(values.begin(), half))) / 2;
}

// The element at floor(p * (n - 1)) of the sorted values; `none` if there are no values.
template <typename T>
T LowerQuantile(std::vector<T> values, double p, T none = T{}) {
  return values.empty() ? none
                        : NthElement(values, static_cast<std::size_t>(p * static_cast<double>(values.size() - 1)));
}

}  // namespace lockstep
