#include "runtime/agent/recover.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "core/loss.h"
#include "runtime/agent/process_state.h"
#include "runtime/agent/stale_segments.h"
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

// Whether the spool's agent still writes it. Only on its own machine can one know.
bool AgentRuns(const schema::RankTables& tables) {
  const long pid = std::strtol(MetaOf(tables, "agent_pid").c_str(), nullptr, 10);
  if (!ProcessRuns(pid)) return false;
  // Somebody else may have the number by now.
  std::error_code ignored;
  const fs::path exe = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored);
  return ignored || exe.filename() == "lockstep" || exe.filename() == "lockstep (deleted)";
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

std::uint64_t Events(const schema::RankTables& t) {
  return t.mpi_calls.rows() + t.ranges.rows() + t.kernels.rows() + t.copies.rows() + t.sync.rows() + t.api.rows() +
         t.gpu_memory.rows();
}

// What a rank's tables say of its end and of what is not in them.
void Describe(const schema::RankTables& tables, RecoveredSlot& slot) {
  const std::string code = MetaOf(tables, "exit_code"), signal = MetaOf(tables, "exit_signal");
  if (!signal.empty()) {
    slot.exit = "signal " + signal;
  } else if (!code.empty() && code != "0") {
    slot.exit = "exit code " + code;
  }
  slot.end_known = !code.empty() || !signal.empty();
  for (std::size_t i = 0; i < tables.losses.rows(); ++i) {
    const std::string name(TextOf(tables, tables.losses.name[i]));
    const LossInfo* info = FindLoss(name);
    if (tables.losses.count[i] == 0 || (info != nullptr && info->severity != Severity::kDataLoss)) continue;
    slot.lost.push_back({name, std::string(TextOf(tables, tables.losses.detail[i])), tables.losses.count[i]});
  }
}

class SlotFiles {
 public:
  SlotFiles(fs::path ranks, std::string base, Recovery& recovery)
      : ranks_(std::move(ranks)), base_(std::move(base)), recovery_(recovery) {
    constexpr std::string_view kPrefix = "rank-";
    if (base_.starts_with(kPrefix)) {
      const char* end = base_.data() + base_.size();
      std::int32_t number = -1;
      if (const auto read = std::from_chars(base_.data() + kPrefix.size(), end, number);
          read.ec == std::errc() && read.ptr == end)
        slot_.slot = number;
    }
  }

  RecoveredSlot Run() {
    const bool spool = HasSpool();
    if (LookAtRankFile()) {
      if (spool) DropSpoolIfDone();
      RemoveParts();
    } else if (spool) {
      Recover();
    } else {
      slot_.state = SlotRecovery::kUnreadable;
      slot_.why = "there is no spool, and its rank file was not finished: what can be read of it is used";
    }
    return std::move(slot_);
  }

 private:
  std::string Path(const char* suffix) const { return (ranks_ / (base_ + suffix)).string(); }
  std::string RankFile(std::size_t process) const {
    return process == 0 ? Path(".h5") : Path((".p" + std::to_string(process + 1) + ".h5").c_str());
  }
  bool HasSpool() const {
    std::error_code ignored;
    return fs::symlink_status(Path(".spool"), ignored).type() != fs::file_type::not_found;
  }

  // False: there is none, or none that was finished.
  bool LookAtRankFile() {
    auto file = TableFile::Open(Path(".h5"));
    if (!file.ok() || !file.value().complete()) return false;
    slot_.state =
        file.value().Attribute("recovered", std::int64_t{0}) != 0 ? SlotRecovery::kBefore : SlotRecovery::kComplete;
    schema::RankTables head;
    const auto read = [&](auto& table) {
      auto rows = file.value().template Read<std::remove_reference_t<decltype(table)>>();
      if (rows.ok()) table = std::move(rows).value();
    };
    read(head.strings), read(head.string_bytes), read(head.meta), read(head.losses);
    Describe(head, slot_);
    slot_.files.push_back(RankFile(0));
    const auto count = [&](const TableFile& of_process) {
      for (const char* table : {"mpi_calls", "ranges", "kernels", "copies", "sync", "api", "gpu_memory"})
        slot_.records += of_process.Rows(table);
    };
    count(file.value());
    for (std::size_t i = 1; Exists(RankFile(i)); ++i) {
      slot_.files.push_back(RankFile(i));
      if (const auto of_process = TableFile::Open(RankFile(i)); of_process.ok()) count(of_process.value());
    }
    return true;
  }

  // The main rank file is written last, so nothing of the spool is missing beside it, unless some of it could not be
  // read: then the spool is kept for whoever can.
  void DropSpoolIfDone() {
    auto decoded = DecodeSpool({.spool_path = Path(".spool")});
    slot_.spool_kept = !decoded.ok() && slot_.state == SlotRecovery::kBefore;
    if (slot_.spool_kept) return;
    if (decoded.ok() && !decoded.value().processes.empty()) {
      const schema::RankTables& tables = decoded.value().processes.front().tables;
      // Between writing its file and removing its spool.
      if (OnThisMachine(tables) && AgentRuns(tables)) return;
      slot_.bad_blocks = decoded.value().bad_blocks;
      if (slot_.state == SlotRecovery::kBefore && slot_.bad_blocks > 0) {
        slot_.spool_kept = true;
        return;
      }
      if (OnThisMachine(tables)) RemoveSegment(MetaOf(tables, "segment"));
    }
    RemoveSpool();
  }

  void Recover() {
    std::string segment;
    {
      auto first = DecodeSpool({.spool_path = Path(".spool")});
      if (!first.ok() || first.value().processes.empty()) {
        slot_.state = SlotRecovery::kUnreadable;
        slot_.why = first.ok() ? "its spool holds nothing" : first.error().what;
        std::error_code ignored;
        if (!fs::exists(Path(".spool"), ignored) && fs::is_symlink(Path(".spool"), ignored))
          slot_.why = "its spool is not on this machine: " + fs::read_symlink(Path(".spool"), ignored).string();
        return;
      }
      const schema::RankTables& tables = first.value().processes.front().tables;
      const bool here = OnThisMachine(tables);
      if (!first.value().ended && !here) {
        slot_.state = SlotRecovery::kElsewhere;
        slot_.why = "it was recorded on " + MetaOf(tables, "host") +
                    ", where its records may still lie in shared memory: run this there";
        return;
      }
      // An agent whose application ended badly leaves its spool as it is; after a good end it is about to convert it.
      const bool stays =
          first.value().ended && (MetaOf(tables, "exit_code") != "0" || !MetaOf(tables, "exit_signal").empty());
      if (here && !stays && AgentRuns(tables)) {
        slot_.state = SlotRecovery::kRunning;
        slot_.why = "its agent, process " + MetaOf(tables, "agent_pid") + ", still runs";
        return;
      }
      if (here) segment = MetaOf(tables, "segment");
      // What it still does goes to the rings, which are all there is of it: it has to end first.
      if (const long user = first.value().ended || segment.empty() ? 0 : UserOfSegment(segment); user != 0) {
        slot_.state = SlotRecovery::kRunning;
        slot_.why = "its application, process " + std::to_string(user) + ", still runs";
        return;
      }
    }
    auto decoded = DecodeSpool({.spool_path = Path(".spool"), .segment_path = segment});
    if (!decoded.ok()) {
      slot_.state = SlotRecovery::kUnreadable;
      slot_.why = decoded.error().what;
      return;
    }
    Write(decoded.value(), segment);
  }

  void Write(const Decoded& decoded, const std::string& segment) {
    // Whoever finds the main one finds all.
    for (std::size_t i = decoded.processes.size(); i-- > 0;) {
      if (Status written = WriteRecovered(RankFile(i), decoded.processes[i].tables); !written.ok()) {
        slot_.state = SlotRecovery::kUnwritten;
        slot_.why = written.error().what;
        ::unlink((RankFile(i) + ".part").c_str());
        return;
      }
      slot_.records += Events(decoded.processes[i].tables);
    }
    for (std::size_t i = 0; i < decoded.processes.size(); ++i) slot_.files.push_back(RankFile(i));
    slot_.state = SlotRecovery::kRecovered;
    slot_.from_rings = decoded.recovered_from_rings;
    slot_.bad_blocks = decoded.bad_blocks;
    Describe(decoded.processes.front().tables, slot_);
    slot_.end_known = decoded.ended;
    RemoveSegment(segment);
    slot_.spool_kept = decoded.bad_blocks > 0;
    if (!slot_.spool_kept) RemoveSpool();
    RemoveParts();
  }

  static bool Exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
  }
  void Remove(const std::string& path) {
    if (::unlink(path.c_str()) == 0) recovery_.removed.push_back(path);
  }
  void RemoveSegment(const std::string& segment) {
    if (!segment.empty()) Remove(segment);
  }
  void RemoveSpool() {
    std::error_code ignored;
    const fs::path target = fs::read_symlink(Path(".spool"), ignored);  // --spool-dir
    if (!ignored && !target.empty()) Remove(target.string());
    Remove(Path(".spool"));
  }
  // Of writers that were interrupted; the finished files stand beside them.
  void RemoveParts() {
    for (std::size_t i = 0; i < slot_.files.size(); ++i)
      if (Exists(slot_.files[i] + ".part")) Remove(slot_.files[i] + ".part");
  }

  fs::path ranks_;
  std::string base_;
  Recovery& recovery_;
  RecoveredSlot slot_;
};

// "rank-00005" of "rank-00005.p2.h5.part"; "" of other files.
std::string BaseOf(const std::string& name) {
  if (name.starts_with('.')) return "";
  for (const std::string_view suffix : {".spool", ".h5", ".h5.part"}) {
    if (!std::string_view(name).ends_with(suffix)) continue;
    std::string base = name.substr(0, name.size() - suffix.size());
    const std::size_t process = base.rfind(".p");
    if (process != std::string::npos && base.find_first_not_of("0123456789", process + 2) == std::string::npos)
      base.resize(process);
    return base;
  }
  return "";
}

}  // namespace

Recovery RecoverRun(const std::string& run_dir) {
  Recovery recovery;
  std::set<std::string> bases;
  std::error_code error;
  const fs::path ranks = fs::path(run_dir) / "ranks";
  for (fs::directory_iterator at(ranks, error), end; !error && at != end; at.increment(error))
    if (const std::string base = BaseOf(at->path().filename().string()); !base.empty()) bases.insert(base);
  for (const std::string& base : bases) recovery.slots.push_back(SlotFiles(ranks, base, recovery).Run());
  std::stable_sort(recovery.slots.begin(), recovery.slots.end(),
                   [](const RecoveredSlot& a, const RecoveredSlot& b) { return a.slot < b.slot; });
  return recovery;
}

std::size_t FinishLeftSpools(const std::string& run_dir) {
  std::error_code ignored;
  std::vector<std::string> bases;
  const fs::path ranks = fs::path(run_dir) / "ranks";
  for (fs::directory_iterator at(ranks, ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::error_code absent;
    if (at->path().extension() == ".spool" && !fs::exists(ranks / (at->path().stem().string() + ".h5"), absent))
      bases.push_back(at->path().stem().string());
  }
  Recovery recovery;
  std::size_t finished = 0;
  for (const std::string& base : bases)
    finished += SlotFiles(ranks, base, recovery).Run().state == SlotRecovery::kRecovered;
  return finished;
}

}  // namespace lockstep
