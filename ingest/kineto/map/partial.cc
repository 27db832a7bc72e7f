#include "ingest/kineto/map/partial.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

#include "core/comm_calls.h"
#include "core/comm_kernels.h"
#include "core/function_name.h"
#include "ingest/kineto/map/comm_args.h"
#include "ingest/kineto/map/event_values.h"
#include "ingest/kineto/map/rank_label.h"
#include "ingest/map/args.h"
#include "ingest/map/names.h"

namespace lockstep::ingest {

using kineto::Category;
using kineto::Event;
using schema::kNone;

namespace {

class BatchMapper {
 public:
  std::unique_ptr<Partial> Run(std::span<const Event> events) {
    out_->events = events.size();
    for (const Event& event : events) {
      if (event.pid_text.empty())
        Map(event);
      else
        MapNamed(event);
    }
    return std::move(out_);
  }

 private:
  static constexpr std::uint8_t kNotLooked = 255;
  struct NameFacts {
    std::uint8_t api_kind = kNotLooked, category = kNotLooked, comm = kNotLooked, kernel = kNotLooked;
    std::int64_t step = -2;
  };

  // Of a process that is no number: tools that merge traces put a label before each process's number or name.
  void MapNamed(const Event& event) {
    if (named_.text != event.pid_text) {
      const RankLabel label = RankLabelOf(event.pid_text);
      named_.text = event.pid_text;
      named_.own = event.pid_text == label.rest ? "" : label.rest;
      named_.is_number = std::from_chars(label.rest.data(), label.rest.data() + label.rest.size(), named_.pid).ptr ==
                             label.rest.data() + label.rest.size() &&
                         !label.rest.empty();
      named_.label = LabelId(label.text);
      named_.plain = label.rest == event.pid_text;
    }
    if (named_.plain) return Map(event);
    Event own = event;
    own.pid_text = named_.is_number ? "" : std::string_view(named_.own);
    if (named_.is_number) own.pid = named_.pid;
    label_ = named_.label;
    if (label_ != 0) Enter(own.pid);
    Map(own);
    label_ = 0;
  }

  std::uint32_t LabelId(std::string_view text) {
    auto& labels = out_->labels;
    const auto at = std::find(labels.begin(), labels.end(), text);
    if (at != labels.end()) return static_cast<std::uint32_t>(at - labels.begin());
    labels.emplace_back(text);
    return static_cast<std::uint32_t>(labels.size() - 1);
  }

  // The rows from here on are of this process.
  void Enter(std::int64_t pid) {
    const EventRun& last = out_->runs.back();
    if (label_ != 0 ? last.label == label_ : last.label == 0 && last.pid == pid) return;
    out_->runs.push_back({.label = label_, .pid = label_ != 0 ? -1 : pid, .first = out_->Rows()});
  }
  // An event of a GPU: its process is the device's number, unless a tool that merges traces gave it another.
  void EnterGpu(const Event& event, std::int64_t device) {
    if (label_ == 0 && event.pid != device && event.pid >= 0) Enter(event.pid);
  }

  void Map(const Event& event) {
    if (event.category == Category::kMetadata) return Metadata(event);
    if (event.category == Category::kFlow) return;
    if (event.begin_ns == kineto::kAbsent) return;
    if (event.phase != 'X') {
      if (event.category == Category::kInstant) return Instant(event);
      if (event.name == "Record Window End") Window(event.begin_ns);
      return;
    }
    switch (event.category) {
      case Category::kCpuOp:
        return Range(event, 3);
      case Category::kUserAnnotation:
        return Range(event, 2);
      case Category::kPythonFunction:
        return Range(event, 4);
      case Category::kRuntime:
      case Category::kDriver:
        return Api(event);
      case Category::kKernel:
        return Kernel(event);
      case Category::kMemcpy:
      case Category::kMemset:
        return Copy(event);
      case Category::kSync:
        return Sync(event);
      case Category::kInstant:
        return Instant(event);
      case Category::kGpuUserAnnotation:
        if (StepNumber(event.name) >= 0) LatestOf(out_->runs.back().gpu_step_ns, event.begin_ns);
        return Skip(Skipped::kGpuAnnotation);
      case Category::kOverhead:
        return Skip(Skipped::kOverhead);
      default:
        return Other(event);
    }
  }

  void Skip(Skipped why) { ++out_->skipped[static_cast<std::size_t>(why)]; }

  void Other(const Event& event) {
    // The profiler's own span is not an event of the application.
    if (event.category_text == "Trace") return Window(event.begin_ns + Duration(event));
    if (event.category_text.empty() && (event.pid_text == "CPU functions" || IsOfTorch(event.name)))
      return Range(event, StepNumber(event.name) >= 0 ? schema::RangeSource::kTorch : schema::RangeSource::kCpuOp);
    const bool of_device =
        event.stream != kineto::kAbsent || event.device != kineto::kAbsent || event.pid_text == "CUDA functions";
    Skip(of_device ? Skipped::kDevice : Skipped::kOther);
    const std::string_view kind = event.category_text.empty() ? "no category" : event.category_text;
    auto& known = of_device ? out_->device_categories : out_->other_categories;
    if (known.size() < 8 && std::find(known.begin(), known.end(), kind) == known.end()) known.emplace_back(kind);
  }

  static void LatestOf(std::int64_t& latest, std::int64_t ns) { latest = std::max(latest, ns); }
  void Window(std::int64_t end_ns) { LatestOf(out_->runs.back().window_end_ns, end_ns); }

  static std::int64_t Duration(const Event& event) {
    return event.duration_ns == kineto::kAbsent ? 0 : std::max<std::int64_t>(event.duration_ns, 0);
  }

  std::uint32_t Thread(const Event& event) {
    const std::int64_t pid = event.pid == kineto::kAbsent ? -1 : event.pid;
    if (pid >= 0) Enter(pid);
    const std::int64_t tid = event.tid == kineto::kAbsent ? -1 : event.tid;
    const std::int64_t end = event.begin_ns + Duration(event);
    std::uint32_t id = last_thread_;
    const auto same = [&](const ThreadSeen& seen) {
      return seen.pid == pid && seen.tid == tid && seen.label == label_ && (tid >= 0 || seen.name == event.tid_text);
    };
    auto& threads = out_->threads;
    if (id >= threads.size() || !same(threads[id])) {
      for (id = 0; id < threads.size() && !same(threads[id]);) ++id;
      if (id == threads.size())
        threads.push_back(
            {pid, tid, tid >= 0 ? std::string() : std::string(event.tid_text), event.begin_ns, end, 0, 0, label_});
      last_thread_ = id;
    }
    ThreadSeen& seen = threads[id];
    seen.begin_ns = std::min(seen.begin_ns, event.begin_ns);
    seen.end_ns = std::max(seen.end_ns, end);
    ++seen.records;
    return id;
  }

  NameFacts& Facts(std::uint32_t name) {
    if (name >= facts_.size()) facts_.resize(out_->strings.size() + 64);
    return facts_[name];
  }

  void Range(const Event& event, std::uint8_t source) {
    const std::uint32_t thread = Thread(event), name = out_->strings.Intern(event.name);
    NameFacts& facts = Facts(name);
    if (facts.category == kNotLooked) {
      facts.category = source == schema::RangeSource::kPython ? 0 : RangeCategory(event.name);
      facts.step = StepNumber(event.name);
      facts.comm = event.name == "record_param_comms" ? 1 : event.name.starts_with("nccl:") ? 2 : 0;
      if (const std::string_view backend = HostBackend(event.name); !backend.empty()) {
        facts.category = schema::Category::kCommunication;
        out_->host_backends.emplace(backend);
      }
    }
    const std::uint8_t category = source == schema::RangeSource::kPython ? 0 : facts.category;
    const std::uint8_t comm = source == schema::RangeSource::kPython ? 0 : facts.comm;
    const std::int64_t duration = Duration(event);
    const bool numbered = event.sequence_number != kineto::kAbsent && event.sequence_number >= 0;
    out_->ranges.Append({.begin_ns = event.begin_ns,
                         .duration_ns = duration,
                         .thread = thread,
                         .name = name,
                         .domain = kNone,
                         .source = source,
                         .kind = schema::RangeKind::kPushPop,
                         .category = category,
                         .depth = 0,
                         .open = 0,
                         .payload = numbered ? event.sequence_number : 0,
                         .payload_kind = static_cast<std::uint8_t>(numbered ? schema::PayloadKind::kSequence
                                                                            : schema::PayloadKind::kNone),
                         .category_id = 0});
    if (source == schema::RangeSource::kCpuOp) ++out_->threads[thread].cpu_ops;
    if (facts.step >= 0 && source != schema::RangeSource::kPython)
      out_->steps.push_back({facts.step, event.begin_ns, event.begin_ns + duration, thread});
    if (comm != 0) Communication(event, thread, name, comm == 1 ? CommEvent::kRecord : CommEvent::kAnnotation);
  }

  void Communication(const Event& event, std::uint32_t thread, std::uint32_t name, CommEvent::Kind kind) {
    CommEvent comm;
    comm.kind = kind;
    comm.thread = thread;
    comm.name = name;
    comm.begin_ns = event.begin_ns;
    comm.end_ns = event.begin_ns + Duration(event);
    if (event.external_id != kineto::kAbsent) comm.external_id = event.external_id;
    ArgsCursor cursor(event.args);
    for (std::string_view key, value; cursor.Next(key, value);) {
      if (TakeCommArg(key, value, out_->strings, comm.args)) continue;
      if (key == "Input Dims") {
        comm.input_elements = ElementsOf(value);
      } else if (key == "Input type") {
        // ["float"]; of lists PyTorch says "TensorList" only.
        ArgsText(value, comm.input_type);
      }
    }
    out_->comm_events.push_back(comm);
  }

  void ArgsText(std::string_view list, std::uint32_t& to) {
    const std::size_t begin = list.find('"');
    if (begin == std::string_view::npos) return;
    const std::size_t end = list.find('"', begin + 1);
    if (end == std::string_view::npos || end == begin + 1) return;
    to = out_->strings.Intern(list.substr(begin + 1, end - begin - 1));
  }

  // Reads launch geometry among an event's arguments, and passes the others to `other`.
  template <typename F>
  std::uint32_t Shape(std::string_view args, bool grid_in_threads, F&& other) {
    schema::KernelShapes::Row shape;
    shape.occupancy_percent = -1;
    bool any = false;
    ArgsCursor cursor(args);
    for (std::string_view key, value; cursor.Next(key, value);) {
      if (key == "grid") {
        any = true;
        Three(value, shape.grid_x, shape.grid_y, shape.grid_z);
      } else if (key == "block") {
        any = true;
        Three(value, shape.block_x, shape.block_y, shape.block_z);
      } else if (key == "registers per thread") {
        shape.registers_per_thread = Id32(IntOf(value, 0), 0);
      } else if (key == "shared memory") {  // Static and dynamic together.
        shape.dynamic_shared_bytes = Id32(IntOf(value, 0), 0);
      } else if (key == "est. achieved occupancy %") {
        // More than all of the device is no occupancy.
        if (const std::int32_t percent = Int32(IntOf(value, -1)); percent <= 100) shape.occupancy_percent = percent;
      } else {
        other(key, value);
      }
    }
    if (!any) return kNone;
    if (grid_in_threads) {
      const auto blocks = [](std::int32_t threads, std::int32_t per_block) {
        return per_block > 0 && threads > 0 ? (threads - 1) / per_block + 1 : threads;
      };
      shape.grid_x = blocks(shape.grid_x, shape.block_x);
      shape.grid_y = blocks(shape.grid_y, shape.block_y);
      shape.grid_z = blocks(shape.grid_z, shape.block_z);
    }
    const std::array<std::int64_t, 10> key{shape.grid_x,
                                           shape.grid_y,
                                           shape.grid_z,
                                           shape.block_x,
                                           shape.block_y,
                                           shape.block_z,
                                           shape.registers_per_thread,
                                           shape.static_shared_bytes,
                                           shape.dynamic_shared_bytes,
                                           shape.occupancy_percent};
    const std::string_view bytes(reinterpret_cast<const char*>(key.data()), sizeof key);
    const std::uint32_t id = shape_keys_.Intern(bytes);
    if (id == out_->shapes.rows()) out_->shapes.Append(shape);
    return id;
  }

  std::int64_t DeviceOf(const Event& event) const { return event.device != kineto::kAbsent ? event.device : event.pid; }

  void Kernel(const Event& event) {
    EnterGpu(event, DeviceOf(event));
    CommKernel comm;
    std::int64_t graph_node = -1;
    const std::uint32_t shape = Shape(event.args, false, [&](std::string_view key, std::string_view value) {
      if (key == "graph node id")
        graph_node = IntOf(value, -1);
      else
        TakeCommArg(key, value, out_->strings, comm.args);
    });
    const bool mangled = event.name.starts_with("_Z");
    const std::uint32_t name = mangled ? out_->strings.Intern(Demangled(event.name)) : out_->strings.Intern(event.name);
    NameFacts& facts = Facts(name);
    if (facts.kernel == kNotLooked) facts.kernel = IsCommKernelName(event.name);
    if (facts.kernel == 1 || comm.args.name != kNone) {
      comm.row = static_cast<std::uint32_t>(out_->kernels.rows());
      if (event.external_id != kineto::kAbsent) comm.external_id = event.external_id;
      out_->comm_kernels.push_back(comm);
    }
    const std::int64_t stream = event.stream != kineto::kAbsent ? event.stream : event.tid;
    const std::int64_t device = DeviceOf(event);
    out_->kernels.Append({.begin_ns = event.begin_ns,
                          .duration_ns = Duration(event),
                          .device = Device(device),
                          .context = Id32(event.context, 0),
                          .stream = Id32(stream, 0),
                          .correlation = Positive(event.correlation),
                          .name = name,
                          .shape = shape,
                          .work = static_cast<std::uint8_t>(facts.kernel == 1 ? 1 : 0),
                          .work_rule = static_cast<std::uint8_t>(facts.kernel == 1 ? 2 : 0),
                          .graph_node = Positive(graph_node),
                          .vendor = schema::Vendor::kNvidia});
  }

  void Copy(const Event& event) {
    EnterGpu(event, DeviceOf(event));
    std::string_view kind_text;
    std::int64_t from = -1, to = -1;
    std::int64_t bytes = event.bytes;
    ArgsCursor cursor(event.args);
    for (std::string_view key, value; cursor.Next(key, value);) {
      if (key == "kind") kind_text = value;
      if (key == "fromDevice") from = IntOf(value, -1);
      if (key == "toDevice") to = IntOf(value, -1);
    }
    const CopyKind kind = event.category == Category::kMemset
                              ? CopyKind{schema::CopyKind::kMemset, schema::HostMemory::kUnknown}
                              : CopyKindOf(event.name, kind_text);
    const std::uint16_t device = Device(DeviceOf(event));
    const std::int64_t stream = event.stream != kineto::kAbsent ? event.stream : event.tid;
    if (from < 0 && (kind.kind == schema::CopyKind::kDeviceToHost || kind.kind == schema::CopyKind::kDeviceToDevice))
      from = device;
    if (to < 0 && (kind.kind == schema::CopyKind::kHostToDevice || kind.kind == schema::CopyKind::kDeviceToDevice ||
                   kind.kind == schema::CopyKind::kMemset))
      to = device;
    out_->copies.Append({.begin_ns = event.begin_ns,
                         .duration_ns = Duration(event),
                         .device = device,
                         .context = Id32(event.context, 0),
                         .stream = Id32(stream, 0),
                         .correlation = Positive(event.correlation),
                         .kind = kind.kind,
                         .bytes = Positive(bytes),
                         .source_device = Int32(from),
                         .destination_device = Int32(to),
                         .asynchronous = 0,
                         .vendor = schema::Vendor::kNvidia,
                         .host_memory = kind.host_memory});
  }

  void Sync(const Event& event) {
    EnterGpu(event, DeviceOf(event));
    std::int64_t waited = -1, on_stream = -1, record = -1;
    std::string_view kind_text;
    ArgsCursor cursor(event.args);
    for (std::string_view key, value; cursor.Next(key, value);) {
      if (key == "cuda_sync_kind") kind_text = value;
      if (key == "wait_on_cuda_event_id") waited = IntOf(value, -1);
      if (key == "wait_on_stream") on_stream = IntOf(value, -1);
      if (key == "wait_on_cuda_event_record_corr_id") record = IntOf(value, -1);
    }
    std::uint8_t kind = SyncKind(kind_text);
    if (kind == schema::SyncKind::kUnknown) kind = SyncKind(event.name);
    const std::int64_t stream = event.stream != kineto::kAbsent ? event.stream : on_stream;
    out_->sync.Append({.begin_ns = event.begin_ns,
                       .duration_ns = Duration(event),
                       .kind = kind,
                       .device = Device(DeviceOf(event)),
                       .context = Id32(event.context, 0),
                       .stream = Id32(stream, kNone),
                       .event = Positive(waited),
                       .correlation = Positive(event.correlation),
                       .vendor = schema::Vendor::kNvidia,
                       .record_correlation = Positive(record),
                       .record_stream = record > 0 ? Id32(on_stream, kNone) : kNone});
  }

  void Api(const Event& event) {
    const std::uint32_t thread = Thread(event);
    const std::uint32_t name = out_->strings.Intern(event.name);
    NameFacts& facts = Facts(name);
    if (facts.api_kind == kNotLooked) facts.api_kind = ApiKind(event.name);
    const bool hip = IsHip(event.name);
    out_->hip |= hip;
    const std::uint64_t correlation = Positive(event.correlation);
    // AMD's kernel events have no geometry, but their launches have. Module launches give it in threads.
    if (hip && facts.api_kind == 1 && correlation != 0) {
      const std::uint32_t shape =
          Shape(event.args,
                event.name.find("ModuleLaunch") != std::string_view::npos && event.name != "hipModuleLaunchKernel",
                [](std::string_view, std::string_view) {});
      if (shape != kNone) out_->launch_shapes.emplace_back(correlation, shape);
    }
    out_->api.Append({.begin_ns = event.begin_ns,
                      .duration_ns = Duration(event),
                      .thread = thread,
                      .name = name,
                      .kind = facts.api_kind,
                      .correlation = correlation,
                      .result = 0,
                      .vendor = static_cast<std::uint8_t>(hip ? 2 : 1)});
  }

  void Instant(const Event& event) {
    if (event.name != "[memory]") return Skip(Skipped::kOther);
    if (event.pid >= 0) Enter(event.pid);
    std::int64_t bytes = 0, device = -1, type = 0;
    std::uint64_t address = 0, allocated = 0, reserved = 0;
    ArgsCursor cursor(event.args);
    for (std::string_view key, value; cursor.Next(key, value);) {
      if (key == "Bytes")
        bytes = IntOf(value, 0);
      else if (key == "Addr")
        address = UnsignedOf(value, 0);
      else if (key == "Device Id")
        device = IntOf(value, -1);
      else if (key == "Device Type")
        type = IntOf(value, 0);
      else if (key == "Total Allocated")
        allocated = UnsignedOf(value, 0);
      else if (key == "Total Reserved")
        reserved = UnsignedOf(value, 0);
    }
    out_->gpu_memory.Append({.time_ns = event.begin_ns,
                             .kind = static_cast<std::uint8_t>(bytes < 0 ? 2 : 1),
                             .device = type == 0 ? std::uint16_t{65535} : Device(device),
                             .address = address,
                             .bytes = bytes < 0 ? -std::max<std::int64_t>(bytes, -INT64_MAX) : bytes,
                             .allocated_bytes = allocated,
                             .reserved_bytes = reserved,
                             .name = kNone});
  }

  void Metadata(const Event& event) {
    const bool thread = event.name == "thread_name";
    const bool labels = event.name == "process_labels";
    if ((!thread && !labels && event.name != "process_name") || event.pid == kineto::kAbsent) return;
    if (thread && event.tid == kineto::kAbsent) return;
    if (!thread) Enter(event.pid);
    const std::string_view name = ingest::TextOf(ArgOf(event.args, labels ? "labels" : "name"), scratch_);
    if (!name.empty() && !labels)
      out_->names.push_back({event.pid, thread ? event.tid : -1, std::string(name), label_});
    if (thread || label_ != 0) return;
    if (const RankLabel label = RankLabelOf(name); !label.places.empty())
      out_->process_labels.push_back({event.pid, -1, std::string(label.text)});
  }

  std::unique_ptr<Partial> out_ = std::make_unique<Partial>();
  LocalStrings shape_keys_;
  std::vector<NameFacts> facts_;  // Per string.
  std::uint32_t last_thread_ = 0;
  std::uint32_t label_ = 0;  // Of the event at hand.
  struct {
    std::string text, own;
    std::int64_t pid = -1;
    std::uint32_t label = 0;
    bool is_number = false, plain = true;
  } named_;  // What was found out about the last process that is no number.
  std::string scratch_;
};

}  // namespace

RowCounts Partial::Rows() const {
  const auto count = [](std::size_t rows) { return static_cast<std::uint32_t>(rows); };
  return {count(kernels.rows()),     count(copies.rows()),        count(sync.rows()),
          count(api.rows()),         count(gpu_memory.rows()),    count(ranges.rows()),
          count(comm_events.size()), count(launch_shapes.size()), count(steps.size())};
}

std::unique_ptr<Partial> MapBatch(std::span<const Event> events) { return BatchMapper().Run(events); }

}  // namespace lockstep::ingest
