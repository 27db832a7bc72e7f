#pragma once
// Order statistics of values that are in memory.

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace lockstep::merge {

// The n-th smallest, from 0; n < size. Reorders the values.
template <typename Values>
auto NthSmallest(Values&& values, std::size_t n) {
  const auto at = std::begin(values) + static_cast<std::ptrdiff_t>(n);
  std::nth_element(std::begin(values), at, std::end(values));
  return *at;
}

// Of an even number of values the lower, or the upper, of the two in the middle. Not empty. Reorders the values.
template <typename Values>
auto LowerMedian(Values&& values) {
  return NthSmallest(values, (std::size(values) - 1) / 2);
}
template <typename Values>
auto UpperMedian(Values&& values) {
  return NthSmallest(values, std::size(values) / 2);
}

}  // namespace lockstep::merge
