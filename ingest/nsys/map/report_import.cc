#include "ingest/nsys/map/report_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "ingest/map/collectives.h"
#include "ingest/map/finish.h"
#include "ingest/map/gpu_times.h"
#include "ingest/map/launches.h"
#include "ingest/nsys/map/context.h"
#include "ingest/nsys/map/mpi.h"
#include "ingest/nsys/map/nvtx.h"
#include "ingest/nsys/map/os_calls.h"
#include "trace/file/strings.h"

namespace lockstep::nsys {
namespace {

using ingest::ImportedTrace;
using ingest::RankFinish;
using ingest::TraceOptions;
using ingest::TracePart;

// Tables without events, or with events of processes other than the ranks: not worth a line.
bool IsEvents(std::string_view table) {
  for (const std::string_view part : {"ENUM_",
                                      "TARGET_INFO_",
                                      "META_DATA_",
                                      "EXPORT_META_DATA",
                                      "StringIds",
                                      "ThreadNames",
                                      "PROCESSES",
                                      "ProcessStreams",
                                      "ANALYSIS_",
                                      "sqlite_",
                                      "MPI_RANKS",
                                      "MPI_COMMUNICATORS",
                                      "DIAGNOSTIC_EVENT",
                                      "PROFILER_OVERHEAD",
                                      "NVTX_PAYLOAD",
                                      "NVTX_SCOPES",
                                      "GENERIC_EVENT",
                                      "GPU_CONTEXT",
                                      "PMU_",
                                      "NIC_ID_MAP",
                                      "RANGE_"})
    if (table.starts_with(part)) return false;
  for (const std::string_view part : {"CALLCHAINS", "_ARGUMENTS"})
    if (table.find(part) != std::string_view::npos) return false;
  for (const std::string_view used :
       {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUDA_GPU_MEMORY_USAGE_EVENTS", "NVTX_EVENTS", "MPI_P2P_EVENTS",
        "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS", "OSRT_API"})
    if (table == used) return false;
  return true;
}

// Ranges and calls that never ended last until the last sign of life.
void CloseOpen(schema::RankTables& t, const std::vector<std::uint8_t>& open_calls) {
  std::int64_t last = std::numeric_limits<std::int64_t>::min();
  for (std::size_t i = 0; i < t.threads.rows(); ++i) last = std::max(last, t.threads.end_ns[i]);
  for (std::size_t i = 0; i < t.kernels.rows(); ++i)
    last = std::max(last, t.kernels.begin_ns[i] + t.kernels.duration_ns[i]);
  for (std::size_t i = 0; i < t.ranges.rows(); ++i)
    if (t.ranges.open[i]) t.ranges.duration_ns[i] = std::max<std::int64_t>(last - t.ranges.begin_ns[i], 0);
  for (std::size_t i = 0; i < open_calls.size() && i < t.mpi_calls.rows(); ++i)
    if (open_calls[i]) t.mpi_calls.duration_ns[i] = std::max<std::int64_t>(last - t.mpi_calls.begin_ns[i], 0);
  for (std::size_t i = 0; i < t.steps.rows(); ++i)
    if (!t.steps.complete[i]) t.steps.end_ns[i] = std::max(t.steps.end_ns[i], last);
}

class Builder {
 public:
  Builder(const Report& report, const TracePart& part, const TraceOptions& options)
      : report_(report),
        part_(part),
        options_(options),
        context_(report, part.process, trace_),
        finish_(trace_, out_.summary, options) {
    trace_.strings = std::make_unique<ingest::Strings>(trace_.tables.strings, trace_.tables.string_bytes);
  }

  ImportedTrace Run() {
    ingest::TraceSummary& s = out_.summary;
    schema::RankTables& t = trace_.tables;
    s.told_rank = part_.told_rank;
    s.told_world_size = part_.told_world_size;
    const std::uint64_t graphs = MapGpu(context_);
    ingest::AlignGpuTimes(trace_, finish_);
    MpiCalls mpi(context_);
    mpi.ReadTables();
    const std::uint64_t other_calls = MapOsCalls(context_);
    MapNvtx(context_, mpi);
    finish_.Steps();
    const std::int64_t world = std::max<std::int64_t>(finish_.world_size(), finish_.rank() + 1);
    ingest::CommunicationFacts communication = ingest::FindCollectives(trace_, "", finish_.rank(), world);
    s.groups = std::move(communication.groups);
    const MpiCalls::Facts calls = mpi.Emit(finish_.rank(), world, s.groups);
    context_.NameThreads();
    ingest::SetDepths(t, options_.jobs);
    CloseOpen(t, calls.open_calls);
    ingest::TieLaunches(trace_);
    finish_.Identify("nsys");
    finish_.Span();
    if (report_.start_utc_ns() > 0) finish_.Snapshots();
    Losses(communication, calls, graphs, other_calls);
    Meta(communication);
    s.events = context_.events();
    finish_.Count();
    out_.tables = std::move(t);
    return std::move(out_);
  }

 private:
  void Losses(const ingest::CommunicationFacts& communication, const MpiCalls::Facts& calls, std::uint64_t graphs,
              std::uint64_t other_calls) {
    const std::string& source = options_.source;
    const auto lose = [&](Loss loss, std::uint64_t count, std::string_view detail) {
      if (count > 0) finish_.Lose(loss, count, fmt::format("{}{}{}", source, detail.empty() ? "" : ": ", detail));
    };
    if (part_.first) {
      if (report_.database().cut()) lose(Loss::kImportDamaged, 1, "the file is shorter than it says");
      if (const std::string& beside = report_.database().unfinished(); !beside.empty())
        lose(Loss::kImportDamaged, 1,
             beside + " is not read: the program that writes the file has not finished, or was killed");
      for (const std::string& trouble : report_.troubles()) lose(Loss::kImportDamaged, 1, trouble);
      std::string unused;
      for (const std::string& table : report_.database().TablesWith(""))
        if (const std::uint64_t rows = IsEvents(table) ? report_.database().RowsIn(table) : 0; rows > 0) {
          unused += fmt::format("{}{} ({} row{})", unused.empty() ? "" : ", ", table, rows, rows == 1 ? "" : "s");
          unused_ += rows;
        }
      for (const std::string& warning : report_.warnings()) lose(Loss::kImportToolWarned, 1, warning);
      lose(Loss::kImportCategorySkipped, unused_, "tables of events that are not used: " + unused);
    }
    for (const ingest::CountedLoss& loss : part_.losses) lose(loss.loss, loss.count, loss.detail);
    for (const std::string& trouble : context_.troubles()) lose(Loss::kImportDamaged, 1, trouble);
    lose(Loss::kImportEventUnreadable, context_.unreadable(), "");
    lose(Loss::kImportTimeInvalid, context_.times_invalid(), "");
    lose(Loss::kImportNegativeDuration, context_.negative(), "");
    lose(Loss::kImportGraphWhole, graphs, "profile with --cuda-graph-trace=node");
    lose(Loss::kImportRequestUnknown, calls.without_completion, "");
    lose(Loss::kImportCategorySkipped, calls.unknown_calls, "MPI calls by names that are not known here");
    lose(Loss::kImportCategorySkipped, calls.without_partner, "messages whose partner is not in the trace");
    lose(Loss::kImportCategorySkipped, other_calls,
         "system calls of threads that call neither the GPU's runtime nor MPI (OSRT_API)");
    finish_.LoseUnknowns(communication.without_group + calls.without_communicator);
  }

  void Meta(const ingest::CommunicationFacts& communication) {
    finish_.Add("nsys_version", report_.product());
    finish_.Add("nsys_schema", report_.schema());
    finish_.Add("host", report_.host());
    finish_.Add("node", report_.host());
    // Ranks of one session have one clock.
    finish_.Add("clock_domain", part_.session);
    if (context_.tables().kernels.rows() > 0) finish_.Add("fact.framework", RunsTorch() ? "torch" : "other");
    if (communication.in_several_kernels > 0)
      finish_.Add("operations_in_several_kernels", std::to_string(communication.in_several_kernels));
    if (communication.grouped > 0) finish_.Add("operations_grouped", std::to_string(communication.grouped));
  }

  // PyTorch's own kernels, at::native::..., are in every job of it: initialisation and optimizers launch them.
  bool RunsTorch() {
    const schema::RankTables& t = context_.tables();
    for (std::uint32_t text = 0; text < t.strings.rows(); ++text)
      if (lockstep::trace::TextOf(t, text).find("at::native::") != std::string_view::npos) return true;
    return false;
  }

  const Report& report_;
  const TracePart& part_;
  const TraceOptions& options_;
  ingest::MappedTrace trace_;
  ImportedTrace out_;
  Context context_;
  RankFinish finish_;
  std::uint64_t unused_ = 0;
};

}  // namespace

Result<std::vector<TracePart>> RanksOf(const std::string& path) {
  LS_TRY(const Report report, Report::Open(path));
  std::vector<Process> processes = report.Processes();
  ingest::CountedLoss others{Loss::kImportCategorySkipped, 0, ""};
  std::size_t others_count = 0;
  const auto keep = [&](auto&& wanted) {
    if (std::none_of(processes.begin(), processes.end(), wanted)) return false;
    for (const Process& process : processes)
      if (!wanted(process)) others.count += process.events, ++others_count;
    std::erase_if(processes, [&](const Process& process) { return !wanted(process); });
    return true;
  };
  // A process whose GPU was not captured still is a rank by what it asks of it, or does step by step.
  if (!keep([](const Process& process) { return process.mpi_rank >= 0; }) &&
      std::any_of(processes.begin(), processes.end(),
                  [](const Process& process) { return process.gpu || process.launches; }))
    keep([](const Process& process) { return process.gpu || process.launches || process.steps; });
  const bool gpus = std::any_of(processes.begin(), processes.end(), [](const Process& process) { return process.gpu; });
  const std::int64_t world = report.WorldSize();
  std::vector<TracePart> parts;
  for (const Process& process : processes) {
    TracePart part;
    part.process = process.process;
    part.shared = processes.size() > 1;
    part.first = parts.empty();
    if (part.shared) part.name = fmt::format("process {}", PidOf(process.process));
    if (part.shared) part.session = fmt::format("nsys session {} {}", report.start_utc_ns(), processes[0].process);
    part.told_rank = process.mpi_rank >= 0 || part.shared ? process.mpi_rank : report.RankOfEnvironment();
    part.told_world_size = world;
    if (gpus && !process.gpu && !process.launches && process.mpi_rank < 0)
      part.losses.push_back({Loss::kGpuNotCaptured, 1, "marks steps and launches nothing, which others do"});
    parts.push_back(std::move(part));
  }
  others.detail =
      others_count == 1 ? "a process that is no rank" : fmt::format("{} processes that are no ranks", others_count);
  if (others.count > 0 && !parts.empty()) parts.front().losses.push_back(std::move(others));
  return parts;
}

Result<ImportedTrace> ImportRank(const std::string& path, const TracePart& part, const TraceOptions& options) {
  LS_TRY(const Report report, Report::Open(path));
  ImportedTrace trace = Builder(report, part, options).Run();
  trace.summary.read_bytes = part.bytes;
  if (options.progress) options.progress(part.bytes, part.bytes);
  return trace;
}

}  // namespace lockstep::nsys
