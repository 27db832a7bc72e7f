#pragma once
// Converts the NVTX ranges and marks of a report.

#include <cstdint>
#include <string>

#include "ingest/nsys/map/mpi.h"

namespace lockstep::nsys {

struct NvtxFacts {
  std::string step_name;       // The name of the ranges that were taken for steps, "" if none were.
  std::uint64_t nccl_ops = 0;  // Ranges of NCCL's own operations.
};

// Fills ranges, range_categories and the trace's steps and communication events. MPI's calls, where a version keeps
// them as ranges, go to `mpi` unless it has some of its tables already. `step_range`: the name of the ranges that are
// steps, "": those that are named like steps.
NvtxFacts MapNvtx(Context& context, MpiCalls& mpi, const std::string& step_range);

}  // namespace lockstep::nsys
