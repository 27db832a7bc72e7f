#pragma once
// What tells instances of collectives apart besides (comms.global_id, seq, start): NCCL numbers each
// function of a communicator by itself, MPI and the frameworks all collectives of one together.

#include <cstdint>

#include "core/collective.h"
#include "core/schema.h"

namespace lockstep::merge {

inline constexpr std::uint8_t kNcclCommKind = schema::CommKind::kNccl;

// The function that is part of a row's key, 0 where none is. `comm` is a row of comms.
inline std::uint8_t KeyFunction(const schema::Comms& comms, std::uint32_t comm, std::uint8_t kind) {
  return comms.kind[comm] == kNcclCommKind ? kind : std::uint8_t{0};
}

// A GPU operation whose kernel was not found: only when it was enqueued is known.
inline bool WithoutGpuTimes(std::uint8_t mode, std::int64_t end_ns) {
  return mode == static_cast<std::uint8_t>(CollectiveMode::kGpu) && end_ns == schema::kNoTime;
}

}  // namespace lockstep::merge
