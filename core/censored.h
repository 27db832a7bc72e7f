#pragma once
// Whether the transfer of a non-blocking MPI operation is too uncertain to be reported (docs/definitions.md, "What can
// be known about a non-blocking MPI operation"). Merge and the live figures both use this rule.

#include <cstdint>

namespace lockstep {

// `transfer_ns`: from the last arrival to the latest possible end; `end_uncertain_ns`: from the earliest to the latest
// possible end; `outside_mpi_ns`: its part while no thread of the rank was inside MPI. A tenth is too much.
constexpr bool IsCensored(std::int64_t transfer_ns, std::int64_t end_uncertain_ns, std::int64_t outside_mpi_ns) {
  const std::int64_t tenth = transfer_ns / 10 + (transfer_ns % 10 != 0 ? 1 : 0);
  return end_uncertain_ns >= tenth || outside_mpi_ns >= tenth;
}

}  // namespace lockstep
