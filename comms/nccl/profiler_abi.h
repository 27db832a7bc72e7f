#pragma once
// NCCL's profiler plugin interface, versions 4 (NCCL 2.27), 5 (2.28), 6 (2.29.2 to 2.30)
// and 7 (2.31.2 and later): own declarations from the layouts of x86-64 builds, so that no
// NCCL is needed. The exported symbol ncclProfiler_vN is a data object, a table of six
// pointers. Versions 5 and 6 have one layout, 6 adds events; in 7 members have grown at
// their ends, so that it begins as they do (NVIDIA/nccl, plugin/profiler/profiler_v7.h; the offsets are
// those that 2.32.3's code writes).

#include <cstddef>
#include <cstdint>

namespace lockstep::nccl::profiler {

// Event types and bits of the activation mask.
inline constexpr std::uint64_t kGroup = 1, kColl = 2, kP2p = 4, kProxyOp = 8, kProxyStep = 16, kProxyCtrl = 32,
                               kKernelCh = 64, kNetPlugin = 128, kGroupApi = 256, kCollApi = 512, kP2pApi = 1024,
                               kKernelLaunch = 2048, kCeColl = 4096, kCeSync = 8192, kCeBatch = 16384,
                               kKernelPhase = 32768;  // The last one asks NCCL for kKernelCh, too (2.31.2).

// States of recordEventState that mean something to us.
inline constexpr int kKernelChStop = 22;

inline constexpr int kSuccess = 0;

union StateArgs {
  std::uint64_t kernel_timer;
  std::size_t transferred_bytes;
  int appended_operations;
  void* net_data;
};
static_assert(sizeof(StateArgs) == 8);

// v5, v6. Of v4 the first 104 bytes, but for the type's width.
struct Collective {
  std::uint64_t seq;
  const char* function;
  const void* send_buffer;
  const void* receive_buffer;
  std::size_t count;
  std::int32_t root;
  const char* datatype;
  std::uint8_t channels, warps;
  const char* algorithm;
  const char* protocol;
};
struct P2p {
  const char* function;
  const void* buffer;
  const char* datatype;
  std::size_t count;
  std::int32_t peer;
  std::uint8_t channels;
};
struct ProxyOp {
  std::int32_t pid;
  std::uint8_t channel;
  std::int32_t peer, steps, chunk_bytes, is_send;
};
struct KernelChannel {
  std::uint8_t channel;
  std::uint64_t timer;
};

struct DescriptorV4 {
  std::uint8_t type;
  void* parent;
  std::int32_t rank;
  union {
    Collective coll;
    P2p p2p;
    ProxyOp proxy_op;
    KernelChannel kernel_channel;
    std::byte raw[80];
  };
};
static_assert(sizeof(DescriptorV4) == 104 && offsetof(DescriptorV4, parent) == 8 && offsetof(DescriptorV4, coll) == 24);
static_assert(offsetof(DescriptorV4, coll.protocol) == 96 && offsetof(DescriptorV4, p2p.channels) == 60);

struct CollectiveV5 {
  std::uint64_t seq;
  const char* function;
  const void* send_buffer;
  const void* receive_buffer;
  std::size_t count;
  std::int32_t root;
  const char* datatype;
  std::uint8_t channels, warps;
  const char* algorithm;
  const char* protocol;
  void* parent_group;
};
static_assert(offsetof(CollectiveV5, parent_group) == 80);
struct P2pV5 {
  const char* function;
  const void* buffer;
  const char* datatype;
  std::size_t count;
  std::int32_t peer;
  std::uint8_t channels;
  void* parent_group;
};
struct CopyEngine {
  std::uint64_t seq;
  const char* function;
  const void* send_buffer;
  const void* receive_buffer;
  std::size_t count;
  std::int32_t root;
  const char* datatype;
  const char* sync_strategy;
  bool intra_batch_sync;
  std::uint32_t batch_size, batches, ce_seq;
  void* stream;
};

struct CollectiveApi {
  const char* function;
  std::size_t count;
  const char* datatype;
  std::int32_t root;
  void* stream;
  bool captured;
};
struct P2pApi {
  const char* function;
  std::size_t count;
  const char* datatype;
  void* stream;
  bool captured;
};

struct Descriptor {  // v5 and v6
  std::uint64_t type;
  void* parent;
  std::int32_t rank;
  union {
    struct {
      bool captured;
      std::int32_t depth;
    } group_api;
    CollectiveApi coll_api;
    P2pApi p2p_api;
    struct {
      void* stream;
    } kernel_launch;
    CollectiveV5 coll;
    P2pV5 p2p;
    ProxyOp proxy_op;
    KernelChannel kernel_channel;
    CopyEngine copy_engine;
    std::byte raw[88];
  };
};
static_assert(sizeof(Descriptor) == 112 && offsetof(Descriptor, parent) == 8 && offsetof(Descriptor, rank) == 16);
static_assert(offsetof(Descriptor, group_api) == 24 && offsetof(Descriptor, group_api.depth) == 28);
static_assert(offsetof(Descriptor, coll_api.root) == 48 && offsetof(Descriptor, coll_api.captured) == 64);
static_assert(offsetof(Descriptor, p2p_api.stream) == 48 && offsetof(Descriptor, p2p_api.captured) == 56);
static_assert(sizeof(Collective) == 80 && offsetof(Collective, function) == 8 && offsetof(Collective, count) == 32);
static_assert(offsetof(Collective, root) == 40 && offsetof(Collective, datatype) == 48);
static_assert(offsetof(Collective, channels) == 56 && offsetof(Collective, warps) == 57);
static_assert(offsetof(Collective, algorithm) == 64 && sizeof(CollectiveV5) == 88);
static_assert(offsetof(P2pV5, peer) == 32 && offsetof(P2pV5, channels) == 36 && offsetof(P2pV5, parent_group) == 40);
static_assert(offsetof(ProxyOp, peer) == 8 && offsetof(ProxyOp, is_send) == 20 && offsetof(KernelChannel, timer) == 8);
static_assert(offsetof(CopyEngine, sync_strategy) == 56 && offsetof(CopyEngine, intra_batch_sync) == 64);
static_assert(offsetof(CopyEngine, batch_size) == 68 && offsetof(CopyEngine, stream) == 80);

struct CollectiveV7 {
  CollectiveV5 known;
  const char* kernel_variant;  // Of symmetric kernels ("AllReduce_AGxLL_R"), else null.
  bool symmetric;
  std::uint64_t user_tag;  // ncclCollConfig_t::userProfilerTag of the call; 0: none. NCCL reserves values with the
                           // highest bit.
};
template <typename Known>
struct Tagged {
  Known known;
  std::uint64_t user_tag;  // As CollectiveV7's.
};
struct DescriptorV7 {
  std::uint64_t type;
  void* parent;
  std::int32_t rank;
  union {
    Tagged<CollectiveApi> coll_api;
    Tagged<P2pApi> p2p_api;
    CollectiveV7 coll;
    std::byte raw[112];
  };
};
static_assert(sizeof(DescriptorV7) == 136 && offsetof(DescriptorV7, coll.kernel_variant) == 112);
static_assert(offsetof(DescriptorV7, coll_api.user_tag) == 72 && offsetof(DescriptorV7, p2p_api.user_tag) == 64);
static_assert(offsetof(DescriptorV7, coll.symmetric) == 120 && offsetof(DescriptorV7, coll.user_tag) == 128);

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using InitV4 = int (*)(void** context, int* mask, const char* name, std::uint64_t id, int nodes, int ranks, int rank,
                       Logger log);
using InitV5 = int (*)(void** context, std::uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                       Logger log);

template <typename Init, typename Event>
struct Table {
  const char* name;
  Init init;
  int (*start)(void* context, void** handle, Event* event);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, StateArgs* arguments);  // `arguments` is null for states of groups.
  int (*finalize)(void* context);
};
using TableV4 = Table<InitV4, DescriptorV4>;
using TableV5 = Table<InitV5, Descriptor>;  // And v6.
using TableV7 = Table<InitV5, DescriptorV7>;
static_assert(sizeof(TableV4) == 48 && sizeof(TableV5) == 48 && sizeof(TableV7) == 48);

}  // namespace lockstep::nccl::profiler
