#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace lockstep::trace {

// Identifies this boot of the machine (meta key boot_id). "" if it cannot be read.
std::string BootId();

// Ticks per ns if there are fewer than two snapshots: on the machine and boot of the trace (`meta`, key boot_id) the
// counter still has the rate it had. 0 unknown.
double TickRateOfThisMachine(const std::map<std::string, std::string>& meta, std::size_t snapshots);

}  // namespace lockstep::trace
