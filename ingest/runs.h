#pragma once
// Groups the given files by run.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ingest/told_group.h"

namespace lockstep::ingest {

// The facts about its run that a file contains.
struct RunClue {
  std::int64_t told_world_size = 0;       // 0: it does not contain it.
  std::int32_t told_rank = -1;            // -1: it does not contain it.
  std::int64_t begin_ns = 0, end_ns = 0;  // Wall-clock interval of what it recorded; equal: nothing.
  std::string backend, nccl_version;      // Of the job; "": it does not say.
  std::vector<ToldGroup> groups;
  std::string format;  // Two tools that recorded one job have each rank, each in its own format.
  std::string host;    // Where it was recorded; "": it does not say.
  std::string path;
};

struct RunOfFiles {
  std::vector<std::size_t> files;  // In the order given.
  std::string apart;               // For users: what distinguishes it from the first of the list; "" for the first.
};

// The run with most files first (the earliest given of equal ones), then the others. Files are of one run if they
// agree on the number of ranks, the backend, the version of NCCL and which process groups they are in, as far as they
// say it, and were recorded within ten minutes of each other. Of files among which a rank occurs twice, and is no copy,
// only those that overlap in time are of one run; if it still occurs twice, only those whose paths are the same but for
// numbers, or, if that does not tell either, of the same host, and others with other ranks.
std::vector<RunOfFiles> TellRunsApart(std::span<const RunClue> files);

}  // namespace lockstep::ingest
