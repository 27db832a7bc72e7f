#pragma once
// What to record so that the next run tells more: options of whatever recorded this one.

#include <string>

#include "analysis/context.h"

namespace lockstep::analysis {

// So that what the host does between launches has a name.
std::string ToNameHostWork(const Context& context);
// So that first calls, which load code and tune, are not in it.
std::string ToRecordLater(const Context& context);
// So that GPU work has the call that launched it.
std::string ToSeeLaunches(const Context& context);
// So that what keeps launched work from starting is seen.
std::string ToSeeStarts(const Context& context);

}  // namespace lockstep::analysis
