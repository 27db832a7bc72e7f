#pragma once
// Parameters that are gathered before they are used (FSDP and its kind): as the run would
// have been had it gathered them earlier, or later.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

inline constexpr std::size_t kWholeStep = static_cast<std::size_t>(-1);

// One rank's all-gather of a step: who needs it first.
struct Gather {
  std::uint32_t member;    // Operation.
  std::uint32_t consumer;  // The first operation of the rank that cannot begin before it has ended.
  std::uint32_t before;    // What precedes that one on its thread or stream; kNone: nothing.
  std::uint32_t collective;
};

// [rank][step], in order of their use. Empty if ranks or steps differ in how many there are, or there are none. `kind`:
// all-gathers of parameters, or reduce-scatters of gradients.
std::vector<std::vector<std::vector<Gather>>> FindGathers(const RecordedRun& run, const Job& job, CollectiveKind kind);

// Each all-gather may begin as soon as the one `depth` before it is about to be used; kWholeStep: when the step begins.
// 0: only when it is needed. What is on its communicator keeps its order otherwise. Nothing if the run gathers nothing.
std::optional<Job> WithPrefetch(const RecordedRun& run, std::size_t depth);

}  // namespace lockstep::replay
