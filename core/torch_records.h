#pragma once
// Ring records of PyTorch's communication (c10d), beside core/record.h.
//
// A work is one collective or message that a c10d backend carries in threads of its own. Its begin is
// written by the thread that gave it to the backend, its end by the thread of the backend that completed it; nothing
// is kept between them, so that a work that never ends is in the trace as well. Pairing is the decoder's work. Groups
// are CommRecords of kind CommKind::kTorchGroup.

#include <cstdint>

#include "core/record.h"

namespace lockstep {

// What a work is, in TorchBeginRecord::message.
inline constexpr std::uint8_t kTorchCollective = 0, kTorchSend = 1, kTorchReceive = 2;

struct TorchBeginRecord {  // 2 slots
  RecordHead head;         // flags: CollectiveKind
  std::uint32_t comm;      // Process-wide number of the group.
  std::uint64_t ticks;     // Given to the backend.
  std::uint64_t work;      // The process's number of it, from 1.
  std::uint64_t bytes;     // As core/mpi_ops.def has it.
  std::uint64_t seq;       // Collectives: number on the group, counted whether or not recording is on.
  std::uint64_t count;     // Elements in bytes.
  std::int32_t peer;       // Partner or root in the group's ranks; -1 unknown or none.
  std::int32_t tag;        // Of messages.
  std::uint16_t dtype;     // DataType
  std::uint8_t message;    // kTorchCollective, kTorchSend or kTorchReceive.
  std::uint8_t reserved[5];
};
static_assert(sizeof(TorchBeginRecord) == 2 * kSlotBytes);

struct TorchEndRecord {  // 1 slot
  RecordHead head;
  std::uint32_t reserved;
  std::uint64_t ticks;  // Completed.
  std::uint64_t work;
  std::uint64_t reserved2;
};
static_assert(sizeof(TorchEndRecord) == kSlotBytes);

}  // namespace lockstep
