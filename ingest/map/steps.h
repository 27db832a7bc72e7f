#pragma once
// Steps that a trace marks by ranges of one name.

#include <string>
#include <string_view>

#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// Fills trace.steps and tables.steps from ranges of NVTX and of record_function(): those named `step_range`, alone or
// with a number ("step 12"); "": those that are named like steps, by the most reliable word. They are of the one thread
// that has most of them. Numbers in the names are the indices if they grow, else the order is. tables.ranges is sorted
// by begin. Returns the first one's name, "" if there are none.
std::string StepsFromRanges(MappedTrace& trace, std::string_view step_range);

// The names of ranges that could be steps, the most frequent first, for a message: "forward (40 times), load (40
// times)"; "" if there are none. Numbers at their end and NCCL's own ranges are left out.
std::string NamesOfRanges(const schema::RankTables& tables);

}  // namespace lockstep::ingest
