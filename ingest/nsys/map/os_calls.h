#pragma once
// Calls into the operating system's libraries (read, write, fflush, pthread_cond_wait ...), which Nsight Systems traces
// with --trace=osrt.

#include <cstdint>

#include "ingest/nsys/map/context.h"

namespace lockstep::nsys {

// Appends them to `ranges`, unordered, for threads that have other events: those that call the GPU's runtime or MPI.
// Returns the calls of other threads, which are left out: most are the tool's and the driver's own.
std::uint64_t MapOsCalls(Context& context);

}  // namespace lockstep::nsys
