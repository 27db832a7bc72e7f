#pragma once
// Finds which of a job's durations would be equal in an ideal job, and their values then (OSDI'25, 3.3): the mean for
// work (the result of balancing it), the median for communication (few of its outliers are huge).

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

enum class WorkKind : std::uint8_t { kCompute, kHost, kCommunication, kNeither };
WorkKind KindOf(const Job& job, std::uint32_t operation);
std::string_view NameOf(WorkKind kind);  // "compute"

// Per operation. The n-th pieces of work of ranks that do the same kinds of operations in the same order are alike,
// over all such ranks and steps; if ranks or steps divide their work differently (because of polls, for example), all
// of a rank's work of a step is scaled to its ordinary sum. Transfers are alike by kind, size and group size.
std::vector<std::int64_t> OrdinaryDurations(const RecordedRun& run, const Job& job);

}  // namespace lockstep::replay
