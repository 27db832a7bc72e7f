#pragma once
// What the pieces of a critical path are made of.

#include <vector>

#include "analysis/gpu/critical_hosts.h"
#include "analysis/gpu/critical_path.h"

namespace lockstep::gpu {

// As CriticalPathFinder::Shares. `nest`: the ranges that host time is named by.
std::vector<CriticalPathFinder::Share> SharesOf(const CriticalPath& path, const DeviceActivity& activity,
                                                const CriticalHosts& hosts, const RangeNest& nest);

}  // namespace lockstep::gpu
