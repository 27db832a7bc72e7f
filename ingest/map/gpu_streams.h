#pragma once
// Times of GPU operations that cannot be: none at all, and those of a stream that end within one another.

#include "ingest/map/finish.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// Leaves out kernels and copies without a time. CUPTI writes 0 for begin and end of an operation whose times it could
// not collect (CUpti_ActivityKernel9: "a value of 0 for both the start and end timestamps indicates that timestamp
// information could not be collected"); an operation that begins long before its launching call has a time that was
// lost on the way.
void LeaveOutUntimed(MappedTrace& trace, RankFinish& finish);

// A stream runs its operations in order: none ends before the one before it has ended, not even where the next kernel
// may begin early (programmatic dependent launch). An operation during which the next of its stream begins and ends is
// cut where that one begins, if few are so; else several streams were written as one, and all times stay. Both are
// counted. After LeaveOutUntimed.
void CutWithinStreams(MappedTrace& trace, RankFinish& finish);

}  // namespace lockstep::ingest
