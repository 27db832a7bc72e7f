#include "ingest/nsys/read/report.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/schema_enums.h"
#include "ingest/map/names.h"
#include "ingest/rank_files/rank_source.h"

namespace lockstep::nsys {
namespace {

enum class Tells : std::uint8_t { kNothing, kGpu, kLaunches, kSteps };

// The tables with the events that are imported, the column with their process, and what they may tell of it.
constexpr struct {
  std::string_view table, column;
  Tells tells;
} kEvents[] = {
    {"CUPTI_ACTIVITY_KIND_KERNEL", "globalPid", Tells::kGpu},
    {"CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid", Tells::kGpu},
    {"CUPTI_ACTIVITY_KIND_MEMSET", "globalPid", Tells::kGpu},
    {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "globalPid", Tells::kGpu},
    {"CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid", Tells::kLaunches},
    {"NVTX_EVENTS", "globalTid", Tells::kSteps},
    {"MPI_P2P_EVENTS", "globalTid", Tells::kNothing},
    {"MPI_COLLECTIVES_EVENTS", "globalTid", Tells::kNothing},
    {"MPI_START_WAIT_EVENTS", "globalTid", Tells::kNothing},
    {"MPI_OTHER_EVENTS", "globalTid", Tells::kNothing},
};

std::int64_t NumberOf(std::string_view text) {
  std::int64_t number = -1;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && at == text.data() + text.size() ? number : -1;
}

}  // namespace

std::string RefuseReport(const Database& database) {
  // 2022.4 and before call it EXPORT_META_DATA; the oldest have neither.
  const bool says_so = database.Has("META_DATA_EXPORT") || database.Has("EXPORT_META_DATA") ||
                       database.Has("TARGET_INFO_SESSION_START_TIME") || database.Has("ANALYSIS_DETAILS") ||
                       database.Has("ENUM_NSYS_EVENT_TYPE");
  const bool events =
      std::any_of(std::begin(kEvents), std::end(kEvents), [&](const auto& event) { return database.Has(event.table); });
  if (!database.Has("StringIds") && !(says_so && events)) return "an SQLite database, but none of Nsight Systems";
  if (!says_so && !events) return "an SQLite database, but none of Nsight Systems";
  if (!events)
    return "a report of Nsight Systems without CUDA, NVTX and MPI events (profile with --trace=cuda,nvtx,mpi)";
  return "";
}

Result<Report> Report::Open(const std::string& path) {
  LS_TRY(Database database, Database::Open(path));
  if (const std::string why = RefuseReport(database); !why.empty())
    return Error{ErrorCode::kMalformed, why, path, "export a report: nsys export --type sqlite REPORT.nsys-rep"};
  Report report(std::move(database));
  report.ReadFacts();
  return report;
}

void Report::ReadFacts() {
  const auto ended = [&](const Rows& rows, std::string_view table) {
    if (!rows.trouble().empty())
      troubles_.push_back(std::string(table) + " after row " + std::to_string(rows.read()) + ": " + rows.trouble());
  };
  {
    Rows rows = database_.Select("StringIds", {"id", "value"});
    while (rows.Next())
      if (rows.Int(0) != kAbsent) strings_.try_emplace(rows.Int(0), rows.Text(1));
    ended(rows, "StringIds");
  }
  {
    Rows rows = database_.Select("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"});
    if (rows.Next()) start_utc_ns_ = rows.Int(0);
    ended(rows, "TARGET_INFO_SESSION_START_TIME");
  }
  for (const std::string_view table : {"META_DATA_EXPORT", "EXPORT_META_DATA"}) {
    Rows rows = database_.Select(table, {"name", "value"});
    while (rows.Next()) {
      if (rows.Text(0) == "EXPORT_PRODUCT_VERSION") product_ = rows.Text(1);
      if (rows.Text(0) == "EXPORT_SCHEMA_VERSION") schema_ = rows.Text(1);
    }
  }
  {
    std::map<std::int64_t, bool> serious;  // Severities, as their names say.
    Rows levels = database_.Select("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", {"id", "name"});
    while (levels.Next())
      serious[levels.Int(0)] =
          levels.Text(1).find("Warn") != std::string_view::npos || levels.Text(1).find("Err") != std::string_view::npos;
    Rows rows = database_.Select("DIAGNOSTIC_EVENT", {"severity", "text"});
    while (rows.Next())
      if (const auto level = serious.find(rows.Int(0)); level != serious.end() && level->second)
        warnings_.emplace_back(rows.Text(1).substr(0, 500));
    ended(rows, "DIAGNOSTIC_EVENT");
  }
  Rows rows = database_.Select("TARGET_INFO_SYSTEM_ENV", {"name", "value"});
  while (rows.Next()) {
    const std::string_view name = rows.Text(0), value = rows.Text(1);
    if (name == "Hostname") host_ = value;
    environment_.try_emplace(std::string(name), value);
    if (name != "DeviceEnvironment") continue;
    // Splits the text into lines, as a shell would show them.
    for (std::size_t at = 0; at < value.size();) {
      const std::size_t end = std::min(value.find('\n', at), value.size());
      const std::string_view line = value.substr(at, end - at);
      if (const std::size_t equals = line.find('='); equals != std::string_view::npos)
        environment_.try_emplace(std::string(line.substr(0, equals)), line.substr(equals + 1));
      at = end + 1;
    }
  }
  ended(rows, "TARGET_INFO_SYSTEM_ENV");
}

std::string_view Report::Text(std::int64_t id) const {
  const auto at = strings_.find(id);
  return at == strings_.end() ? std::string_view() : std::string_view(at->second);
}

bool Report::IsLaunch(const Rows& call) const {
  const std::uint8_t kind = ingest::ApiKind(Text(call.Int(1)));
  return kind == schema::ApiKind::kLaunch || kind == schema::ApiKind::kGraphLaunch;
}

bool Report::IsStep(const Rows& event) const {
  if (event.Int(2) != kNvtxPushPop && event.Int(2) != kNvtxStartEnd) return false;
  const std::string_view own = event.Text(3);
  return ingest::StepWord(ingest::EmittedRangeOf(own.empty() ? Text(event.Int(4)) : own).name) >= 0;
}

std::vector<Process> Report::Processes() const {
  std::map<std::uint64_t, Process> found;
  for (const auto& event : kEvents) {
    Rows rows = database_.Select(event.table, {event.column, "nameId", "eventType", "text", "textId"});
    Process* last = nullptr;
    while (rows.Next()) {
      // Versions that profiled one process did not record which.
      const std::uint64_t process = rows.Int(0) == kAbsent ? 0 : ProcessOf(rows.Int(0));
      if (last == nullptr || last->process != process) last = &found[process];
      last->process = process;
      ++last->events;
      last->gpu |= event.tells == Tells::kGpu;
      if (event.tells == Tells::kLaunches && !last->launches) last->launches = IsLaunch(rows);
      if (event.tells == Tells::kSteps && !last->steps) last->steps = IsStep(rows);
    }
  }
  // GPU events without a process belong to the only one.
  if (found.size() == 2 && found.contains(0)) {
    Process& only = found.rbegin()->second;
    const Process& rest = found.begin()->second;
    only.gpu |= rest.gpu, only.launches |= rest.launches, only.steps |= rest.steps;
    only.events += rest.events;
    found.erase(found.begin());
  }
  const auto ranked = [&](std::int64_t global_tid, std::int64_t rank) {
    const std::int32_t told = ingest::ToldRank(rank);
    if (global_tid == kAbsent || told < 0) return;
    if (const auto at = found.find(ProcessOf(global_tid)); at != found.end()) at->second.mpi_rank = told;
  };
  Rows ranks = database_.Select("MPI_RANKS", {"globalTid", "rank"});
  while (ranks.Next()) ranked(ranks.Int(0), ranks.Int(1));
  if (ranks.read() == 0) {
    // 2022.4 names the thread that called MPI_Init.
    constexpr std::string_view kPrefix = "MPI Rank ";
    Rows names = database_.Select("NVTX_EVENTS", {"eventType", "globalTid", "text", "textId"});
    while (names.Next()) {
      if (names.Int(0) != kNvtxThread) continue;
      std::string_view text = names.Text(2);
      if (text.empty()) text = Text(names.Int(3));
      if (text.starts_with(kPrefix)) ranked(names.Int(1), NumberOf(text.substr(kPrefix.size())));
    }
  }
  std::vector<Process> all;
  for (const auto& [number, process] : found) all.push_back(process);
  return all;
}

std::int64_t Report::WorldSize() const {
  std::int64_t size = 0;
  Rows rows = database_.Select("MPI_COMMUNICATORS", {"size"});
  while (rows.Next()) size = std::max(size, ingest::ToldSize(rows.Int(0)));
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS", "WORLD_SIZE"})
    if (const auto at = environment_.find(name); size <= 0 && at != environment_.end())
      size = ingest::ToldSize(NumberOf(at->second));
  return size;
}

std::int32_t Report::RankOfEnvironment() const {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "RANK", "SLURM_PROCID"})
    if (const auto at = environment_.find(name); at != environment_.end())
      if (const std::int32_t rank = ingest::ToldRank(NumberOf(at->second)); rank >= 0) return rank;
  return -1;
}

}  // namespace lockstep::nsys
