#pragma once
// A timeline written by several processes: each writes rows of the long tables into a file of its own; timeline.h5
// holds the rest and the list of those files.

#include <string>

#include "core/result.h"
#include "core/schema.h"
#include "merge/merge.h"

namespace lockstep::merge {

inline constexpr char kShardDir[] = "timeline-shards";

// Called by all processes of options.team with equal tables; all get the same result.
Status WriteShards(const MergeOptions& options, const schema::TimelineTables& tables);

// Removes the shards of an earlier merge, which the timeline no longer needs.
void RemoveShards(const std::string& run_dir);

}  // namespace lockstep::merge
