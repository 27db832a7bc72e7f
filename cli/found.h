#pragma once
// What an analysis found, for commands that show it beside something else.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "merge/exporters/event.h"
#include "merge/merge.h"

namespace lockstep::cli {

// As `lockstep analyze` said last, if that is newer than the timeline; else asked now. A run that cannot be analyzed
// has none; `trouble` says why.
std::vector<exporters::Finding> FindingsOf(const Timeline& timeline, unsigned jobs, std::string& trouble);

// --clock, as `lockstep analyze` has it, and what it chooses.
void AddClockFlag(CLI::App& app, std::string& clock);
ClockChoice ClockChoiceOf(const std::string& clock);

}  // namespace lockstep::cli
