#pragma once
// What the parts of Spine::Match share: finding the position of one operation (sequence.cc, sequence_votes.cc), and
// then pairing the operations around it (sequence_walk.cc).

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "core/order_statistics.h"
#include "merge/match/sequence.h"
#include "merge/rules/clock.h"

namespace lockstep::merge {

// Twice what two crystals drift apart: a drift of two traces' clocks that looks larger is limited to it.
inline constexpr double kMostDrift = 2 * rules::kClockCrystalsDrift;

// The change by drift within so much time.
inline std::int64_t DriftWithin(std::int64_t ns) {
  return std::llround(rules::kClockCrystalsDrift * static_cast<double>(std::llabs(ns)));
}

// Own operation j corresponds to spine position j + shift, around operation `seed`.
struct Candidate {
  std::int64_t shift = 0;
  std::size_t seed = 0;
  std::size_t pairs = 0, agree = 0, together = 0;
  double contradicted = 0;
  double steps = -1;  // Share of pairs with equal step numbers, -1 no numbers.
  std::int64_t offset_ns = 0, spread_ns = 0;
  bool viable = false;
  // Longest stretches in which each operation keeps the clock difference of the one
  // before: coarsely, as members usually leave, and finely.
  struct Run {
    std::size_t length = 0, middle = 0;  // Pairs; own operation.
    std::int64_t offset_ns = 0;          // There.
  };
  std::array<Run, 2> runs;
  std::size_t symbols = 0;  // Longest stretch whose symbols agree.
};

// Each pair of operations that look alike votes for the clock difference under which they would be the same. The true
// difference gets a vote of nearly every operation, any other only by chance. Empty if no difference has enough more
// votes than the others.
std::optional<Candidate> PositionByVotes(const std::vector<OrderedOp>& spine, const std::vector<OrderedOp>& own,
                                         const OffsetPrior& prior);

// Pairs the operations before and after the position; fills all of `match` but `fit`.
void WalkFrom(const Candidate& position, const std::vector<OrderedOp>& spine, const std::vector<OrderedOp>& own,
              SequenceMatch* match);

inline bool Compatible(const OrderedOp& a, const OrderedOp& b) {
  return a.symbol == b.symbol || a.symbol == 0 || b.symbol == 0;
}

}  // namespace lockstep::merge
