#pragma once
// Parameters that are gathered before they are used (FSDP and similar): changes the run so that it gathers them
// earlier, or later.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

inline constexpr std::size_t kWholeStep = static_cast<std::size_t>(-1);

// One rank's all-gather of a step, and the operation that needs it first.
struct Gather {
  std::uint32_t member;    // Operation.
  std::uint32_t consumer;  // The first operation of the rank that cannot begin before it has ended.
  std::uint32_t before;    // The operation before that one on its thread or stream; kNone: there is none.
  std::uint32_t collective;
};

using Gathers = std::vector<std::vector<std::vector<Gather>>>;  // [rank][step], in order of their use.

// `of`: which collectives, as RecordedRun::collectives (units.h). Empty if ranks or steps have different numbers of
// them, or there are none.
Gathers FindGathers(const RecordedRun& run, const Job& job, const std::vector<bool>& of);

// Each all-gather may begin as soon as the one `depth` before it is about to be used; kWholeStep: when the step begins.
// 0: only when it is needed. Other operations of its communicator keep their order. Returns nothing if the run gathers
// nothing, or a thread of a library carries the gathers while the one that needs them waits: such a library (PyTorch's
// gloo) waits wherever it begins them.
std::optional<Job> WithPrefetch(const RecordedRun& run, std::size_t depth);

}  // namespace lockstep::replay
