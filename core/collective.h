#pragma once
// What a collective is: its kind, which kinds can be split into wait and
// transfer, and the factor between algorithm and bus bandwidth.

#include <cstdint>
#include <string_view>

namespace lockstep {

// Stable numbers on disk.
enum class CollectiveKind : std::uint8_t {
  kNone = 0,
  kAllReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllToAll = 4,
  kBarrier = 5,
  kBroadcast = 6,
  kReduce = 7,
  kGather = 8,
  kScatter = 9,
  kScan = 10,
  kNeighbor = 11,
  kSendRecv = 12,  // Grouped NCCL send/receive.
  kFinalize = 13,  // MPI_Finalize, on MPI_COMM_WORLD: it waits for all, and transfers nothing.
  kFence = 14,     // MPI_Win_fence, on its window. How much it transfers is not known.
  // Of expert parallelism, by kernels' names: sizes are exchanged, tokens go to their experts, and come back.
  kNotify = 15,
  kDispatch = 16,
  kCombine = 17,
};

enum class CollectiveMode : std::uint8_t {
  kBlocking = 0,
  kNonBlocking = 1,
  kPersistent = 2,
  kGpu = 3
};  // kGpu: carried by a kernel, or enqueued for one.

// Every member waits for every other: the wait/transfer split of definitions.md
// holds (total bytes > 0, barrier excepted; intra-communicators only).
constexpr bool Splits(CollectiveKind kind) {
  return (kind >= CollectiveKind::kAllReduce && kind <= CollectiveKind::kBarrier) ||
         kind == CollectiveKind::kFinalize || kind == CollectiveKind::kFence;
}
// What has no bytes of its own.
constexpr bool IsEmpty(CollectiveKind kind) {
  return kind == CollectiveKind::kBarrier || kind == CollectiveKind::kFinalize || kind == CollectiveKind::kFence;
}
// Broadcast, scatter: members wait for the root. Reduce, gather: the root waits.
constexpr bool RootSends(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kScatter;
}
constexpr bool RootReceives(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather;
}

// The same of PyTorch's gloo, whose senders wait for their receivers too (merge/match/awaited.h): of rooted kinds, its
// reduce passes all data around a ring, and between two members there is no third.
constexpr bool SplitsOnGloo(CollectiveKind kind, std::uint32_t members) {
  return Splits(kind) || kind == CollectiveKind::kReduce || ((RootSends(kind) || RootReceives(kind)) && members == 2);
}

// busbw = algbw * BusFactor(kind, n); nccl-tests doc/PERFORMANCE.md.
constexpr double BusFactor(CollectiveKind kind, std::uint32_t members) {
  const double n = members;
  if (members == 0) return 1;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

constexpr std::string_view Name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kNone:
      return "none";
    case CollectiveKind::kAllReduce:
      return "all-reduce";
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::kAllToAll:
      return "all-to-all";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kScan:
      return "scan";
    case CollectiveKind::kNeighbor:
      return "neighbourhood";
    case CollectiveKind::kSendRecv:
      return "send/recv";
    case CollectiveKind::kFinalize:
      return "MPI_Finalize";
    case CollectiveKind::kFence:
      return "fence";
    case CollectiveKind::kNotify:
      return "notify";
    case CollectiveKind::kDispatch:
      return "dispatch";
    case CollectiveKind::kCombine:
      return "combine";
  }
  return "unknown";
}

// Element types, stable numbers on disk.
enum class DataType : std::uint16_t {
  kUnknown = 0,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kFloat8e4m3,
  kFloat8e5m2,
  kByte,
  kDerived,
};

}  // namespace lockstep
