#pragma once
// Aligns one rank's collectives on a communicator with another rank's where they have no
// numbers: imported traces. Traces begin and end at different points and miss operations,
// and training repeats itself, so symbols (kind, type, size) alone fit at every step.
// These decide, in this order: the rhythm (members leave together, so the differences of
// their ends stay within microseconds at the true position, and vary with the jitter of
// the steps at every other), the step numbers, the wall clock. What none of them decides
// stays open.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::merge {

struct OrderedOp {
  std::uint64_t symbol;           // Kind, type and size; 0: not known, matches every symbol.
  std::int64_t begin_ns, end_ns;  // Own clock.
  std::int64_t step;              // Step it began in, -1 unknown.
  bool together;                  // Members leave together, and none before the last one came.
};

// The offset of the two clocks as far as it is known beforehand: own + offset = spine, within so much.
struct OffsetPrior {
  std::int64_t offset_ns = 0;
  std::int64_t within_ns = 0;  // 0: the usual accuracy of wall clocks.
};

enum class Fit : std::uint8_t {
  kNone,       // The sequences do not fit together.
  kAmbiguous,  // They fit at several positions, and nothing selects one of them.
  kUnique,
};

inline constexpr std::int32_t kExtraOp = -1, kAmbiguousOp = -2;

struct SequenceMatch {
  Fit fit = Fit::kNone;
  std::vector<std::int32_t> to;           // Per own operation: index in the spine, or one of the above.
  std::int64_t offset_ns = 0;             // Spine minus own, at the middle of their overlap.
  std::int64_t spread_ns = -1;            // Of the ends' differences around it; -1: too few.
  std::size_t matched = 0, disagree = 0;  // `disagree`: matched by order and time, but kind or size differ.
};

// A sequence prepared for comparison with many others.
class Spine {
 public:
  explicit Spine(std::vector<OrderedOp> ops);
  const std::vector<OrderedOp>& ops() const { return ops_; }
  // Thread: any number at once.
  SequenceMatch Match(const std::vector<OrderedOp>& own, const OffsetPrior& prior) const;

  // Short stretches of symbols: hash and position, sorted.
  std::size_t gram() const { return gram_; }
  const std::vector<std::pair<std::uint64_t, std::uint32_t>>& grams() const { return grams_; }

 private:
  std::vector<OrderedOp> ops_;
  std::size_t gram_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> grams_;
};

}  // namespace lockstep::merge
