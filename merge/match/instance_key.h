#pragma once
// The key that identifies an instance of a collective: (comms.global_id, seq, start), and for NCCL the function,
// because NCCL numbers each function of a communicator separately; MPI and the frameworks number all collectives of a
// communicator together.

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "core/collective.h"
#include "core/schema.h"

namespace lockstep::merge {

inline constexpr std::uint8_t kNcclCommKind = schema::CommKind::kNccl;

// Whether `comm` is a row of comms whose global id is known, so that the rows of other ranks can be found.
inline bool Identified(const schema::Comms& comms, std::size_t comm) {
  return comm < comms.rows() && comms.global_id[comm] != 0 && !comms.unidentified[comm];
}

// The function that is part of a row's key, 0 where none is. `comm` is a row of comms.
inline std::uint8_t KeyFunction(const schema::Comms& comms, std::uint32_t comm, std::uint8_t kind) {
  return comms.kind[comm] == kNcclCommKind ? kind : std::uint8_t{0};
}

// The number of an operation on its communicator: (seq, start).
using InstanceNumber = std::pair<std::uint64_t, std::uint32_t>;
inline InstanceNumber NumberOf(const schema::Collectives& rows, std::uint32_t row) {
  return {rows.seq[row], rows.start[row]};
}

// Rows of collectives in order of their numbers, equal ones by row.
inline void SortByNumber(const schema::Collectives& rows, std::vector<std::uint32_t>& order) {
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(rows.seq[a], rows.start[a], a) < std::tuple(rows.seq[b], rows.start[b], b);
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
}

// A GPU operation whose kernel was not found: only the time at which it was enqueued is known.
inline bool WithoutGpuTimes(std::uint8_t mode, std::int64_t end_ns) {
  return mode == schema::Code(CollectiveMode::kGpu) && end_ns == schema::kNoTime;
}

}  // namespace lockstep::merge
