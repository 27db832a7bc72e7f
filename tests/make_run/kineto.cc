#include "make_run/kineto.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "make_run/clock.h"
#include "make_run/groups.h"
#include "make_run/json_stream.h"
#include "make_run/kineto_names.h"

namespace lockstep::make_run {
namespace {

constexpr std::uint8_t kLaunch = 1, kCopyCall = 2, kBackward = 3;
constexpr std::uint64_t kExtraCorrelations = 1u << 30;  // Of calls that launch nothing.

class Writer {
 public:
  Writer(const Spec& spec, std::int32_t rank, const RankOutput& output, JsonStream& out)
      : spec_(spec), k_(spec.kineto), t_(output.tables), out_(out), rank_(rank), pid_(40'000 + rank) {
    for (std::size_t i = 0; i < t_.strings.rows(); ++i)
      names_.push_back(
          Escaped({reinterpret_cast<const char*>(t_.string_bytes.value.data()) + t_.strings.offset_bytes[i],
                   t_.strings.length_bytes[i]}));
    for (std::size_t comm = 0; comm < spec.comms.size(); ++comm)
      if (GroupOf(spec, comm, rank) >= 0) comm_of_.push_back(comm);
    collective_of_.assign(t_.kernels.rows(), schema::kNone);
    for (std::uint32_t row = 0; row < t_.collectives.rows(); ++row)
      if (const std::uint32_t kernel = t_.collectives.kernel[row]; kernel < collective_of_.size())
        collective_of_[kernel] = row;
    std::uint64_t last = 0;
    for (const std::uint64_t correlation : t_.api.correlation) last = std::max(last, correlation);
    kernel_of_.assign(last + 1, schema::kNone);
    copy_of_.assign(last + 1, schema::kNone);
    for (const GpuMessage& message : output.messages) message_of_[message.correlation] = &message;
    Index(t_.kernels.correlation, kernel_of_);
    Index(t_.copies.correlation, copy_of_);
    for (const char* name : {"float", "int"})
      type_lists_.push_back(fmt::format("[\"{}\", \"{}\", \"Scalar\"]", name, name));
  }

  void Write() {
    Header();
    CpuSide();
    GpuSide();
    Threads();
    Footer();
  }

 private:
  static void Index(const std::vector<std::uint64_t>& correlations, std::vector<std::uint32_t>& rows) {
    for (std::uint32_t row = 0; row < correlations.size(); ++row)
      if (correlations[row] < rows.size()) rows[correlations[row]] = row;
  }

  std::int64_t MainThread() const { return pid_; }
  std::int64_t AutogradThread() const { return pid_ + 100'000; }
  bool IsLaunch(std::size_t api) const { return t_.api.kind[api] == kLaunch || t_.api.kind[api] == kCopyCall; }
  const GpuMessage* MessageOf(std::uint64_t correlation) const {
    const auto at = message_of_.find(correlation);
    return at == message_of_.end() ? nullptr : at->second;
  }
  std::uint32_t CollectiveOf(std::size_t api) const {
    const std::uint32_t kernel = kernel_of_[t_.api.correlation[api]];
    return kernel == schema::kNone ? schema::kNone : collective_of_[kernel];
  }
  // External ids of a launch's operators: levels in order, then NCCL's annotation.
  std::int64_t FirstId(std::size_t api) const { return 1 + static_cast<std::int64_t>(api) * (k_.operators + 2); }
  std::int64_t Levels() const { return std::min(k_.operators, 3); }

  void Time(std::int64_t ns) { out_.Microseconds(ns, k_.whole_microseconds); }

  void Begin() { out_.Text(std::exchange(first_, false) ? "\n  {\n" : ",\n  {\n"); }
  // Up to its arguments, whose braces are the caller's.
  void Complete(std::string_view category, std::string_view name, std::int64_t pid, std::int64_t tid,
                std::int64_t begin_ns, std::int64_t duration_ns) {
    Begin();
    out_.Text("    \"ph\": \"X\", \"cat\": \"");
    out_.Text(category);
    out_.Text("\", \"name\": \"");
    out_.Text(name);
    out_.Text("\", \"pid\": ");
    out_.Int(pid);
    out_.Text(", \"tid\": ");
    out_.Int(tid);
    out_.Text(",\n    \"ts\": ");
    Time(begin_ns);
    out_.Text(", \"dur\": ");
    Time(duration_ns);
    out_.Text(",\n    \"args\": {\n      ");
  }
  void Argument(std::string_view quoted_key, std::int64_t value) {
    out_.Text(quoted_key);
    out_.Int(value);
  }
  void End() { out_.Text("\n    }\n  }"); }

  void Flow(bool start, std::uint64_t id, std::int64_t tid, std::int64_t at) {
    if (!k_.flows) return;
    Begin();
    out_.Text(start ? "    \"ph\": \"s\", \"id\": " : "    \"ph\": \"f\", \"id\": ");
    out_.Int(static_cast<std::int64_t>(id));
    Argument(", \"pid\": ", pid_);
    Argument(", \"tid\": ", tid);
    out_.Text(", \"ts\": ");
    Time(at);
    out_.Text(start ? ",\n    \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  }"
                    : ",\n    \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  }");
  }

  void Header() {
    out_.Text("{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [");
    for (int device = 0; device < 8; ++device) {
      out_.Text(device == 0 ? "\n    {\n" : ",\n    {\n");
      out_.Text(
          fmt::format("      \"id\": {}, \"name\": \"{}\", \"totalGlobalMem\": {},\n      \"computeMajor\": {}, "
                      "\"computeMinor\": 0,\n"
                      "      \"maxThreadsPerBlock\": 1024, \"maxThreadsPerMultiprocessor\": 2048,\n"
                      "      \"regsPerBlock\": 65536, \"warpSize\": {},\n      \"sharedMemPerBlock\": 49152, "
                      "\"numSms\": {}\n    }}",
                      device, k_.amd ? "AMD Instinct MI300X" : "NVIDIA A100-SXM4-80GB",
                      k_.amd ? 206141652992 : 85899345920, k_.amd ? 9 : 8, k_.amd ? 64 : 32, k_.amd ? 304 : 108));
    }
    out_.Text("\n  ],\n");
    if (k_.distributed_info) DistributedInfo();
    out_.Text("  \"record_shapes\": 1,\n  \"traceEvents\": [");
  }

  // PyTorch numbers groups in the order of their making, over all ranks.
  std::string GroupName(std::size_t comm) const {
    std::int32_t number = comm == 0 ? 0 : 1 + GroupOf(spec_, comm, rank_);
    for (std::size_t before = 1; before < comm; ++before) number += GroupCount(spec_, before);
    return std::to_string(number);
  }
  std::string_view Description(std::size_t comm) const {
    return comm == 0 ? std::string_view("default_pg") : std::string_view(spec_.comms[comm].name);
  }
  // torch/csrc/profiler/util.cpp cuts long lists after 30 members.
  std::string MemberList(std::size_t comm, bool cut) const {
    const std::int32_t group = GroupOf(spec_, comm, rank_), size = MemberCount(spec_, comm, group);
    std::string list = "[";
    for (std::int32_t m = 0; m < size; ++m) {
      if (cut && size > 30 && m == 29) {
        list += fmt::format(", ..., {}", Member(spec_, comm, group, size - 1));
        break;
      }
      list += fmt::format("{}{}", m == 0 ? "" : ", ", Member(spec_, comm, group, m));
    }
    return list + "]";
  }

  void DistributedInfo() {
    out_.Text(
        fmt::format("  \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}, "
                    "\"pg_count\": {}, \"pg_config\": [",
                    rank_, spec_.ranks, comm_of_.size()));
    for (std::size_t i = 0; i < comm_of_.size(); ++i)
      out_.Text(fmt::format(
          "{}{{\"pg_name\": \"{}\", \"pg_desc\": \"{}\", \"backend_config\": \"cuda:nccl\", "
          "\"pg_size\": {}, \"ranks\": {}}}",
          i == 0 ? "" : ", ", GroupName(comm_of_[i]), Description(comm_of_[i]),
          MemberCount(spec_, comm_of_[i], GroupOf(spec_, comm_of_[i], rank_)), MemberList(comm_of_[i], false)));
    out_.Text("], \"nccl_version\": \"2.21.5\"},\n");
  }

  void CpuSide() {
    std::size_t step = 0, range = 0;
    std::int64_t backward_until = INT64_MIN;
    backward_.assign(t_.api.rows(), false);
    const auto annotations_before = [&](std::int64_t until) {
      while (true) {
        const bool steps = step < t_.steps.rows() && t_.steps.begin_ns[step] <= until;
        const bool ranges = range < t_.ranges.rows() && t_.ranges.begin_ns[range] <= until;
        if (!steps && !ranges) return;
        if (steps && (!ranges || t_.steps.begin_ns[step] <= t_.ranges.begin_ns[range])) {
          if (t_.steps.complete[step])
            Annotation(fmt::format("ProfilerStep#{}", t_.steps.index[step]), MainThread(), t_.steps.begin_ns[step],
                       t_.steps.end_ns[step] - t_.steps.begin_ns[step]);
          ++step;
          continue;
        }
        const std::int64_t begin = t_.ranges.begin_ns[range], duration = t_.ranges.duration_ns[range];
        const std::uint8_t category = t_.ranges.category[range];
        if (category == kBackward) backward_until = begin + duration;
        Annotation(AnnotationName(names_[t_.ranges.name[range]], category), MainThread(), begin, duration);
        ++range;
      }
    };
    for (std::size_t i = 0; i < t_.api.rows(); ++i) {
      annotations_before(t_.api.begin_ns[i] - spec_.dispatch_ns);
      if (!IsLaunch(i)) continue;
      backward_[i] = t_.api.begin_ns[i] < backward_until;
      Operators(i);
      Memory(i);
    }
    annotations_before(INT64_MAX);
  }

  void Annotation(std::string_view name, std::int64_t tid, std::int64_t begin, std::int64_t duration) {
    Complete("user_annotation", name, pid_, tid, begin, duration);
    Argument("\"External id\": ", ++annotations_ + (std::int64_t{1} << 40));
    Argument(",\"Record function id\": 0, \"Ev Idx\": ", event_++);
    End();
  }

  // The launch call is the last thing its operators do; what they do before it is dispatch.
  void Operators(std::size_t api) {
    const std::int64_t begin = t_.api.begin_ns[api] - spec_.dispatch_ns;
    const std::int64_t end = t_.api.begin_ns[api] + t_.api.duration_ns[api];
    const std::int64_t tid = backward_[api] ? AutogradThread() : MainThread();
    const std::uint32_t collective = CollectiveOf(api);
    const GpuMessage* message = MessageOf(t_.api.correlation[api]);
    const bool communicates = collective != schema::kNone || message != nullptr;
    const std::uint64_t choice = Random(t_.api.name[api], api % 64, 7, 0);
    const OperatorFamily& family = FamilyOf(choice);
    for (std::int32_t i = 0; i < k_.python && !backward_[api]; ++i) {
      Complete("python_function",
               i == 0 ? "train.py(184): <module>" : "torch/nn/modules/module.py(1736): _wrapped_call_impl", pid_, tid,
               begin, end - begin);
      Argument("\"Python parent id\": ", python_);
      Argument(", \"Python id\": ", python_ + 1);
      ++python_;
      Argument(", \"Ev Idx\": ", event_++);
      End();
    }
    for (std::int32_t level = 0; level < k_.operators; ++level) {
      const bool nested = level < Levels();
      const std::int64_t from = begin + spec_.dispatch_ns * level / (k_.operators + 1);
      const std::int64_t to =
          nested ? end : std::min(end, begin + spec_.dispatch_ns * (level + 1) / (k_.operators + 1));
      std::string_view name = level == 0 ? family.outer : family.inner;
      std::string built;
      if (communicates) {
        const auto kind = message != nullptr ? CollectiveKind::kSendRecv
                                             : static_cast<CollectiveKind>(t_.collectives.kind[collective]);
        name = level + 1 == Levels() ? std::string_view("record_param_comms")
               : message != nullptr  ? MessageOperator(message->send)
                                     : CollectiveOperator(kind);
      } else if (t_.api.kind[api] == kCopyCall) {
        name = level == 0 ? "aten::to" : level == 1 ? "aten::_to_copy" : "aten::copy_";
      } else if (backward_[api] && level < 2) {
        built = level == 0 ? fmt::format("autograd::engine::evaluate_function: {}", family.backward)
                           : std::string(family.backward);
        name = built;
      }
      if (!nested) name = LeafOperator(choice + static_cast<std::uint64_t>(level));
      Complete("cpu_op", name, pid_, tid, from, to - from);
      Argument("\"External id\": ", FirstId(api) + level);
      out_.Text(",\"Record function id\": 0, ");
      if (communicates && nested && level + 1 == Levels() && k_.nccl != KinetoSpec::Nccl::kNone) {
        if (message != nullptr)
          MessageArguments(*message);
        else
          CollectiveArguments(collective);
        out_.Text(", ");
      } else {
        if (backward_[api] && level < 2) {
          Argument("\"Sequence number\": ", static_cast<std::int64_t>(api));
          out_.Text(", \"Fwd thread id\": 1, ");
        }
        out_.Text("\"Concrete Inputs\": [\"\", \"\", \"1\"], \"Input type\": ");
        out_.Text(type_lists_[choice % 2]);
        out_.Text(", \"Input Dims\": [[4096, 1024], [1024, 4096], []], ");
      }
      Argument("\"Ev Idx\": ", event_++);
      End();
    }
    if (!communicates) return;
    const std::int64_t from = t_.api.begin_ns[api] - spec_.dispatch_ns / (k_.operators + 1);
    Complete("user_annotation",
             message != nullptr ? MessageAnnotation(message->send)
                                : CollectiveAnnotation(static_cast<CollectiveKind>(t_.collectives.kind[collective])),
             pid_, tid, from, end - from);
    Argument("\"External id\": ", FirstId(api) + k_.operators);
    Argument(",\"Record function id\": 0, \"Ev Idx\": ", event_++);
    End();
  }

  void CollectiveArguments(std::uint32_t row) {
    const auto kind = static_cast<CollectiveKind>(t_.collectives.kind[row]);
    const std::size_t comm = comm_of_[t_.collectives.comm[row]];
    const std::int32_t size = MemberCount(spec_, comm, GroupOf(spec_, comm, rank_));
    const auto count = static_cast<std::int64_t>(t_.collectives.count[row]);
    Arguments(CollectiveArgument(kind), kind == CollectiveKind::kAllGather ? count / size : count,
              kind == CollectiveKind::kReduceScatter ? count / size : count, comm);
    if (k_.nccl == KinetoSpec::Nccl::kSequence)
      Argument(", \"Seq\": ", static_cast<std::int64_t>(t_.collectives.seq[row]));
  }
  void MessageArguments(const GpuMessage& message) {
    const auto count = static_cast<std::int64_t>(message.bytes / 4);
    Arguments(message.send ? "send" : "recv", count, count, 0);
    Argument(", \"Src Rank\": ", message.send ? rank_ : message.peer);
    Argument(", \"Dst Rank\": ", message.send ? message.peer : rank_);
  }
  void Arguments(std::string_view what, std::int64_t in, std::int64_t out, std::size_t comm) {
    out_.Text("\"Collective name\": \"");
    out_.Text(what);
    Argument("\", \"In msg nelems\": ", in);
    Argument(", \"Out msg nelems\": ", out);
    Argument(", \"Group size\": ", MemberCount(spec_, comm, GroupOf(spec_, comm, rank_)));
    out_.Text(
        ", \"dtype\": \"Float\", \"In split size\": \"[]\", \"Out split size\": \"[]\", \"Process Group Name\": \"");
    out_.Text(GroupName(comm));
    out_.Text("\", \"Process Group Description\": \"");
    out_.Text(Description(comm));
    out_.Text("\", \"Process Group Ranks\": \"");
    out_.Text(MemberListOf(comm));
    out_.Text("\"");
  }
  const std::string& MemberListOf(std::size_t comm) {
    std::string& list = member_lists_[comm];
    if (list.empty()) list = MemberList(comm, true);
    return list;
  }

  void Memory(std::size_t api) {
    if (k_.memory == 0 || api % static_cast<std::size_t>(k_.memory) != 0) return;
    for (const bool allocate : {true, false}) {
      const std::int64_t bytes = 512 * static_cast<std::int64_t>(1 + Random(api, 3, 0, 0) % 4096);
      allocated_ += allocate ? bytes : -bytes;
      const std::int64_t at =
          allocate ? t_.api.begin_ns[api] - spec_.dispatch_ns : t_.api.begin_ns[api] + t_.api.duration_ns[api];
      Begin();
      out_.Text(
          "    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\",\n    \"pid\": ");
      out_.Int(pid_);
      Argument(", \"tid\": ", backward_[api] ? AutogradThread() : MainThread());
      out_.Text(",\n    \"ts\": ");
      Time(at);
      Argument(",\n    \"args\": {\n      \"Total Reserved\": 2147483648, \"Total Allocated\": ",
               (std::int64_t{1} << 30) + allocated_);
      Argument(", \"Bytes\": ", allocate ? bytes : -bytes);
      Argument(", \"Addr\": ", 140'000'000'000'000 + static_cast<std::int64_t>(api % 4096) * (2 << 20));
      Argument(", \"Device Id\": 0, \"Device Type\": 1, \"Ev Idx\": ", event_++);
      End();
    }
  }

  void Runtime(std::string_view name, std::int64_t external, std::uint64_t correlation, std::int64_t tid,
               std::int64_t begin, std::int64_t duration) {
    Complete("cuda_runtime", name, pid_, tid, begin, duration);
    Argument("\"External id\": ", external);
    Argument(", \"cbid\": 211, \"correlation\": ", static_cast<std::int64_t>(correlation));
    End();
    Flow(false, correlation, tid, begin);
  }

  void GpuSide() {
    std::unordered_map<std::uint32_t, std::string> runtime_names;
    std::size_t sync = 0;
    for (std::size_t i = 0; i < t_.api.rows(); ++i) {
      const std::int64_t begin = t_.api.begin_ns[i];
      const std::uint64_t correlation = t_.api.correlation[i];
      const std::int64_t tid = backward_[i] ? AutogradThread() : MainThread();
      const std::int64_t external = IsLaunch(i) ? FirstId(i) + std::max<std::int64_t>(Levels() - 1, 0) : 0;
      for (std::int32_t extra = 0; extra < k_.runtime && IsLaunch(i); ++extra) {
        const std::uint64_t number = i * static_cast<std::uint64_t>(k_.runtime) + static_cast<std::uint64_t>(extra);
        const std::int64_t room = spec_.dispatch_ns / (2 * (k_.runtime + 1));
        Runtime(ExtraRuntimeCall(number, k_.amd), external, kExtraCorrelations + number, tid,
                begin - room * (k_.runtime - extra), room * 3 / 4);
      }
      std::string& name = runtime_names[t_.api.name[i]];
      if (name.empty()) name = RuntimeName(names_[t_.api.name[i]], k_.amd);
      Runtime(name, external, correlation, tid, begin, t_.api.duration_ns[i]);
      if (const std::uint32_t kernel = kernel_of_[correlation]; kernel != schema::kNone) {
        Kernel(kernel, external);
        Flow(true, correlation, tid, begin);
      }
      if (const std::uint32_t copy = copy_of_[correlation]; copy != schema::kNone) {
        Copy(copy, external);
        Flow(true, correlation, tid, begin);
      }
      for (; k_.sync && sync < t_.sync.rows() && t_.sync.begin_ns[sync] <= begin; ++sync) Sync(sync);
    }
    for (; k_.sync && sync < t_.sync.rows(); ++sync) Sync(sync);
  }

  void Kernel(std::uint32_t row, std::int64_t external) {
    const std::uint32_t collective = collective_of_[row];
    const GpuMessage* message = MessageOf(t_.kernels.correlation[row]);
    const bool communicates = collective != schema::kNone || message != nullptr;
    const auto kind = collective != schema::kNone ? static_cast<CollectiveKind>(t_.collectives.kind[collective])
                                                  : CollectiveKind::kSendRecv;
    std::string_view name = names_[t_.kernels.name[row]];
    if (communicates) {
      std::string& nccl = nccl_names_[static_cast<std::uint8_t>(kind)];
      if (nccl.empty()) nccl = NcclKernelName(kind, k_.names);
      name = nccl;
    }
    Complete("kernel", name, 0, t_.kernels.stream[row], t_.kernels.begin_ns[row], t_.kernels.duration_ns[row]);
    Argument("\"External id\": ", external);
    Argument(", \"queued\": 0, \"device\": ", t_.kernels.device[row]);
    Argument(", \"context\": ", t_.kernels.context[row]);
    Argument(", \"stream\": ", t_.kernels.stream[row]);
    Argument(", \"correlation\": ", static_cast<std::int64_t>(t_.kernels.correlation[row]));
    if (!communicates) {
      out_.Text(
          ", \"registers per thread\": 64, \"shared memory\": 49152, \"blocks per SM\": 1.0, \"warps per SM\": 8.0, "
          "\"grid\": [108, 1, 1], \"block\": [256, 1, 1], \"est. achieved occupancy %\": 50");
      return End();
    }
    out_.Text(
        ", \"registers per thread\": 96, \"shared memory\": 87568, \"blocks per SM\": 0.074074, \"warps per SM\": "
        "1.259259, \"grid\": [8, 1, 1], \"block\": [544, 1, 1], \"est. achieved occupancy %\": 0");
    if (k_.nccl != KinetoSpec::Nccl::kNone) {
      out_.Text(", ");
      if (message != nullptr)
        MessageArguments(*message);
      else
        CollectiveArguments(collective);
    }
    End();
    Complete("gpu_user_annotation", message != nullptr ? MessageAnnotation(message->send) : CollectiveAnnotation(kind),
             0, t_.kernels.stream[row], t_.kernels.begin_ns[row], t_.kernels.duration_ns[row]);
    Argument("\"External id\": ", external + 1);
    End();
  }

  void Copy(std::uint32_t row, std::int64_t external) {
    const std::uint8_t kind = t_.copies.kind[row];
    const bool set = kind == 6;
    const std::string_view name = set         ? "Memset (Device)"
                                  : kind == 1 ? "Memcpy HtoD (Pinned -> Device)"
                                  : kind == 2 ? "Memcpy DtoH (Device -> Pinned)"
                                              : "Memcpy DtoD (Device -> Device)";
    Complete(set ? "gpu_memset" : "gpu_memcpy", name, 0, t_.copies.stream[row], t_.copies.begin_ns[row],
             t_.copies.duration_ns[row]);
    Argument("\"External id\": ", external);
    Argument(", \"device\": ", t_.copies.device[row]);
    Argument(", \"context\": ", t_.copies.context[row]);
    Argument(", \"stream\": ", t_.copies.stream[row]);
    Argument(", \"correlation\": ", static_cast<std::int64_t>(t_.copies.correlation[row]));
    Argument(", \"bytes\": ", static_cast<std::int64_t>(t_.copies.bytes[row]));
    out_.Text(fmt::format(", \"memory bandwidth (GB/s)\": {}",
                          static_cast<double>(t_.copies.bytes[row]) /
                              static_cast<double>(std::max<std::int64_t>(1, t_.copies.duration_ns[row]))));
    End();
  }

  // Names as Kineto's CuptiActivity.cpp has them; records of events have no event of their own there.
  void Sync(std::size_t row) {
    constexpr std::string_view kNames[] = {"", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"};
    const std::uint8_t kind = t_.sync.kind[row];
    if (kind == 0 || kind >= std::size(kNames)) return;
    const auto stream =
        t_.sync.stream[row] == schema::kNone ? std::int64_t{-1} : static_cast<std::int64_t>(t_.sync.stream[row]);
    Complete("cuda_sync", kNames[kind], 0, stream, t_.sync.begin_ns[row], t_.sync.duration_ns[row]);
    out_.Text("\"cuda_sync_kind\": \"");
    out_.Text(kNames[kind]);
    out_.Text("\"");
    if (t_.sync.record_correlation[row] != 0) {
      Argument(", \"wait_on_stream\": ", t_.sync.record_stream[row]);
      Argument(", \"wait_on_cuda_event_record_corr_id\": ", static_cast<std::int64_t>(t_.sync.record_correlation[row]));
      Argument(", \"wait_on_cuda_event_id\": ", static_cast<std::int64_t>(t_.sync.event[row]));
    }
    Argument(", \"stream\": ", stream);
    Argument(", \"correlation\": ", static_cast<std::int64_t>(t_.sync.correlation[row]));
    out_.Text(", \"device\": 0, \"context\": 1");
    End();
  }

  void Name(std::string_view what, std::string_view key, std::int64_t pid, std::int64_t tid, std::string_view value) {
    Begin();
    out_.Text(fmt::format("    \"name\": \"{}\", \"ph\": \"M\", \"ts\": ", what));
    Time(begin_ns_);
    out_.Text(fmt::format(", \"pid\": {}, \"tid\": {},\n    \"args\": {{\n      \"{}\": {}", pid, tid, key, value));
    End();
  }

  void Threads() {
    end_ns_ = begin_ns_ = t_.processes.rows() > 0 ? t_.processes.begin_ns[0] : 0;
    if (t_.processes.rows() > 0) end_ns_ = t_.processes.end_ns[0];
    Name("process_name", "name", pid_, 0, "\"python3.11\"");
    Name("process_labels", "labels", pid_, 0, "\"CPU\"");
    Name("process_sort_index", "sort_index", pid_, 0, std::to_string(pid_));
    for (int device = 0; device < 8; ++device) {
      Name("process_name", "name", device, 0, "\"python3.11\"");
      Name("process_labels", "labels", device, 0, fmt::format("\"GPU {}\"", device));
      Name("process_sort_index", "sort_index", device, 0, std::to_string(5'000'000 + device));
    }
    std::vector<std::uint32_t> streams(t_.kernels.stream.begin(), t_.kernels.stream.end());
    std::sort(streams.begin(), streams.end());
    streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
    for (const std::uint32_t stream : streams)
      Name("thread_name", "name", 0, stream, fmt::format("\"stream {} \"", stream));
    Name("thread_name", "name", pid_, MainThread(), fmt::format("\"thread {} (python3.11)\"", MainThread()));
    Name("thread_name", "name", pid_, AutogradThread(), fmt::format("\"thread {} (pt_autograd_0)\"", AutogradThread()));
  }

  void Footer() {
    Begin();
    out_.Text("    \"ph\": \"X\", \"cat\": \"Trace\", \"ts\": ");
    Time(begin_ns_);
    out_.Text(", \"dur\": ");
    Time(end_ns_ - begin_ns_);
    out_.Text(
        ",\n    \"pid\": \"Spans\", \"tid\": \"PyTorch Profiler\",\n    \"name\": \"PyTorch Profiler (0)\",\n"
        "    \"args\": {\n      \"Op count\": 0");
    End();
    Begin();
    out_.Text(
        "    \"name\": \"Iteration Start: PyTorch Profiler\", \"ph\": \"i\", \"s\": \"g\",\n    \"pid\": \"Traces\", "
        "\"tid\": \"Trace PyTorch Profiler\", \"ts\": ");
    Time(begin_ns_);
    out_.Text("\n  }");
    Begin();
    out_.Text(
        "    \"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\",\n    \"pid\": \"\", \"tid\": \"\", "
        "\"ts\": ");
    Time(end_ns_);
    out_.Text("\n  }\n  ],\n");
    out_.Text(
        fmt::format("  \"traceName\": \"{}\",\n  \"displayTimeUnit\": \"ms\"", Escaped(KinetoFileName(spec_, rank_))));
    if (!k_.whole_microseconds) out_.Text(fmt::format(",\n  \"baseTimeNanoseconds\": {}", k_.base_ns));
    out_.Text("\n}\n");
  }

  const Spec& spec_;
  const KinetoSpec& k_;
  const schema::RankTables& t_;
  JsonStream& out_;
  std::int32_t rank_;
  std::int64_t pid_;
  std::vector<std::string> names_, type_lists_;     // Of strings; of operators' arguments.
  std::vector<std::size_t> comm_of_;                // Spec's communicator per row of comms.
  std::vector<std::uint32_t> collective_of_;        // Per kernel.
  std::vector<std::uint32_t> kernel_of_, copy_of_;  // Per correlation.
  std::vector<bool> backward_;                      // Per api row: on autograd's thread.
  std::unordered_map<std::uint8_t, std::string> nccl_names_;
  std::unordered_map<std::size_t, std::string> member_lists_;
  std::unordered_map<std::uint64_t, const GpuMessage*> message_of_;  // Per correlation.
  bool first_ = true;
  std::int64_t event_ = 0, annotations_ = 0, python_ = 0, allocated_ = 0, begin_ns_ = 0, end_ns_ = 0;
};

}  // namespace

std::string KinetoFileName(const Spec& spec, std::int32_t rank) {
  const std::string_view end = spec.kineto.gzip ? ".gz" : "";
  if (spec.kineto.layout == KinetoSpec::Layout::kFolders) return fmt::format("rank_{}/trace.json{}", rank, end);
  return fmt::format("worker{}_step_{}.{}.pt.trace.json{}", rank, spec.steps, 1'700'000'000'000 + rank, end);
}

Status WriteKineto(const Spec& spec, std::int32_t rank, const RankOutput& output, const std::string& path) {
  JsonStream out(path, {.minified = spec.kineto.minified, .gzip = spec.kineto.gzip});
  Writer(spec, rank, output, out).Write();
  return out.Close();
}

}  // namespace lockstep::make_run
