// Traces as torch.profiler writes them, one per rank, all on one clock, for Holistic Trace Analysis, TensorBoard and
// `lockstep import`. Holistic Trace Analysis searches for the rank line by line as `"rank": 5`, with the blank.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/rank_name.h"
#include "core/version.h"
#include "export/common/describe.h"
#include "export/common/json_writer.h"
#include "export/common/out_file.h"
#include "export/common/writers.h"
#include "export/kineto/kineto_comm.h"
#include "ingest/rank_files/event_reader.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;

constexpr std::string_view kStepPrefix = "ProfilerStep#";
// How the members of the file's object and the elements of its lists begin.
constexpr std::string_view kTopLevel = "\n  ", kElement = "\n    ";

class KinetoWriter final : public Writer {
 public:
  bool Takes(EventKind kind) const override {
    switch (kind) {
      case EventKind::kCollective:  // Their kernels, or the calls of MPI, are written instead.
      case EventKind::kMessage:
      case EventKind::kSensors:
      case EventKind::kCounter:
        return false;
      default:
        return true;
    }
  }

  Status Begin(const ExportRun& run) override {
    run_ = &run;
    return MakeDirectory(run.output);
  }

  Status BeginRank(const ExportRank& rank) override {
    rank_ = rank;
    head_ = rank.head;
    out_ = std::make_unique<OutFile>();
    LS_CHECK(out_->Open((std::filesystem::path(run_->output) / (RankName(rank.rank) + ".pt.trace.json")).string()));
    json_.emplace(out_->buffer());
    describer_ = std::make_unique<Describer>(*run_, rank_);
    Index();
    Header();
    return out_->status();
  }

  Status Write(const Event& event) override {
    switch (event.kind) {
      case EventKind::kRange:
        Range(event);
        break;
      case EventKind::kMpiCall:
        MpiCall(event);
        break;
      case EventKind::kMpiRequest:
        OnThread(event, "user_annotation", describer_->NameOf(event), event.as<schema::MpiRequests::Row>().thread);
        EndArgs();
        break;
      case EventKind::kApi: {
        const auto& row = event.as<schema::Api::Row>();
        const std::string_view name = Text(row.name);
        const bool driver = name.starts_with("cu") && !name.starts_with("cuda");
        OnThread(event, driver ? "cuda_driver" : "cuda_runtime", name, row.thread);
        Number("correlation", row.correlation);
        EndArgs();
        break;
      }
      case EventKind::kKernel:
        Kernel(event);
        break;
      case EventKind::kCopy:
        Copy(event);
        break;
      case EventKind::kSync:
        Sync(event);
        break;
      case EventKind::kMemory:
        Memory(event);
        break;
      case EventKind::kBlocked:
        OnThread(event, "blocked", describer_->NameOf(event), event.as<schema::Blocked::Row>().thread);
        EndArgs();
        break;
      case EventKind::kOverhead:
        OnThread(event, "overhead", describer_->NameOf(event), event.as<schema::Overheads::Row>().thread);
        EndArgs();
        break;
      case EventKind::kHostStep:
        if (!steps_are_ranges_)
          Step(event, event.as<schema::Steps::Row>().index, event.as<schema::Steps::Row>().thread);
        break;
      case EventKind::kStep:
        // On ranks without a GPU, whose windows are the host's.
        if (!rank_.gpu && !steps_are_ranges_)
          Step(event, event.as<schema::TlStepRanks::Row>().index, rank_.training_thread);
        break;
      default:
        break;
    }
    return out_->status();
  }

  Status EndRank() override {
    Names();
    json_->EndArray(kTopLevel);
    json_->EndObject("\n");
    out_->Put("\n");
    const Status closed = out_->Close();
    bytes_ += out_->bytes();
    out_.reset();
    return closed;
  }
  Status Finish() override { return Ok(); }
  std::uint64_t bytes() const override { return bytes_; }

 private:
  std::string_view Text(std::uint32_t id) const { return trace::TextOf(*head_, id); }

  // Finds the operation that each kernel carried.
  void Index() {
    collective_of_.clear();
    message_of_.clear();
    const schema::Collectives& c = head_->collectives;
    for (std::uint32_t row = 0; row < c.rows(); ++row)
      if (c.kernel[row] != kNone && c.kernel_operations[row] <= 1) collective_of_.emplace(c.kernel[row], row);
    const schema::P2p& p = head_->p2p;
    // Imported messages refer to no kernel, but have its times.
    for (std::uint32_t row = 0; row < p.rows(); ++row) {
      const auto key = p.kernel[row] != kNone ? std::pair(std::int64_t{-1}, static_cast<std::int64_t>(p.kernel[row]))
                                              : std::pair(p.begin_ns[row], p.end_ns[row]);
      const auto [at, fresh] = message_of_.try_emplace(key, row);
      if (!fresh) at->second = kNone;  // Several in one kernel.
    }
    shapes_ = {};
    ingest::RowCursor<schema::KernelShapes> shapes(*rank_.reader);
    while (const schema::KernelShapes* piece = shapes.Next())
      for (std::size_t i = 0; i < piece->rows(); ++i) shapes_.Append(piece->Get(i));
    steps_are_ranges_ = false;
    for (std::uint32_t id = 0; id < head_->strings.rows() && !steps_are_ranges_; ++id)
      steps_are_ranges_ = Text(id).starts_with(kStepPrefix);
  }

  void Header() {
    JsonWriter& json = *json_;
    json.BeginObject(kTopLevel);
    json.Int("schemaVersion", 1);
    json.Key("deviceProperties");
    json.BeginArray(kElement);
    const schema::Devices& devices = head_->devices;
    for (std::size_t i = 0; i < devices.rows(); ++i) {
      const auto put = [&](const char* key, std::uint64_t value) {
        if (value > 0) json.Unsigned(key, value);
      };
      json.BeginObject();
      json.Unsigned("id", devices.device[i]);
      json.Text("name", Text(devices.name[i]));
      put("totalGlobalMem", devices.memory_bytes[i]);
      put("computeMajor", devices.compute_major[i]);
      if (devices.compute_major[i] > 0) json.Int("computeMinor", devices.compute_minor[i]);
      put("maxThreadsPerMultiprocessor", devices.max_threads_per_sm[i]);
      put("numSms", devices.sm_count[i]);
      json.EndObject();
    }
    json.EndArray(kTopLevel);
    json.Key("distributedInfo");
    json.BeginObject(kElement);
    json.Text("backend", BackendOf(*head_));
    json.Int("rank", rank_.rank);
    json.Int("world_size", WorldSize());
    json.Unsigned("pg_count", head_->comms.rows());
    json.Key("pg_config");
    WriteGroupList(json, kElement, *head_, run_->comm_members);
    json.EndObject(kTopLevel);
    json.Word("displayTimeUnit", "ms");
    json.Int("baseTimeNanoseconds", run_->base_ns);
    json.Word("exportedBy", "Lockstep " LOCKSTEP_VERSION);
    json.Key("traceEvents");
    json.BeginArray(kElement);
    out_->Grown();
  }

  std::int64_t WorldSize() const {
    return run_->timeline->MetaNumber("ranks_expected", static_cast<std::int64_t>(run_->timeline->tables.ranks.rows()));
  }

  std::pair<std::int64_t, std::int64_t> PidTid(std::uint32_t thread) const {
    const schema::Threads& threads = head_->threads;
    if (thread >= threads.rows()) return {0, thread == kNone ? 0 : thread};
    const std::uint32_t process = threads.process[thread];
    const std::int64_t pid = process < head_->processes.rows() ? head_->processes.pid[process] : 0;
    return {pid, threads.tid[thread]};
  }

  // The event up to its arguments, which follow until EndArgs.
  void Start(const Event& event, std::string_view phase, std::string_view category, std::string_view name,
             std::int64_t pid, std::int64_t tid) {
    JsonWriter& json = *json_;
    json.BeginObject();
    json.Word("ph", phase);
    json.Word("cat", category);
    json.Text("name", name);
    json.Int("pid", pid);
    json.Int("tid", tid);
    json.Microseconds("ts", event.begin_ns - run_->base_ns);
    if (phase == "X")
      json.Microseconds("dur", event.end_ns - event.begin_ns);
    else if (phase == "i")
      json.Word("s", "t");
    json.Key("args");
    json.BeginObject();
  }
  void OnThread(const Event& event, std::string_view category, std::string_view name, std::uint32_t thread) {
    const auto [pid, tid] = PidTid(thread);
    Start(event, "X", category, name, pid, tid);
  }
  void EndArgs() {
    json_->EndObject();
    json_->EndObject();
    out_->Grown();
  }
  void Number(std::string_view key, std::uint64_t value) { json_->Unsigned(key, value); }
  void Signed(std::string_view key, std::int64_t value) { json_->Int(key, value); }

  void Step(const Event& event, std::int64_t index, std::uint32_t thread) {
    OnThread(event, "user_annotation", std::string(kStepPrefix) + std::to_string(index), thread);
    EndArgs();
  }

  void Range(const Event& event) {
    const auto& row = event.as<schema::Ranges::Row>();
    OnThread(event,
             row.source == schema::RangeSource::kCpuOp        ? "cpu_op"
             : row.source == schema::RangeSource::kPython     ? "python_function"
             : row.source == schema::RangeSource::kSystemCall ? "system_call"
                                                              : "user_annotation",
             Text(row.name), row.thread);
    if (row.payload_kind == schema::PayloadKind::kSequence) Signed("Sequence number", row.payload);
    if (const std::string_view domain = Text(row.domain); !domain.empty()) json_->Text("domain", domain);
    EndArgs();
  }

  void MpiCall(const Event& event) {
    OnThread(event, "user_annotation", describer_->NameOf(event), event.as<schema::MpiCalls::Row>().thread);
    for (const Argument& argument : describer_->ArgumentsOf(event)) {
      json_->Key(argument.key);
      if (const auto* number = std::get_if<std::int64_t>(&argument.value))
        json_->Int(*number);
      else if (const auto* count = std::get_if<std::uint64_t>(&argument.value))
        json_->Unsigned(*count);
      else
        json_->Text(std::get<std::string_view>(argument.value));
    }
    EndArgs();
  }

  void OnGpu(const Event& event, std::string_view category, std::string_view name, std::uint16_t device,
             std::uint32_t context, std::uint32_t stream, std::uint64_t correlation) {
    Start(event, "X", category, name, device, stream == kNone ? -1 : static_cast<std::int64_t>(stream));
    Number("device", device);
    Number("context", context);
    if (stream != kNone) Number("stream", stream);
    Number("correlation", correlation);
  }

  void Kernel(const Event& event) {
    const auto& row = event.as<schema::Kernels::Row>();
    OnGpu(event, "kernel", Text(row.name), row.device, row.context, row.stream, row.correlation);
    if (row.graph_node != 0) Number("graph node id", row.graph_node);
    if (row.shape < shapes_.rows()) {
      const schema::KernelShapes::Row shape = shapes_.Get(row.shape);
      const auto three = [&](const char* key, std::int32_t x, std::int32_t y, std::int32_t z) {
        json_->Key(key);
        json_->BeginArray();
        for (const std::int32_t size : {x, y, z}) json_->Int(size);
        json_->EndArray();
      };
      three("grid", shape.grid_x, shape.grid_y, shape.grid_z);
      three("block", shape.block_x, shape.block_y, shape.block_z);
      if (shape.registers_per_thread > 0) Number("registers per thread", shape.registers_per_thread);
      Number("shared memory", std::uint64_t{shape.static_shared_bytes} + shape.dynamic_shared_bytes);
      if (shape.occupancy_percent >= 0) Signed("est. achieved occupancy %", shape.occupancy_percent);
    }
    if (const auto at = collective_of_.find(static_cast<std::uint32_t>(event.number)); at != collective_of_.end()) {
      WriteCollectiveArgs(*json_, *head_, run_->comm_members, at->second);
    } else if (row.work == schema::Work::kCommunication) {
      auto message = message_of_.find({-1, static_cast<std::int64_t>(event.number)});
      if (message == message_of_.end()) message = message_of_.find({row.begin_ns, row.begin_ns + row.duration_ns});
      if (message != message_of_.end() && message->second != kNone)
        WriteMessageArgs(*json_, *head_, run_->comm_members, message->second, rank_.rank);
    }
    EndArgs();
  }

  void Copy(const Event& event) {
    const auto& row = event.as<schema::Copies::Row>();
    constexpr std::string_view kMemory[] = {"", "Pageable", "Pinned", "Managed"};
    const std::string host(row.host_memory > schema::HostMemory::kUnknown && row.host_memory < std::size(kMemory)
                               ? kMemory[row.host_memory]
                               : "Pinned");
    std::string name(describer_->NameOf(event));
    // Kineto's names hold the memory as well.
    if (row.kind == schema::CopyKind::kMemset) name += " (Device)";
    if (row.host_memory != schema::HostMemory::kUnknown && row.kind == schema::CopyKind::kHostToDevice)
      name += " (" + host + " -> Device)";
    if (row.host_memory != schema::HostMemory::kUnknown && row.kind == schema::CopyKind::kDeviceToHost)
      name += " (Device -> " + host + ")";
    if (row.kind == schema::CopyKind::kDeviceToDevice) name += " (Device -> Device)";
    OnGpu(event, row.kind == schema::CopyKind::kMemset ? "gpu_memset" : "gpu_memcpy", name, row.device, row.context,
          row.stream, row.correlation);
    Number("bytes", row.bytes);
    if (row.source_device >= 0) Signed("fromDevice", row.source_device);
    if (row.destination_device >= 0) Signed("toDevice", row.destination_device);
    EndArgs();
  }

  // Names as Kineto's CuptiActivity.cpp has them; it shows no records of events, which read back all the same.
  void Sync(const Event& event) {
    const auto& row = event.as<schema::Sync::Row>();
    constexpr std::string_view kNames[] = {"Synchronization", "Event Sync",   "Stream Wait Event",
                                           "Stream Sync",     "Context Sync", "Event Record"};
    const std::string_view name = kNames[row.kind < std::size(kNames) ? row.kind : 0];
    OnGpu(event, "cuda_sync", name, row.device, row.context, row.stream, row.correlation);
    json_->Word("cuda_sync_kind", name);
    if (row.event != 0) Number("wait_on_cuda_event_id", row.event);
    if (row.record_stream != kNone) Number("wait_on_stream", row.record_stream);
    if (row.record_correlation != 0) Number("wait_on_cuda_event_record_corr_id", row.record_correlation);
    EndArgs();
  }

  void Memory(const Event& event) {
    const auto& row = event.as<schema::GpuMemory::Row>();
    const auto [pid, tid] = PidTid(rank_.training_thread);
    if (row.kind != schema::MemoryKind::kAllocate && row.kind != schema::MemoryKind::kFree) {
      // A reading, no event: Kineto has none of the kind.
      Start(event, "C", "gpu_memory", row.kind == schema::MemoryKind::kPeak ? "peak GPU memory" : "GPU memory", pid,
            tid);
      Number("allocated_bytes", row.allocated_bytes);
      Number("reserved_bytes", row.reserved_bytes);
      return EndArgs();
    }
    Start(event, "i", "cpu_instant_event", "[memory]", pid, tid);
    Number("Total Reserved", row.reserved_bytes);
    Number("Total Allocated", row.allocated_bytes);
    Signed("Bytes", row.kind == schema::MemoryKind::kFree ? -row.bytes : row.bytes);
    Number("Addr", row.address);
    Signed("Device Id", row.device == 65535 ? -1 : row.device);
    Signed("Device Type", row.device == 65535 ? 0 : 1);
    EndArgs();
  }

  void Names() {
    const auto name = [&](const char* what, std::int64_t pid, std::int64_t tid, std::string_view text) {
      JsonWriter& json = *json_;
      json.BeginObject();
      json.Word("ph", "M");
      json.Word("name", what);
      json.Int("pid", pid);
      json.Int("tid", tid);
      json.Int("ts", 0);
      json.Key("args");
      json.BeginObject();
      json.Text("name", text);
      json.EndObject();
      json.EndObject();
      out_->Grown();
    };
    for (std::uint32_t process = 0; process < head_->processes.rows(); ++process)
      name("process_name", head_->processes.pid[process], 0,
           process == 0 && Text(head_->processes.exe[process]).empty() ? std::string_view(rank_.title)
                                                                       : Text(head_->processes.exe[process]));
    for (std::uint32_t thread = 0; thread < head_->threads.rows(); ++thread) {
      const auto [pid, tid] = PidTid(thread);
      if (const std::string_view text = Text(head_->threads.name[thread]); !text.empty() && tid >= 0)
        name("thread_name", pid, tid, text);
    }
  }

  struct PairHash {
    std::size_t operator()(const std::pair<std::int64_t, std::int64_t>& pair) const {
      return static_cast<std::size_t>(pair.first) * 0x9e3779b97f4a7c15ull ^ static_cast<std::size_t>(pair.second);
    }
  };

  const ExportRun* run_ = nullptr;
  ExportRank rank_;
  const schema::RankTables* head_ = nullptr;
  std::unique_ptr<OutFile> out_;
  std::optional<JsonWriter> json_;  // Into out_'s buffer.
  std::unique_ptr<Describer> describer_;
  std::unordered_map<std::uint32_t, std::uint32_t> collective_of_;  // By row of kernels.
  // By (begin, end), or (-1, row of kernels); kNone: several share it.
  std::unordered_map<std::pair<std::int64_t, std::int64_t>, std::uint32_t, PairHash> message_of_;
  schema::KernelShapes shapes_;
  bool steps_are_ranges_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Writer> MakeKinetoWriter(const WriterOptions&) { return std::make_unique<KinetoWriter>(); }

}  // namespace lockstep::exporters
