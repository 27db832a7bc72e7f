#pragma once
// The MPI functions Lockstep knows: their numbers on disk, what class of call
// each is, and which collective it starts. The list is core/mpi_ops.def.

#include <cstdint>
#include <string_view>

#include "core/collective.h"

namespace lockstep {

enum class MpiClass : std::uint8_t {
  kCollective,      // Blocking collective.
  kCollectivePost,  // Non-blocking collective.
  kCollectiveInit,  // Persistent collective (MPI_ or MPIX_ *_init).
  kSend,
  kSendPost,
  kSendInit,
  kRecv,
  kRecvPost,
  kRecvInit,
  kSendRecvPost,  // One request for a send and a receive.
  kSendRecv,
  kProbe,
  kPoll,  // A query that may find nothing: counted, without a row for each call.
  kStart,
  kReady,  // Partitions of a started send may go.
  kWait,
  kTest,
  kRequest,
  kComm,
  kLifecycle,  // Begins or ends MPI in this process.
  kOther,
  kIo,       // MPI-IO.
  kIoPost,   // Non-blocking MPI-IO.
  kRma,      // One-sided communication and its synchronisation.
  kRmaPost,  // Rput, Rget, ...: with a request.
};

// Neither collective nor point-to-point: a part of idle (definitions: mpi_other).
constexpr bool IsIo(MpiClass cls) { return cls == MpiClass::kIo || cls == MpiClass::kIoPost; }
constexpr bool IsRma(MpiClass cls) { return cls == MpiClass::kRma || cls == MpiClass::kRmaPost; }
constexpr bool IsSetup(MpiClass cls) { return cls == MpiClass::kLifecycle; }
constexpr bool IsMpiOther(MpiClass cls) {
  return IsIo(cls) || IsRma(cls) || IsSetup(cls) || cls == MpiClass::kComm || cls == MpiClass::kOther ||
         cls == MpiClass::kRequest;
}

enum class MpiOp : std::uint16_t {
  kNone = 0,
#define LS_MPI_OP(number, name, cls, kind) k##name = number,
#include "core/mpi_ops.def"
#undef LS_MPI_OP
};

// `count` of a fence's record: its comm is the window and its seq a number of it. An older probe numbers none.
inline constexpr std::uint32_t kFenceNumbered = 1;

struct MpiOpInfo {
  MpiOp op;
  std::string_view name;  // "MPI_Allreduce"
  MpiClass cls;
  CollectiveKind kind;  // kNone unless a collective.
};

inline constexpr MpiOpInfo kMpiOps[] = {
#define LS_MPI_OP(number, name, cls, kind) {MpiOp::k##name, "MPI_" #name, MpiClass::cls, CollectiveKind::kind},
#include "core/mpi_ops.def"
#undef LS_MPI_OP
};

// Null for a number this version does not know.
constexpr const MpiOpInfo* FindMpiOp(std::uint16_t number) {
  for (const MpiOpInfo& info : kMpiOps)
    if (static_cast<std::uint16_t>(info.op) == number) return &info;
  return nullptr;
}

}  // namespace lockstep
