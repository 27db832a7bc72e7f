#pragma once
// Where the reference clock stands against this one while the job runs: the line through the last two measurements.
// merge/clock fits the whole run afterwards.

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace lockstep::agent {

// The reference clock minus this one; error -1: not known.
struct ClockOffset {
  std::int64_t offset_ns = 0, error_ns = -1;
};

class ClockLine {
 public:
  // Measured at `at_ns` of this clock, later than the last one.
  void Add(std::int64_t at_ns, const ClockOffset& measured) {
    const std::int64_t apart_ns = at_ns - at_ns_;
    rate_ = 0;
    rate_error_ = kUnknownRate;
    if (last_.error_ns >= 0 && apart_ns > 0) {
      const double rate = static_cast<double>(measured.offset_ns - last_.offset_ns) / static_cast<double>(apart_ns);
      const double error = static_cast<double>(measured.error_ns + last_.error_ns) / static_cast<double>(apart_ns);
      // Two that are close together say less than that both are crystals.
      if (error + kWander < kUnknownRate) {
        rate_ = rate;
        rate_error_ = error + kWander;
      }
    }
    last_ = measured;
    at_ns_ = at_ns;
  }

  // For all of [begin, end] of this clock, ns.
  ClockOffset Over(std::int64_t begin_ns, std::int64_t end_ns) const {
    if (last_.error_ns < 0) return {};
    const double half = static_cast<double>(end_ns - begin_ns) / 2;
    const double ahead = static_cast<double>(begin_ns - at_ns_) + half;
    const double doubt = std::abs(ahead) * rate_error_ + half * (std::abs(rate_) + rate_error_);
    return {last_.offset_ns + std::llround(ahead * rate_), last_.error_ns + std::llround(std::ceil(doubt))};
  }

 private:
  // Two crystals of 50 ppm each, and how far one leaves its common rate (merge/clock/fit.cc has the same).
  static constexpr double kUnknownRate = 100e-6, kWander = 10e-6;

  ClockOffset last_;
  std::int64_t at_ns_ = 0;
  double rate_ = 0, rate_error_ = kUnknownRate;
};

}  // namespace lockstep::agent
