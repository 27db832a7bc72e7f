// Converts CUPTI's tables of a report: kernels, copies, waits, calls, memory, devices.

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "core/comm_kernels.h"
#include "ingest/map/names.h"
#include "ingest/nsys/map/context.h"
#include "ingest/nsys/map/places.h"
#include "trace/decode/sort_rows.h"
#include "trace/file/strings.h"

namespace lockstep::nsys {
namespace {

using schema::kNone;

constexpr std::uint16_t kHost = 65535;  // As gpu_memory.device.

class GpuMapper {
 public:
  explicit GpuMapper(Context& context) : context_(context), t_(context.tables()) {}

  std::uint64_t Run() {
    Kernels();
    const std::size_t kernels = t_.kernels.rows();
    Graphs();
    Copies();
    const std::size_t copies = t_.copies.rows();
    Memsets();
    Syncs();
    Calls();
    Memory();
    Places(kernels, copies);
    trace::SortRows(t_.kernels, t_.kernels.begin_ns);
    trace::SortRows(t_.copies, t_.copies.begin_ns);
    trace::SortRows(t_.sync, t_.sync.begin_ns);
    trace::SortRows(t_.api, t_.api.begin_ns);
    trace::SortRows(t_.gpu_memory, t_.gpu_memory.time_ns);
    FindCommunication();
    Devices();
    return graphs_;
  }

 private:
  void Kernels() {
    using Shape = std::array<std::int64_t, 10>;
    std::map<Shape, std::uint32_t> shapes;
    context_.ForRows(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {"globalPid",
         "start",
         "end",
         "deviceId",
         "contextId",
         "streamId",
         "correlationId",
         "demangledName",
         "shortName",
         "mangledName",
         "graphNodeId",
         "gridX",
         "gridY",
         "gridZ",
         "blockX",
         "blockY",
         "blockZ",
         "registersPerThread",
         "staticSharedMemory",
         "dynamicSharedMemory",
         "clusterX",
         "clusterY",
         "clusterZ"},
        [&](const Rows& row) {
          Span span;
          if (!context_.Times(row.Int(1), row.Int(2), false, span)) return;
          std::uint32_t name = kNone;
          for (int column = 7; column <= 9 && name == kNone; ++column) name = context_.Text(row.Int(column));
          std::uint32_t shape = kNone;
          if (row.Int(11) > 0 && row.Int(14) > 0) {
            Shape key{};
            for (int i = 0; i < 9; ++i) key[static_cast<std::size_t>(i)] = row.Int(11 + i);
            if (row.Int(20) > 0 && row.Int(20) < 65536)
              key[9] = row.Int(20) * std::max<std::int64_t>(1, std::min<std::int64_t>(row.Int(21), 65535)) *
                       std::max<std::int64_t>(1, std::min<std::int64_t>(row.Int(22), 65535));
            const auto [at, fresh] = shapes.try_emplace(key, static_cast<std::uint32_t>(t_.kernel_shapes.rows()));
            if (fresh) {
              const auto small = [&](std::size_t i) { return static_cast<std::int32_t>(Id32(key[i], 0) & 0x7fffffff); };
              t_.kernel_shapes.Append({.grid_x = small(0),
                                       .grid_y = small(1),
                                       .grid_z = small(2),
                                       .block_x = small(3),
                                       .block_y = small(4),
                                       .block_z = small(5),
                                       .registers_per_thread = Id32(key[6], 0),
                                       .static_shared_bytes = Id32(key[7], 0),
                                       .dynamic_shared_bytes = Id32(key[8], 0),
                                       .cluster_size = Id32(key[9], 0),
                                       .occupancy_percent = -1});
            }
            shape = at->second;
          }
          t_.kernels.Append({.begin_ns = span.begin_ns,
                             .duration_ns = span.duration_ns,
                             .device = DeviceOf(row.Int(3)),
                             .context = Id32(row.Int(4), 0),
                             .stream = Id32(row.Int(5), 0),
                             .correlation = Positive(row.Int(6)),
                             .name = name,
                             .shape = shape,
                             .work = schema::Work::kCompute,
                             .work_rule = schema::WorkRule::kDefault,
                             .graph_node = Positive(row.Int(10)),
                             .vendor = schema::Vendor::kNvidia});
        });
  }

  // --cuda-graph-trace=graph: one interval for all of a graph, whatever ran in it.
  void Graphs() {
    context_.ForRows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
                     {"globalPid", "start", "end", "deviceId", "contextId", "streamId", "correlationId", "graphId"},
                     [&](const Rows& row) {
                       Span span;
                       if (!context_.Times(row.Int(1), row.Int(2), false, span)) return;
                       ++graphs_;
                       const std::string name =
                           row.Int(7) == kAbsent ? "CUDA graph" : "CUDA graph " + std::to_string(row.Int(7));
                       t_.kernels.Append({.begin_ns = span.begin_ns,
                                          .duration_ns = span.duration_ns,
                                          .device = DeviceOf(row.Int(3)),
                                          .context = Id32(row.Int(4), 0),
                                          .stream = Id32(row.Int(5), 0),
                                          .correlation = Positive(row.Int(6)),
                                          .name = context_.Intern(name),
                                          .shape = kNone,
                                          .vendor = schema::Vendor::kNvidia});
                     });
  }

  // ENUM_CUDA_MEMCPY_OPER -> copies.kind; arrays are device memory.
  static std::uint8_t CopyKind(std::int64_t kind) {
    static constexpr std::uint8_t kKinds[] = {0, 1, 2, 1, 2, 3, 3, 3, 3, 5, 4, 1, 2, 3};
    return kind >= 0 && kind < static_cast<std::int64_t>(std::size(kKinds)) ? kKinds[kind] : std::uint8_t{0};
  }
  // ENUM_CUDA_MEM_KIND -> copies.host_memory.
  static std::uint8_t HostMemory(std::int64_t kind) {
    return kind == 0 ? 1 : kind == 1 ? 2 : kind == 4 || kind == 6 ? 3 : 0;
  }

  void Copies() {
    context_.ForRows("CUPTI_ACTIVITY_KIND_MEMCPY",
                     {"globalPid", "start", "end", "deviceId", "contextId", "streamId", "correlationId", "bytes",
                      "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"},
                     [&](const Rows& row) {
                       Span span;
                       if (!context_.Times(row.Int(1), row.Int(2), false, span)) return;
                       const std::uint8_t kind = CopyKind(row.Int(8));
                       const std::uint16_t device = DeviceOf(row.Int(3));
                       const bool from_host = kind == 1 || kind == 5, to_host = kind == 2 || kind == 5;
                       const auto side = [&](int column, bool host) {
                         if (host || kind == 0) return -1;
                         const std::int64_t told = row.Int(column);
                         return kind == 4 && told >= 0 && told < 65535 ? static_cast<std::int32_t>(told)
                                : kind == 4                            ? -1
                                                                       : static_cast<std::int32_t>(device);
                       };
                       t_.copies.Append({.begin_ns = span.begin_ns,
                                         .duration_ns = span.duration_ns,
                                         .device = device,
                                         .context = Id32(row.Int(4), 0),
                                         .stream = Id32(row.Int(5), 0),
                                         .correlation = Positive(row.Int(6)),
                                         .kind = kind,
                                         .bytes = Positive(row.Int(7)),
                                         .source_device = side(11, from_host),
                                         .destination_device = side(12, to_host),
                                         .asynchronous = 0,
                                         .vendor = schema::Vendor::kNvidia,
                                         .host_memory = from_host ? HostMemory(row.Int(9))
                                                        : to_host ? HostMemory(row.Int(10))
                                                                  : std::uint8_t{0}});
                     });
  }

  void Memsets() {
    context_.ForRows("CUPTI_ACTIVITY_KIND_MEMSET",
                     {"globalPid", "start", "end", "deviceId", "contextId", "streamId", "correlationId", "bytes"},
                     [&](const Rows& row) {
                       Span span;
                       if (!context_.Times(row.Int(1), row.Int(2), false, span)) return;
                       t_.copies.Append({.begin_ns = span.begin_ns,
                                         .duration_ns = span.duration_ns,
                                         .device = DeviceOf(row.Int(3)),
                                         .context = Id32(row.Int(4), 0),
                                         .stream = Id32(row.Int(5), 0),
                                         .correlation = Positive(row.Int(6)),
                                         .kind = schema::CopyKind::kMemset,
                                         .bytes = Positive(row.Int(7)),
                                         .source_device = -1,
                                         .destination_device = DeviceOf(row.Int(3)),
                                         .vendor = schema::Vendor::kNvidia});
                     });
  }

  void Syncs() {
    // Finds the record to which a wait refers, if the version numbers them.
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> records;  // eventSyncId -> correlation, stream.
    context_.ForRows("CUPTI_ACTIVITY_KIND_CUDA_EVENT", {"globalPid", "eventSyncId", "correlationId", "streamId"},
                     [&](const Rows& row) {
                       if (row.Int(1) > 0 && row.Int(2) > 0) records.try_emplace(row.Int(1), row.Int(2), row.Int(3));
                     });
    context_.ForRows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                     {"globalPid", "start", "end", "deviceId", "contextId", "streamId", "correlationId", "syncType",
                      "eventId", "eventSyncId"},
                     [&](const Rows& row) {
                       Span span;
                       if (!context_.Times(row.Int(1), row.Int(2), false, span)) return;
                       const std::int64_t type = row.Int(7);  // As CUPTI's; ours are the same numbers.
                       const auto record = type == 1 || type == 2 ? records.find(row.Int(9)) : records.end();
                       const bool known = record != records.end();
                       t_.sync.Append({.begin_ns = span.begin_ns,
                                       .duration_ns = span.duration_ns,
                                       .kind = static_cast<std::uint8_t>(type >= 1 && type <= 4 ? type : 0),
                                       .device = DeviceOf(row.Int(3)),
                                       .context = Id32(row.Int(4), 0),
                                       .stream = Id32(row.Int(5), kNone),
                                       .event = Positive(row.Int(8)),
                                       .correlation = Positive(row.Int(6)),
                                       .vendor = schema::Vendor::kNvidia,
                                       .record_correlation = known ? Positive(record->second.first) : 0,
                                       .record_stream = known ? Id32(record->second.second, kNone) : kNone});
                     });
  }

  void Calls() {
    std::map<std::uint32_t, std::uint8_t> kinds;
    context_.ForRows(
        "CUPTI_ACTIVITY_KIND_RUNTIME", {"globalTid", "start", "end", "nameId", "correlationId", "returnValue"},
        [&](const Rows& row) {
          Span span;
          if (!context_.Times(row.Int(1), row.Int(2), false, span)) return;
          const std::uint32_t name = context_.Text(row.Int(3));
          const auto [kind, fresh] = kinds.try_emplace(name, std::uint8_t{0});
          if (fresh && name != kNone) kind->second = ingest::ApiKind(lockstep::trace::TextOf(t_, name));
          const std::int64_t result = row.Int(5);
          t_.api.Append({.begin_ns = span.begin_ns,
                         .duration_ns = span.duration_ns,
                         .thread = context_.Thread(row.Int(0), span),
                         .name = name,
                         .kind = kind->second,
                         .correlation = Positive(row.Int(4)),
                         .result = result > INT32_MIN && result <= INT32_MAX ? static_cast<std::int32_t>(result) : 0,
                         .vendor = schema::Vendor::kNvidia});
        });
  }

  void Memory() {
    context_.ForRows("CUDA_GPU_MEMORY_USAGE_EVENTS",
                     {"globalPid", "start", "deviceId", "address", "bytes", "memKind", "memoryOperationType",
                      "contextId", "streamId"},
                     [&](const Rows& row) {
                       Span span;
                       if (!context_.Times(row.Int(1), row.Int(1), false, span)) return;
                       const std::int64_t operation = row.Int(6);
                       if (operation != 0 && operation != 1) return context_.Unreadable();
                       const bool host = row.Int(5) == 0 || row.Int(5) == 1;
                       t_.gpu_memory.Append({.time_ns = span.begin_ns,
                                             .kind = static_cast<std::uint8_t>(operation == 0 ? 1 : 2),
                                             .device = host ? kHost : DeviceOf(row.Int(2)),
                                             .address = Positive(row.Int(3)),
                                             .bytes = static_cast<std::int64_t>(Positive(row.Int(4))),
                                             .name = kNone});
                       memory_.device.push_back(DeviceOf(row.Int(2)));
                       memory_.context.push_back(Id32(row.Int(7), 0));
                       memory_.stream.push_back(Id32(row.Int(8), kNone));
                     });
  }

  // `kernels`, `copies`: rows of their own tables; graphs and memsets follow.
  void Places(std::size_t kernels, std::size_t copies) {
    const auto part = [](auto& table, std::size_t begin, std::size_t end) {
      return PlaceColumns{std::span(table.device).subspan(begin, end - begin),
                          std::span(table.context).subspan(begin, end - begin),
                          std::span<const std::uint32_t>(table.stream).subspan(begin, end - begin)};
    };
    const PlaceColumns tables[] = {part(t_.kernels, 0, kernels),     part(t_.kernels, kernels, t_.kernels.rows()),
                                   part(t_.copies, 0, copies),       part(t_.copies, copies, t_.copies.rows()),
                                   part(t_.sync, 0, t_.sync.rows()), part(memory_, 0, memory_.device.size())};
    std::vector<std::pair<std::uint32_t, std::uint16_t>> told;
    Rows contexts =
        context_.report().database().Select("TARGET_INFO_CUDA_CONTEXT_INFO", {"processId", "contextId", "deviceId"});
    while (contexts.Next())
      if (contexts.Int(0) == context_.pid() && contexts.Int(1) > 0 && contexts.Int(2) >= 0)
        told.emplace_back(Id32(contexts.Int(1), 0), DeviceOf(contexts.Int(2)));
    FillPlaces(tables, 3, told);
    for (std::size_t i = 0; i < t_.copies.rows(); ++i) {
      if (t_.copies.kind[i] == schema::CopyKind::kPeer) continue;  // Its own columns tell both sides.
      for (auto* side : {&t_.copies.source_device, &t_.copies.destination_device})
        if ((*side)[i] >= 0) (*side)[i] = t_.copies.device[i];
    }
    for (std::size_t i = 0; i < memory_.device.size(); ++i)
      if (t_.gpu_memory.device[i] != kHost) t_.gpu_memory.device[i] = memory_.device[i];
  }

  void FindCommunication() {
    std::map<std::uint32_t, bool> by_name;
    for (std::uint32_t row = 0; row < t_.kernels.rows(); ++row) {
      const auto [at, fresh] = by_name.try_emplace(t_.kernels.name[row], false);
      if (fresh) at->second = IsCommKernelName(lockstep::trace::TextOf(t_, at->first));
      if (!at->second) continue;
      ingest::CommKernel kernel;
      kernel.row = row;
      context_.trace().comm_kernels.push_back(kernel);
    }
  }

  // The ordinals that this process used, as TARGET_INFO_CUDA_DEVICE ties them to TARGET_INFO_GPU.
  void Devices() {
    std::set<std::uint16_t> used;
    for (const auto* column : {&t_.kernels.device, &t_.copies.device, &t_.sync.device})
      used.insert(column->begin(), column->end());
    if (used.empty()) return;
    const Database& database = context_.report().database();
    std::map<std::int64_t, std::int64_t> gpu_of;
    Rows devices = database.Select("TARGET_INFO_CUDA_DEVICE", {"pid", "cudaId", "gpuId"});
    const std::int64_t pid = t_.processes.rows() > 0 ? t_.processes.pid[0] : -1;
    while (devices.Next())
      if (devices.Int(0) == pid || devices.Int(0) == kAbsent) gpu_of.try_emplace(devices.Int(1), devices.Int(2));
    std::map<std::int64_t, schema::Devices::Row> gpus;
    Rows rows = database.Select("TARGET_INFO_GPU", {"id", "name", "totalMemory", "smCount", "maxWarpsPerSm",
                                                    "threadsPerWarp", "computeMajor", "computeMinor"});
    while (rows.Next()) {
      if (rows.Int(0) == kAbsent) continue;
      const std::int64_t warps = rows.Int(4), threads = rows.Int(5);
      gpus.try_emplace(rows.Int(0), schema::Devices::Row{
                                        .name = context_.Intern(rows.Text(1)),
                                        .memory_bytes = Positive(rows.Int(2)),
                                        .sm_count = Id32(rows.Int(3), 0),
                                        .max_threads_per_sm = warps > 0 && warps < 4096 && threads > 0 && threads < 4096
                                                                  ? static_cast<std::uint32_t>(warps * threads)
                                                                  : 0,
                                        .compute_major = static_cast<std::uint16_t>(Id32(rows.Int(6), 0) & 0xffff),
                                        .compute_minor = static_cast<std::uint16_t>(Id32(rows.Int(7), 0) & 0xffff)});
    }
    for (const std::uint16_t device : used) {
      const auto tied = gpu_of.find(device);
      const auto gpu = gpus.find(tied != gpu_of.end() && tied->second != kAbsent ? tied->second : device);
      schema::Devices::Row row;
      row.name = kNone;
      if (gpu != gpus.end()) row = gpu->second;
      row.device = device;
      row.vendor = schema::Vendor::kNvidia;
      t_.devices.Append(row);
    }
  }

  Context& context_;
  schema::RankTables& t_;
  std::uint64_t graphs_ = 0;
  struct {
    std::vector<std::uint16_t> device;
    std::vector<std::uint32_t> context, stream;
  } memory_;  // Per row of gpu_memory, whose table has no contexts.
};

}  // namespace

std::uint64_t MapGpu(Context& context) { return GpuMapper(context).Run(); }

}  // namespace lockstep::nsys
