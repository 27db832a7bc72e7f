#pragma once
// Whether every member of a collective waits for every other, from its record while the job runs. The merge decides it
// afterwards from the records of all members (merge/match/awaited.h).

#include <array>
#include <cstdint>

#include "core/collective.h"
#include "core/data_type_name.h"
#include "core/gloo_reduce.h"
#include "core/mpi_ops.h"
#include "core/record.h"
#include "core/torch_records.h"
#include "core/uneven.h"

namespace lockstep::agent {

// Null for a number this version does not know.
inline const MpiOpInfo* InfoOfMpi(std::uint16_t op) {
  static const auto table = [] {
    std::array<const MpiOpInfo*, 512> all{};
    for (const MpiOpInfo& info : kMpiOps) all[static_cast<std::uint16_t>(info.op)] = &info;
    return all;
  }();
  return op < table.size() ? table[op] : nullptr;
}

// Of a communicator that the other ranks know, too.
inline bool AllWait(const MpiRecord& record, const MpiOpInfo& info) {
  const bool moves = record.bytes > 0 || info.kind == CollectiveKind::kBarrier;
  // Only the merge computes which members wait for one that contributes or receives nothing.
  constexpr std::uint8_t kNotAllWait = kMpiInterComm | kMpiGivesNothing | kMpiTakesNothing;
  return moves && Splits(info.kind) && (record.head.flags & kNotAllWait) == 0;
}

// The same of a work of PyTorch's gloo.
inline bool AllWait(const TorchBeginRecord& record, std::uint32_t members) {
  const auto kind = static_cast<CollectiveKind>(record.head.flags);
  // Only the root specifies for gloo how much it will scatter.
  const bool moves = record.count > 0 || kind == CollectiveKind::kBarrier || kind == CollectiveKind::kScatter;
  const std::uint64_t element_bytes = TextOfDataType(record.dtype).bytes;
  const std::uint32_t chunks = GlooReduceChunks(members, record.count * element_bytes, element_bytes);
  const bool some_wait_for_some = kind == CollectiveKind::kReduce && members != 2 && chunks != 0 && chunks != members;
  return moves && SplitsOnGloo(kind, members) && !some_wait_for_some;
}

// Flags of CommRecord.
inline constexpr std::uint8_t kCommFreed = 0x40, kCommRenamed = 0x20, kCommUnidentified = 0x80;

}  // namespace lockstep::agent
