#pragma once
// Work shared between processes: libhdf5 runs under one lock per process, so threads would wait for each other.

#include <cstdint>
#include <functional>

#include "core/result.h"

namespace lockstep::make_run {

// work(i) for every i in [0, n) in `jobs` child processes (1: here, in order; 0: one per allowed core). What
// `work` changes in memory is lost with the child. The error of the lowest failing i.
Status ForEachInProcesses(unsigned jobs, std::int32_t n, const std::function<Status(std::int32_t)>& work);

}  // namespace lockstep::make_run
