#pragma once
// Converts the NVTX ranges and marks of a report.

#include "ingest/nsys/map/mpi.h"

namespace lockstep::nsys {

// Fills ranges, sorted by begin, range_categories and the trace's communication events. MPI's calls, where a version
// keeps them as ranges, go to `mpi` unless it has some of its tables already.
void MapNvtx(Context& context, MpiCalls& mpi);

}  // namespace lockstep::nsys
