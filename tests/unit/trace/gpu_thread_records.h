#pragma once
// Records of the GPU sources as the probe would write them: CUPTI's by a thread of the probe, NCCL's by
// the thread that NCCL calls. Ticks are ns.

#include <map>
#include <string>
#include <string_view>

#include "core/collective.h"
#include "core/gpu_records.h"
#include "core/schema_enums.h"
#include "spool_builder.h"

namespace lockstep::trace {

// What CUPTI tells, in a thread of its own.
class GpuThread {
 public:
  struct Kernel {
    std::string_view name;
    std::uint64_t begin, end;
    std::uint32_t correlation = 0, stream = 7;
    std::uint32_t shape = 0, graph = 0;
    std::uint64_t graph_node = 0;
    std::uint8_t flags = 0;
  };
  GpuThread& Add(const Kernel& k) {
    GpuKernelRecord record{};
    record.head = {RecordKind::kGpuKernel, k.flags, 2};
    record.name = Name(k.name);
    record.begin_ticks = k.begin, record.end_ticks = k.end;
    record.correlation = k.correlation, record.stream = k.stream, record.context = 1;
    record.shape = k.shape, record.graph = k.graph, record.graph_node = k.graph_node;
    records.Add(record);
    return *this;
  }
  struct Api {
    std::string_view name;
    std::uint64_t begin, end;
    std::uint32_t correlation = 0, tid = 100;
    std::uint8_t kind = 1;
    std::int32_t result = 0;
  };
  GpuThread& Add(const Api& a) {
    const std::uint16_t slots = a.result != 0 ? 2 : 1;
    records.Add(GpuApiRecord{{RecordKind::kGpuApi, a.kind, slots}, Name(a.name), a.begin, a.end, a.correlation, a.tid});
    if (a.result != 0) records.Add(GpuApiResult{a.result, {}});
    return *this;
  }
  struct Copy {
    std::uint64_t begin, end;
    std::uint32_t correlation = 0;
    std::uint64_t bytes = 4;
  };
  GpuThread& Add(const Copy& c) {
    GpuCopyRecord record{};
    record.head = {RecordKind::kGpuCopy, 1, 2};
    record.kind = 3;
    record.begin_ticks = c.begin, record.end_ticks = c.end;
    record.correlation = c.correlation, record.bytes = c.bytes, record.context = 1, record.stream = 7;
    records.Add(record);
    return *this;
  }
  struct Sync {
    std::uint8_t kind;
    std::uint64_t begin, end;
    std::uint32_t correlation = 0, stream = 0xffffffffu, event = 0;
    std::uint64_t event_sync = 0;
    std::uint16_t device = 0;
  };
  GpuThread& Add(const Sync& s) {
    GpuSyncRecord record{};
    record.head = {RecordKind::kGpuSync, s.kind, 2};
    record.correlation = s.correlation, record.begin_ticks = s.begin, record.end_ticks = s.end;
    record.stream = s.stream, record.event = s.event, record.event_sync = s.event_sync, record.context = 1;
    record.device = s.device;
    records.Add(record);
    return *this;
  }
  std::uint32_t Name(std::string_view text) {
    if (text.empty()) return 0;
    const auto [at, fresh] = names_.try_emplace(std::string(text), static_cast<std::uint32_t>(names_.size() + 1));
    if (fresh) records.String(at->second, text);
    return at->second;
  }
  ThreadRecords records;

 private:
  std::map<std::string, std::uint32_t> names_;
};

// What NCCL tells to one thread.
class NcclThread {
 public:
  struct Begin {
    NcclEvent event;
    std::uint64_t id, ticks;
    std::uint64_t parent = 0, group = 0;
    CollectiveKind kind = CollectiveKind::kNone;
    std::uint64_t count = 0;
    DataType dtype = DataType::kFloat32;
    std::uint64_t seq = 0;
    std::int32_t peer = -1;
    bool receive = false, captured = false;
    std::uint32_t comm = kNcclCommBit | 1;
    std::uint64_t buffer = 0;
    std::string_view algorithm = {};
  };
  NcclThread& Add(const Begin& b) {
    NcclBeginRecord record{};
    record.head = {RecordKind::kNcclBegin, static_cast<std::uint8_t>(b.event), 3};
    record.comm = b.comm, record.id = b.id, record.parent = b.parent, record.ticks = b.ticks;
    record.seq = b.seq, record.count = b.count, record.peer = b.peer, record.group = b.group;
    const bool p2p = b.event == NcclEvent::kP2p || b.event == NcclEvent::kP2pApi;
    record.function = p2p ? b.receive : static_cast<std::uint8_t>(b.kind);
    record.dtype = static_cast<std::uint8_t>(b.dtype);
    record.flags = b.captured ? kNcclCaptured : 0;
    record.buffer = b.buffer, record.algorithm = Name(b.algorithm), record.channels = 4;
    records.Add(record);
    return *this;
  }
  NcclThread& End(NcclEvent event, std::uint64_t id, std::uint64_t ticks) {
    records.Add(NcclEndRecord{{RecordKind::kNcclEnd, static_cast<std::uint8_t>(event), 1}, 0, id, ticks, 0});
    return *this;
  }
  struct Call {
    std::string_view name;
    std::uint64_t begin, end;
    CollectiveKind kind = CollectiveKind::kNone;
    std::uint64_t count = 0;
    DataType dtype = DataType::kFloat32;
    std::uint64_t seq = 0;
    std::uint64_t buffer = 0, stream = 0;
    std::int32_t peer = -1;
    bool receive = false;
    std::uint8_t reduction = 0;
    std::int32_t result = 0;
    std::uint32_t comm = kNcclCommBit | 1;
    NcclSource source = NcclSource::kInterposed;
  };
  NcclThread& Add(const Call& c) {
    NcclCallRecord record{};
    record.head = {RecordKind::kNcclCall, static_cast<std::uint8_t>(c.source), 3};
    record.comm = c.kind == CollectiveKind::kNone ? kNoComm : c.comm;
    record.begin_ticks = c.begin, record.end_ticks = c.end, record.count = c.count, record.stream = c.stream;
    record.buffer = c.buffer, record.peer = c.peer, record.result = c.result;
    record.function = static_cast<std::uint8_t>(c.kind), record.direction = c.receive;
    record.dtype = static_cast<std::uint8_t>(c.dtype), record.reduction = c.reduction;
    record.name = Name(c.name), record.seq = c.seq;
    records.Add(record);
    return *this;
  }
  struct Comm {
    std::uint64_t id, ticks;
    std::uint32_t size = 0;
    std::int32_t rank = -1;
    std::uint32_t comm = kNcclCommBit | 1;
    NcclSource source = NcclSource::kPlugin;
    std::uint8_t flags = 0;
    std::string_view name = {};
    std::uint64_t parent = 0;
  };
  NcclThread& Add(const Comm& c) {
    NcclCommRecord record{};
    record.head = {RecordKind::kNcclComm, static_cast<std::uint8_t>(static_cast<std::uint8_t>(c.source) | c.flags), 2};
    record.comm = c.comm, record.id = c.id, record.parent = c.parent, record.ticks = c.ticks;
    record.size = c.size, record.rank = c.rank, record.name = Name(c.name), record.device = -1;
    records.Add(record);
    return *this;
  }
  std::uint32_t Name(std::string_view text) {
    if (text.empty()) return 0;
    const auto [at, fresh] = names_.try_emplace(std::string(text), static_cast<std::uint32_t>(names_.size() + 1));
    if (fresh) records.String(at->second, text);
    return at->second;
  }
  ThreadRecords records;

 private:
  std::map<std::string, std::uint32_t> names_;
};

// A process (pid 100) that used CUDA, with CUPTI's thread (tid 900, ring 8) and the given one (tid 100, ring 0).
inline SpoolBuilder GpuProcess(const GpuThread& gpu, const NcclThread* nccl = nullptr,
                               std::string_view meta = "clock_mode\traw\nrank\t0\n",
                               std::uint8_t vendor = schema::Vendor::kNvidia) {
  SpoolBuilder spool;
  ProcessEntry entry{};
  entry.generation = 1;
  entry.pid = 100;
  entry.begin_ticks = 1;
  entry.end_ticks = 900'000;
  entry.world_rank = -1;
  entry.gpu_vendor = vendor;
  entry.cupti_used = 1;
  entry.cupti_state = 1;
  entry.gpu_flushed_ticks = 899'000;
  entry.nccl_used = nccl != nullptr;
  spool.Meta(meta).Block(SpoolKind::kProcess, &entry, sizeof entry, 0);
  if (nccl != nullptr) spool.Thread(0, 100).Records(nccl->records, 0);
  spool.Thread(8, 900).Records(gpu.records, 8).End(1'000'000);
  return spool;
}

}  // namespace lockstep::trace
