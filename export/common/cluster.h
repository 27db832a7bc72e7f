#pragma once
// What the ranks did together, as one more process of a timeline: the job's steps, a slice per matched collective, the
// findings.

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "export/common/rank_events.h"

namespace lockstep::exporters {

// Rows of the timeline's collectives within a window, by their begin; with `ranks` those only that have a member there.
std::vector<std::uint32_t> InstancesIn(const merge::Timeline& timeline, const Interval& window,
                                       const std::vector<std::int32_t>* ranks);

// Chooses the longest waits for a known last arriver, at most `most`: fills flows and flow_target, and returns the
// other ends as ExportRun::flow_ends.
std::vector<std::pair<std::uint32_t, std::uint64_t>> ChooseFlows(const merge::Timeline& timeline,
                                                                 const std::vector<std::uint32_t>& instances,
                                                                 const std::vector<std::int32_t>& ranks,
                                                                 std::size_t most, Selection& selection);

// The cluster's events, by begin but for the parts of a collective, which follow it.
Status WalkCluster(const merge::Timeline& timeline, const std::vector<std::uint32_t>& instances, const Interval& window,
                   const std::vector<Finding>& findings, const std::function<Status(const Event&)>& f);

}  // namespace lockstep::exporters
