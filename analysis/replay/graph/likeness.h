#pragma once
// Which of a job's durations would be equal were it ideal, and what they would be then
// (OSDI'25, 3.3): the mean for work (what balancing it would give), the median for
// communication (few of its outliers are huge).

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

enum class WorkKind : std::uint8_t { kCompute, kHost, kCommunication, kNeither };
WorkKind KindOf(const Job& job, std::uint32_t operation);
std::string_view NameOf(WorkKind kind);  // "compute"

// Per operation. Alike is the n-th work of ranks that do the same kinds of things in the same order, over all such
// ranks and steps; where ranks or steps cut their work differently (polls, say) all of a rank's work of a step is
// scaled to its ordinary sum. Transfers are alike by kind, size and group size.
std::vector<std::int64_t> OrdinaryDurations(const RecordedRun& run, const Job& job);

}  // namespace lockstep::replay
