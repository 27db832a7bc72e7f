#pragma once
// Groups the given files by run.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::ingest {

// The facts about its run that a file contains.
struct RunClue {
  std::int64_t told_world_size = 0;       // 0: it does not contain it.
  std::int32_t told_rank = -1;            // -1: it does not contain it.
  std::int64_t begin_ns = 0, end_ns = 0;  // Wall-clock interval of what it recorded; equal: nothing.
};

struct RunOfFiles {
  std::vector<std::size_t> files;  // In the order given.
  std::string apart;               // For users: what distinguishes it from the first of the list; "" for the first.
};

// The run with most files first (the earliest given of equal ones), then the others. Files are of one run if they
// agree on the number of ranks, as far as they say it, and were recorded within ten minutes of each other; of a run
// that holds a rank twice, only if they overlap in time.
std::vector<RunOfFiles> TellRunsApart(std::span<const RunClue> files);

}  // namespace lockstep::ingest
