#pragma once
// What a run on CPU ranks did in some of its steps, read for replay: the ranks' threads
// cut into work, calls and collectives. Questions change this (another bucketing) or the
// graph made from it (host_job.h).

#include <cstdint>
#include <vector>

#include "analysis/replay/stretches.h"
#include "core/collective.h"
#include "core/result.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

struct HostCollective {
  std::uint32_t row = 0;  // Of the timeline's; kNone for a question's own.
  std::uint64_t comm = 0;
  CollectiveKind kind = CollectiveKind::kNone;
  std::uint64_t bytes = 0;
  std::uint32_t members = 0;
  // Once all are there and it is their turn, if a question says so; -1: as measured.
  std::int64_t transfer_ns = -1;
  // From then until a rank is through, if a question says so.
  std::int64_t exit_ns = 0;
};

struct HostRun {
  std::vector<std::int32_t> ranks;             // Ascending.
  std::vector<std::int64_t> steps;             // Their numbers; consecutive.
  std::vector<std::int64_t> measured_step_ns;  // As the timeline has them; the first is not comparable.
  std::vector<HostCollective> collectives;     // Those that every member has, ended, within the steps.
  std::vector<RankStretches> stretches;        // Per rank.
  std::uint64_t left_out = 0;  // Collectives that other ranks lack or that never ended: calls of fixed length here.
};

struct HostRunOptions {
  std::size_t most_steps = 40;  // Of the longest stretch of usable steps, its last ones.
  unsigned jobs = 0;            // Threads that read ranks.
};

// kUnsupported if there is nothing to replay: no steps, a GPU run.
Result<HostRun> ReadHostRun(const Timeline& timeline, const HostRunOptions& options = {});

}  // namespace lockstep::replay
