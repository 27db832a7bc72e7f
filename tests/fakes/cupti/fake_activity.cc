// libcupti's activity interface.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tests/fakes/cupti/fake_gpu.h"
#include "tests/fakes/cupti/fake_state.h"

namespace lockstep::fake {
namespace {

// The real library's iterator and names, where there is one and no other version is asked for.
struct RealLibrary {
  int (*next)(std::uint8_t*, std::size_t, cu::AnyRecord**) = nullptr;
  int (*name)(int, std::uint32_t, const char**) = nullptr;
  std::uint32_t version = 0;
  RealLibrary() {
#ifdef LOCKSTEP_REAL_CUPTI
    if (getenv("FAKE_CUPTI_VERSION") != nullptr) return;
    void* library = dlopen(LOCKSTEP_REAL_CUPTI, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto get = reinterpret_cast<int (*)(std::uint32_t*)>(dlsym(library, "cuptiGetVersion"));
    next = reinterpret_cast<decltype(next)>(dlsym(library, "cuptiActivityGetNextRecord"));
    name = reinterpret_cast<decltype(name)>(dlsym(library, "cuptiGetCallbackName"));
    // Only if our records are of the length it expects.
    if (get == nullptr || get(&version) != 0 || version < 130000 || version >= 130200) next = nullptr;
#endif
  }
};
const RealLibrary& Real() {
  static const RealLibrary real;
  return real;
}

struct Name {
  int domain;
  std::uint32_t id;
  const char* name;
};
constexpr Name kNames[] = {{2, 20, "cudaMalloc_v3020"},
                           {2, 22, "cudaFree_v3020"},
                           {2, 41, "cudaMemcpyAsync_v3020"},
                           {2, 51, "cudaMemsetAsync_v3020"},
                           {2, 131, "cudaStreamSynchronize_v3020"},
                           {2, 135, "cudaEventRecord_v3020"},
                           {2, 137, "cudaEventSynchronize_v3020"},
                           {2, 138, "cudaEventQuery_v3020"},
                           {2, 147, "cudaStreamWaitEvent_v3020"},
                           {2, 161, "cudaMemcpyPeerAsync_v4000"},
                           {2, 165, "cudaDeviceSynchronize_v3020"},
                           {2, 211, "cudaLaunchKernel_v7000"},
                           {2, 311, "cudaGraphLaunch_v10000"},
                           {1, 2, "cuDriverGetVersion"},
                           {1, 307, "cuLaunchKernel"}};

int Answer(const char* function, std::int64_t argument, State::Family family = State::Family::kGlobal) {
  State& state = TheState();
  if (state.in_callback) state.violations += 1;
  // CUPTI 13.3 and later: "Cannot mix global-scope and subscriber-scope activity APIs", CUPTI_ERROR_NOT_COMPATIBLE
  // (pytorch/pytorch pull request 192094).
  if (state.version >= 130300) {
    if (state.family != State::Family::kNone && state.family != family) return cu::kNotCompatible;
    state.family = family;
  }
  const int result = Failure(function);
  Log(function, argument, result);
  return result;
}

}  // namespace

std::uint64_t RealtimeNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::int64_t RawNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

State& TheState() {
  // Never destroyed: atexit handlers still call.
  static State& state = *[] {
    auto* made = new State;
    const char* version = getenv("FAKE_CUPTI_VERSION");
    made->version = version != nullptr       ? static_cast<std::uint32_t>(atoi(version))
                    : Real().next != nullptr ? Real().version
                                             : 130001;
    made->anchors[nullptr] = {RawNs(), RealtimeNs()};
    return made;
  }();
  return state;
}

std::uint32_t RecordBytes(std::uint32_t kind, std::uint32_t v) {
  switch (kind) {
    case 10:
    case 3:
      return v >= 130000 ? 216 : v >= 19 ? 208 : v >= 18 ? 200 : v >= 17 ? 176 : v >= 14 ? 168 : v >= 13 ? 160 : 144;
    case 1:
      return v >= 24 ? 96 : v >= 18 ? 88 : v >= 14 ? 80 : v >= 13 ? 72 : 64;
    case 22:
      return v >= 18 ? 96 : v >= 14 ? 88 : v >= 13 ? 80 : 72;
    case 2:
      return v >= 18 ? 88 : v >= 14 ? 80 : v >= 13 ? 72 : 64;
    case 4:
    case 5:
      return 40;
    case 8:
      return v >= 24 ? 184 : v >= 17 ? 176 : 144;
    case 9:
      return v >= 27 ? 32 : v >= 24 ? 24 : 16;
    case 17:
      return v >= 26 ? 56 : v >= 22 ? 48 : 40;
    case 36:
      return v >= 26 ? 56 : 24;
    case 37:
      return 24;
    case 38:
      return v >= 26 ? 56 : 40;
    case 49:
      return v >= 18 ? 128 : v >= 15 ? 120 : 112;
    case 51:
      return v >= 24 ? 56 : v >= 17 ? 48 : 0;
    default:
      return 0;
  }
}

bool On(std::uint32_t kind) { return (TheState().kinds >> kind & 1) != 0; }

std::uint64_t Timestamp() {
  const State& state = TheState();
  return state.timestamp != nullptr ? state.timestamp() : RealtimeNs();
}

std::uint32_t ThreadId() {
  return TheState().thread_id_type == 1 ? static_cast<std::uint32_t>(syscall(SYS_gettid))
                                        : static_cast<std::uint32_t>(pthread_self());
}

// Defaults as the headers of CUDA 12.8 and 13.0 say.
std::uint64_t Attribute(int attribute) {
  const State& state = TheState();
  if (const auto set = state.attributes.find(attribute); set != state.attributes.end()) return set->second;
  switch (attribute) {
    case cu::kAttributeDeviceBufferSize:
      return 3'200'000;
    case cu::kAttributeDeviceBufferPoolLimit:
      return 250;
    case cu::kAttributePerThreadBuffer:
      return state.version >= 130000 ? 1 : 0;
    default:
      return 0;
  }
}

void Log(const char* what, std::int64_t argument, int result) {
  const char* path = getenv("FAKE_CUPTI_LOG");
  if (path == nullptr) return;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  char line[128];
  const int n = snprintf(line, sizeof line, "%s %lld %d\n", what, static_cast<long long>(argument), result);
  if (fd < 0) return;
  if (write(fd, line, static_cast<std::size_t>(n)) < 0) abort();
  close(fd);
}

int Failure(const char* function) {
  const char* spec = getenv("FAKE_CUPTI_FAIL");
  if (spec == nullptr) return 0;
  const std::string all = "," + std::string(spec), wanted = "," + std::string(function) + "=";
  const std::size_t at = all.find(wanted);
  return at == std::string::npos ? 0 : atoi(all.c_str() + at + wanted.size());
}

}  // namespace lockstep::fake

using namespace lockstep::fake;

#pragma GCC visibility push(default)
extern "C" {

int cuptiGetVersion(std::uint32_t* version) {
  *version = TheState().version;
  return 0;
}

int cuptiGetTimestamp(std::uint64_t* time) {
  *time = Timestamp();
  return 0;
}

int cuptiActivityRegisterCallbacks(cu::BufferRequested requested, cu::BufferCompleted completed) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (requested == nullptr || completed == nullptr) return 1;
  if (const int result = Answer("cuptiActivityRegisterCallbacks", 0); result != 0) return result;
  state.requested = requested;
  state.completed = completed;
  return 0;
}

int cuptiActivityRegisterTimestampCallback(cu::TimestampCallback callback) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (callback == nullptr) return 1;
  if (state.version < 17) return 11;
  if (const int result = Answer("cuptiActivityRegisterTimestampCallback", 0); result != 0) return result;
  state.timestamp = callback;
  state.registrations += 1;
  state.anchors[callback] = {RawNs(), callback()};
  return 0;
}

int cuptiActivityEnable(std::uint32_t kind) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (const int result = Answer("cuptiActivityEnable", kind); result != 0) return result;
  if (RecordBytes(kind, state.version) == 0) return 21;
  // "Successfully enabling this activity selects graph-level tracing for the CUPTI session. Disabling the activity
  // stops delivery of graph records but does not restore node level tracing of graph nodes" (cupti_activity.h, 13.5).
  if (kind == cu::kKindGraphTrace) state.graph_level = true;
  if (kind == cu::kKindConcurrentKernel && !On(kind)) state.sessions += 1;
  if (kind == cu::kKindConcurrentKernel && !On(kind) && state.registrations != 0)
    state.misplaced_heads = state.registrations - 1;
  state.kinds |= std::uint64_t{1} << kind;
  return 0;
}

int cuptiActivityEnableAndDump(std::uint32_t kind) { return cuptiActivityEnable(kind); }

int cuptiActivityDisable(std::uint32_t kind) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (const int result = Answer("cuptiActivityDisable", kind); result != 0) return result;
  // "Fixed a deadlock" in it, and a crash in flushes, says CUDA 13.0 Update 1.
  if (state.version == 130000 && kind == cu::kKindConcurrentKernel) state.violations += 1;
  state.kinds &= ~(std::uint64_t{1} << kind);
  return 0;
}

int cuptiActivityEnableRuntimeApi(std::uint32_t id, std::uint8_t enable) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (state.version < 23) return 11;
  if (enable != 0)
    state.functions[1].insert(id);
  else
    state.functions[1].erase(id);
  return 0;
}

int cuptiActivityEnableDriverApi(std::uint32_t id, std::uint8_t enable) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (state.version < 23) return 11;
  if (enable != 0)
    state.functions[0].insert(id);
  else
    state.functions[0].erase(id);
  return 0;
}

int cuptiActivityFlushAll(std::uint32_t flags) {
  State& state = TheState();
  if ((flags & 1) != 0 && getenv("FAKE_CUPTI_STUCK") != nullptr)
    for (;;) pause();
  const std::lock_guard guard(state.lock);
  if (const int result = Answer("cuptiActivityFlushAll", flags); result != 0) return result;
  if (state.version == 130000 && (flags & 1) == 0) state.violations += 1;
  if (state.requested == nullptr) return 7;
  Return(true, (flags & 1) != 0);
  state.flushes += 1;
  return 0;
}

int cuptiActivityFlush(void*, std::uint32_t, std::uint32_t flags) { return cuptiActivityFlushAll(flags); }

int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, cu::AnyRecord** record) {
  if (Real().next != nullptr) return Real().next(buffer, valid, record);
  if (buffer == nullptr || record == nullptr) return 1;
  const std::uint32_t version = TheState().version;
  std::size_t at = 0;
  if (*record != nullptr)
    at = static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(*record) - buffer) +
         RecordBytes((*record)->kind, version);
  if (at + sizeof(std::uint32_t) > valid) return 12;
  auto* next = reinterpret_cast<cu::AnyRecord*>(buffer + at);
  const std::uint32_t bytes = RecordBytes(next->kind, version);
  if (bytes == 0) return 21;
  if (valid - at < bytes) return 12;
  *record = next;
  return 0;
}

int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (state.in_callback) state.violations += 1;
  *dropped = state.dropped;
  state.dropped = 0;
  return 0;
}

static std::size_t AttributeBytes(int attribute) {
  if (attribute < 0 || attribute > 9 || (attribute == 9 && TheState().version < 21)) return 0;
  return attribute == 5 || attribute >= 8 ? 1 : 8;
}

int cuptiActivitySetAttribute(int attribute, std::size_t* bytes, void* value) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  std::uint64_t number = 0;
  const std::size_t needed = AttributeBytes(attribute);
  if (needed == 0 || bytes == nullptr || value == nullptr) return 1;
  if (*bytes < needed) return 6;
  std::memcpy(&number, value, needed);
  if (const int result = Answer("cuptiActivitySetAttribute", attribute); result != 0) return result;
  // In the middle of a session: undefined behaviour.
  if (attribute == cu::kAttributePerThreadBuffer && state.kinds != 0 && number != Attribute(attribute))
    state.violations += 1;
  state.attributes[attribute] = number;
  return 0;
}

int cuptiActivityGetAttribute(int attribute, std::size_t* bytes, void* value) {
  const std::lock_guard guard(TheState().lock);
  const std::size_t needed = AttributeBytes(attribute);
  if (needed == 0 || bytes == nullptr || value == nullptr) return 1;
  if (*bytes < needed) return 6;
  const std::uint64_t number = Attribute(attribute);
  std::memcpy(value, &number, needed);
  *bytes = needed;
  return 0;
}

int cuptiSetThreadIdType(int type) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  if (const int result = Answer("cuptiSetThreadIdType", type); result != 0) return result;
  state.thread_id_type = type;
  return 0;
}

int cuptiGetCallbackName(int domain, std::uint32_t id, const char** name) {
  if (Real().name != nullptr) return Real().name(domain, id, name);
  if (domain < 1 || domain > 2 || id > 700) return 1;
  *name = "INVALID";
  for (const Name& known : kNames)
    if (known.domain == domain && known.id == id) *name = known.name;
  return 0;
}

int cuptiGetResultString(int result, const char** text) {
  *text = result == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : result == 0 ? "CUPTI_SUCCESS" : "CUPTI_ERROR";
  return 0;
}

int cuptiActivityEnableCudaEventDeviceTimestamps(std::uint8_t enable) {
  if (TheState().version < 26) return 11;
  TheState().event_timestamps = enable != 0;
  return 0;
}

// "This API needs to be called before initialization of CUDA" (cupti_activity.h, 12.8 to 13.5). Kind 53 "can not be
// directly enabled".
int cuptiActivityEnableDeviceGraph(std::uint8_t enable) {
  const std::lock_guard guard(TheState().lock);
  if (const int result = Answer("cuptiActivityEnableDeviceGraph", enable); result != 0) return result;
  TheState().device_graphs = enable != 0;
  return 0;
}

int cuptiActivityEnableAllSyncRecords(std::uint8_t) { return TheState().version < 26 ? 11 : 0; }

// What was not flushed before is gone: "CUPTI client needs to make sure that required CUDA synchronization and CUPTI
// activity buffer flush is done before calling the API" (cupti_activity.h).
int cuptiFinalize(void) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  Log("cuptiFinalize", 0, 0);
  for (const Out* out : state.full) delete out;
  for (const auto& [thread, out] : state.filling) delete out;
  state.full.clear();
  state.filling.clear();
  state.pending.clear();
  state.kinds = 0;
  for (auto& functions : state.functions) functions.clear();
  state.timestamp = nullptr;
  state.requested = nullptr;
  state.thread_id_type = 0;
  state.attributes.clear();
  state.event_timestamps = false;
  return 0;
}

// What a real Kineto calls besides (PyTorch 2.12 to 2.15): one subscriber to callbacks, of which none come.
static void* g_subscriber = nullptr;
int cuptiSubscribe(void** subscriber, void*, void*) {
  const std::lock_guard guard(TheState().lock);
  if (g_subscriber != nullptr) return cu::kMultipleSubscribers;
  *subscriber = g_subscriber = &g_subscriber;
  return 0;
}
int cuptiUnsubscribe(void* subscriber) {
  const std::lock_guard guard(TheState().lock);
  if (subscriber != g_subscriber) return 1;
  g_subscriber = nullptr;
  return 0;
}
int cuptiEnableCallback(std::uint32_t, void*, std::uint32_t, std::uint32_t) { return 0; }
int cuptiEnableDomain(std::uint32_t, void*, std::uint32_t) { return 0; }
int cuptiActivityPushExternalCorrelationId(std::uint32_t, std::uint64_t) { return 0; }
int cuptiActivityPopExternalCorrelationId(std::uint32_t, std::uint64_t*) { return 0; }

// Several subscribers, from CUDA 13.2 on: records of their own, through functions of their own.
int cuptiSubscribe_v2(void** subscriber, void*, void*, cu::SubscriberParams* params) {
  const std::lock_guard guard(TheState().lock);
  if (TheState().version < 130200 && params != nullptr && params->allow_multiple_subscribers != 0) return 39;
  static int one;
  *subscriber = &one;
  Log("cuptiSubscribe_v2", 0, 0);
  return 0;
}

int cuptiActivityEnable_v2(void*, std::uint32_t kind, void*) {
  const std::lock_guard guard(TheState().lock);
  return Answer("cuptiActivityEnable_v2", kind, State::Family::kSubscriber);
}

uint64_t fake_gpu_made(int kind) {
  const std::lock_guard guard(TheState().lock);
  return TheState().made[kind];
}
uint64_t fake_gpu_delivered(int kind) {
  const std::lock_guard guard(TheState().lock);
  return TheState().delivered[kind];
}
int fake_gpu_kind_enabled(int kind) {
  const std::lock_guard guard(TheState().lock);
  return On(static_cast<std::uint32_t>(kind)) ? 1 : 0;
}
uint64_t fake_gpu_flushes(void) {
  const std::lock_guard guard(TheState().lock);
  return TheState().flushes;
}
uint64_t fake_gpu_attribute(int attribute) {
  const std::lock_guard guard(TheState().lock);
  return Attribute(attribute);
}
uint32_t fake_gpu_clock_registrations(void) {
  const std::lock_guard guard(TheState().lock);
  return TheState().registrations;
}
uint64_t fake_gpu_violations(void) { return TheState().violations; }

}  // extern "C"
#pragma GCC visibility pop
