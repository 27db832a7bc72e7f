// Recognises reports of Nsight Systems.

#include <filesystem>
#include <string>
#include <system_error>

#include "ingest/foreign.h"
#include "ingest/nsys/map/report_import.h"
#include "ingest/nsys/read/report.h"

namespace lockstep::ingest {
namespace {

// Reports that were not exported are listed too, so that the user learns what is missing: "a.nsys-rep" without
// "a.sqlite" beside it.
bool IsReport(std::string_view path) {
  for (const std::string_view end : {".nsys-rep", ".qdrep", ".qdstrm"}) {
    if (!path.ends_with(end)) continue;
    path.remove_suffix(end.size());
    std::error_code absent;
    return !std::filesystem::exists(std::string(path) + ".sqlite", absent);
  }
  return false;
}
bool NamedLike(std::string_view name) {
  return name.ends_with(".sqlite") || name.ends_with(".sqlite3") || IsReport(name);
}

std::string Refuse(const FileLook& look) {
  if (!nsys::BeginsLikeDatabase(look.first)) {
    if (IsReport(look.path)) return "a report as Nsight Systems keeps it: export it with nsys export --type sqlite";
    return look.bytes == 0 ? "the file is empty" : "no SQLite database";
  }
  const Result<nsys::Database> database = nsys::Database::Open(look.path);
  // A damaged report is accepted: the import reports which parts can be read.
  return database.ok() ? nsys::RefuseReport(database.value()) : "";
}

Result<std::vector<TracePart>> Parts(const FileLook& look) { return nsys::RanksOf(look.path); }

// Rows become columns of about the same size; the strings are held beside them.
std::uint64_t WorkBytes(const FileLook& look) { return look.bytes; }

Result<std::vector<ImportedTrace>> Read(const std::string& path, const TracePart& part, const TraceOptions& options) {
  LS_TRY(ImportedTrace trace, nsys::ImportRank(path, part, options));
  std::vector<ImportedTrace> traces;
  traces.push_back(std::move(trace));
  return traces;
}

}  // namespace

extern const ForeignFormat kNsysFormat;
const ForeignFormat kNsysFormat = {
    .name = "nsys",
    .program = "Nsight Systems",
    .what = "Reports of Nsight Systems, exported as SQLite",
    .write = "nsys export --type sqlite REPORT.nsys-rep",
    .named_like = NamedLike,
    .begins_like = nsys::BeginsLikeDatabase,
    .refuse = Refuse,
    .parts = Parts,
    .work_bytes = WorkBytes,
    .read = Read,
    .needs_export = IsReport,
};

}  // namespace lockstep::ingest
