#pragma once
// How often something happens by chance.

#include <algorithm>
#include <cmath>

namespace lockstep::analysis {

// The probability of `least` hits or more in `draws` draws of this chance each (above 0, below 1).
inline double BinomialTail(double least, double draws, double chance) {
  double tail = 0;
  for (double hits = least; hits <= draws; ++hits)
    tail += std::exp(std::lgamma(draws + 1) - std::lgamma(hits + 1) - std::lgamma(draws - hits + 1) +
                     hits * std::log(chance) + (draws - hits) * std::log1p(-chance));
  return std::min(1.0, tail);
}

}  // namespace lockstep::analysis
