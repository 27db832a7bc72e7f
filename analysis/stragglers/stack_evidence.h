#pragma once
// Where in its program a late rank spends the time for which the others wait, from samples of its stack.

#include <optional>

#include "analysis/context.h"
#include "analysis/core/model.h"
#include "analysis/stacks/sampled_stacks.h"

namespace lockstep::analysis {

// The function that takes the time, if the samples show one. `healthy`: of a rank that was sampled at the same time,
// null if there is none: then what most of its late time was spent in counts, else what it does longer than that rank.
// `late_share`: the part of its time for which others wait for it. Nothing if the samples are too few, or spread.
std::optional<StackPlace> PlaceOf(const SampledStacks& late, const SampledStacks* healthy, double late_share);

// The same of a rank of the run, from its file and that of the rank that it was compared with while it ran. Nothing
// where the cause is none that a function shows: a lack of a core, a slow GPU.
std::optional<StackPlace> FindPlace(const Context& context, std::int32_t rank, CauseId cause, double late_share);

// "9 of 11 samples of its late time: collate, train.py:88 (in nanosleep)".
Clause ClauseOf(const StackPlace& place);

}  // namespace lockstep::analysis
