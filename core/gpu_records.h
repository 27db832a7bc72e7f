#pragma once
// Ring records of the GPU sources, beside core/record.h.
//
// CUPTI's records are written by the probe's own thread that empties CUPTI's buffers, so a
// thread in them is a kernel thread id, not the ring's owner. Times are ticks of the event
// clock as everywhere: CUPTI is given that clock as its timestamp callback, which puts GPU
// times on it too. Times that were 0 (not completed, or device buffers exhausted) never get
// here: they are counted (LossRecord).
//
// NCCL's records are written by the thread that NCCL calls, as the calls come: nothing is
// kept between the begin and the end of an event, because NCCL stops children after their
// parents, uses parents again for each graph replay and may call with handles of the past.
// Pairing is the decoder's work.

#include <cstdint>

#include "core/record.h"

namespace lockstep {

inline constexpr std::uint8_t kGpuWholeGraph = 1;  // Flag: one record for all kernels of a CUDA graph's launch.

// Flag: the first kernel launched after recording went off, recorded for its start alone, because the GPU's part of the
// window ends there.
inline constexpr std::uint8_t kGpuAfterWindow = 2;

struct GpuKernelRecord {  // 2 slots
  RecordHead head;        // flags: kGpuWholeGraph, kGpuAfterWindow
  std::uint32_t name;     // Thread's string id, mangled as CUPTI gives it.
  std::uint64_t begin_ticks, end_ticks;
  std::uint32_t correlation, stream;
  std::uint32_t context;
  std::uint32_t shape;       // Of a GpuShapeRecord of the same thread, 0 none.
  std::uint64_t graph_node;  // 0 none.
  std::uint32_t graph;       // Id of the executable graph, 0 none.
  std::uint16_t device;
  std::uint16_t reserved;
  std::uint64_t launch_ticks;  // kGpuAfterWindow: when its call began. Else 0.
};

struct GpuShapeRecord {  // 2 slots
  RecordHead head;
  std::uint32_t id;  // Per thread, from 1.
  std::int32_t grid[3], block[3];
  std::uint32_t registers_per_thread, static_shared_bytes, dynamic_shared_bytes;
  std::uint32_t cluster_size;  // Thread blocks per cluster, 0 none.
  std::uint32_t local_bytes_per_thread;
  std::uint32_t reserved[3];
};

struct GpuCopyRecord {       // 2 slots
  RecordHead head;           // flags: bit 0 asynchronous
  std::uint8_t kind;         // As copies.kind.
  std::uint8_t host_memory;  // As copies.host_memory.
  std::uint16_t device;
  std::uint64_t begin_ticks, end_ticks;
  std::uint32_t correlation, stream;
  std::uint64_t bytes;
  std::uint64_t graph_node;
  std::uint32_t context;
  std::uint16_t source_device, destination_device;  // 65535: host or unknown.
  std::uint32_t graph;
  std::uint32_t reserved;
};

struct GpuSyncRecord {  // 2 slots. Synchronisations, and CUDA_EVENT records (kind 5: begin == end)
  RecordHead head;      // flags: kind as sync.kind
  std::uint32_t correlation;
  std::uint64_t begin_ticks, end_ticks;
  std::uint32_t context, stream;  // stream 0xffffffff: none.
  std::uint32_t event;            // CUPTI's event id, 0 none.
  std::uint16_t device;           // 65535 unknown.
  std::uint16_t reserved;
  std::uint64_t event_sync;  // cudaEventSyncId: which record of the event, 0 unknown (before CUDA 12.8).
  std::uint64_t reserved2[2];
};

struct GpuApiRecord {  // 1 slot, or 2 if `result` is not 0
  RecordHead head;     // flags: kind as api.kind | 128 driver function
  std::uint32_t name;  // Thread's string id.
  std::uint64_t begin_ticks, end_ticks;
  std::uint32_t correlation;
  std::uint32_t tid;  // Kernel thread id.
};
struct GpuApiResult {  // Second slot.
  std::int32_t result;
  std::uint32_t reserved[7];
};

struct GpuDeviceRecord {  // 3 slots
  RecordHead head;
  std::uint32_t name;  // Thread's string id.
  std::uint64_t memory_bytes;
  std::uint8_t uuid[16];
  std::uint32_t sm_count, max_threads_per_sm;
  std::uint16_t device, compute_major, compute_minor, reserved;
  std::uint32_t driver_version, cupti_version;  // As their libraries number them; 0 unknown.
  std::uint32_t core_clock_khz, memory_clock_khz;
  std::uint64_t memory_bandwidth_bytes_per_second;
  std::uint64_t reserved2[3];
};

// Time that CUPTI itself, the driver's compiler or lazy loading took.
struct GpuOverheadRecord {  // 1 slot; flags: kind as overheads.kind
  RecordHead head;
  std::uint32_t tid;  // 0: not attributed to a thread.
  std::uint64_t begin_ticks, end_ticks;
  std::uint64_t reserved;
};

struct GpuMemoryRecord {  // 2 slots; flags: 1 allocate 2 free
  RecordHead head;
  std::uint32_t name;  // Thread's string id: memory kind; 0 none.
  std::uint64_t ticks;
  std::uint64_t address, bytes;
  std::uint32_t correlation;
  std::uint16_t device, reserved;
  std::uint64_t pool_reserved_bytes, pool_used_bytes;  // 0 unknown.
  std::uint64_t reserved2;
};

// NCCL

// NCCL communicators' numbers have this bit; others do not.
inline constexpr std::uint32_t kNcclCommBit = 0x80000000u;

// Where a communicator's identity or a call's facts come from.
enum class NcclSource : std::uint8_t { kPlugin = 1, kInterposed = 2, kNvtx = 3 };

enum class NcclEvent : std::uint8_t {
  kGroup = 1,  // Group launch (the only parent in v4).
  kCollective = 2,
  kP2p = 3,
  kKernelLaunch = 4,
  kGroupApi = 5,
  kCollectiveApi = 6,
  kP2pApi = 7,
  kCopyEngine = 8,     // Collective by copy engines (plugin v6).
  kKernelChannel = 9,  // --nccl-kernel-channels; NcclBegin.count: GPU globaltimer ns.
};

// `seq`, kind, bytes and so on as the plugin's descriptor says: for kCollective count and dtype are NCCL's own
// (AllGather and Broadcast: bytes, int8), for the Api events the caller's.
struct NcclBeginRecord {  // 3 slots
  RecordHead head;        // flags: NcclEvent
  std::uint32_t comm;     // Process's number of the communicator, kNoComm unknown.
  std::uint64_t id;       // Of this event, unique in the process; what NCCL holds as handle.
  std::uint64_t parent;   // Id of the parent, 0 none.
  std::uint64_t ticks;
  std::uint64_t seq;  // kCollective, kCopyEngine: number per communicator and kind of collective. Api events: the
                      // caller's tag (plugin v7), 0 none.
  std::uint64_t count;
  std::uint64_t stream;   // Handle; 0 not known.
  std::int32_t peer;      // P2p: peer; collectives: root; -1 none. In the communicator's ranks.
  std::uint8_t function;  // CollectiveKind; of P2p: 0 send 1 receive 2 see name.
  std::uint8_t dtype;     // DataType
  std::uint8_t channels;
  std::uint8_t flags;                 // kNcclCaptured
  std::uint64_t group;                // Id of the parentGroup, 0 none.
  std::uint64_t buffer;               // Address sent (received for a receive), 0 unknown.
  std::uint32_t algorithm, protocol;  // Thread's string ids, 0 none.
  std::uint32_t name;                 // Thread's string id of NCCL's own name of the function, 0 none.
  std::uint32_t depth;                // kGroupApi: group depth.
};
inline constexpr std::uint8_t kNcclCaptured = 1;  // While a CUDA graph is captured: nothing ran yet.

struct NcclEndRecord {  // 1 slot
  RecordHead head;      // flags: NcclEvent
  std::uint32_t reserved;
  std::uint64_t id, ticks;
  std::uint64_t value;  // kKernelChannel: GPU globaltimer ns.
};

// A call into NCCL's interface as the caller saw it (interposed, or reported by NCCL's NVTX ranges).
struct NcclCallRecord {  // 3 slots
  RecordHead head;       // flags: NcclSource
  std::uint32_t comm;    // As above; kNoComm for group calls.
  std::uint64_t begin_ticks, end_ticks;
  std::uint64_t count;   // Elements as given; of NVTX: bytes, dtype kByte.
  std::uint64_t stream;  // Handle.
  std::uint64_t buffer;
  std::int32_t peer;       // As NcclBegin.
  std::int32_t result;     // ncclResult_t.
  std::uint8_t function;   // CollectiveKind; kSendRecv: see direction; 0: see name.
  std::uint8_t direction;  // 0 send 1 receive.
  std::uint8_t dtype;
  std::uint8_t reduction;  // As collectives.reduction.
  std::uint32_t name;      // Thread's string id of the function called.
  std::uint64_t seq;       // Counted by us per communicator and function, for sources that have no number.
  std::uint64_t reserved[3];
};

// A communicator: first seen, or (bits of flags) more of it known. Fields that are not known: 0 (rank -1).
struct NcclCommRecord {  // 2 slots
  RecordHead head;       // flags: NcclSource | 64 ended | 128 name only
  std::uint32_t comm;
  std::uint64_t
      id;  // commId / commHash; interposed without plugin: hash of the unique id, or of parent and n-th split.
  std::uint64_t parent;  // Same, of the communicator that it was split from, 0 none or unknown.
  std::uint64_t ticks;
  std::uint32_t size;
  std::int32_t rank;
  std::uint32_t nodes;
  std::uint32_t name;   // Thread's string id, 0 none.
  std::int32_t device;  // -1 unknown.
  std::uint32_t reserved[3];
};

static_assert(sizeof(GpuKernelRecord) == 2 * kSlotBytes && sizeof(GpuShapeRecord) == 2 * kSlotBytes);
static_assert(sizeof(GpuCopyRecord) == 2 * kSlotBytes && sizeof(GpuSyncRecord) == 2 * kSlotBytes);
static_assert(sizeof(GpuApiRecord) == kSlotBytes && sizeof(GpuApiResult) == kSlotBytes);
static_assert(sizeof(GpuDeviceRecord) == 3 * kSlotBytes && sizeof(GpuOverheadRecord) == kSlotBytes);
static_assert(sizeof(GpuMemoryRecord) == 2 * kSlotBytes);
static_assert(sizeof(NcclBeginRecord) == 3 * kSlotBytes && sizeof(NcclEndRecord) == kSlotBytes);
static_assert(sizeof(NcclCallRecord) == 3 * kSlotBytes && sizeof(NcclCommRecord) == 2 * kSlotBytes);

}  // namespace lockstep
