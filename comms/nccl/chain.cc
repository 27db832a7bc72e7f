#include "comms/nccl/chain.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "comms/nccl/mask.h"
#include "core/env.h"
#include "core/plain_line.h"

namespace lockstep::nccl::chain {
namespace {

using namespace profiler;

enum State : int { kUnknown, kLoading, kNone, kLoaded };
std::atomic<int> g_state{kUnknown};
int g_version = 0;  // The version of the table in use: not newer than the first host's.
const TableV4* g_v4 = nullptr;
const TableV5* g_v5 = nullptr;  // v6's and v7's as well.
int g_mask = 0;                 // The chained plugin's mask: written by its init, and at any later time.
std::atomic<int> g_requested_mask{0};

// The chained plugin's handles by number. An entry is used again when its event has ended and kPlaces others have begun
// since; until then it can be named as a parent.
struct Place {
  std::atomic<std::uint64_t> number;
  std::atomic<void*> handle;
  std::atomic<std::uint32_t> open;
};
constexpr std::uint64_t kPlaces = 1 << 16, kTries = 64;
constinit Place g_places[kPlaces] = {};
constinit std::atomic<std::uint64_t> g_number{0};
constinit CountedLoss g_full("NcclTableFull", "events of the chained plugin");

std::uint64_t Keep(void* handle) {
  for (std::uint64_t i = 0; i < kTries; ++i) {
    const std::uint64_t number = g_number.fetch_add(1, std::memory_order_relaxed) + 1;
    Place& place = g_places[number % kPlaces];
    std::uint32_t closed = 0;
    if (!place.open.compare_exchange_strong(closed, 1, std::memory_order_acquire)) continue;
    place.number.store(0, std::memory_order_release);
    place.handle.store(handle, std::memory_order_release);
    place.number.store(number, std::memory_order_release);
    return number;
  }
  return 0;
}

// Whether one of kTries entries is likely to be free; tested before the chained plugin gets an event.
bool Room() {
  const std::uint64_t next = g_number.load(std::memory_order_relaxed) + 1;
  for (std::uint64_t i = 0; i < kTries / 2; ++i)
    if (g_places[(next + i) % kPlaces].open.load(std::memory_order_relaxed) == 0) return true;
  return false;
}

void* HandleOf(std::uint64_t number) {
  if (number == 0) return nullptr;
  Place& place = g_places[number % kPlaces];
  if (place.number.load(std::memory_order_acquire) != number) return nullptr;
  void* handle = place.handle.load(std::memory_order_acquire);
  return place.number.load(std::memory_order_acquire) == number ? handle : nullptr;
}

// The chained plugin's handle for a handle that NCCL got from this plugin.
void* Theirs(const void* ours) {
  const auto id = reinterpret_cast<std::uintptr_t>(ours);
  return (id & kChained) != 0 ? HandleOf(id & kNumber) : nullptr;
}

// NCCL also passes an event on if only its descendants were requested (2.28.9, plugin/profiler.cc).
std::uint64_t AskedBy(std::uint64_t type) {
  constexpr std::uint64_t kNet = kProxyOp | kProxyStep | kNetPlugin, kOfColl = kNet | kKernelCh | kKernelPhase;
  switch (type) {
    case kGroup:
      return kGroup | kColl | kP2p | kOfColl;
    case kColl:
      return kColl | kOfColl;
    case kP2p:
      return kP2p | kOfColl;
    case kProxyOp:
      return kNet;
    case kProxyStep:
      return kProxyStep | kNetPlugin;
    case kGroupApi:
      return kGroupApi | kCollApi | kP2pApi | kKernelLaunch | kGroup | kColl | kP2p | kOfColl | kCeColl | kCeSync |
             kCeBatch;
    case kCollApi:
      return kCollApi | kColl | kOfColl | kCeColl | kCeSync | kCeBatch;
    case kP2pApi:
      return kP2pApi | kP2p | kOfColl;
    case kCeColl:
      return kCeColl | kCeSync | kCeBatch;
    case kKernelCh:
      return kKernelCh | kKernelPhase;
    default:
      return type;
  }
}

std::uint64_t Known(int version) {
  return version == 4   ? kGroupApi - 1
         : version == 5 ? kCeColl - 1
         : version == 6 ? kKernelPhase - 1
                        : (kKernelPhase << 1) - 1;
}

// The events that NCCL must be asked for so that the chained plugin gets what it wants. NCCL itself takes care of this
// where a plugin's own init sets the mask, once (2.31.2); this plugin's mask is set again with each window.
int Needed(int mask) { return (mask & kKernelPhase) != 0 ? mask | static_cast<int>(kKernelCh) : mask; }

void Complain(const char* plugin, const char* why) {
  char line[600];
  const int n = snprintf(line, sizeof line - 1,
                         "lockstep: the NCCL profiler plugin %s is not called beside Lockstep's: %s", plugin, why);
  MakePlainLine(line);  // The path comes from the environment.
  strcat(line, "\n");   // The buffer is large enough.
  if (n > 0 && write(STDERR_FILENO, line, strlen(line)) < 0) return;
  WriteFact("nccl_plugin_chained\tplugin=%s\tfailed=%s", plugin, why);
}

// Looks for the library as NCCL does: the value as it is; a bare word also as libnccl-profiler-WORD.so (RCCL:
// librccl-profiler-WORD.so). Any beginning of STATIC_PLUGIN selects the symbols of the program itself, of which ours
// come first.
void* Load(const char* plugin, bool* statically) {
  *statically = strncasecmp(plugin, "STATIC_PLUGIN", strlen(plugin)) == 0;
  if (*statically) return RTLD_NEXT;
  if (void* library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  const std::size_t bytes = strlen(plugin);
  const bool is_file = strchr(plugin, '/') != nullptr ||
                       (strncmp(plugin, "lib", 3) == 0 && bytes > 3 && strcmp(plugin + bytes - 3, ".so") == 0);
  if (is_file) return nullptr;
  for (const char* form : {"libnccl-profiler-%s.so", "librccl-profiler-%s.so"}) {
    char name[300];
    snprintf(name, sizeof name, form, plugin);
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  }
  return nullptr;
}

template <typename T>
const T* Find(void* library, const char* symbol, const T& ours) {
  const auto* found = static_cast<const T*>(dlsym(library, symbol));
  return found == &ours ? nullptr : found;
}

int LoadOnce(int host_version) {
  const char* plugin = getenv(env::kNcclPluginChained);
  if (plugin == nullptr || *plugin == 0) return kNone;
  bool statically = false;
  void* library = Load(plugin, &statically);
  if (library == nullptr) {
    const char* why = dlerror();
    Complain(plugin, why != nullptr ? why : "it cannot be loaded");
    return kNone;
  }
  // The functions are the same except for the event, which begins in the same way.
  if (host_version >= 7) g_v5 = reinterpret_cast<const TableV5*>(Find(library, "ncclProfiler_v7", ncclProfiler_v7));
  g_version = 7;
  if (g_v5 == nullptr && host_version >= 6) {
    g_v5 = Find(library, "ncclProfiler_v6", ncclProfiler_v6);
    g_version = 6;
  }
  if (g_v5 == nullptr && host_version >= 5) {
    g_v5 = Find(library, "ncclProfiler_v5", ncclProfiler_v5);
    g_version = 5;
  }
  if (g_v5 == nullptr) {
    g_v4 = Find(library, "ncclProfiler_v4", ncclProfiler_v4);
    g_version = 4;
  }
  if (g_v4 == nullptr && g_v5 == nullptr) {
    Complain(plugin, "it has no table of version 4 to 7 that this NCCL could use");
    return kNone;
  }
  WriteFact("nccl_plugin_chained\tplugin=%s\tversion=%d\thost=%d", plugin, g_version, host_version);
  WriteLoss("NcclPluginChained", plugin, 1);
  return kLoaded;
}

}  // namespace

bool Open(int host_version) {
  int state = g_state.load(std::memory_order_acquire);
  if (state == kUnknown && g_state.compare_exchange_strong(state, kLoading)) {
    state = LoadOnce(host_version);
    g_state.store(state, std::memory_order_release);
  }
  // Another communicator's init is loading it, which takes milliseconds.
  while ((state = g_state.load(std::memory_order_acquire)) == kLoading) sched_yield();
  return Active(host_version);
}

bool Active(int host_version) {
  return g_state.load(std::memory_order_acquire) == kLoaded && g_version <= host_version;
}

void Init(Comm& comm, const char* name, Logger log) {
  const int nodes = static_cast<int>(comm.nodes), ranks = static_cast<int>(comm.size);
  void* context = nullptr;
  const int result = g_v5 != nullptr ? g_v5->init(&context, comm.id, &g_mask, name, nodes, ranks, comm.rank, log)
                                     : g_v4->init(&context, &g_mask, name, comm.id, nodes, ranks, comm.rank, log);
  comm.theirs = result == kSuccess ? context : nullptr;
  ChainedMask(Needed(__atomic_load_n(&g_mask, __ATOMIC_RELAXED)));
}

void Finalize(Comm& comm) {
  void* context = comm.theirs;
  comm.theirs = nullptr;
  if (context == nullptr) return;
  if (g_v5 != nullptr)
    g_v5->finalize(context);
  else
    g_v4->finalize(context);
}

std::uint64_t Start(int host_version, Comm* comm, const Descriptor& event) {
  const int mask = __atomic_load_n(&g_mask, __ATOMIC_RELAXED);
  if (mask != g_requested_mask.load(std::memory_order_relaxed)) {  // The chained plugin changed it.
    g_requested_mask.store(mask, std::memory_order_relaxed);
    ChainedMask(Needed(mask));
  }
  if (comm == nullptr || comm->theirs == nullptr || (event.type & Known(g_version)) == 0 ||
      (static_cast<std::uint64_t>(mask) & AskedBy(event.type)) == 0)
    return 0;
  if (!Room()) {
    g_full.Note();
    return 0;
  }
  void* handle = nullptr;
  if (g_v5 != nullptr) {
    union {
      Descriptor copy;
      DescriptorV7 longer;
    };
    memcpy(static_cast<void*>(&longer), &event, host_version >= 7 ? sizeof longer : sizeof copy);
    copy.parent = Theirs(event.parent);
    if (event.type == kColl) copy.coll.parent_group = Theirs(event.coll.parent_group);
    if (event.type == kP2p) copy.p2p.parent_group = Theirs(event.p2p.parent_group);
    if (g_v5->start(comm->theirs, &handle, &copy) != kSuccess) return 0;
  } else {
    // NCCL passes a new event to an old plugin in this way: the group launch is the parent.
    DescriptorV4 copy{};
    copy.type = static_cast<std::uint8_t>(event.type);
    copy.rank = event.rank;
    const void* parent = event.parent;
    if (event.type == kColl) {
      memcpy(static_cast<void*>(&copy.coll), &event.coll, sizeof copy.coll);
      if (event.coll.parent_group != nullptr) parent = event.coll.parent_group;
    } else if (event.type == kP2p) {
      memcpy(static_cast<void*>(&copy.p2p), &event.p2p, sizeof copy.p2p);
      if (event.p2p.parent_group != nullptr) parent = event.p2p.parent_group;
    } else {
      memcpy(static_cast<void*>(copy.raw), event.raw, sizeof copy.raw);
    }
    copy.parent = Theirs(parent);
    if (g_v4->start(comm->theirs, &handle, &copy) != kSuccess) return 0;
  }
  return handle == nullptr ? 0 : Keep(handle);
}

void Stop(std::uint64_t number) {
  void* handle = HandleOf(number);
  std::uint32_t open = 1;
  // NCCL 2.28 ends an API event again with the next one that is masked; the chained plugin is told once only.
  if (handle == nullptr || !g_places[number % kPlaces].open.compare_exchange_strong(open, 2)) return;
  if (g_v5 != nullptr)
    g_v5->stop(handle);
  else
    g_v4->stop(handle);
  g_places[number % kPlaces].open.store(0, std::memory_order_release);
}

void Record(std::uint64_t number, int state, StateArgs* arguments) {
  void* handle = HandleOf(number);
  if (handle == nullptr) return;
  constexpr int kFirstOfV5 = 23;
  if (g_v5 != nullptr)
    g_v5->record(handle, state, arguments);
  else if (state < kFirstOfV5)
    g_v4->record(handle, state, arguments);
}

Descriptor Newest(const DescriptorV4& event) {
  Descriptor copy{};
  copy.type = event.type;
  copy.parent = event.parent;
  copy.rank = event.rank;
  memcpy(static_cast<void*>(copy.raw), event.raw, sizeof event.raw);
  if (event.type == kColl) copy.coll.parent_group = nullptr;
  if (event.type == kP2p) copy.p2p.parent_group = nullptr;
  return copy;
}

}  // namespace lockstep::nccl::chain
