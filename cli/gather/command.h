#pragma once
// The `lockstep gather` that brings the files of other hosts to a run, as it is printed to be typed.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/agent/rundir/run_dir.h"

namespace lockstep::cli {

// HOST:DIR, quoted for a shell.
std::string PlaceWord(const std::string& host, const std::string& dir);
// A run's directory, quoted; relative ones may begin with a dash.
std::string RunWord(const std::string& run_dir);
// Absolute, without "..".
std::string AbsoluteDir(const std::string& run_dir);

// "To bring all into one run: lockstep gather node1:DIR node2:DIR -o RUN   then: lockstep analyze RUN", for this host's
// directory and those of `places` that do not share it; "" if all do. Says so where these are not all that the `slots`
// of the job have.
std::string HowToGather(const std::string& run_dir, const std::vector<agent::RunPlace>& places, std::int32_t slots);

// How to get the files of hosts that do not share the directory, as a line for readers of a run, of a job of `slots`,
// of which ranks are missing; "" if the run's agents left no word where these are (places.h).
std::string WhereOthersAre(const std::string& run_dir, std::int32_t slots);

}  // namespace lockstep::cli
