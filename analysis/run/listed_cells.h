#pragma once
// Which of a run's many steps and ranks Analysis::steps lists. Pure: same input, same choice.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/core/model.h"

namespace lockstep::analysis {

// Positions, ascending, of the steps that are listed: all up to `most`. Of more: `always`, if it is given; the longest,
// a tenth of `most`, the earlier one of equally long ones; and of all others every k-th from the first on, with the
// smallest k for which there are at most `most` together. `lengths_ns`: of each step, below 0: not known.
std::vector<std::size_t> ListedSteps(const std::vector<std::int64_t>& lengths_ns, std::optional<std::size_t> always,
                                     std::size_t most);

// The ranks, ascending, whose cells are listed. `cells_of`: how many each rank has. All if they have at most `most`
// together. Of more: those that stragglers and findings name, in that order, up to the first that does not fit into
// `most_named` together; then the others, worst first (WorstFirst), up to the first that does not fit into `most`
// together; and one at least.
std::vector<std::int32_t> ListedRanks(const std::map<std::int32_t, std::size_t>& cells_of, const Analysis& analysis,
                                      std::size_t most, std::size_t most_named);

}  // namespace lockstep::analysis
