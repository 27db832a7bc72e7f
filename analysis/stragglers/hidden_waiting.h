#pragma once
// Late ranks that cost more than the others are seen to wait for them.
//
// Who waits may have something else to do meanwhile, and lose the time later: while it computes beside a collective
// that has not begun, the next one on the same stream is put off; and what moves only in waits begins when the last
// rank waits. Then no waiting is exposed where the rank is late. Only a replay tells what that costs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

// Of `positions` those without whose additional work the step would surely be `limit_ns` shorter, were the others of
// them on time; none where the run was not replayed or the replay does not hold.
std::vector<std::size_t> WorthByReplay(const Context& context, std::vector<std::size_t> positions, double limit_ns);

// By how much the mean step is shorter without what slows this rank, were the others on time; nothing where the replay
// does not hold.
std::optional<std::int64_t> GainBeside(const Context& context, std::vector<std::size_t> others, std::size_t position);
// The same with the others as they are; 0 where the replay does not hold.
std::int64_t GainByReplay(const Context& context, std::size_t position);
// The same if it had no more input than the others.
std::int64_t GainWithoutMoreInput(const Context& context, std::size_t position);

}  // namespace lockstep::analysis
