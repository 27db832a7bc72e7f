#pragma once
// Ring records of PyTorch's communication (c10d), beside core/record.h.
//
// A work is one collective or message that a c10d backend carries. Begin and end of a collective are written by the
// backend's thread that carries it, the begin of a message by who posts it, its end by who waits for it. Nothing is
// kept between them, so that a work that never ends is in the trace as well; pairing is the decoder's work. Groups are
// CommRecords of kind CommKind::kTorchGroup.

#include <cstdint>

#include "core/record.h"

namespace lockstep {

// What a work is, in TorchBeginRecord::message.
inline constexpr std::uint8_t kTorchCollective = 0, kTorchSend = 1, kTorchReceive = 2;

struct TorchBeginRecord {      // 2 slots
  RecordHead head;             // flags: CollectiveKind
  std::uint32_t comm;          // Process-wide number of the group.
  std::uint64_t ticks;         // The backend's thread began it; a message: the call.
  std::uint64_t work;          // The process's number of it, from 1.
  std::uint64_t queued_ticks;  // Given to the backend; 0 unknown, and of messages.
  std::uint64_t seq;           // Collectives: number on the group, counted whether or not recording is on.
  std::uint64_t count;         // Elements of the whole array, as core/mpi_ops.def has it; 0 unknown.
  std::int32_t peer;           // Partner or root in the group's ranks; -1 unknown or none.
  std::int32_t tag;            // Of messages.
  std::uint16_t dtype;         // DataType
  std::uint8_t message;        // kTorchCollective, kTorchSend or kTorchReceive.
  std::uint8_t reserved;
  std::uint32_t stack;  // CallStackRecord of what called it; 0 none.
};
static_assert(sizeof(TorchBeginRecord) == 2 * kSlotBytes);

struct TorchEndRecord {  // 1 slot
  RecordHead head;
  std::uint32_t sender;  // 0: the work has ended. Else it had, and this tells who sent what was received from any
                         // source: 1 + the rank in the group, which is known after the wait only.
  std::uint64_t ticks;   // Completed.
  std::uint64_t work;
  std::uint64_t reserved2;
};
static_assert(sizeof(TorchEndRecord) == kSlotBytes);

}  // namespace lockstep
