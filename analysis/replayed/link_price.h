#pragma once
// What a slow network costs: the replay with its messages as fast as those of the other hosts.

#include <optional>

#include "analysis/context.h"
#include "analysis/core/model.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::analysis {

// Of the slow network of a finding link.slow: each message of its way takes what one of this size takes on the others.
// Where only collectives show it, they and all else take no time, which is a bound. Nothing
// without a replay that holds.
std::optional<replay::Question> WithoutSlowLink(const Context& context, const Analysis& analysis);

}  // namespace lockstep::analysis
