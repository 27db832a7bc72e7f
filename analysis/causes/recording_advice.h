#pragma once
// Advises what to record in the next run: options of the tool that recorded this one.

#include <string>

#include "analysis/context.h"

namespace lockstep::analysis {

// Makes the work of the host between launches have a name.
std::string ToNameHostWork(const Context& context);
// Excludes first calls, which load code and tune.
std::string ToRecordLater(const Context& context);
// Connects GPU work with the call that launched it.
std::string ToSeeLaunches(const Context& context);
// Shows what delays the start of launched work.
std::string ToSeeStarts(const Context& context);

}  // namespace lockstep::analysis
