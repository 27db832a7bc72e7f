#pragma once
// What findings gain by the replay of their remedies: one by one, and all of them together. The one place that
// prices anything by a replay of more than one cause.

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/context.h"
#include "analysis/core/model.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::analysis {

// The change of the job that a finding asks for, as the replay can play it; nothing for findings that it cannot.
std::optional<replay::Question> RemedyOf(const Context& context, const Analysis& analysis, const Finding& finding);

// What a step gains if the remedies of all `findings` are made at once, ns (the mean over steps); nothing where not
// all of them can be replayed together.
std::optional<std::int64_t> GainTogether(const Context& context, const Analysis& analysis,
                                         const std::vector<const Finding*>& findings);

}  // namespace lockstep::analysis
