#include "trace/decode/decode_gpu.h"

#include <algorithm>

#include "core/comm_kernels.h"
#include "core/function_name.h"
#include "trace/decode/process_decoder.h"
#include "trace/decode/sort_rows.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint16_t kHost = 65535;

std::int32_t DeviceOrHost(std::uint16_t device) { return device == kHost ? -1 : device; }

}  // namespace

void GpuRecords::Add(RecordKind kind, std::span<const std::byte> bytes, const RecordContext& context) {
  switch (kind) {
    case RecordKind::kGpuKernel:
      return OnKernel(LoadRecord<GpuKernelRecord>(bytes), context);
    case RecordKind::kGpuShape:
      return OnShape(LoadRecord<GpuShapeRecord>(bytes), context);
    case RecordKind::kGpuCopy:
      return OnCopy(LoadRecord<GpuCopyRecord>(bytes), context);
    case RecordKind::kGpuSync:
      return OnSync(LoadRecord<GpuSyncRecord>(bytes), context);
    case RecordKind::kGpuApi:
      return OnApi(bytes, context);
    case RecordKind::kGpuDevice:
      return OnDevice(LoadRecord<GpuDeviceRecord>(bytes), context);
    case RecordKind::kGpuOverhead:
      return OnOverhead(LoadRecord<GpuOverheadRecord>(bytes), context);
    case RecordKind::kGpuMemory:
      return OnMemory(LoadRecord<GpuMemoryRecord>(bytes), context);
    default:
      return;
  }
}

std::uint64_t GpuRecords::Unwrapped(std::uint32_t correlation) {
  if (correlation == 0) return 0;
  // The nearest id to the one before, because records are a few thousand ids out of order at most.
  const auto step = static_cast<std::int32_t>(correlation - static_cast<std::uint32_t>(latest_correlation_));
  const auto whole = static_cast<std::int64_t>(latest_correlation_) + step;
  if (latest_correlation_ == 0 || whole <= 0) {
    latest_correlation_ = std::max<std::uint64_t>(latest_correlation_, correlation);
    return correlation;
  }
  latest_correlation_ = std::max(latest_correlation_, static_cast<std::uint64_t>(whole));
  return static_cast<std::uint64_t>(whole);
}

void GpuRecords::SeeThread(std::uint32_t tid, std::int64_t begin_ns, std::int64_t end_ns) {
  const auto [at, fresh] = host_lives_.try_emplace(tid);
  if (fresh) tids_.push_back(tid);
  at->second.Cover(begin_ns, end_ns);
}

GpuRecords::Name GpuRecords::NameOf(std::uint32_t text) {
  const auto at = names_.find(text);
  if (at != names_.end()) return at->second;
  const std::string readable = Demangled(TextOf(tables_, text));
  const Name name{text == kNone ? kNone : decoder_.Intern(readable), IsCommKernelName(readable)};
  names_.emplace(text, name);
  return name;
}

void GpuRecords::OnKernel(const GpuKernelRecord& record, const RecordContext& context) {
  const std::int64_t begin = context.clock.Ns(record.begin_ticks), end = context.clock.Ns(record.end_ticks);
  if ((record.head.flags & kGpuAfterWindow) != 0) {
    first_after_.push_back({context.clock.Ns(record.launch_ticks), begin});
    return;
  }
  life_.Cover(begin, std::max(begin, end));
  const bool whole_graph = (record.head.flags & kGpuWholeGraph) != 0;
  Name name;
  if (whole_graph)
    name = {decoder_.Intern("CUDA graph " + std::to_string(record.graph)), false};
  else
    name = NameOf(context.Text(record.name));
  const auto shape = shapes_.find({context.thread, record.shape});
  tables_.kernels.Append({.begin_ns = begin,
                          .duration_ns = DurationNs(begin, end),
                          .device = record.device,
                          .context = record.context,
                          .stream = record.stream,
                          .correlation = Unwrapped(record.correlation),
                          .name = name.text,
                          .shape = shape == shapes_.end() ? kNone : shape->second,
                          .work = name.communicates,
                          .work_rule = name.communicates ? schema::WorkRule::kByName : schema::WorkRule::kDefault,
                          .graph_node = record.graph_node,
                          .vendor = vendor_});
}

void GpuRecords::OnShape(const GpuShapeRecord& record, const RecordContext& context) {
  const auto number = [](std::uint32_t value) { return static_cast<std::int32_t>(value); };
  const auto [at, fresh] =
      shape_rows_.try_emplace({record.grid[0], record.grid[1], record.grid[2], record.block[0], record.block[1],
                               record.block[2], number(record.registers_per_thread), number(record.static_shared_bytes),
                               number(record.dynamic_shared_bytes), number(record.cluster_size)},
                              static_cast<std::uint32_t>(tables_.kernel_shapes.rows()));
  if (fresh)
    tables_.kernel_shapes.Append({.grid_x = record.grid[0],
                                  .grid_y = record.grid[1],
                                  .grid_z = record.grid[2],
                                  .block_x = record.block[0],
                                  .block_y = record.block[1],
                                  .block_z = record.block[2],
                                  .registers_per_thread = record.registers_per_thread,
                                  .static_shared_bytes = record.static_shared_bytes,
                                  .dynamic_shared_bytes = record.dynamic_shared_bytes,
                                  .cluster_size = record.cluster_size,
                                  .occupancy_percent = -1});
  if (record.id != 0) shapes_[{context.thread, record.id}] = at->second;
}

void GpuRecords::OnCopy(const GpuCopyRecord& record, const RecordContext& context) {
  const std::int64_t begin = context.clock.Ns(record.begin_ticks), end = context.clock.Ns(record.end_ticks);
  life_.Cover(begin, std::max(begin, end));
  tables_.copies.Append({.begin_ns = begin,
                         .duration_ns = DurationNs(begin, end),
                         .device = record.device,
                         .context = record.context,
                         .stream = record.stream,
                         .correlation = Unwrapped(record.correlation),
                         .kind = record.kind,
                         .bytes = record.bytes,
                         .source_device = DeviceOrHost(record.source_device),
                         .destination_device = DeviceOrHost(record.destination_device),
                         .asynchronous = static_cast<std::uint8_t>(record.head.flags & 1),
                         .vendor = vendor_,
                         .host_memory = record.host_memory});
}

void GpuRecords::OnSync(const GpuSyncRecord& record, const RecordContext& context) {
  std::int64_t begin = kNoTime, end = kNoTime;  // Event records may have no time of their own.
  if (record.begin_ticks != 0) {
    begin = context.clock.Ns(record.begin_ticks), end = context.clock.Ns(record.end_ticks);
    life_.Cover(begin, std::max(begin, end));
  }
  tables_.sync.Append({.begin_ns = begin,
                       .duration_ns = DurationNs(begin, end),
                       .kind = record.head.flags,
                       .device = record.device,
                       .context = record.context,
                       .stream = record.stream,
                       .event = record.event,
                       .correlation = Unwrapped(record.correlation),
                       .vendor = vendor_,
                       .record_correlation = 0,
                       .record_stream = kNone});
  event_syncs_.push_back(record.event_sync);
}

void GpuRecords::OnApi(std::span<const std::byte> bytes, const RecordContext& context) {
  const auto record = LoadRecord<GpuApiRecord>(bytes);
  const std::int64_t begin = context.clock.Ns(record.begin_ticks), end = context.clock.Ns(record.end_ticks);
  life_.Cover(begin, std::max(begin, end));
  SeeThread(record.tid, begin, std::max(begin, end));
  std::int32_t result = 0;
  if (bytes.size() >= 2 * kSlotBytes) result = LoadRecord<GpuApiResult>(bytes.subspan(kSlotBytes)).result;
  tables_.api.Append({.begin_ns = begin,
                      .duration_ns = DurationNs(begin, end),
                      .thread = record.tid,
                      .name = context.Text(record.name),
                      .kind = static_cast<std::uint8_t>(record.head.flags & 0x7f),
                      .correlation = Unwrapped(record.correlation),
                      .result = result,
                      .vendor = vendor_});
}

void GpuRecords::OnDevice(const GpuDeviceRecord& record, const RecordContext& context) {
  GpuUuid uuid;
  std::copy(std::begin(record.uuid), std::end(record.uuid), uuid.begin());
  if (uuid != GpuUuid{}) device_of_.try_emplace(uuid, record.device);
  if (!versions_told_) {
    versions_told_ = true;
    if (record.driver_version != 0) decoder_.AddFact("cuda_driver_version", std::to_string(record.driver_version));
    if (record.cupti_version != 0) decoder_.AddFact("cupti_version", std::to_string(record.cupti_version));
  }
  schema::Devices& devices = tables_.devices;
  if (std::find(devices.device.begin(), devices.device.end(), record.device) != devices.device.end()) return;
  devices.Append({.device = record.device,
                  .name = context.Text(record.name),
                  .memory_bytes = record.memory_bytes,
                  .sm_count = record.sm_count,
                  .max_threads_per_sm = record.max_threads_per_sm,
                  .compute_major = record.compute_major,
                  .compute_minor = record.compute_minor,
                  .vendor = vendor_});
}

void GpuRecords::OnOverhead(const GpuOverheadRecord& record, const RecordContext& context) {
  const std::int64_t begin = context.clock.Ns(record.begin_ticks), end = context.clock.Ns(record.end_ticks);
  life_.Cover(begin, std::max(begin, end));
  if (record.tid != 0) SeeThread(record.tid, begin, std::max(begin, end));
  tables_.overheads.Append({.begin_ns = begin,
                            .duration_ns = DurationNs(begin, end),
                            .thread = record.tid == 0 ? kNone : record.tid,
                            .kind = record.head.flags,
                            .vendor = vendor_});
}

void GpuRecords::OnMemory(const GpuMemoryRecord& record, const RecordContext& context) {
  const std::int64_t ns = context.clock.Ns(record.ticks);
  life_.Cover(ns, ns);
  tables_.gpu_memory.Append({.time_ns = ns,
                             .kind = record.head.flags,
                             .device = record.device,
                             .address = record.address,
                             .bytes = static_cast<std::int64_t>(std::min<std::uint64_t>(record.bytes, INT64_MAX)),
                             .allocated_bytes = record.pool_used_bytes,
                             .reserved_bytes = record.pool_reserved_bytes,
                             .name = context.Text(record.name)});
}

Extent GpuRecords::HostLife(std::uint32_t tid) const {
  const auto at = host_lives_.find(tid);
  return at == host_lives_.end() ? Extent() : at->second;
}

void GpuRecords::ResolveThreads(const std::unordered_multimap<std::int64_t, ThreadLife>& threads) {
  const auto distance = [](const Extent& life, std::int64_t ns) -> std::uint64_t {
    if (life.first_ns == kNoTime) return UINT64_MAX;
    if (ns < life.first_ns) return static_cast<std::uint64_t>(life.first_ns) - static_cast<std::uint64_t>(ns);
    return ns > life.last_ns ? static_cast<std::uint64_t>(ns) - static_cast<std::uint64_t>(life.last_ns) : 0;
  };
  const auto resolve = [&](std::uint32_t& thread, std::int64_t ns) {
    const auto [first, end] = threads.equal_range(thread);
    if (first == end) {
      thread = kNone;
      return;
    }
    auto best = first;
    for (auto at = std::next(first); at != end; ++at) {
      const std::uint64_t a = distance(at->second.life, ns), b = distance(best->second.life, ns);
      if (a < b || (a == b && at->second.row < best->second.row)) best = at;
    }
    thread = best->second.row;
  };
  for (std::size_t i = 0; i < tables_.api.rows(); ++i) resolve(tables_.api.thread[i], tables_.api.begin_ns[i]);
  for (std::size_t i = 0; i < tables_.overheads.rows(); ++i)
    if (tables_.overheads.thread[i] != kNone) resolve(tables_.overheads.thread[i], tables_.overheads.begin_ns[i]);
}

void GpuRecords::SortAndLink() {
  SortRows(tables_.kernels, tables_.kernels.begin_ns);
  SortRows(tables_.copies, tables_.copies.begin_ns);
  SortRows(tables_.api, tables_.api.begin_ns);
  SortRows(tables_.overheads, tables_.overheads.begin_ns);
  SortRows(tables_.gpu_memory, tables_.gpu_memory.time_ns);
  NameDevices();
  TimeFromCalls();
  const std::vector<std::uint32_t> moved = SortRows(tables_.sync, tables_.sync.begin_ns);
  if (!moved.empty()) {
    std::vector<std::uint64_t> syncs(event_syncs_.size());
    for (std::size_t i = 0; i < syncs.size(); ++i) syncs[moved[i]] = event_syncs_[i];
    event_syncs_ = std::move(syncs);
  }
  LinkEvents();
}

// Synchronisations contain only their context; the device is known from other activities in that context.
void GpuRecords::NameDevices() {
  constexpr std::uint16_t kUnknown = 65535;
  schema::Sync& sync = tables_.sync;
  std::unordered_map<std::uint32_t, std::uint16_t> devices;
  const auto learn = [&](const auto& table) {
    for (std::size_t i = 0; i < table.rows(); ++i)
      if (table.device[i] != kUnknown) devices.try_emplace(table.context[i], table.device[i]);
  };
  learn(tables_.kernels);
  learn(tables_.copies);
  learn(sync);
  for (std::size_t i = 0; i < sync.rows(); ++i)
    if (const auto known = devices.find(sync.context[i]); sync.device[i] == kUnknown && known != devices.end())
      sync.device[i] = known->second;
}

// An event record without a time gets that of the call that made it, or of the last call before that one.
void GpuRecords::TimeFromCalls() {
  schema::Sync& sync = tables_.sync;
  if (std::find(sync.begin_ns.begin(), sync.begin_ns.end(), kNoTime) == sync.begin_ns.end()) return;
  std::map<std::uint64_t, std::int64_t> calls;
  for (std::size_t i = 0; i < tables_.api.rows(); ++i)
    if (tables_.api.correlation[i] != 0) calls.emplace(tables_.api.correlation[i], tables_.api.begin_ns[i]);
  for (std::size_t i = 0; i < sync.rows(); ++i) {
    if (sync.begin_ns[i] != kNoTime) continue;
    const auto after = calls.upper_bound(sync.correlation[i]);
    if (after != calls.begin())
      sync.begin_ns[i] = std::prev(after)->second;
    else
      sync.begin_ns[i] = after != calls.end() ? after->second : life_.first_ns != kNoTime ? life_.first_ns : 0;
    sync.duration_ns[i] = 0;
  }
}

// A wait is for the event's most recent record at the time of the call (CUDA driver API, cuStreamWaitEvent).
// Correlation ids are given in order of calls; GPU times say nothing about that order.
void GpuRecords::LinkEvents() {
  constexpr std::uint8_t kEventWait = schema::SyncKind::kEvent, kStreamWait = schema::SyncKind::kStreamWait,
                         kRecord = schema::SyncKind::kEventRecord;
  schema::Sync& sync = tables_.sync;
  struct Mark {
    std::uint64_t correlation;
    std::int64_t ns;
    std::uint32_t row;
  };
  const auto before = [](const Mark& a, const Mark& b) {
    if (a.correlation != 0 && b.correlation != 0) return a.correlation < b.correlation;
    return a.ns < b.ns;
  };
  // If one record has no correlation id, all records of its event are ordered by time, because the two orders must not
  // be mixed.
  std::unordered_map<std::uint64_t, std::vector<Mark>> records;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> exact;
  for (std::uint32_t row = 0; row < sync.rows(); ++row) {
    if (sync.kind[row] != kRecord || sync.event[row] == 0) continue;
    records[sync.event[row]].push_back({sync.correlation[row], sync.begin_ns[row], row});
    if (event_syncs_[row] != 0) exact.try_emplace({sync.event[row], event_syncs_[row]}, row);
  }
  for (auto& [event, marks] : records) {
    if (std::any_of(marks.begin(), marks.end(), [](const Mark& mark) { return mark.correlation == 0; }))
      for (Mark& mark : marks) mark.correlation = 0;
    std::stable_sort(marks.begin(), marks.end(), before);
  }
  for (std::uint32_t row = 0; row < sync.rows(); ++row) {
    if ((sync.kind[row] != kEventWait && sync.kind[row] != kStreamWait) || sync.event[row] == 0) continue;
    std::uint32_t found = kNone;
    const auto known = exact.lower_bound({sync.event[row], 0});
    const bool says = event_syncs_[row] != 0 && known != exact.end() && known->first.first == sync.event[row];
    if (says) {
      // If it is not there, it was recorded before this file begins.
      if (const auto at = exact.find({sync.event[row], event_syncs_[row]}); at != exact.end()) found = at->second;
    } else {
      const auto marks = records.find(sync.event[row]);
      if (marks == records.end()) continue;
      const Mark wait{sync.correlation[row], sync.begin_ns[row], row};
      const auto after = std::upper_bound(marks->second.begin(), marks->second.end(), wait, before);
      if (after != marks->second.begin()) found = after[-1].row;
    }
    if (found == kNone) continue;
    sync.record_correlation[row] = sync.correlation[found];
    sync.record_stream[row] = sync.stream[found];
  }
  event_syncs_.clear();
}

}  // namespace lockstep::trace
