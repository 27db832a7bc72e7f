#pragma once
// Computes what late ranks cost: per step, the lower median over the other ranks of the exposed waiting that ends with
// a suspect's arrival and began after the last rank that is not a suspect had arrived; over steps the mean. Whether it
// is named is decided by statistics that one step cannot decide: the median, or the mean without outliers.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/core/model.h"
#include "analysis/core/statistics.h"
#include "analysis/stragglers/lateness.h"

namespace lockstep::analysis {

// The exposed time of the priced ranks, from their files.
struct RankActivities {
  std::vector<ExposedActivity> activities;  // Of the ranks below.
  std::vector<std::size_t> positions;       // Positions, ascending.
  bool exact = false;                       // Whether every requested rank could be read.
  const ExposedActivity* Of(std::size_t position) const;
};

struct Prices {
  // [position][unit]: the cost of this rank alone if the other suspects were on time.
  std::vector<std::vector<std::int64_t>> of;
  std::vector<std::int64_t> together;  // [unit]: the cost of all suspects.
};
// Without activities prices are upper bounds.
Prices PriceOf(const Context& context, const std::vector<std::size_t>& waiting, const Suspects& suspects,
               const RankActivities& read);

// Whether the price is at least `limit_ns` per unit by its median, or by its mean without outliers.
bool WorthAtLeast(const std::vector<std::int64_t>& price, double limit_ns);

struct StragglerCost {
  double ns = 0;                             // Mean over units.
  std::pair<double, double> interval{0, 0};  // 95 %.
  // Another rank, which is not suspected, costs its others more than half as much: they take turns at being last.
  bool mutual = false;
};
// Of a price by unit, from a unit on.
StragglerCost MeanCost(const Context& context, const std::vector<std::int64_t>& price, std::size_t from_unit);

// What a price by slice amounts to in all, ns, without slices of which it is an unusual share. Slices differ in length,
// so what a rank costs in the one in the middle says nothing about the whole.
double CostInAll(const Context& context, const std::vector<std::int64_t>& price, std::size_t from_unit);

// The unit from which on a rank that was on time before is permanently late; `behind`: its lateness by unit.
std::optional<std::size_t> OnsetOf(const std::vector<std::int64_t>& behind, std::int64_t limit_ns);

// Of two ranks: the probability that one is so much later than the other, from a unit on that OnsetOf chose (0: not
// chosen), by chance. `differences`: of their lateness by unit. 1 where it is not the later one.
double PairedP(const std::vector<double>& differences, std::size_t from, std::uint64_t seed, std::size_t rounds);

// A suspect's kind and price if it is to be named: it costs at least `length_ns` x rules::kNameShare, and certainly
// more than any rank that is not a suspect. `sharing`: ranks share cores, in which case no rank is responsible for
// being late now and then.
struct Assessment {
  Straggler straggler;
  std::size_t from_unit = 0;  // A drifting rank is priced from here on.
  bool mutual = false;        // As of StragglerCost.
};
// `behind`: its lateness by unit, from which its kind follows; its cost depends on the others too.
std::optional<Assessment> Assess(const Context& context, const Prices& prices, const Suspects& suspects,
                                 std::size_t position, const std::vector<std::int64_t>& behind, double p_value,
                                 std::int64_t length_ns, bool sharing);

// The length of an ordinary unit: of steps or slices the median. Limits of what is worth naming are shares of it.
std::int64_t UnitLength(const Context& context);

// Mean length of the steps from a unit on, which a drifting rank's price is of; nothing where these are all.
std::optional<std::int64_t> StepsSince(const Context& context, std::size_t from_unit);

// Of a run without steps: the price in all of `whole_ns`, the length of the recording; nothing if it is worth no
// finding. Of one with steps as it is.
std::optional<Assessment> OfAll(const Context& context, std::optional<Assessment> assessment,
                                const std::vector<std::int64_t>& price, std::int64_t whole_ns);

// Late in four of five units.
bool IsPersistent(const std::vector<std::int64_t>& behind, double limit_ns);

// Of a rank that costs more than its waiting shows (hidden_waiting.h): what is seen of it.
Assessment AssessHidden(const Context& context, const std::vector<std::int64_t>& price, std::size_t position,
                        double p_value);

}  // namespace lockstep::analysis
