#pragma once
// The part of CUPTI's activity interface that is used, of CUDA 11 to 13, in declarations of our own: nothing
// of CUDA is needed to build. Enumerators and offsets are those of the headers of 11.0 to 13.0 (a test
// compares with the installed ones). From Kernel4 on records only grow at their end, so one structure per kind
// is enough: fields beyond a record's end must not be read, and the loaded library determines how long records
// are (RecordSizes). Device is the exception: its first version (before CUDA 7) has other offsets and is not
// read.

#include <cstddef>
#include <cstdint>

namespace lockstep::cupti {

enum Kind : std::uint32_t {
  kKindMemcpy = 1,
  kKindMemset = 2,
  kKindSerialKernel = 3,  // Never enabled: it makes kernels run one after the other. Same records.
  kKindDriver = 4,
  kKindRuntime = 5,
  kKindDevice = 8,
  kKindContext = 9,
  kKindConcurrentKernel = 10,
  kKindOverhead = 17,
  kKindMemcpyPeer = 22,
  kKindCudaEvent = 36,
  kKindStream = 37,
  kKindSynchronization = 38,
  kKindMemory2 = 49,
  kKindMemoryPool = 50,
  kKindGraphTrace = 51,
  kKindDeviceGraphTrace = 53,  // Graphs that a graph launched on the GPU: comes with kKindGraphTrace, if switched on.
  kKindLimit = 64,             // No kind up to CUDA 13.2 is as high.
};

enum Result : int {
  kSuccess = 0,
  kInvalidParameter = 1,
  kMaxLimitReached = 12,
  kNotCompatible = 14,
  kNotInitialized = 15,
  kInvalidKind = 21,
  kInsufficientPrivileges = 35,
  kOldProfilerInitialized = 36,
  kMultipleSubscribers = 39,
  kVirtualDeviceInsufficientPrivileges = 40,
  kUnknown = 999,
};

enum Attribute : int {
  kAttributeDeviceBufferSize = 0,
  kAttributeDeviceBufferPoolLimit = 2,
  kAttributeZeroedOutBuffer = 5,
  kAttributePerThreadBuffer = 9,  // From CUDA 12.3 on.
};

// CUPTI versions in which something changed, as cuptiGetVersion numbers them.
inline constexpr std::uint32_t kCuda13_0 = 130000, kCuda13_1Update1 = 130101, kCuda13_3 = 130300;

inline constexpr int kThreadIdDefault = 0, kThreadIdSystem = 1;
inline constexpr std::uint32_t kFlushForced = 1;
inline constexpr int kDomainDriver = 1, kDomainRuntime = 2;
inline constexpr std::uint32_t kObjectThread = 2;

using TimestampCallback = std::uint64_t (*)();
using BufferRequested = void (*)(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records);
using BufferCompleted = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                                 std::size_t valid_bytes);

// Of cuptiSubscribe_v2, CUDA 13.0 and later.
struct SubscriberParams {
  std::size_t struct_bytes;
  const char* name;
  char* old_name;
  std::size_t old_name_bytes;
  std::uint8_t allow_multiple_subscribers, padding[7];  // From CUDA 13.2 on: 40 bytes.
};

#define LS_RECORD struct __attribute__((may_alias))

LS_RECORD AnyRecord { std::uint32_t kind; };

LS_RECORD KernelRecord {
  std::uint32_t kind;
  std::uint8_t cache_config, shared_memory_config;
  std::uint16_t registers_per_thread;
  std::uint32_t cache_requested, cache_executed;
  std::uint64_t start, end, completed;
  std::uint32_t device, context, stream;
  std::int32_t grid[3], block[3], static_shared_bytes, dynamic_shared_bytes;
  std::uint32_t local_bytes_per_thread, local_bytes_total, correlation;
  std::int64_t grid_id;
  const char* name;
  void* reserved0;
  std::uint64_t queued, submitted;
  std::uint8_t launch_type, carveout_requested, shared_carveout, padding;
  std::uint32_t shared_memory_executed;
  std::uint64_t graph_node;  // From Kernel5 on: 160 bytes.
  std::uint32_t shared_limit_config, graph;
  void* access_policy_window;           // Kernel6: 168
  std::uint32_t channel, channel_type;  // Kernel7: 176
  std::uint32_t cluster[3], cluster_scheduling;
  std::uint64_t local_bytes_total2;                               // Kernel8: 200
  std::uint32_t max_potential_cluster_size, max_active_clusters;  // Kernel9: 208
  std::uint8_t is_device_launched, padding3[7];                   // Kernel10: 216
};

LS_RECORD CopyRecord {
  std::uint32_t kind;
  std::uint8_t copy_kind, source_kind, destination_kind, flags;
  std::uint64_t bytes, start, end;
  std::uint32_t device, context, stream, correlation, runtime_correlation, padding;
  void* reserved0;
  std::uint64_t graph_node;      // From Memcpy3 on: 72
  std::uint32_t graph, channel;  // Memcpy4: 80
};

LS_RECORD PeerCopyRecord {
  std::uint32_t kind;
  std::uint8_t copy_kind, source_kind, destination_kind, flags;
  std::uint64_t bytes, start, end;
  std::uint32_t device, context, stream, source_device, source_context, destination_device, destination_context,
      correlation;
  void* reserved0;
  std::uint64_t graph_node;      // From MemcpyPtoP2 on: 80
  std::uint32_t graph, channel;  // MemcpyPtoP3: 88
};

LS_RECORD MemsetRecord {
  std::uint32_t kind, value;
  std::uint64_t bytes, start, end;
  std::uint32_t device, context, stream, correlation;
  std::uint16_t flags, memory_kind;
  std::uint32_t padding;
  void* reserved0;
  std::uint64_t graph_node;      // From Memset2 on: 72
  std::uint32_t graph, channel;  // Memset3: 80
};

LS_RECORD SyncRecord {
  std::uint32_t kind, type;
  std::uint64_t start, end;
  std::uint32_t correlation, context, stream, event;
  std::uint64_t event_sync;  // From Synchronization2 on (CUDA 12.8): 56
  std::uint32_t result, padding;
};

LS_RECORD EventRecord {
  std::uint32_t kind, correlation, context, stream, event, padding;
  std::uint32_t device, padding2;  // From CudaEvent2 on (CUDA 12.8): 56
  void* reserved0;
  std::uint64_t device_timestamp, event_sync;
};

LS_RECORD ApiRecord {
  std::uint32_t kind, callback;
  std::uint64_t start, end;
  std::uint32_t process, thread, correlation, result;
};

LS_RECORD OverheadRecord {
  std::uint32_t kind, overhead, object_kind;
  std::uint32_t object[3];  // Of a thread: process, thread.
  std::uint64_t start, end;
};

LS_RECORD DeviceRecord {  // Device2 and later: 144
  std::uint32_t kind, flags;
  std::uint64_t memory_bandwidth, memory_bytes;  // kB/s, bytes
  std::uint32_t constant_bytes, l2_bytes, threads_per_warp, core_clock_khz, copy_engines, multiprocessors, max_ipc,
      max_warps_per_multiprocessor, max_blocks_per_multiprocessor, limits[11], compute_major, compute_minor, id, ecc;
  std::uint8_t uuid[16];
  const char* name;
};

LS_RECORD ContextRecord {
  std::uint32_t kind, context, device;
  std::uint16_t api, null_stream;
};

LS_RECORD GraphRecord {
  std::uint32_t kind, correlation;
  std::uint64_t start, end;
  std::uint32_t device, graph, context, stream;
  void* reserved;
};

LS_RECORD DeviceGraphRecord {
  std::uint32_t kind, device;
  std::uint64_t start, end;
  std::uint32_t graph, launcher_graph, launch_mode, context;
  std::uint64_t stream;
  void* reserved;
};

LS_RECORD MemoryRecord2 {
  std::uint32_t kind, operation, memory_kind, correlation;
  std::uint64_t address, bytes, timestamp, pc;
  std::uint32_t process, device, context, stream;
  const char* name;
  std::uint32_t is_async, padding;
  std::uint32_t pool_type, padding2;
  std::uint64_t pool_address, pool_threshold, pool_bytes;
  std::uint64_t pool_used_bytes;  // From Memory3 on: 120
};
#undef LS_RECORD

// Least lengths of records that are read without a further check.
inline constexpr std::uint32_t kKernelBytes = 144, kCopyBytes = 64, kPeerCopyBytes = 72, kMemsetBytes = 64,
                               kSyncBytes = 40, kEventBytes = 24, kApiBytes = 40, kOverheadBytes = 40,
                               kDeviceBytes = 144, kContextBytes = 16, kGraphBytes = 48, kDeviceGraphBytes = 56,
                               kMemoryBytes = 112;

static_assert(offsetof(KernelRecord, correlation) == 92 && offsetof(KernelRecord, name) == 104);
static_assert(offsetof(KernelRecord, graph_node) == 144 && offsetof(KernelRecord, graph) == 156);
static_assert(offsetof(KernelRecord, cluster) == 176 && sizeof(KernelRecord) == 216);
static_assert(offsetof(CopyRecord, correlation) == 44 && offsetof(CopyRecord, graph_node) == 64);
static_assert(offsetof(PeerCopyRecord, correlation) == 60 && offsetof(PeerCopyRecord, graph_node) == 72);
static_assert(offsetof(MemsetRecord, memory_kind) == 50 && offsetof(MemsetRecord, graph_node) == 64);
static_assert(offsetof(SyncRecord, event_sync) == 40 && offsetof(EventRecord, device_timestamp) == 40);
static_assert(offsetof(OverheadRecord, start) == 24 && sizeof(ApiRecord) == 40);
static_assert(offsetof(DeviceRecord, compute_major) == 104 && offsetof(DeviceRecord, uuid) == 120);
static_assert(offsetof(DeviceRecord, name) == 136 && offsetof(GraphRecord, device) == 24);
static_assert(offsetof(DeviceGraphRecord, graph) == 24 && sizeof(DeviceGraphRecord) == 56);
static_assert(offsetof(MemoryRecord2, name) == 64 && offsetof(MemoryRecord2, pool_used_bytes) == 112);

}  // namespace lockstep::cupti
