#pragma once
// Student's t distribution, for intervals of means of few values.

#include <cstddef>

namespace lockstep::analysis {

// P(T <= t) for T of so many degrees of freedom (1 or more).
double StudentCdf(double t, std::size_t freedom);
// The t that T exceeds with probability `above` (more than 0, less than 0.5).
double StudentQuantile(double above, std::size_t freedom);

}  // namespace lockstep::analysis
