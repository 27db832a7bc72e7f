#pragma once
// Advises what to record in the next run: options of the tool that recorded this one.

#include <string>

#include "analysis/context.h"

namespace lockstep::analysis {

// Makes the work of the host between launches have a name.
Clause ToNameHostWork(const Context& context);
// Excludes first calls, which load code and tune.
Clause ToRecordLater(const Context& context);
// Connects GPU work with the call that launched it.
Clause ToSeeLaunches(const Context& context);
// Shows what delays the start of launched work.
Clause ToSeeStarts(const Context& context);

}  // namespace lockstep::analysis
