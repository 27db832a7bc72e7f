#pragma once
// Whether a run gives a reason to measure the network between its hosts where it does not show which one is slow.

#include <vector>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// Two hosts have one way between them, and no other way of the run says whether it is slow. What can be seen of it:
// that one direction is slower than the other, that transfers of one kind and size differ, or that they are slower than
// any network of a server. Of more hosts: that some have the data of collectives long before others (link.h), which
// does not say which of them is slow. Each is a reason, for users, as "REASON: whether ..."; nothing without one, or if
// a finding says which network is slow.
std::vector<Clause> ReasonToMeasureNetwork(const Context& context, const Analysis& analysis);

}  // namespace lockstep::analysis
