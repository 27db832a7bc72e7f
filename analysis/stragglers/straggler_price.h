#pragma once
// What late ranks cost: per step, the lower median over the other ranks of the
// exposed waiting that ends with a suspect's arrival and began once all that are
// no suspects had arrived; over steps the median.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/core/model.h"
#include "analysis/core/statistics.h"
#include "analysis/stragglers/lateness.h"

namespace lockstep::analysis {

// What the priced ranks' files say about their exposed time.
struct RankActivities {
  std::vector<ExposedActivity> activities;  // Of the ranks below.
  std::vector<std::size_t> positions;       // Positions, ascending.
  bool exact = false;                       // Every rank asked for could be read.
  const ExposedActivity* Of(std::size_t position) const;
};

struct Prices {
  std::vector<std::vector<std::int64_t>> of;  // [position][unit]: of this rank alone, were the other suspects on time.
  std::vector<std::int64_t> together;         // [unit]: of all suspects.
};
// Without activities prices are upper bounds.
Prices PriceOf(const Context& context, const std::vector<std::size_t>& waiting, const Suspects& suspects,
               const RankActivities& read);

// Is this worth at least `limit_ns` per unit by its median, or by its mean without outliers?
bool WorthAtLeast(const std::vector<std::int64_t>& price, double limit_ns);

struct StragglerCost {
  double ns = 0;
  std::pair<double, double> interval{0, 0};  // 95 %.
};
// Of all suspects together from a unit on: median, or mean where they are late in some units only.
StragglerCost CostTogether(const Context& context, const std::vector<std::int64_t>& price, std::size_t from_unit,
                           double limit_ns);

// The unit from which on a rank is late to stay, having been on time before; `behind`: by how much, by unit.
std::optional<std::size_t> OnsetOf(const std::vector<std::int64_t>& behind, std::int64_t limit_ns);

// A suspect's kind and price if it deserves to be named: it costs `length_ns` x kNameShare, and surely more than any
// rank that is no suspect. `sharing`: ranks share cores, where being late now and then is nobody's doing.
struct Assessment {
  Straggler straggler;
  std::size_t from_unit = 0;  // Drifting: priced from here on.
};
// `behind`: how late it is by unit, which tells its kind; what that costs depends on the others too.
std::optional<Assessment> Assess(const Context& context, const Prices& prices, const Suspects& suspects,
                                 std::size_t position, const std::vector<std::int64_t>& behind, double p_value,
                                 std::int64_t length_ns, bool sharing);

}  // namespace lockstep::analysis
