#pragma once
// Whether a run on two hosts gives a reason to measure the network between them.

#include <string>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// Two hosts have one way between them, and no other way of the run says whether it is slow. What can be seen of it:
// that one direction is slower than the other, that transfers of one kind and size differ, or that they are slower than
// any network of a server. Each is a reason, for users, as "; REASON: whether ..."; "" without one, or if the run has
// fewer or more hosts.
std::string ReasonToMeasureBetweenTwoHosts(const Context& context, const Analysis& analysis);

}  // namespace lockstep::analysis
