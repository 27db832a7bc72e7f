#pragma once
// What the replay of the recording promises of candidates.

#include <string>
#include <vector>

#include "analysis/context.h"
#include "analysis/tune/settings.h"

namespace lockstep::tune {

// Sets facts.communication_ns. Returns "" or why nothing can be replayed: candidates then have no promises.
std::string AddBounds(const analysis::Context& context, Facts& facts);
// Of those that the replay can ask about: other buckets.
void AddPromises(const analysis::Context& context, const Facts& facts, std::vector<Candidate>& candidates);

}  // namespace lockstep::tune
