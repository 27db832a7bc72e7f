#pragma once
// Clocks that must never be mixed. Each is its own type, so mixing them is a
// compile error rather than a wrong timeline.

#include <compare>
#include <cstdint>

namespace lockstep {

template <typename Clock>
struct Timestamp {
  std::int64_t ns = 0;
  friend auto operator<=>(Timestamp, Timestamp) = default;
  friend std::int64_t operator-(Timestamp a, Timestamp b) { return a.ns - b.ns; }
  friend Timestamp operator+(Timestamp a, std::int64_t ns) { return {a.ns + ns}; }
};

using RankTime = Timestamp<struct RankClock>;  // Event clock of one rank: CLOCK_MONOTONIC_RAW of its clock domain.
using ClusterTime = Timestamp<struct ClusterClock>;  // After merge/align: event clock of the reference rank.

template <typename T>
struct Span {
  T begin, end;  // Half-open.
  std::int64_t ns() const { return end - begin; }
};

}  // namespace lockstep
