#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace lockstep::trace {

// Names this start of the machine: what meta calls boot_id. "" if it cannot be read.
std::string BootId();

// Ticks per ns where fewer than two snapshots say so: on the machine and boot of
// the trace (`meta`, key boot_id) the counter still runs at the rate it had. 0 unknown.
double TickRateOfThisMachine(const std::map<std::string, std::string>& meta, std::size_t snapshots);

}  // namespace lockstep::trace
