#pragma once
// Takes a trace apart that a tool merged of several ranks' traces: finds the ranks and whose each event is.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "ingest/kineto/map/partial.h"

namespace lockstep::ingest {

// One of the ranks in a file.
struct OwnTrace {
  std::string name;             // What tells it from the others: "TP01-PP00", "process 4001".
  std::int32_t told_rank = -1;  // That its label states.
  std::vector<std::unique_ptr<Partial>> partials;
};

// The ranks in the order of their labels (rank_label.h), without labels in the file's order. Empty: the trace is of one
// rank, as most are, and `partials` are as they were; else they are used up. kUnsupported: it is of several, and whose
// the GPU's work is cannot be told.
Result<std::vector<OwnTrace>> TakeApart(std::vector<std::unique_ptr<Partial>>& partials, unsigned jobs);

}  // namespace lockstep::ingest
