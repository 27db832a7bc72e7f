// Streams, and the records that work on them makes.

#include "tests/fakes/cupti/fake_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "tests/fakes/cupti/fake_state.h"

namespace lockstep::fake {
namespace {

constexpr std::int64_t kLaunchLatencyNs = 4'000;
constexpr std::int64_t kOpenNs = 3'600'000'000'000;  // Of a kernel whose end is not known yet.
constexpr char kDeviceName[] = "NVIDIA Fake H200";
constexpr std::uint32_t kContext = 1;

struct Call {
  std::uint32_t domain, id, correlation;
  std::uint64_t begin;
  explicit Call(std::uint32_t function, std::uint32_t in_domain = cu::kDomainRuntime)
      : domain(in_domain), id(function), correlation(++TheState().correlation), begin(Timestamp()) {}
  void End() const {
    State& state = TheState();
    const std::uint32_t kind = domain == cu::kDomainDriver ? cu::kKindDriver : cu::kKindRuntime;
    if (!On(kind) && state.functions[domain - 1].count(id) == 0) return;
    cu::ApiRecord record{};
    record.kind = kind;
    record.callback = id;
    record.start = begin;
    record.end = Timestamp();
    record.process = static_cast<std::uint32_t>(getpid());
    record.thread = ThreadId();
    record.correlation = correlation;
    Put(kind, Cut(record));
  }
};

void SleepUntil(std::int64_t raw_ns) {
  for (;;) {
    const std::int64_t left = raw_ns - RawNs();
    if (left <= 0) return;
    const timespec wait{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    nanosleep(&wait, nullptr);
  }
}

// Reserves a stretch on a stream.
std::int64_t Begin(std::uint32_t stream, std::int64_t duration_ns) {
  State& state = TheState();
  std::int64_t& end = state.stream_end_ns[stream];
  const std::int64_t begin = std::max(end, RawNs() + kLaunchLatencyNs);
  end = begin + duration_ns;
  return begin;
}

void Later(std::uint32_t kind, const std::vector<std::uint8_t>& record, std::uint32_t begin_at, std::uint32_t end_at,
           std::int64_t begin_ns, std::int64_t end_ns) {
  if (On(kind) && !record.empty()) PutWork(kind, record, begin_at, end_at, begin_ns, end_ns);
}

void Kernel(std::uint32_t stream, const fake_gpu_kernel& kernel, std::uint32_t correlation) {
  const std::int64_t begin = Begin(stream, kernel.duration_ns);
  cu::KernelRecord record{};
  record.kind = cu::kKindConcurrentKernel;
  record.registers_per_thread = static_cast<std::uint16_t>(kernel.registers_per_thread);
  record.context = kContext;
  record.stream = stream;
  std::copy_n(kernel.grid, 3, record.grid);
  std::copy_n(kernel.block, 3, record.block);
  record.static_shared_bytes = static_cast<std::int32_t>(kernel.static_shared_bytes);
  record.dynamic_shared_bytes = static_cast<std::int32_t>(kernel.dynamic_shared_bytes);
  record.correlation = correlation;
  record.name = kernel.name;
  record.graph_node = kernel.graph_node;
  record.graph = kernel.graph;
  std::copy_n(kernel.cluster, 3, record.cluster);
  Later(cu::kKindConcurrentKernel, Cut(record), offsetof(cu::KernelRecord, start), offsetof(cu::KernelRecord, end),
        begin, begin + kernel.duration_ns);
}

std::uint32_t Synchronize(std::uint32_t function, std::uint32_t type, std::uint32_t stream, std::uint32_t event,
                          std::int64_t until_ns) {
  State& state = TheState();
  state.lock.lock();
  const Call call(function);
  state.lock.unlock();
  SleepUntil(until_ns);
  const std::lock_guard guard(state.lock);
  if (On(cu::kKindSynchronization)) {
    cu::SyncRecord record{};
    record.kind = cu::kKindSynchronization;
    record.type = type;
    record.start = call.begin;
    record.end = Timestamp();
    record.correlation = call.correlation;
    record.context = kContext;
    record.stream = stream;
    record.event = event;
    record.event_sync = event != 0 ? state.events[event].sync : 0;
    Put(cu::kKindSynchronization, Cut(record));
  }
  call.End();
  return call.correlation;
}

}  // namespace
}  // namespace lockstep::fake

using namespace lockstep::fake;

#pragma GCC visibility push(default)
extern "C" {

int fake_gpu_init(void) {
  static const int result = [] {
    const char* path = getenv("CUDA_INJECTION64_PATH");
    int answer = 0;
    if (path != nullptr && *path != 0) {
      void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      auto* inject = library != nullptr ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
      answer = inject != nullptr && inject() != 0 ? 0 : 1;
    }
    const std::lock_guard guard(TheState().lock);
    if (On(cu::kKindDevice)) {
      cu::DeviceRecord record{};
      record.kind = cu::kKindDevice;
      record.memory_bytes = std::uint64_t{141} << 30;
      record.memory_bandwidth = 4'800'000'000;
      record.threads_per_warp = 32;
      record.core_clock_khz = 1'980'000;
      record.multiprocessors = 132;
      record.max_warps_per_multiprocessor = 64;
      record.compute_major = 9;
      for (int i = 0; i < 16; ++i) record.uuid[i] = static_cast<std::uint8_t>(0xa0 + i);
      record.name = kDeviceName;
      Put(cu::kKindDevice, Cut(record));
    }
    if (On(cu::kKindContext)) {
      cu::ContextRecord record{};
      record.kind = cu::kKindContext;
      record.context = kContext;
      record.api = 1;
      record.null_stream = FAKE_GPU_DEFAULT_STREAM;
      Put(cu::kKindContext, Cut(record));
    }
    return answer;
  }();
  return result;
}

uint32_t fake_gpu_stream_create(void) {
  fake_gpu_init();
  const std::lock_guard guard(TheState().lock);
  return TheState().next_stream++;
}

uint32_t fake_gpu_event_create(void) {
  fake_gpu_init();
  const std::lock_guard guard(TheState().lock);
  return TheState().next_event++;
}

uint32_t fake_gpu_launch_kernel(uint32_t stream, const struct fake_gpu_kernel* kernel) {
  fake_gpu_init();
  const std::lock_guard guard(TheState().lock);
  const Call call(kernel->driver != 0 ? 307 : 211, kernel->driver != 0 ? cu::kDomainDriver : cu::kDomainRuntime);
  Kernel(stream, *kernel, call.correlation);
  call.End();
  return call.correlation;
}

uint32_t fake_gpu_launch(uint32_t stream, const char* name, int64_t duration_ns) {
  fake_gpu_kernel kernel{};
  kernel.name = name;
  kernel.duration_ns = duration_ns;
  kernel.grid[0] = 80;
  kernel.block[0] = 256;
  for (int i = 1; i < 3; ++i) kernel.grid[i] = kernel.block[i] = 1;
  kernel.registers_per_thread = 40;
  return fake_gpu_launch_kernel(stream, &kernel);
}

int64_t fake_gpu_begin(uint32_t stream, const char* name) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  fake_gpu_launch(stream, name, kOpenNs);
  return state.stream_end_ns[stream] - kOpenNs;
}

void fake_gpu_end(uint32_t stream, int64_t end_ns) {
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  std::int64_t& end = state.stream_end_ns[stream];
  // Not there if kernels are not recorded, or if a forced flush gave its record back as it was.
  for (Pending& work : state.pending)
    if (work.end_ns == end) work.end_ns = end_ns;
  end = end_ns;
}

uint32_t fake_gpu_graph_launch(uint32_t stream, uint32_t graph, const struct fake_gpu_kernel* kernels, int count) {
  fake_gpu_init();
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  const Call call(311);
  // Before 13.1 Update 1 "incorrect correlation IDs for cudaGraphLaunch API calls and their associated kernel launches
  // in profiling sessions after the first session" (its release notes): here those of an earlier call.
  const std::uint32_t correlation =
      state.version < 130101 && state.sessions > 1 ? call.correlation - 7 : call.correlation;
  std::int64_t begin = 0;
  const bool whole = On(cu::kKindGraphTrace);
  for (int i = 0; i < count; ++i) {
    if (whole) {
      const std::int64_t at = Begin(stream, kernels[i].duration_ns);
      if (i == 0) begin = at;
      continue;
    }
    if (state.graph_level) {  // It takes its time, and nobody records it.
      Begin(stream, kernels[i].duration_ns);
      continue;
    }
    fake_gpu_kernel kernel = kernels[i];
    kernel.graph = graph;
    if (kernel.graph_node == 0) kernel.graph_node = (std::uint64_t{graph} << 32) + static_cast<std::uint64_t>(i) + 1;
    Kernel(stream, kernel, correlation);
  }
  if (whole && count > 0) {
    cu::GraphRecord record{};
    record.kind = cu::kKindGraphTrace;
    record.correlation = call.correlation;
    record.graph = graph;
    record.context = kContext;
    record.stream = stream;
    Later(cu::kKindGraphTrace, Cut(record), offsetof(cu::GraphRecord, start), offsetof(cu::GraphRecord, end), begin,
          state.stream_end_ns[stream]);
  }
  call.End();
  return call.correlation;
}

uint32_t fake_gpu_copy(uint32_t stream, int kind, uint64_t bytes, int64_t duration_ns) {
  fake_gpu_init();
  const std::lock_guard guard(TheState().lock);
  const Call call(kind == 10 ? 161 : 41);
  const std::int64_t begin = Begin(stream, duration_ns);
  if (kind == 10) {
    cu::PeerCopyRecord record{};
    record.kind = cu::kKindMemcpyPeer;
    record.copy_kind = 10;
    record.source_kind = record.destination_kind = 3;
    record.flags = 1;
    record.bytes = bytes;
    record.context = kContext;
    record.stream = stream;
    record.destination_device = 1;
    record.correlation = call.correlation;
    Later(cu::kKindMemcpyPeer, Cut(record), offsetof(cu::PeerCopyRecord, start), offsetof(cu::PeerCopyRecord, end),
          begin, begin + duration_ns);
  } else {
    cu::CopyRecord record{};
    record.kind = cu::kKindMemcpy;
    record.copy_kind = static_cast<std::uint8_t>(kind);
    record.source_kind = kind == 1 ? 2 : 3;
    record.destination_kind = kind == 2 ? 2 : 3;
    record.flags = 1;
    record.bytes = bytes;
    record.context = kContext;
    record.stream = stream;
    record.correlation = call.correlation;
    Later(cu::kKindMemcpy, Cut(record), offsetof(cu::CopyRecord, start), offsetof(cu::CopyRecord, end), begin,
          begin + duration_ns);
  }
  call.End();
  return call.correlation;
}

uint32_t fake_gpu_memset(uint32_t stream, uint64_t bytes, int64_t duration_ns) {
  fake_gpu_init();
  const std::lock_guard guard(TheState().lock);
  const Call call(51);
  const std::int64_t begin = Begin(stream, duration_ns);
  cu::MemsetRecord record{};
  record.kind = cu::kKindMemset;
  record.bytes = bytes;
  record.context = kContext;
  record.stream = stream;
  record.correlation = call.correlation;
  record.flags = 1;
  record.memory_kind = 3;
  Later(cu::kKindMemset, Cut(record), offsetof(cu::MemsetRecord, start), offsetof(cu::MemsetRecord, end), begin,
        begin + duration_ns);
  call.End();
  return call.correlation;
}

uint32_t fake_gpu_event_record(uint32_t stream, uint32_t event) {
  fake_gpu_init();
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  const Call call(135);
  const std::int64_t at = std::max(state.stream_end_ns[stream], RawNs() + kLaunchLatencyNs);
  state.stream_end_ns[stream] = at;
  state.events[event] = {stream, at, state.next_sync++};
  cu::EventRecord record{};
  record.kind = cu::kKindCudaEvent;
  record.correlation = call.correlation;
  record.context = kContext;
  record.stream = stream;
  record.event = event;
  record.event_sync = state.events[event].sync;
  const bool timed = state.event_timestamps && state.version >= 26;
  Later(cu::kKindCudaEvent, Cut(record), timed ? offsetof(cu::EventRecord, device_timestamp) : 0, 0, at, at);
  call.End();
  return call.correlation;
}

uint32_t fake_gpu_stream_wait(uint32_t stream, uint32_t event) {
  fake_gpu_init();
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  const Call call(147);
  std::int64_t& end = state.stream_end_ns[stream];
  end = std::max(end, state.events[event].at_ns);
  if (On(cu::kKindSynchronization)) {
    cu::SyncRecord record{};
    record.kind = cu::kKindSynchronization;
    record.type = 2;
    record.start = record.end = Timestamp();
    record.correlation = call.correlation;
    record.context = kContext;
    record.stream = stream;
    record.event = event;
    record.event_sync = state.events[event].sync;
    Put(cu::kKindSynchronization, Cut(record));
  }
  call.End();
  return call.correlation;
}

int64_t fake_gpu_stream_end_ns(uint32_t stream) {
  const std::lock_guard guard(TheState().lock);
  return TheState().stream_end_ns[stream];
}

uint32_t fake_gpu_stream_synchronize(uint32_t stream) {
  fake_gpu_init();
  return Synchronize(131, 3, stream, 0, fake_gpu_stream_end_ns(stream));
}

uint32_t fake_gpu_event_synchronize(uint32_t event) {
  fake_gpu_init();
  TheState().lock.lock();
  const std::int64_t at = TheState().events[event].at_ns;
  const std::uint32_t stream = TheState().events[event].stream;
  TheState().lock.unlock();
  return Synchronize(137, 1, stream, event, at);
}

uint32_t fake_gpu_device_synchronize(void) {
  fake_gpu_init();
  std::int64_t last = 0;
  {
    const std::lock_guard guard(TheState().lock);
    for (const auto& [stream, end] : TheState().stream_end_ns) last = std::max(last, end);
  }
  return Synchronize(165, 4, 0xffffffffu, 0, last);
}

static void Memory(std::uint32_t operation, uint64_t address, uint64_t bytes, std::uint32_t correlation) {
  if (!On(cu::kKindMemory2)) return;
  cu::MemoryRecord2 record{};
  record.kind = cu::kKindMemory2;
  record.operation = operation;
  record.memory_kind = 3;
  record.correlation = correlation;
  record.address = address;
  record.bytes = bytes;
  record.timestamp = Timestamp();
  record.process = static_cast<std::uint32_t>(getpid());
  record.context = kContext;
  Put(cu::kKindMemory2, Cut(record));
}

uint64_t fake_gpu_malloc(uint64_t bytes) {
  fake_gpu_init();
  State& state = TheState();
  const std::lock_guard guard(state.lock);
  const Call call(20);
  const std::uint64_t address = state.next_address;
  state.next_address += (bytes + 511) / 512 * 512;
  Memory(1, address, bytes, call.correlation);
  call.End();
  return address;
}

void fake_gpu_free(uint64_t address, uint64_t bytes) {
  fake_gpu_init();
  const std::lock_guard guard(TheState().lock);
  const Call call(22);
  Memory(2, address, bytes, call.correlation);
  call.End();
}

void fake_gpu_driver_call(uint32_t id) {
  const std::lock_guard guard(TheState().lock);
  const Call call(id, cu::kDomainDriver);
  call.End();
}

void fake_gpu_query(uint32_t) {
  fake_gpu_init();
  const std::lock_guard guard(TheState().lock);
  const Call call(138);
  call.End();
}

}  // extern "C"
#pragma GCC visibility pop
