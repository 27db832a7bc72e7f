#include "analysis/core/student.h"

#include <cmath>
#include <initializer_list>

namespace lockstep::analysis {
namespace {

// The regularised incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and Stegun 26.5.8) with
// Lentz's method. Accurate to about 1e-14 for x below (a + 1) / (a + b + 2).
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300, kEnough = 1e-15;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
  double fraction = d;
  for (int m = 1; m < 500; ++m) {
    for (const double term : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 + term * d;
      d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
      c = 1 + term / c;
      if (std::fabs(c) < kTiny) c = kTiny;
      fraction *= d * c;
    }
    if (std::fabs(d * c - 1) < kEnough) break;
  }
  return fraction;
}

double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1 - front * BetaFraction(b, a, 1 - x) / b;
}

}  // namespace

double StudentCdf(double t, std::size_t freedom) {
  const auto n = static_cast<double>(freedom);
  const double tail = IncompleteBeta(n / 2, 0.5, n / (n + t * t)) / 2;
  return t < 0 ? tail : 1 - tail;
}

double StudentQuantile(double above, std::size_t freedom) {
  double low = 0, high = 1;
  while (1 - StudentCdf(high, freedom) > above && high < 1e12) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
    const double middle = (low + high) / 2;
    (1 - StudentCdf(middle, freedom) > above ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace lockstep::analysis
