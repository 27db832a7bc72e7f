#pragma once
// Finishes what agents could not: spools (and the rings they left in shared
// memory) of a run become rank files, as the agent would have made them.

#include <cstddef>
#include <string>

namespace lockstep {

// For every ranks/*.spool whose agent has ended: writes the rank file(s), then
// removes the spool and the leftover segment. The files' root attribute `recovered`
// is 1: what ended badly stays known. A spool with damaged blocks is kept beside its
// file. Spools of agents that still run, or that may run on another
// machine, are left alone. Returns the number of slots finished; trouble is no
// error: the spool stays, and everything reads spools as well.
std::size_t FinishLeftSpools(const std::string& run_dir);

}  // namespace lockstep
