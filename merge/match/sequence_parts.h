#pragma once
// The two halves of Spine::Match: where one operation lies (sequence.cc), and from
// there on which is which (sequence_walk.cc).

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/order_statistics.h"
#include "merge/match/sequence.h"

namespace lockstep::merge {

// Two clocks drift apart by less.
inline constexpr double kDriftLimit = 200e-6;
// Members leave within this of one another before a difference is looked into.
inline constexpr std::int64_t kLeastTolerance = 30'000;

// Own operation j lies at spine position j + shift, around operation `seed`.
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

// The place that symbols, rhythm, step numbers or clock decide for. None: `several` tells
// whether there were places to choose from.
std::optional<Candidate> FindPlace(const Spine& spine, const std::vector<OrderedOp>& own, const OffsetPrior& prior,
                                   bool* several);

// Pairs the operations before and after the place; fills all of `match` but `placed`.
void WalkFrom(const Candidate& place, const std::vector<OrderedOp>& spine, const std::vector<OrderedOp>& own,
              SequenceMatch* match);

inline std::int64_t MedianOf(std::vector<std::int64_t>& values) { return NthElement(values, (values.size() - 1) / 2); }

inline bool Compatible(const OrderedOp& a, const OrderedOp& b) {
  return a.symbol == b.symbol || a.symbol == 0 || b.symbol == 0;
}

}  // namespace lockstep::merge
