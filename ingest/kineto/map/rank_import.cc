#include "ingest/kineto/map/rank_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "ingest/kineto/map/join.h"
#include "ingest/kineto/map/owners.h"
#include "ingest/kineto/map/partial.h"
#include "ingest/map/collectives.h"
#include "ingest/map/finish.h"
#include "ingest/map/gpu_times.h"
#include "ingest/map/launches.h"
#include "ingest/rank_files/rank_source.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

using schema::kNone;
using schema::kNoTime;

// Maps every batch on the thread that delivers it.
class MappingSink final : public kineto::Sink {
 public:
  void Batch(std::size_t index, std::span<const kineto::Event> events) override {
    std::unique_ptr<Partial> partial = MapBatch(events);
    const std::lock_guard lock(mutex_);
    if (index >= parts_.size()) parts_.resize(index + 1);
    parts_[index] = std::move(partial);
  }
  std::vector<std::unique_ptr<Partial>> Take() {
    std::erase(parts_, nullptr);
    return std::move(parts_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Partial>> parts_;
};

std::int64_t Number(const nlohmann::json& object, std::initializer_list<const char*> keys, std::int64_t fallback) {
  for (const char* key : keys) {
    const auto at = object.find(key);
    if (at == object.end()) continue;
    if (at->is_number_integer()) return at->get<std::int64_t>();
    if (at->is_number_unsigned()) return static_cast<std::int64_t>(at->get<std::uint64_t>() & INT64_MAX);
    if (!at->is_string()) continue;
    const std::string& text = at->get_ref<const std::string&>();
    std::int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return number;
  }
  return fallback;
}

std::string Text(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return "";
  return at->is_string() ? at->get<std::string>() : at->is_primitive() && !at->is_null() ? at->dump() : "";
}

// Makes one line, as facts must be.
std::string Plain(std::string text) {
  for (char& c : text)
    if (c == '\t' || c == '\n' || c == '\0') c = ' ';
  return text;
}

// distributedInfo.pg_config: the groups that the rank is in. Of a group of all ranks some versions list none.
std::vector<ToldGroup> ToldGroups(const nlohmann::json& info) {
  std::vector<ToldGroup> groups;
  const auto list = info.find("pg_config");
  if (list == info.end() || !list->is_array()) return groups;
  for (const auto& each : *list) {
    if (!each.is_object()) continue;
    ToldGroup group{Text(each, "pg_name"), {}};
    const auto ranks = each.find("ranks");
    if (group.name.empty() || ranks == each.end() || !ranks->is_array()) continue;
    for (const auto& rank : *ranks)
      if (rank.is_number_integer()) group.ranks.push_back(ToldRank(rank.get<std::int64_t>()));
    std::sort(group.ranks.begin(), group.ranks.end());
    if (!group.ranks.empty() && group.ranks.front() >= 0) groups.push_back(std::move(group));
  }
  return groups;
}

class RankBuilder {
 public:
  // `label_rank`: the rank that a label in a merged file states, else -1.
  RankBuilder(std::unique_ptr<JoinedTrace> trace, const kineto::ReadResult& read, const TraceOptions& options,
              std::int32_t label_rank)
      : trace_(std::move(trace)),
        t_(trace_->tables),
        read_(read),
        options_(options),
        finish_(*trace_, out_.summary, options) {
    const auto info = nlohmann::json::parse(read.facts.distributed_info, nullptr, false);
    info_ = info.is_object() ? info : nlohmann::json::object();
    out_.summary.told_rank = label_rank >= 0 ? label_rank : ToldRank(Number(info_, {"rank"}, -1));
  }

  ImportedTrace Run() {
    TraceSummary& s = out_.summary;
    s.told_world_size = ToldSize(Number(info_, {"world_size"}, 0));
    s.backend = Text(info_, "backend");
    s.nccl_version = Text(info_, "nccl_version");
    s.host = Host();
    s.told_groups = ToldGroups(info_);
    s.operations_rank = RankFromOperations(*trace_, s.told_world_size);
    rank_ = finish_.rank();
    world_ = finish_.world_size();
    Devices();
    const std::int64_t moved_ns = AlignGpuTimes(*trace_, finish_);
    if (trace_->gpu_step_ns != kNoTime) trace_->gpu_step_ns = Shifted(trace_->gpu_step_ns, moved_ns);
    Steps();
    const CommunicationFacts communication =
        FindCollectives(*trace_, read_.facts.distributed_info, rank_, std::max<std::int64_t>(world_, rank_ + 1));
    s.groups = communication.groups;
    Unrecorded();
    finish_.Identify("kineto");
    finish_.Span();
    finish_.Snapshots();
    Losses(communication);
    Meta(communication);
    s.events = read_.events;
    s.read_bytes = read_.json_bytes;
    finish_.Count();
    out_.tables = std::move(t_);
    return std::move(out_);
  }

 private:
  std::uint32_t Intern(std::string_view text) { return finish_.Intern(text); }

  void Devices() {
    const auto list = nlohmann::json::parse(read_.facts.device_properties, nullptr, false);
    std::set<std::uint16_t> known;
    const bool hip = trace_->hip;
    if (list.is_array()) {
      for (const auto& item : list) {
        if (!item.is_object()) continue;
        const std::int64_t id = Number(item, {"id"}, static_cast<std::int64_t>(known.size()));
        if (id < 0 || id > 65534 || !known.insert(static_cast<std::uint16_t>(id)).second) continue;
        const std::string name = Text(item, "name");
        const auto positive = [&](std::initializer_list<const char*> keys, std::int64_t most) {
          return std::clamp<std::int64_t>(Number(item, keys, 0), 0, most);
        };
        t_.devices.Append({.device = static_cast<std::uint16_t>(id),
                           .name = Intern(name),
                           .memory_bytes = static_cast<std::uint64_t>(positive({"totalGlobalMem"}, INT64_MAX)),
                           .sm_count = static_cast<std::uint32_t>(positive({"numSms"}, kNone)),
                           .max_threads_per_sm = static_cast<std::uint32_t>(
                               positive({"maxThreadsPerMultiprocessor", "maxThreadsPerMultiProcessor"}, kNone)),
                           .compute_major = static_cast<std::uint16_t>(positive({"computeMajor"}, 65535)),
                           .compute_minor = static_cast<std::uint16_t>(positive({"computeMinor"}, 65535)),
                           .vendor = static_cast<std::uint8_t>(hip || name.starts_with("AMD") ? 2 : 1)});
      }
    }
    std::set<std::uint16_t> used;
    std::uint16_t last = 65535;
    for (const auto* column : {&t_.kernels.device, &t_.copies.device})
      for (const std::uint16_t device : *column)
        if (device != last) used.insert(last = device);
    for (const std::uint16_t device : used)
      if (known.insert(device).second)
        t_.devices.Append({.device = device, .name = kNone, .vendor = static_cast<std::uint8_t>(hip ? 2 : 1)});
  }

  // ProfilerStep#N on each thread that has it, else ranges. A step that the profiler's own window cut is not whole.
  void Steps() {
    if (options_.step_range.empty() && !trace_->steps.empty()) {
      ProfilerSteps();
    } else {
      trace_->steps.clear();
      finish_.Steps();
      // The thread that marks the steps is the one that trains.
      if (t_.steps.rows() > 0)
        for (std::size_t i = 0; i < t_.threads.rows(); ++i) t_.threads.training[i] = t_.steps.thread[0] == i;
    }
    if (trace_->window_end_ns == kNoTime) return;
    for (std::size_t i = 0; i < t_.steps.rows(); ++i)
      if (t_.steps.end_ns[i] > trace_->window_end_ns) t_.steps.complete[i] = 0;
  }

  // The same mark twice counts once.
  void ProfilerSteps() {
    auto& marks = trace_->steps;
    std::stable_sort(marks.begin(), marks.end(), [](const StepMark& a, const StepMark& b) {
      return std::tuple(a.begin_ns, a.index, a.thread, a.end_ns) < std::tuple(b.begin_ns, b.index, b.thread, b.end_ns);
    });
    for (std::size_t i = 0; i < marks.size(); ++i) {
      const StepMark& mark = marks[i];
      if (i > 0 && marks[i - 1].index == mark.index && marks[i - 1].thread == mark.thread &&
          marks[i - 1].begin_ns == mark.begin_ns)
        continue;
      t_.steps.Append({.index = mark.index,
                       .begin_ns = mark.begin_ns,
                       .end_ns = mark.end_ns,
                       .source = schema::StepSource::kProfilerStep,
                       .complete = 1,
                       .warmup = 0,
                       .thread = mark.thread,
                       .cpu_ns = -1});
    }
  }

  // Communication that does not run on a GPU. It is recorded in its operations' ranges and in the run's facts, as
  // PyTorch's hooks would have recorded it.
  void Unrecorded() {
    std::string backends = out_.summary.backend;
    const bool gpu = t_.collectives.rows() > 0 || t_.p2p.rows() > 0;
    std::set<std::string> names;
    for (std::size_t at = 0; at < backends.size();) {  // "nccl", "cpu:gloo,cuda:nccl".
      const std::size_t end = std::min(backends.find(',', at), backends.size());
      std::string one = backends.substr(at, end - at);
      if (const std::size_t colon = one.rfind(':'); colon != std::string::npos) one = one.substr(colon + 1);
      if (!one.empty()) names.insert(Plain(one));
      at = end + 1;
    }
    names.insert(trace_->host_backends.begin(), trace_->host_backends.end());
    std::size_t nth = 0;
    for (const std::string& name : names) {
      // What the trace contains decides: a backend that was set up and never used took no time.
      const bool ranges = trace_->host_backends.contains(name);
      const bool unseen = name == "gloo" ? ranges || !gpu : name == "ucc" || name == "mpi";
      const std::string key = nth++ == 0 ? "fact.torch_backend" : "fact.torch_backend." + std::to_string(nth);
      Add(key, fmt::format("name={}\trecorded={}\tsize={}\tonly={}", name, unseen ? 0 : 1, world_,
                           names.size() == 1 ? 1 : 0));
      // A fact of its own: it holds for the run if any rank has it.
      if (ranges) Add("fact.torch_ranges." + name, "backend=" + name);
    }
    if (gpu || trace_->host_backends.empty()) return;
    // PyTorch 2's dispatcher calls around them are communication as well.
    std::vector<std::uint8_t> own(t_.strings.rows(), 2);
    for (std::size_t i = 0; i < t_.ranges.rows(); ++i) {
      const std::uint32_t name = t_.ranges.name[i];
      if (t_.ranges.category[i] != schema::Category::kNone || name >= own.size()) continue;
      if (own[name] == 2) own[name] = lockstep::trace::TextOf(t_, name).starts_with("c10d::");
      if (own[name] == 1) t_.ranges.category[i] = schema::Category::kCommunication;
    }
  }

  void Losses(const CommunicationFacts& communication) {
    const std::string& source = options_.source;
    for (const kineto::Defect& defect : read_.defects)
      finish_.Lose(defect.loss, defect.count, source + (defect.detail.empty() ? "" : ": " + defect.detail));
    static constexpr const char* kSkipped[] = {"GPU annotations (the host's are used)", "profiler overhead",
                                               "categories of no use", "work of a device"};
    for (std::size_t i = 0; i < std::size(trace_->skipped); ++i) {
      if (trace_->skipped[i] == 0) continue;
      std::string detail = kSkipped[i];
      if (i == static_cast<std::size_t>(Skipped::kOther) && !trace_->other_categories.empty())
        detail += fmt::format(": {}", fmt::join(trace_->other_categories, ", "));
      if (i == static_cast<std::size_t>(Skipped::kDevice)) continue;
      finish_.Lose(Loss::kImportCategorySkipped, trace_->skipped[i], detail);
    }
    // The device's work is not known, so the host's time must not be taken for all there was.
    if (const std::uint64_t device = trace_->skipped[static_cast<std::size_t>(Skipped::kDevice)]; device > 0)
      finish_.Lose(Loss::kGpuNotCaptured, 1,
                   fmt::format("{} of a device, of a kind that is not understood: {}",
                               device == 1 ? "1 event" : fmt::format("{} events", device),
                               fmt::join(trace_->device_categories, ", ")));
    finish_.LoseUnknowns(communication.without_group);
  }

  void Add(std::string_view key, std::string_view value) { finish_.Add(key, value); }

  void Meta(const CommunicationFacts& communication) {
    Add("trace_name", read_.facts.trace_name);
    if (read_.facts.base_time_ns != 0) Add("base_time_ns", std::to_string(read_.facts.base_time_ns));
    // For --window hta, the begin of the last step: the mark on a GPU's track is one more row of its name.
    if (trace_->gpu_step_ns != kNoTime) Add("last_profiler_step_ns", std::to_string(trace_->gpu_step_ns));
    Add("torch_backend", out_.summary.backend);
    Add("nccl_version", out_.summary.nccl_version);
    if (const std::string& host = out_.summary.host; !host.empty()) Add("host", host), Add("node", host);
    if (communication.in_several_kernels > 0)
      Add("operations_in_several_kernels", std::to_string(communication.in_several_kernels));
    if (communication.grouped > 0) Add("operations_grouped", std::to_string(communication.grouped));
    std::size_t kept = 0;
    for (const auto& [key, value] : read_.facts.others)
      if (key.size() <= 64 && value.size() <= 256 && kept++ < 32) Add("trace." + key, value);
  }

  // As Kineto writes it since 2025; else "HOST_PID.TIME.pt.trace.json", as torch.profiler.tensorboard_trace_handler
  // names files.
  std::string Host() const {
    for (const auto& [key, value] : read_.facts.others)
      if (key == "host_name")
        if (const auto text = nlohmann::json::parse(value, nullptr, false); text.is_string() && text != "")
          return Plain(text.get<std::string>());
    std::string name = options_.source.substr(options_.source.find_last_of('/') + 1);
    const std::size_t dot = name.find(".pt.trace.json");
    if (dot == std::string::npos) return "";
    name.resize(dot);
    if (const std::size_t time = name.rfind('.'); time != std::string::npos) name.resize(time);
    const std::size_t underscore = name.rfind('_');
    if (underscore == std::string::npos || underscore == 0) return "";
    const std::string pid = name.substr(underscore + 1);
    for (const std::int64_t own : t_.processes.pid)
      if (std::to_string(own) == pid) return name.substr(0, underscore);
    return "";
  }

  std::unique_ptr<JoinedTrace> trace_;
  schema::RankTables& t_;
  const kineto::ReadResult& read_;
  const TraceOptions& options_;
  nlohmann::json info_;
  std::int32_t rank_ = -1;
  std::int64_t world_ = 0;
  ImportedTrace out_;
  RankFinish finish_;
};

// What distributedInfo says of every rank: of a merged file it is one rank's, and which one's is not told.
std::string OfAllRanks(const std::string& distributed_info) {
  auto info = nlohmann::json::parse(distributed_info, nullptr, false);
  if (!info.is_object()) return "";
  info.erase("rank");
  const std::int64_t world = Number(info, {"world_size"}, 0);
  if (const auto groups = info.find("pg_config"); groups != info.end() && groups->is_array()) {
    auto kept = nlohmann::json::array();
    for (const auto& group : *groups)
      if (group.is_object() && world > 0 && Number(group, {"pg_size"}, 0) == world) kept.push_back(group);
    *groups = std::move(kept);
  }
  return info.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ImportedTrace BuildRank(std::vector<std::unique_ptr<Partial>> partials, const kineto::ReadResult& read,
                        const TraceOptions& options, std::int32_t label_rank) {
  return RankBuilder(Join(std::move(partials), read.facts.base_time_ns, options.jobs), read, options, label_rank).Run();
}

Result<std::vector<ImportedTrace>> Build(std::vector<std::unique_ptr<Partial>> partials, kineto::ReadResult read,
                                         const TraceOptions& options) {
  LS_TRY(std::vector<OwnTrace> ranks, TakeApart(partials, options.jobs));
  std::vector<ImportedTrace> traces;
  if (ranks.empty()) {
    traces.push_back(BuildRank(std::move(partials), read, options, -1));
    return traces;
  }
  read.facts.distributed_info = OfAllRanks(read.facts.distributed_info);
  TraceOptions own = options;
  own.rank = -1;  // What was assumed was for one rank in the file.
  own.rank_from.clear();
  own.rank_guessed = false;
  own.world_size = std::max(own.world_size, static_cast<std::int64_t>(ranks.size()));
  for (OwnTrace& rank : ranks) {
    own.source = PartName(options.source, rank.name);
    traces.push_back(BuildRank(std::move(rank.partials), read, own, rank.told_rank));
    traces.back().name = std::move(rank.name);
    // What is wrong with the file as a whole is said once, and its bytes count once.
    read.defects.clear();
    read.events = read.json_bytes = 0;
  }
  return traces;
}

kineto::ReadOptions ReadOptionsOf(const TraceOptions& options) {
  kineto::ReadOptions read;
  read.jobs = options.jobs;
  read.python_functions = options.python_functions;
  read.progress = options.progress;
  return read;
}

}  // namespace

Result<std::vector<ImportedTrace>> ImportTrace(const std::string& path, const TraceOptions& options) {
  MappingSink sink;
  LS_TRY(kineto::ReadResult read, kineto::ReadTrace(path, ReadOptionsOf(options), sink));
  return Build(sink.Take(), std::move(read), options);
}

Result<std::vector<ImportedTrace>> ImportTraceText(std::string_view json, const TraceOptions& options) {
  MappingSink sink;
  LS_TRY(kineto::ReadResult read, kineto::ReadTraceText(json, ReadOptionsOf(options), sink));
  return Build(sink.Take(), std::move(read), options);
}

Result<std::vector<ImportedTrace>> ImportEvents(std::span<const std::vector<kineto::Event>> batches,
                                                const kineto::ReadResult& read, const TraceOptions& options) {
  std::vector<std::unique_ptr<Partial>> partials;
  for (const auto& batch : batches) partials.push_back(MapBatch(batch));
  return Build(std::move(partials), read, options);
}

}  // namespace lockstep::ingest
