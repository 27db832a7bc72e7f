#include "ingest/imported_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/hash.h"
#include "core/hex.h"
#include "core/own_file.h"
#include "core/version.h"
#include "ingest/formats.h"

namespace lockstep::ingest {
namespace fs = std::filesystem;
namespace {

// Increased when the same traces give other tables: caches are made again.
constexpr std::uint64_t kImportRevision = 4;
constexpr const char* kMoving = ".import-moving";  // A directory that is there while MoveRun works.

}  // namespace

Status WriteManifest(const TraceFiles& traces, const ImportOptions& options, const std::string& run_id,
                     std::int64_t world_size, const std::vector<ImportLoss>& run_losses) {
  nlohmann::ordered_json json;
  json["format"] = "lockstep.run/1";
  json["lockstep_version"] = LOCKSTEP_VERSION;
  json["run_id"] = run_id;
  json["world_size"] = world_size;
  std::string what = fs::path(CommonDirectory(traces.files)).filename().string();
  if (traces.files.size() == 1) what = fs::path(traces.files[0].name).filename().string();
  std::string programs, formats;
  for (const ForeignFormat* format : ForeignFormats()) {
    if (std::none_of(traces.files.begin(), traces.files.end(),
                     [&](const TraceFile& file) { return file.format == format; }))
      continue;
    programs += (programs.empty() ? "" : "+") + std::string(format->program);  // One word, as a program is.
    formats += (formats.empty() ? "" : ", ") + std::string(format->name);
  }
  json["command"] = {programs, what};
  json["imported"] = formats;
  json["inputs"] = InputsKey(traces, options.python_functions, options.step_range);
  auto& files = json["files"] = nlohmann::ordered_json::array();
  for (const TraceFile& file : traces.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"modified_ns", file.modified_ns}});
  auto& losses = json["losses"] = nlohmann::ordered_json::array();
  for (const ImportLoss& loss : run_losses) {
    losses.push_back(
        {{"name", Info(loss.loss).name}, {"rank", loss.rank}, {"count", loss.count}, {"detail", loss.detail}});
  }
  const std::string path = (fs::path(options.run_dir) / "manifest.json").string();
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (const int error = ReplaceFile(path, text, 0666); error != 0)
    return Error{ErrorCode::kIo, "cannot write the manifest: " + std::generic_category().message(error), path,
                 "free space on that file system, or choose another with -o"};
  return Ok();
}

std::string InputsKey(const TraceFiles& traces, bool python_functions, std::string_view step_range) {
  Hash64 key;
  key.Add(std::string_view(LOCKSTEP_VERSION));
  key.Add(kImportRevision);
  key.Add(std::uint64_t{python_functions});
  key.Add(step_range);
  for (const TraceFile& file : traces.files) {
    key.Add(file.format->name);
    key.Add(std::string_view(file.real));
    key.Add(file.bytes);
    key.Add(static_cast<std::uint64_t>(file.modified_ns));
  }
  return Hex(key.value());
}

std::string InputsOf(const std::string& run_dir) {
  std::error_code absent;
  if (!fs::is_regular_file(fs::path(run_dir) / "manifest.json", absent)) return "";
  std::ifstream file(fs::path(run_dir) / "manifest.json");
  if (!file) return "";
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) return "";
  const auto at = json.find("inputs");
  return at != json.end() && at->is_string() ? at->get<std::string>() : "";
}

void ClearRun(const std::string& run_dir) {
  std::error_code ignored;
  for (const char* name : {"manifest.json", "timeline.h5", "analysis.json", "report.html", "timeline.pftrace"})
    fs::remove(fs::path(run_dir) / name, ignored);
  std::vector<fs::path> old;
  for (fs::directory_iterator at(fs::path(run_dir) / "ranks", ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("rank-") || name.starts_with(".import-")) old.push_back(at->path());
  }
  for (const fs::path& path : old) fs::remove(path, ignored);
}

Status MoveRun(const std::string& from, const std::string& to) {
  std::error_code error;
  const fs::path moving = fs::path(to) / kMoving;
  fs::create_directory(moving, error);
  ClearRun(to);
  fs::create_directories(fs::path(to) / "ranks", error);
  for (fs::directory_iterator at(fs::path(from) / "ranks", error), end; !error && at != end; at.increment(error))
    if (fs::rename(at->path(), fs::path(to) / "ranks" / at->path().filename(), error); error) break;
  if (!error) fs::rename(fs::path(from) / "manifest.json", fs::path(to) / "manifest.json", error);
  if (!error) fs::remove(moving, error);
  if (error)
    return Error{ErrorCode::kIo, "cannot write the run directory: " + error.message(), to, "choose another with -o"};
  return Ok();
}

bool IsMovingRun(const std::string& run_dir) {
  std::error_code ignored;
  return !fs::exists(fs::path(run_dir) / "manifest.json", ignored) &&
         fs::is_directory(fs::path(run_dir) / kMoving, ignored);
}

}  // namespace lockstep::ingest
