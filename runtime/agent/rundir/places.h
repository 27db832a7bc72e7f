#pragma once
// Where the files of those hosts are that do not share the run directory, as their agents told rank 0's: the file
// ranks/.places. It is there while the job runs, and stays if the job's end did not bring the files: an agent that is
// killed says nothing, and who looks for the missing ranks later is told by it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comms/clock/clock_service.h"
#include "runtime/agent/rundir/run_dir.h"

namespace lockstep::agent {

// Returns whether it is written. Without any, nothing is left.
bool WritePlaces(const std::string& run_dir, const std::vector<RunPlace>& places);
// Those that are not known to share the directory: no claim (claim.h) of their slot is in it. None if the file is
// missing or damaged. What they hold was told by another host: it is to be quoted before anything is done with it.
std::vector<RunPlace> ReadPlaces(const std::string& run_dir);
void RemovePlaces(const std::string& run_dir);

// Whether `host` can stand in front of a directory in the command that gathers files: a name, user@name or an address
// (with a zone, without brackets) of which no shell reads anything else. Names may have letters of any language.
bool NamesHost(std::string_view host);

// What an agent tells rank 0's of its directory (ClockServiceConfig::place, FileSender::Setup::place): its host, the
// run directory there and how many ranks that host has, -1 if it does not know.
std::string PlaceText(const std::string& host, const std::string& run_dir, std::int32_t ranks);
// What was told, with the name or address by which `own_name`'s host reaches each (ReachedBy). What is no such text is
// left out.
std::vector<RunPlace> PlacesOf(const std::vector<clock::ToldPlace>& told, const std::string& own_name);

// Where an agent of another host says that it is.
struct ToldHost {
  std::string name, address;  // "" not known.
};
// By what this host reaches each of `told`: its name, or its address where the name leads elsewhere or nowhere:
// another one of them, or this host (`own_name`), is called the same, or no command can be made of it.
std::vector<std::string> ReachedBy(const std::vector<ToldHost>& told, const std::string& own_name);

// Of `places`, those whose slots have no claim in the directory.
std::vector<RunPlace> NotShared(const std::string& run_dir, const std::vector<RunPlace>& places);

// Of how many of a job's `slots` neither a claim is in the directory nor their host among `places` (NotShared). 0 also
// where it is not known how many ranks a place has.
std::int32_t NotTold(const std::string& run_dir, const std::vector<RunPlace>& places, std::int32_t slots);

}  // namespace lockstep::agent
