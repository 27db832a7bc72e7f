#pragma once
// All ranks' dumps as the progress of one job.

#include <cstdint>
#include <string>
#include <vector>

#include "hang/progress.h"
#include "ingest/flight_recorder/dump.h"

namespace lockstep::flight_recorder {

struct RankDump {
  std::int32_t rank = -1;
  std::int64_t modified_ns = 0;  // Of the file; 0 unknown.
  Dump dump;
};

// One dump per rank, ascending. `notes` gets what the dumps lack, a sentence each.
hang::Progress Combine(const std::vector<RankDump>& dumps, std::vector<std::string>& notes);

}  // namespace lockstep::flight_recorder
