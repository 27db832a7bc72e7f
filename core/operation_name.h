#pragma once
// What an operation's name in a trace says: "allreduce", "_allgather_base", "nccl:all_to_all", "gloo:broadcast".

#include <string>
#include <string_view>

#include "core/collective.h"

namespace lockstep {

// The part of a name that is compared, in small letters, because users write names in many ways: "_allgather_base" ->
// "allgatherbase", "## Backward ##" -> "backward".
std::string Letters(std::string_view text);
// "broadcast" of "gloo:broadcast"; all of "c10d::allreduce_".
std::string_view WithoutBackend(std::string_view name);
// In any spelling: "allreduce", "_allgather_base", "nccl:all_to_all", "reduce_scatter_tensor_coalesced". kNone: no
// collective ("wait", "init").
CollectiveKind KindOfOperation(std::string_view name);
// Point-to-point: 0 send, 1 receive, -1 neither. "nccl:send 0->1", "recv".
int DirectionOfOperation(std::string_view name);

}  // namespace lockstep
