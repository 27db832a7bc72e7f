#include "runtime/agent/recover.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "trace/decode.h"
#include "trace/strings.h"
#include "trace/table_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Value of a meta key, "" if absent.
std::string MetaOf(const schema::RankTables& tables, std::string_view key) {
  for (std::size_t i = 0; i < tables.meta.rows(); ++i)
    if (TextOf(tables, tables.meta.key[i]) == key) return std::string(TextOf(tables, tables.meta.value[i]));
  return "";
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

bool OnThisMachine(const schema::RankTables& tables) { return MetaOf(tables, "boot_id") == BootId(); }

// Whether nobody will write this spool any more.
bool Abandoned(const Decoded& decoded) {
  if (decoded.ended) return true;
  const schema::RankTables& tables = decoded.processes.front().tables;
  if (!OnThisMachine(tables)) return false;
  const long pid = std::strtol(MetaOf(tables, "agent_pid").c_str(), nullptr, 10);
  if (pid <= 0) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return true;
  // Somebody else may have the number by now.
  std::error_code ignored;
  const fs::path exe = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored);
  return !ignored && exe.filename() != "lockstep";
}

// As the agent writes it, and marked: readers treat the rank as cut off.
Status WriteRecovered(const std::string& path, const schema::RankTables& tables) {
  LS_TRY(TableFileWriter writer, TableFileWriter::Create(path, schema::kRankFileFormat));
  Status status = Ok();
  tables.ForEachTable([&](const auto& table) {
    if (status.ok()) status = writer.Append(table);
  });
  LS_CHECK(status);
  LS_CHECK(writer.SetAttribute("recovered", std::int64_t{1}));
  return writer.Finish();
}

bool Finish(const fs::path& spool) {
  std::string segment;
  {
    auto first = DecodeSpool({.spool_path = spool.string()});
    if (!first.ok() || first.value().processes.empty() || !Abandoned(first.value())) return false;
    if (OnThisMachine(first.value().processes.front().tables))
      segment = MetaOf(first.value().processes.front().tables, "segment");
  }
  auto decoded = DecodeSpool({.spool_path = spool.string(), .segment_path = segment});
  if (!decoded.ok()) return false;
  const std::string base = (spool.parent_path() / spool.stem()).string();
  std::size_t number = 0;
  for (const DecodedProcess& process : decoded.value().processes) {
    const std::string path = base + (++number == 1 ? "" : ".p" + std::to_string(number)) + ".h5";
    if (!WriteRecovered(path, process.tables).ok()) return false;
  }
  if (!segment.empty()) ::unlink(segment.c_str());
  if (decoded.value().bad_blocks > 0) return true;
  std::error_code ignored;
  const fs::path target = fs::read_symlink(spool, ignored);  // --spool-dir
  if (!ignored && !target.empty()) fs::remove(target, ignored);
  fs::remove(spool, ignored);
  return true;
}

}  // namespace

std::size_t FinishLeftSpools(const std::string& run_dir) {
  std::error_code ignored;
  std::vector<fs::path> spools;
  for (const auto& entry : fs::directory_iterator(run_dir + "/ranks", ignored))
    if (entry.path().extension() == ".spool" &&
        !fs::exists(entry.path().parent_path() / (entry.path().stem().string() + ".h5")))
      spools.push_back(entry.path());
  std::size_t finished = 0;
  for (const fs::path& spool : spools) finished += Finish(spool);
  return finished;
}

}  // namespace lockstep
