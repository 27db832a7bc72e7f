// Converts each kind of CUPTI's records to ours.

#include <dlfcn.h>
#include <string.h>

#include <algorithm>

#include "core/schema_enums.h"
#include "runtime/cupti/decode.h"

namespace lockstep::cupti {
namespace {

constexpr std::uint16_t kNoDevice = 65535;

std::uint16_t DeviceId(std::uint32_t device) {
  return device < kNoDevice ? static_cast<std::uint16_t>(device) : kNoDevice;
}

// copies.kind of CUpti_ActivityMemcpyKind. Arrays are device memory.
std::uint8_t CopyKind(std::uint8_t kind) {
  constexpr std::uint8_t kKinds[] = {0, 1, 2, 1, 2, 3, 3, 3, 3, 5, 4};
  return kind < sizeof kKinds ? kKinds[kind] : 0;
}

// copies.host_memory of CUpti_ActivityMemoryKind.
std::uint8_t HostMemory(std::uint8_t kind) {
  switch (kind) {
    case 1:
      return 1;
    case 2:
      return 2;
    case 5:
    case 7:
      return 3;
    default:
      return 0;
  }
}

std::uint8_t OverheadKind(std::uint32_t kind) {
  switch (kind) {
    case 1:
      return 1;
    case 1u << 16:
      return 2;
    case 2u << 16:
      return 3;
    case 3u << 16:
      return 4;
    case 4u << 16:
    case 5u << 16:
      return 5;
    case 6u << 16:
      return 6;
    case 7u << 16:
      return 7;
    default:
      return 0;
  }
}

const char* MemoryKindName(std::uint32_t kind) {
  constexpr const char* kNames[] = {nullptr, "pageable", "pinned",        "device",
                                    "array", "managed",  "device static", "managed static"};
  return kind < sizeof kNames / sizeof *kNames ? kNames[kind] : nullptr;
}

// As cuDriverGetVersion numbers it; 0 if there is no driver (a replayed file).
std::uint32_t DriverVersion() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return 0;
  auto* get = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  const bool known = get != nullptr && get(&version) == 0;
  dlclose(driver);
  return known ? static_cast<std::uint32_t>(version) : 0;
}

// The fields of all copies; the graph's node exists from `node_bytes` on, its id from 8 bytes more.
template <typename Record>
void FillCopy(const Record& record, std::uint32_t correlation, std::uint64_t begin, std::uint64_t end,
              std::uint32_t bytes, std::uint32_t node_bytes, GpuCopyRecord& copy) {
  copy.begin_ticks = begin;
  copy.end_ticks = end;
  copy.correlation = correlation;
  copy.stream = record.stream;
  copy.context = record.context;
  copy.bytes = record.bytes;
  if (bytes >= node_bytes) copy.graph_node = record.graph_node;
  if (bytes >= node_bytes + 8) copy.graph = record.graph;
}

}  // namespace

// The launch that GPU work names, 0 if that is not to be believed.
std::uint32_t Decoder::LaunchOf(std::uint32_t correlation, bool graph, std::uint64_t ticks) {
  if (!graph || !graphs_distrusted_) return correlation;
  // Else PlaceByTime counts it.
  if (windows_.Constant())
    output_.Lose(Loss::kGpuLaunchUnknown, "work of CUDA graphs: after another profiler this CUPTI names wrong launches",
                 1, ticks, ticks);
  return 0;
}

template <typename Ours>
void Decoder::Put(Place place, const char* what, std::uint64_t ticks, const Ours& record) {
  if (place == Place::kKeep) return static_cast<void>(output_.Write(record));
  if (PendingRecord* pending = pending_.Add(); pending != nullptr) {
    memcpy(pending->record, static_cast<const void*>(&record), sizeof record);
    pending->what = what;
    pending->ticks = ticks;
    pending->correlation = record.correlation;
    pending->round = round_;
    return;
  }
  if (PlaceByTime(what, ticks) == Place::kKeep) output_.Write(record);
}

void Decoder::Kernel(const KernelRecord& record, std::uint32_t bytes) {
  std::uint64_t begin = record.start, end = record.end;
  if (!Times("kernels", begin, end)) return;
  const std::uint32_t correlation = LaunchOf(record.correlation, bytes >= 160 && record.graph_node != 0, begin);
  const Place place = PlaceOf("kernels", correlation, begin);
  if (place == Place::kDrop) return WriteAfterWindow(correlation, begin, end);
  GpuShapeRecord shape{};
  std::copy_n(record.grid, 3, shape.grid);
  std::copy_n(record.block, 3, shape.block);
  shape.registers_per_thread = record.registers_per_thread;
  shape.static_shared_bytes = static_cast<std::uint32_t>(std::max(record.static_shared_bytes, 0));
  shape.dynamic_shared_bytes = static_cast<std::uint32_t>(std::max(record.dynamic_shared_bytes, 0));
  shape.local_bytes_per_thread = record.local_bytes_per_thread;
  if (bytes >= 200) shape.cluster_size = record.cluster[0] * record.cluster[1] * record.cluster[2];
  GpuKernelRecord kernel{};
  kernel.head = {RecordKind::kGpuKernel, 0, 2};
  kernel.name = output_.Name(record.name);
  kernel.begin_ticks = begin;
  kernel.end_ticks = end;
  kernel.correlation = correlation;
  kernel.stream = record.stream;
  kernel.context = record.context;
  kernel.shape = output_.Shape(shape);
  kernel.device = DeviceId(record.device);
  if (bytes >= 160) {
    kernel.graph_node = record.graph_node;
    kernel.graph = record.graph;
  }
  Put(place, "kernels", begin, kernel);
}

void Decoder::Copy(const CopyRecord& record, std::uint32_t bytes) {
  std::uint64_t begin = record.start, end = record.end;
  if (!Times("copies", begin, end)) return;
  const std::uint32_t correlation = LaunchOf(record.correlation, bytes >= 72 && record.graph_node != 0, begin);
  const Place place = PlaceOf("copies", correlation, begin);
  if (place == Place::kDrop) return;
  GpuCopyRecord copy{};
  copy.head = {RecordKind::kGpuCopy, static_cast<std::uint8_t>(record.flags & 1), 2};
  copy.kind = CopyKind(record.copy_kind);
  const bool from_host = copy.kind == schema::CopyKind::kHostToDevice || copy.kind == schema::CopyKind::kHostToHost;
  const bool to_host = copy.kind == schema::CopyKind::kDeviceToHost || copy.kind == schema::CopyKind::kHostToHost;
  if (from_host) copy.host_memory = HostMemory(record.source_kind);
  if (to_host && copy.host_memory == schema::HostMemory::kUnknown)
    copy.host_memory = HostMemory(record.destination_kind);
  copy.device = DeviceId(record.device);
  copy.source_device = from_host || copy.kind == schema::CopyKind::kUnknown ? kNoDevice : copy.device;
  copy.destination_device = to_host || copy.kind == schema::CopyKind::kUnknown ? kNoDevice : copy.device;
  FillCopy(record, correlation, begin, end, bytes, 72, copy);
  Put(place, "copies", begin, copy);
}

void Decoder::PeerCopy(const PeerCopyRecord& record, std::uint32_t bytes) {
  std::uint64_t begin = record.start, end = record.end;
  if (!Times("copies", begin, end)) return;
  const std::uint32_t correlation = LaunchOf(record.correlation, bytes >= 80 && record.graph_node != 0, begin);
  const Place place = PlaceOf("copies", correlation, begin);
  if (place == Place::kDrop) return;
  GpuCopyRecord copy{};
  copy.head = {RecordKind::kGpuCopy, static_cast<std::uint8_t>(record.flags & 1), 2};
  copy.kind = schema::CopyKind::kPeer;
  copy.device = DeviceId(record.device);
  copy.source_device = DeviceId(record.source_device);
  copy.destination_device = DeviceId(record.destination_device);
  FillCopy(record, correlation, begin, end, bytes, 80, copy);
  Put(place, "copies", begin, copy);
}

void Decoder::Memset(const MemsetRecord& record, std::uint32_t bytes) {
  std::uint64_t begin = record.start, end = record.end;
  if (!Times("memsets", begin, end)) return;
  const std::uint32_t correlation = LaunchOf(record.correlation, bytes >= 72 && record.graph_node != 0, begin);
  const Place place = PlaceOf("memsets", correlation, begin);
  if (place == Place::kDrop) return;
  GpuCopyRecord copy{};
  copy.head = {RecordKind::kGpuCopy, static_cast<std::uint8_t>(record.flags & 1), 2};
  copy.kind = schema::CopyKind::kMemset;
  copy.host_memory = HostMemory(static_cast<std::uint8_t>(record.memory_kind));
  copy.device = DeviceId(record.device);
  copy.source_device = kNoDevice;
  // Memory that only the host owns was nevertheless written by the device.
  copy.destination_device = copy.device;
  FillCopy(record, correlation, begin, end, bytes, 72, copy);
  Put(place, "memsets", begin, copy);
}

void Decoder::Sync(const SyncRecord& record, std::uint32_t bytes) {
  std::uint64_t begin = record.start, end = record.end;
  constexpr std::uint32_t kStreamWaitEvent = 2;
  // A wait of a stream is a dependency: its time is that of its call, found through the correlation.
  Place place = Place::kKeep;
  if (record.type == kStreamWaitEvent && (begin == 0 || end == 0)) {
    place = PlaceOf("stream waits", record.correlation, NearTicks());
    if (place == Place::kDrop) return;
    begin = end = 0;
  } else if (!HostOn("synchronisations", begin, end)) {
    return;
  }
  GpuSyncRecord sync{};
  sync.head = {RecordKind::kGpuSync, static_cast<std::uint8_t>(record.type <= 4 ? record.type : 0), 2};
  sync.correlation = record.correlation;
  sync.begin_ticks = begin;
  sync.end_ticks = end;
  sync.context = record.context;
  sync.stream = record.stream;  // CUPTI's value for "none" is the same as ours.
  sync.event = record.event == 0xffffffffu ? 0 : record.event;
  sync.device = kNoDevice;
  if (bytes >= 56) sync.event_sync = record.event_sync;
  Put(place, "stream waits", begin != 0 ? begin : NearTicks(), sync);
}

void Decoder::Event(const EventRecord& record, std::uint32_t bytes) {
  GpuSyncRecord sync{};
  sync.head = {RecordKind::kGpuSync, 5, 2};
  sync.correlation = record.correlation;
  sync.context = record.context;
  sync.stream = record.stream;
  sync.event = record.event;
  sync.device = kNoDevice;
  std::uint64_t ticks = 0;
  if (bytes >= 56) {
    sync.device = DeviceId(record.device);
    sync.event_sync = record.event_sync;
    ticks = scale_.Ticks(record.device_timestamp);
    // A record without a time, or with one of another clock, gets the time of its call, found by the correlation.
    if (ticks < low_ticks_ || ticks > high_ticks_) ticks = 0;
  }
  const std::uint64_t when = ticks != 0 ? ticks : NearTicks();
  const Place place = PlaceOf("event records", record.correlation, when);
  sync.begin_ticks = sync.end_ticks = ticks;
  if (place != Place::kDrop) Put(place, "event records", when, sync);
}

Decoder::Function Decoder::FunctionOf(int domain, std::uint32_t callback) {
  if (callback >= kMostCallbacks || api_.get_callback_name == nullptr) return {};
  Function& function = functions_[domain - 1][callback];
  if (function.known == 0) {
    const char* name = nullptr;
    char plain[128];
    if (api_.get_callback_name(domain, callback, &name) == kSuccess && name != nullptr &&
        PlainName(name, plain, sizeof plain)) {
      function.kind = KindOfFunction(name);
      if (function.kind != schema::ApiKind::kOther) {
        function.name = output_.Name(plain);
        if (function.name == 0) return function;  // There was no space: tried again later.
      }
    }
    function.known = 1;
  }
  return function;
}

void Decoder::Call(const ApiRecord& record) {
  const bool driver = record.kind == kKindDriver;
  if (driver && heartbeat_ != 0 && record.callback == heartbeat_) {
    ++heartbeats_;
    return;
  }
  const Function function = FunctionOf(driver ? kDomainDriver : kDomainRuntime, record.callback);
  std::uint64_t begin = record.start, end = record.end;
  if (function.kind ==
      // Libraries before CUDA 12.5 cannot leave these calls out. Some of them launch something.
      schema::ApiKind::kOther) {
    begin = scale_.Ticks(begin);
    if (begin >= low_ticks_ && begin <= high_ticks_) launches_.Note(record.correlation, windows_.On(begin));
    return;
  }
  if (!Times("calls", begin, end)) return;
  const bool on = windows_.On(begin);
  const bool distrusted = graphs_distrusted_ && function.kind == schema::ApiKind::kGraphLaunch;
  if (!distrusted) launches_.Note(record.correlation, on);
  if (!on) {
    if ((function.kind == schema::ApiKind::kLaunch || function.kind == schema::ApiKind::kGraphLaunch) &&
        record.result == 0)
      after_window_.Launch(windows_.OffSince(begin), begin, record.correlation);
    return output_.Lose(Loss::kGpuOutOfWindow, "calls", 1, begin, end);
  }
  struct {
    GpuApiRecord call;
    GpuApiResult result;
  } both{};
  const bool failed = record.result != 0;
  both.call.head = {RecordKind::kGpuApi, static_cast<std::uint8_t>(function.kind | (driver ? 128 : 0)),
                    static_cast<std::uint16_t>(failed ? 2 : 1)};
  both.call.name = function.name;
  both.call.begin_ticks = begin;
  both.call.end_ticks = end;
  both.call.correlation = distrusted ? 0 : record.correlation;
  both.call.tid = record.thread;
  both.result.result = static_cast<std::int32_t>(record.result);
  if (failed)
    output_.Write(both);
  else
    output_.Write(both.call);
}

void Decoder::Overhead(const OverheadRecord& record) {
  std::uint64_t begin = record.start, end = record.end;
  if (!HostOn("overheads", begin, end)) return;
  GpuOverheadRecord overhead{};
  overhead.head = {RecordKind::kGpuOverhead, OverheadKind(record.overhead), 1};
  overhead.tid = record.object_kind == kObjectThread ? record.object[1] : 0;
  overhead.begin_ticks = begin;
  overhead.end_ticks = end;
  output_.Write(overhead);
}

// Written whether recording is on or not, because it describes the process.
void Decoder::Device(const DeviceRecord& record) {
  GpuDeviceRecord device{};
  device.head = {RecordKind::kGpuDevice, 0, 3};
  device.name = output_.Name(record.name);
  device.memory_bytes = record.memory_bytes;
  memcpy(device.uuid, record.uuid, sizeof device.uuid);
  device.sm_count = record.multiprocessors;
  device.max_threads_per_sm = record.max_warps_per_multiprocessor * record.threads_per_warp;
  device.device = DeviceId(record.id);
  device.compute_major = static_cast<std::uint16_t>(record.compute_major);
  device.compute_minor = static_cast<std::uint16_t>(record.compute_minor);
  device.driver_version = DriverVersion();
  device.cupti_version = api_.version;
  device.core_clock_khz = record.core_clock_khz;
  device.memory_bandwidth_bytes_per_second = record.memory_bandwidth * 1000;
  output_.Write(device);
  if (record.id >= kMostDevices) return;
  memcpy(uuids_[record.id], record.uuid, sizeof record.uuid);
  for (std::uint32_t i = 0; i < used_devices_.used; ++i)
    if (used_devices_.id[i] == record.id) memcpy(used_devices_.uuid[i], record.uuid, sizeof record.uuid);
}

void Decoder::UseDevice(std::uint32_t device) {
  Devices& used = used_devices_;
  for (std::uint32_t i = 0; i < used.used; ++i)
    if (used.id[i] == device) return;
  if (used.used == 4 || device >= kMostDevices) return;
  used.id[used.used] = static_cast<std::uint16_t>(device);
  memcpy(used.uuid[used.used], uuids_[device], sizeof uuids_[device]);
  used.used += 1;
}

void Decoder::Graph(const GraphRecord& record) {
  WholeGraph("graphs", record.start, record.end, record.correlation, record.graph, record.device, record.context,
             record.stream);
}

// The GPU launched it, so no call of the host leads to it.
void Decoder::DeviceGraph(const DeviceGraphRecord& record) {
  WholeGraph("graphs that the GPU launched", record.start, record.end, 0, record.graph, record.device, record.context,
             static_cast<std::uint32_t>(record.stream));
}

void Decoder::WholeGraph(const char* what, std::uint64_t begin, std::uint64_t end, std::uint32_t correlation,
                         std::uint32_t graph, std::uint32_t device, std::uint32_t context, std::uint32_t stream) {
  if (!Times(what, begin, end)) return;
  correlation = LaunchOf(correlation, correlation != 0, begin);
  const Place place = PlaceOf(what, correlation, begin);
  if (place == Place::kDrop) return WriteAfterWindow(correlation, begin, end);
  GpuKernelRecord kernel{};
  kernel.head = {RecordKind::kGpuKernel, kGpuWholeGraph, 2};
  kernel.name = output_.Name("CUDA graph");
  kernel.begin_ticks = begin;
  kernel.end_ticks = end;
  kernel.correlation = correlation;
  kernel.stream = stream;
  kernel.context = context;
  kernel.device = DeviceId(device);
  kernel.graph = graph;
  Put(place, what, begin, kernel);
}

void Decoder::Memory(const MemoryRecord2& record, std::uint32_t bytes) {
  if (record.operation != 1 && record.operation != 2) return;
  std::uint64_t begin = record.timestamp, end = record.timestamp;
  if (!HostOn("memory operations", begin, end)) return;
  GpuMemoryRecord memory{};
  memory.head = {RecordKind::kGpuMemory, static_cast<std::uint8_t>(record.operation), 2};
  memory.name = output_.Name(MemoryKindName(record.memory_kind));
  memory.ticks = begin;
  memory.address = record.address;
  memory.bytes = record.bytes;
  memory.correlation = record.correlation;
  // 1 pageable and 2 pinned belong to the host.
  memory.device = record.memory_kind == 1 || record.memory_kind == 2 ? kNoDevice : DeviceId(record.device);
  if (record.pool_type == 1) {
    memory.pool_reserved_bytes = record.pool_bytes;
    if (bytes >= 120) memory.pool_used_bytes = record.pool_used_bytes;
  }
  output_.Write(memory);
}

}  // namespace lockstep::cupti
