#pragma once
// The clocks of a trace's host and GPUs.

#include "ingest/map/finish.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// Leaves out or cuts times that cannot be (gpu_streams.h), and moves the times of GPUs whose clock launches and waits
// contradict, by the least that they allow; durations and what overlaps on a GPU stay. What was moved, and what
// contradicts the clocks still, goes to the losses and the rank's facts. Before anything is made of the times of
// kernels. Returns the move of the only GPU, 0 for several.
std::int64_t AlignGpuTimes(MappedTrace& trace, RankFinish& finish);

}  // namespace lockstep::ingest
