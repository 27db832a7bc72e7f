// A libnccl.so.2 without a GPU: every function twice, weak ncclX and strong pncclX, as the
// real one has them, and the profiler called as NCCL 2.27, 2.28 and 2.29 call it
// (FAKE_NCCL_PROFILER = 4 to 7; default 5). Order of events from NCCL 2.28.9's
// plugin/profiler.cc and enqueue.cc, of copy engines (FAKE_NCCL_COPY_ENGINES=1, from
// kCopyEngineCount elements on) from 2.30.7's ce_coll.cc. No data is moved between ranks.

#include "tests/fakes/nccl_host/fake_nccl.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/hash.h"
#include "tests/fakes/nccl_host/plugin_host.h"

using lockstep::fake::PluginHost;
namespace prof = lockstep::nccl::profiler;

struct ncclComm {
  std::uint64_t hash = 0;
  int ranks = 0, rank = 0, children = 0;
  std::uint32_t meetings = 0;  // ceSeqNum
  std::string name;
  bool named = false;
  void* context = nullptr;
  std::atomic<int> state{7};  // ncclInProgress
  std::map<std::string, std::uint64_t> seq;
  // Kernel channels: when works began on the GPU, and how many of them each side has counted.
  std::uint64_t work_ns[64] = {}, gpu_works = 0, host_works = 0;
};

namespace {

constexpr int kInvalidArgument = 4, kInvalidUsage = 5;

int Version() {
  const char* text = std::getenv("FAKE_NCCL_PROFILER");
  return text == nullptr ? 5 : std::atoi(text);
}
PluginHost& Host() {
  static PluginHost host(Version());
  return host;
}

std::atomic<void (*)(void*, const char*, std::size_t)> g_launch{nullptr};
std::atomic<void (*)(void*, std::size_t)> g_copies{nullptr};
std::atomic<void (*)(const char* const*, int)> g_replay{nullptr};

// An operation as the API took it.
struct Task {
  ncclComm* comm;
  const char* function;  // Static.
  const void* send;
  void* receive;
  std::size_t count;
  int type, root;  // P2p: peer.
  void* stream;
  int mask;
  void *group_api, *api;
  bool p2p;
  std::size_t bytes;
  bool copies = false;
  bool broadcast_path = false;
  std::uint64_t tag = 0;
};

struct Thread {
  int depth = 0;
  std::vector<Task> tasks;
  std::vector<std::thread> inits;  // Of communicators made in a group.
  // ncclProfilerApiState: a collective's handle stays, as in 2.28.
  void *group_api = nullptr, *coll_api = nullptr, *p2p_api = nullptr;
  int mask = 0;
  bool group_open = false;
  bool capturing = false;
  std::uint64_t tag = 0;
  int next_size = 0, next_rank = 0;
};
thread_local Thread t;
std::vector<std::vector<Task>> g_graph;  // Per captured kernel, what it carries.
// Whether the host has to feed a proxy (several nodes, or no NVLink and no shared memory).
bool Proxies() { return std::getenv("FAKE_NCCL_PROXIES") != nullptr; }

std::size_t Size(int type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? kSizes[type] : 0;
}
const char* TypeName(int type) {
  constexpr const char* kNames[] = {"ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
                                    "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
                                    "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return type >= 0 && type < 12 ? kNames[type] : "Unknown";
}

prof::Descriptor Event(std::uint64_t type, void* parent) {
  prof::Descriptor event{};
  event.type = type;
  event.parent = parent;
  return event;
}

prof::DescriptorV7 Newest(const prof::Descriptor& event) {
  prof::DescriptorV7 newest{};
  std::memcpy(static_cast<void*>(&newest), &event, sizeof event);
  return newest;
}

// 2.29.2 and later; asked for by the mask of the moment.
constexpr std::size_t kCopyEngineCount = 1000;
constexpr std::uint64_t kCopyEvents = prof::kCeColl | prof::kCeSync | prof::kCeBatch;
bool ByCopyEngines(const char* function, std::size_t count, int ranks) {
  const char* wanted = std::getenv("FAKE_NCCL_COPY_ENGINES");
  if (wanted == nullptr || count < kCopyEngineCount || ranks < 2 || Version() < 6) return false;
  return std::strcmp(function, "AllGather") == 0 || std::strcmp(function, "AlltoAll") == 0;
}
void LaunchCopies(const Task& task) {
  ncclComm* comm = task.comm;
  void* handle = nullptr;
  const auto mask = static_cast<std::uint64_t>(Host().mask());
  if (comm->context != nullptr && (mask & kCopyEvents) != 0) {
    prof::Descriptor event = Event(prof::kCeColl, task.api);
    event.rank = comm->rank;
    event.copy_engine.seq = event.copy_engine.ce_seq = comm->meetings;
    event.copy_engine.function = task.function;
    event.copy_engine.send_buffer = task.send;
    event.copy_engine.receive_buffer = task.receive;
    event.copy_engine.count = task.count;
    event.copy_engine.root = task.root;
    event.copy_engine.datatype = TypeName(task.type);
    event.copy_engine.sync_strategy = "UC";
    event.copy_engine.stream = task.stream;
    Host().Start(comm->context, &handle, event);
  }
  comm->meetings += 2;  // Before and after.
  if (auto* hook = g_copies.load(); hook != nullptr && !t.capturing) hook(task.stream, task.bytes);
  if (handle != nullptr) Host().Stop(handle);
}

// From 2.29.2 on collTaskAppend (src/enqueue.cc) makes each ncclBroadcast a ncclTaskBcast unless NCCL_ALLGATHERV_ENABLE
// is 0. Neither that task nor the ncclTaskColl that ncclPrepareTasks makes of it, where a group has one root only, gets
// an eActivationMask or API handle: ncclProfilerStartTaskEvents says nothing of them, and
// ncclProfilerStartKernelLaunchEvent tells a kernel only for other tasks in it (2.29.2 to 2.32.3; issue 2278).
bool ByBroadcastPath(const char* function) {
  const char* enabled = std::getenv("NCCL_ALLGATHERV_ENABLE");
  return Version() >= 6 && std::strcmp(function, "Broadcast") == 0 &&
         (enabled == nullptr || std::strcmp(enabled, "0") != 0);
}

constexpr std::uint64_t kBelow = prof::kProxyOp | prof::kProxyStep | prof::kKernelCh | prof::kNetPlugin;

// --- API level (2.28 and later) ---
void StartGroupApi(ncclComm* comm) {
  t.mask = Host().mask();
  constexpr std::uint64_t kAsks = prof::kGroupApi | prof::kP2pApi | prof::kCollApi | prof::kKernelLaunch |
                                  prof::kGroup | prof::kColl | prof::kP2p | kBelow | kCopyEvents;
  if (Host().version() < 5 || t.group_open || (static_cast<std::uint64_t>(t.mask) & kAsks) == 0) return;
  prof::Descriptor event = Event(prof::kGroupApi, nullptr);
  event.group_api.depth = t.depth;
  event.group_api.captured = t.capturing;
  Host().Start(comm->context, &t.group_api, event);
  t.group_open = true;
  if (t.group_api != nullptr) Host().Record(t.group_api, 23, nullptr);
}
void StopGroupApi() {
  if (Host().version() >= 5 && t.group_api != nullptr) Host().Stop(t.group_api);
  t.group_api = nullptr;
  t.group_open = false;
}

void StartApi(Task& task) {
  const auto mask = static_cast<std::uint64_t>(t.mask);
  task.mask = t.mask;
  task.group_api = t.group_api;
  if (Host().version() >= 5) {
    if (task.p2p && (mask & (prof::kP2pApi | prof::kP2p | kBelow)) != 0) {
      prof::Descriptor event = Event(prof::kP2pApi, t.group_api);
      event.p2p_api.function = task.function;
      event.p2p_api.count = task.count;
      event.p2p_api.datatype = TypeName(task.type);
      event.p2p_api.stream = task.stream;
      event.p2p_api.captured = t.capturing;
      prof::DescriptorV7 newest = Newest(event);
      newest.p2p_api.user_tag = task.tag;
      Host().Start(task.comm->context, &t.p2p_api, newest);
    } else if (!task.p2p && (mask & (prof::kCollApi | prof::kColl | kBelow | kCopyEvents)) != 0) {
      prof::Descriptor event = Event(prof::kCollApi, t.group_api);
      event.coll_api.function = task.function;
      event.coll_api.count = task.count;
      event.coll_api.datatype = TypeName(task.type);
      event.coll_api.root = task.root;
      event.coll_api.stream = task.stream;
      event.coll_api.captured = t.capturing;
      prof::DescriptorV7 newest = Newest(event);
      newest.coll_api.user_tag = task.tag;
      Host().Start(task.comm->context, &t.coll_api, newest);
    }
  }
  task.api = task.p2p ? t.p2p_api : t.coll_api;
}
void StopApi(const Task& task) {
  if (Host().version() < 5) return;
  if (task.p2p) {
    if (t.p2p_api != nullptr) Host().Stop(t.p2p_api);
    t.p2p_api = nullptr;
  } else if (t.coll_api != nullptr) {
    Host().Stop(t.coll_api);  // And it is not forgotten (2.28.9): stopped again, while the mask is 0.
  }
}

// --- launching ---
// From 2.31.2 on the kernel counts each work of a channel, and leaves its times at that place of a ring of 64
// (src/device/common.h); the host counts the works whose task asks for them (ncclProfilerPostPlanWork), and tells the
// times at its own place, from a thread of its own. A broadcast's task asks for nothing (pull request 2368).
void TellChannels(const std::vector<Task>& tasks, const std::vector<void*>& handles) {
  if (Version() != 7) return;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    ncclComm* comm = tasks[i].comm;
    comm->work_ns[comm->gpu_works++ % 64] = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count());
    if (tasks[i].broadcast_path || (static_cast<std::uint64_t>(tasks[i].mask) & prof::kKernelCh) == 0) continue;
    std::thread([comm, parent = handles[i]] {
      prof::Descriptor event = Event(prof::kKernelCh, parent);
      event.kernel_channel.timer = comm->work_ns[comm->host_works++ % 64];
      void* handle = nullptr;
      Host().Start(comm->context, &handle, event);
      prof::StateArgs times{};
      times.kernel_timer = event.kernel_channel.timer + 1000;
      if (handle == nullptr) return;
      Host().Record(handle, prof::kKernelChStop, &times);
      Host().Stop(handle);
    }).join();
  }
}

void TellTasks(ncclComm* comm, const std::vector<Task>& tasks, bool persistent) {
  void* group = nullptr;
  std::uint64_t mask = 0;
  for (const Task& task : tasks)
    if (!task.broadcast_path) mask |= static_cast<std::uint64_t>(task.mask);
  const bool plugin = comm->context != nullptr;
  if (plugin && (mask & (prof::kGroup | prof::kColl | prof::kP2p | kBelow)) != 0) {
    prof::Descriptor event = Event(prof::kGroup, nullptr);
    Host().Start(comm->context, &group, event);
  }
  std::vector<void*> handles;
  for (const Task& task : tasks) {
    void* handle = nullptr;
    const auto own = static_cast<std::uint64_t>(task.mask);
    if (task.p2p) {
      if (plugin && (own & (prof::kP2p | kBelow)) != 0) {
        prof::Descriptor event = Event(prof::kP2p, task.api);
        event.rank = comm->rank;
        event.p2p.function = std::strcmp(task.function, "Recv") == 0 ? "Recv" : "Send";
        event.p2p.buffer = event.p2p.function[0] == 'R' ? task.receive : task.send;
        event.p2p.datatype = TypeName(task.type);
        event.p2p.count = task.count;
        event.p2p.peer = task.root;
        event.p2p.channels = 1;
        event.p2p.parent_group = group;
        Host().Start(comm->context, &handle, event);
      }
    } else {
      if (plugin && !task.broadcast_path && (own & (prof::kColl | kBelow)) != 0) {
        // Those that are copies to NCCL count bytes.
        const bool bytes = std::strcmp(task.function, "AllGather") == 0 || std::strcmp(task.function, "Broadcast") == 0;
        prof::Descriptor event = Event(prof::kColl, task.api);
        event.rank = comm->rank;
        event.coll.seq = comm->seq[task.function];
        event.coll.function = task.function;
        event.coll.send_buffer = task.send;
        event.coll.receive_buffer = task.receive;
        event.coll.count = bytes ? task.count * Size(task.type) : task.count;
        event.coll.root = task.root;
        event.coll.datatype = TypeName(bytes ? 0 : task.type);
        event.coll.channels = 2;
        event.coll.warps = 16;
        event.coll.algorithm = "RING";
        event.coll.protocol = task.bytes < 65536 ? "LL" : "SIMPLE";
        event.coll.parent_group = group;
        prof::DescriptorV7 newest = Newest(event);
        newest.coll.user_tag = task.tag;
        Host().Start(comm->context, &handle, newest);
      }
      if (!persistent) ++comm->seq[task.function];
    }
    handles.push_back(handle);
  }
  for (void* handle : handles)
    if (handle != nullptr) Host().Stop(handle);
  if (group != nullptr) Host().Stop(group);
  if (plugin) TellChannels(tasks, handles);
}

// Of what shares a kernel, the first.
std::string KernelName(const std::vector<Task>& tasks) {
  const Task& task = tasks[0];
  if (task.p2p) return "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
  // Broadcasts of several roots in one group (src/scheduler/allgatherv_sched.cc, 2.29.2).
  bool all_gather_v = false;
  for (const Task& other : tasks)
    all_gather_v |= task.broadcast_path && other.broadcast_path && other.root != task.root;
  std::string name = std::string("ncclDevKernel_") + (all_gather_v ? "AllGatherV" : task.function);
  if (std::strstr(task.function, "educe") != nullptr) name += "_Sum_f32";
  return name + "_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
}

// A kernel per communicator, told before what it carries.
void Launch(std::vector<Task> tasks) {
  for (const Task& task : tasks)
    if (task.copies) LaunchCopies(task);
  std::erase_if(tasks, [](const Task& task) { return task.copies; });
  std::vector<ncclComm*> comms;
  for (const Task& task : tasks)
    if (std::find(comms.begin(), comms.end(), task.comm) == comms.end()) comms.push_back(task.comm);
  for (ncclComm* comm : comms) {
    std::vector<Task> own;
    std::uint64_t mask = 0;
    std::size_t bytes = 0;
    void* group_api = nullptr;
    for (const Task& task : tasks) {
      if (task.comm != comm) continue;
      own.push_back(task);
      bytes += task.bytes;
      if (task.broadcast_path) continue;
      mask |= static_cast<std::uint64_t>(task.mask);
      group_api = task.group_api;
    }
    void* launch = nullptr;
    if (comm->context != nullptr && Host().version() >= 5 && (mask & prof::kKernelLaunch) != 0) {
      prof::Descriptor event = Event(prof::kKernelLaunch, group_api);
      event.kernel_launch.stream = own[0].stream;
      Host().Start(comm->context, &launch, event);
    }
    // What is captured does not run.
    if (auto* hook = g_launch.load(); hook != nullptr && !t.capturing)
      hook(own[0].stream, KernelName(own).c_str(), bytes);
    if (launch != nullptr) Host().Stop(launch);
    // Plans with proxy operations get a host callback in the graph; the task of others is done here and now, and never
    // at a replay (src/enqueue.cc, 2.28 to 2.32: ncclLaunchPrepare, ncclLaunchKernelAfter_NoCuda).
    if (t.capturing) g_graph.push_back(own);
    if (!t.capturing || !Proxies()) TellTasks(comm, own, t.capturing);
  }
}

int GroupEndInternal() {
  if (--t.depth > 0) return 0;
  for (std::thread& init : t.inits) init.join();
  t.inits.clear();
  if (t.group_api != nullptr) Host().Record(t.group_api, 24, nullptr);
  std::vector<Task> tasks;
  tasks.swap(t.tasks);
  if (!tasks.empty()) Launch(std::move(tasks));
  StopGroupApi();
  return 0;
}

int Enqueue(const char* function, const void* send, void* receive, std::size_t count, int type, int root,
            ncclComm* comm, void* stream, bool p2p = false, std::size_t factor = 1) {
  if (comm == nullptr || Size(type) == 0 || comm->state != 0) return kInvalidArgument;
  if (count == 0) return 0;
  if (comm->ranks == 1 && !p2p) return 0;  // A copy: nothing is told.
  ++t.depth;
  StartGroupApi(comm);
  Task task{
      comm, function, send, receive, count, type, root, stream, 0, nullptr, nullptr, p2p, count * Size(type) * factor};
  task.copies = ByCopyEngines(function, count, comm->ranks);
  task.broadcast_path = ByBroadcastPath(function);
  task.tag = t.tag;
  if (task.copies) task.p2p = p2p = false;
  StartApi(task);
  const bool several = p2p && std::strcmp(function, "Send") != 0 && std::strcmp(function, "Recv") != 0;
  if (several) {
    for (int peer = 0; peer < comm->ranks; ++peer) {
      Task part = task;
      part.root = peer;
      part.function = "Send";
      t.tasks.push_back(part);
      part.function = "Recv";
      t.tasks.push_back(part);
    }
  } else {
    t.tasks.push_back(task);
  }
  StopApi(task);
  return GroupEndInternal();
}

// --- communicators ---
ncclComm* NewComm(std::uint64_t hash, int ranks, int rank, const ncclConfig_t* config) {
  auto* comm = new ncclComm;
  comm->hash = hash;
  comm->ranks = ranks;
  comm->rank = rank;
  if (const char* name = lockstep::nccl::NameIn(config); name != nullptr) {
    comm->name = name;
    comm->named = true;
  }
  return comm;
}
void InitNow(ncclComm* comm) {
  comm->context = Host().Init(comm->hash, comm->named ? comm->name.c_str() : nullptr, 1, comm->ranks, comm->rank);
  comm->state = 0;
}
// In the caller, in a thread at the group's end, or in one of its own.
int Start(ncclComm* comm, const ncclConfig_t* config) {
  if (t.depth > 0) {
    t.inits.emplace_back(InitNow, comm);
    return 0;
  }
  if (config != nullptr && config->size >= 20 && config->blocking == 0) {
    std::thread([comm] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      InitNow(comm);
    }).detach();
    return 7;
  }
  InitNow(comm);
  return 0;
}
std::uint64_t HashOf(const ncclUniqueId& id) {
  std::uint64_t hash = 0xdeadbeef;
  for (const char c : id.internal) {
    hash ^= hash >> 32;
    hash *= 0x8db3db47fa2994ad;
    hash += static_cast<unsigned char>(c);
  }
  return hash;
}
int Child(ncclComm* parent, int color, ncclComm_t* made, ncclConfig_t* config) {
  const int nth = ++parent->children;
  if (color == -1) {
    *made = nullptr;
    return 0;
  }
  lockstep::Hash64 hash;
  hash.Add(parent->hash);
  hash.Add(static_cast<std::uint64_t>(nth));
  hash.Add(static_cast<std::uint64_t>(color));
  *made = NewComm(hash.value(), t.next_size, t.next_rank, config);
  return Start(*made, config);
}

}  // namespace

#define API(name, parameters)                                                                              \
  extern "C" __attribute__((visibility("default"))) int pnccl##name parameters;                            \
  extern "C" __attribute__((visibility("default"), weak, alias("pnccl" #name))) int nccl##name parameters; \
  int pnccl##name parameters

API(GetVersion, (int* version)) {
  constexpr int kVersions[] = {22707, 22809, 22907, 23203};
  *version = kVersions[Version() - 4];
  return 0;
}
API(GetUniqueId, (ncclUniqueId * id)) {
  std::memset(id, 0, sizeof *id);
  static std::atomic<int> count{0};
  std::snprintf(id->internal, sizeof id->internal, "fake %d %d", getpid(), ++count);
  return 0;
}
API(CommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config)) {
  if (rank < 0 || rank >= ranks) return kInvalidArgument;
  *comm = NewComm(HashOf(id), ranks, rank, config);
  return Start(*comm, config);
}
API(CommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank)) {
  return pncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}
API(CommInitRankScalable, (ncclComm_t * comm, int ranks, int rank, int, ncclUniqueId* id, ncclConfig_t* config)) {
  return pncclCommInitRankConfig(comm, ranks, id[0], rank, config);
}
API(GroupStart, ()) {
  ++t.depth;
  return 0;
}
API(GroupEnd, ()) { return t.depth == 0 ? kInvalidArgument : GroupEndInternal(); }
API(CommInitAll, (ncclComm_t * comms, int devices, const int*)) {
  ncclUniqueId id{};
  static int count = 0;
  std::snprintf(id.internal, sizeof id.internal, "fake all %d", ++count);
  ncclGroupStart();  // By its public name, as NCCL does.
  for (int i = 0; i < devices; ++i) {
    comms[i] = NewComm(HashOf(id), devices, i, nullptr);
    Start(comms[i], nullptr);
  }
  return ncclGroupEnd();
}
API(CommSplit, (ncclComm_t comm, int color, int, ncclComm_t* made, ncclConfig_t* config)) {
  return Child(comm, color, made, config);
}
API(CommShrink, (ncclComm_t comm, int*, int, ncclComm_t* made, ncclConfig_t* config, int)) {
  return Child(comm, 0, made, config);
}
API(CommFinalize, (ncclComm_t)) { return 0; }
API(CommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return kInvalidArgument;
  Host().Finalize(comm->context);
  delete comm;
  return 0;
}
// Other threads may be in their operations: it is never freed.
API(CommAbort, (ncclComm_t comm)) {
  if (comm == nullptr) return kInvalidArgument;
  comm->state = kInvalidUsage;
  Host().Finalize(comm->context);
  return 0;
}
API(CommRevoke, (ncclComm_t comm, int)) { return comm == nullptr ? kInvalidArgument : 0; }
API(CommGrow,
    (ncclComm_t parent, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* made, ncclConfig_t* config)) {
  if ((parent == nullptr) != (rank >= 0)) return kInvalidArgument;
  *made = NewComm(id != nullptr ? HashOf(*id) : 77, ranks, parent != nullptr ? parent->rank : rank, config);
  return Start(*made, config);
}
API(PutSignal, (const void*, size_t, int, int, void*, size_t, int, int, unsigned, ncclComm_t comm, cudaStream_t)) {
  return comm == nullptr ? kInvalidArgument : 0;
}
API(Signal, (int, int, int, unsigned, ncclComm_t comm, cudaStream_t)) { return comm == nullptr ? kInvalidArgument : 0; }
API(WaitSignal, (int, void*, ncclComm_t comm, cudaStream_t)) { return comm == nullptr ? kInvalidArgument : 0; }
API(GroupSimulateEnd, (void*)) {
  if (t.depth == 0) return kInvalidArgument;
  t.tasks.clear();
  return GroupEndInternal();
}
API(CommCount, (ncclComm_t comm, int* count)) {
  *count = comm->ranks;
  return 0;
}
API(CommUserRank, (ncclComm_t comm, int* rank)) {
  *rank = comm->rank;
  return 0;
}
API(CommGetAsyncError, (ncclComm_t comm, int* error)) {
  *error = comm->state;
  return 0;
}
API(AllReduce, (const void* s, void* r, size_t n, int type, int, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("AllReduce", s, r, n, type, 0, comm, stream);
}
API(AllGather, (const void* s, void* r, size_t n, int type, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("AllGather", s, r, n, type, 0, comm, stream);
}
API(ReduceScatter, (const void* s, void* r, size_t n, int type, int, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("ReduceScatter", s, r, n, type, 0, comm, stream);
}
API(Broadcast, (const void* s, void* r, size_t n, int type, int root, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("Broadcast", s, r, n, type, root, comm, stream);
}
API(Bcast, (void* b, size_t n, int type, int root, ncclComm_t comm, cudaStream_t stream)) {
  return ncclBroadcast(b, b, n, type, root, comm, stream);  // By its public name, as NCCL does.
}
API(Reduce, (const void* s, void* r, size_t n, int type, int, int root, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("Reduce", s, r, n, type, root, comm, stream);
}
API(AlltoAll, (const void* s, void* r, size_t n, int type, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("AlltoAll", s, r, n, type, 0, comm, stream, true);
}
API(Gather, (const void* s, void* r, size_t n, int type, int root, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("Gather", s, r, n, type, root, comm, stream, true);
}
API(Scatter, (const void* s, void* r, size_t n, int type, int root, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("Scatter", s, r, n, type, root, comm, stream, true);
}
API(AllReduceConfig,
    (const void* s, void* r, size_t n, int type, int op, ncclComm_t comm, cudaStream_t stream, const void*)) {
  return ncclAllReduce(s, r, n, type, op, comm, stream);
}
API(ReduceConfig,
    (const void* s, void* r, size_t n, int type, int op, int root, ncclComm_t comm, cudaStream_t stream, const void*)) {
  return ncclReduce(s, r, n, type, op, root, comm, stream);
}
API(Send, (const void* s, size_t n, int type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("Send", s, nullptr, n, type, peer, comm, stream, true);
}
API(Recv, (void* r, size_t n, int type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return Enqueue("Recv", nullptr, r, n, type, peer, comm, stream, true);
}
API(RedOpCreatePreMulSum, (int* op, void*, int, int, ncclComm_t)) {
  *op = 5;
  return 0;
}
API(RedOpDestroy, (int, ncclComm_t)) { return 0; }

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT void fakeNcclNextShape(int size, int rank) {
  t.next_size = size;
  t.next_rank = rank;
}
EXPORT void fakeNcclTag(std::uint64_t tag) { t.tag = tag; }
EXPORT void fakeNcclCapture(bool on) {
  if (on) g_graph.clear();
  t.capturing = on;
}
EXPORT void fakeNcclReplay() {
  std::vector<std::string> names;
  std::vector<const char*> kernels;
  for (const std::vector<Task>& tasks : g_graph) names.push_back(KernelName(tasks));
  for (const std::string& name : names) kernels.push_back(name.c_str());
  if (auto* hook = g_replay.load(); hook != nullptr) hook(kernels.data(), static_cast<int>(kernels.size()));
  if (!Proxies()) return;
  std::thread([] {
    for (const std::vector<Task>& tasks : g_graph) TellTasks(tasks[0].comm, tasks, true);
  }).join();
}
EXPORT void fakeNcclOnReplay(void (*launch)(const char* const*, int)) { g_replay = launch; }
EXPORT void fakeNcclOnLaunch(void (*launch)(cudaStream_t, const char*, size_t)) { g_launch = launch; }
EXPORT void fakeNcclOnCopies(void (*copy)(cudaStream_t, size_t)) { g_copies = copy; }
