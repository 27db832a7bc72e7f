#pragma once
// The gaps of the GPU that a finding is about, for --explain: when, how long, of which parts, and what ended them.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "analysis/causes/cost.h"
#include "analysis/causes/rank_events.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

class GapEvidence {
 public:
  // Examines all gaps of the rank's busiest device: f(gap, stretch, part, ns) returns for each part within a stretch
  // whether it belongs to the finding. Keeps the gaps with the longest such parts.
  void Look(const RankEvents& events, const std::function<bool(const gpu::Gap& gap, std::size_t stretch,
                                                               const gpu::GapPart& part, std::int64_t ns)>& f);
  // The same for the parts of one kind: adds them to the cost of their stretch and tells `f` of each.
  void Look(const RankEvents& events, IdleKind kind, RankCost& cost,
            const std::function<void(const gpu::GapPart& part, std::int64_t ns)>& f);
  // What the next block of the rank shows. A gap that lies in both is one.
  void Add(GapEvidence&& next);
  std::int64_t gaps() const { return gaps_; }  // The number of gaps with such a part.
  std::int64_t ns() const { return ns_; }      // The length of all such parts.

  // What of this time came after the host had waited for the GPU, if that is at least a tenth: without the wait the
  // host would be ahead, and this time would overlap with the GPU's work. Otherwise nothing.
  static std::vector<Clause> AfterWaits(const std::vector<const GapEvidence*>& ranks);
  // Combines several ranks, with the gaps that contain most of the finding's time first. The parts of a row sum to its
  // length.
  static Evidence Rows(const std::vector<const GapEvidence*>& ranks);

 private:
  struct Row {
    std::int32_t rank;
    std::int64_t step, at_ns, length_ns, own_ns;
    std::vector<std::int64_t> parts_ns;  // By group of gap_evidence.cc.
    std::string name;
  };
  std::vector<Row> rows_;
  std::map<std::string, std::int64_t> after_wait_;  // By the call in which the host had waited when the gap began.
  std::int64_t gaps_ = 0, ns_ = 0;
  std::int64_t first_gap_ns_ = 0, last_gap_ns_ = 0;  // Begin of the first and the last one, rank clock.
};

// The sums over the gaps of several ranks. Keeps references to its arguments.
struct GapSums {
  std::vector<RankCost> costs;
  std::vector<const GapEvidence*> rows;
  std::int64_t ns = 0, gaps = 0;
};
// Each element has a `cost` and its `rows`.
template <typename Found>
GapSums SumGaps(const std::vector<const Found*>& found) {
  GapSums sums;
  for (const Found* one : found) {
    sums.costs.push_back(one->cost);
    sums.rows.push_back(&one->rows);
    sums.ns += one->rows.ns(), sums.gaps += one->rows.gaps();
  }
  return sums;
}

}  // namespace lockstep::analysis
