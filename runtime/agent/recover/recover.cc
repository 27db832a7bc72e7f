#include "runtime/agent/recover/recover.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>

#include "core/loss.h"
#include "core/own_file.h"
#include "runtime/agent/recover/left_spool.h"
#include "trace/decode/decode.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

// Written as the agent would write it, and marked as recovered: readers treat the rank as cut off.
Status WriteRecovered(const std::string& path, const schema::RankTables& tables) {
  LS_TRY(trace::TableFileWriter writer, trace::TableFileWriter::Create(path, schema::kRankFileFormat));
  Status status = Ok();
  tables.ForEachTable([&](const auto& table) {
    if (status.ok()) status = writer.Append(table);
  });
  LS_CHECK(status);
  LS_CHECK(writer.SetAttribute("recovered", std::int64_t{1}));
  return writer.Finish();
}

// Fills in what a rank's tables say about how the application ended and about what was lost.
void Describe(const schema::RankTables& tables, RecoveredSlot& slot) {
  const std::string code(trace::MetaValue(tables, "exit_code")), signal(trace::MetaValue(tables, "exit_signal"));
  if (!signal.empty()) {
    slot.exit = "signal " + signal;
  } else if (!code.empty() && code != "0") {
    slot.exit = "exit code " + code;
  }
  slot.end_known = !code.empty() || !signal.empty();
  for (std::size_t i = 0; i < tables.losses.rows(); ++i) {
    const std::string name(trace::TextOf(tables, tables.losses.name[i]));
    const LossInfo* info = FindLoss(name);
    if (tables.losses.count[i] == 0 || (info != nullptr && info->severity != Severity::kDataLoss)) continue;
    slot.lost.push_back({name, std::string(trace::TextOf(tables, tables.losses.detail[i])), tables.losses.count[i]});
  }
}

// The outcome for a spool that another process or user owns.
SlotRecovery RecoveryOf(LeftSpool::State state) {
  return state == LeftSpool::State::kRunning     ? SlotRecovery::kRunning
         : state == LeftSpool::State::kElsewhere ? SlotRecovery::kElsewhere
         : state == LeftSpool::State::kForeign   ? SlotRecovery::kForeign
                                                 : SlotRecovery::kUnreadable;
}

struct RecoverOptions {
  std::string not_ours;  // The reason why nothing in this directory may be written or removed; "" if it may.
  bool without_memory = false;
};

class SlotFiles {
 public:
  SlotFiles(const std::string& run_dir, std::string base, const RecoverOptions& options, Recovery& recovery)
      : run_dir_(run_dir),
        ranks_(fs::path(run_dir) / "ranks"),
        base_(std::move(base)),
        options_(options),
        recovery_(recovery) {
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
    if (!options_.not_ours.empty()) {
      if (!LookAtRankFile()) Is(SlotRecovery::kForeign, options_.not_ours);
      return std::move(slot_);
    }
    spool_ = TakeSpool({run_dir_, Path(".spool"), slot_.slot}, options_.without_memory);
    if (LookAtRankFile()) {
      if (spool_.state == LeftSpool::State::kFree) DropSpoolIfDone();
      RemoveParts();
      return std::move(slot_);
    }
    if (spool_.state == LeftSpool::State::kFree) {
      Recover();
    } else if (spool_.state == LeftSpool::State::kAbsent) {
      Is(SlotRecovery::kUnreadable,
         "there is no spool, and its rank file was not finished: what can be read of it is used");
    } else {
      Is(RecoveryOf(spool_.state), spool_.why);
    }
    return std::move(slot_);
  }

 private:
  std::string Path(const char* suffix) const { return (ranks_ / (base_ + suffix)).string(); }
  std::string RankFile(std::size_t process) const {
    return process == 0 ? Path(".h5") : Path((".p" + std::to_string(process + 1) + ".h5").c_str());
  }
  void Is(SlotRecovery state, std::string why) {
    slot_.state = state;
    slot_.why = std::move(why);
  }

  // Returns false if there is no rank file, or none that was completed.
  bool LookAtRankFile() {
    auto file = trace::TableFile::Open(Path(".h5"));
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
    const auto count = [&](const trace::TableFile& of_process) {
      for (const schema::TableInfo& table : schema::kRankTableInfos)
        if (table.Is(schema::kEvents)) slot_.records += of_process.Rows(table.name);
    };
    count(file.value());
    for (std::size_t i = 1; Exists(RankFile(i)); ++i) {
      slot_.files.push_back(RankFile(i));
      if (const auto of_process = trace::TableFile::Open(RankFile(i)); of_process.ok()) count(of_process.value());
    }
    return true;
  }

  // The main rank file is written last, so once it exists everything that could be read of the spool is in rank files.
  // A spool with unreadable blocks is kept, because a later version may read more of them.
  void DropSpoolIfDone() {
    auto decoded = trace::DecodeSpool({.spool_path = spool_.path});
    slot_.spool_kept = !decoded.ok() && slot_.state == SlotRecovery::kBefore;
    if (slot_.spool_kept) return;
    if (decoded.ok() && !decoded.value().processes.empty()) {
      slot_.bad_blocks = decoded.value().bad_blocks;
      if (slot_.state == SlotRecovery::kBefore && slot_.bad_blocks > 0) {
        slot_.spool_kept = true;
        return;
      }
      RemoveSegment();
    }
    RemoveSpool();
  }

  void Recover() {
    const bool rings = spool_.segment.state == trace::SpoolSegment::State::kFound;
    auto decoded = trace::DecodeSpool({.spool_path = spool_.path, .segment_path = rings ? spool_.segment.path : ""});
    if (!decoded.ok()) return Is(SlotRecovery::kUnreadable, decoded.error().what);
    if (decoded.value().processes.empty()) return Is(SlotRecovery::kUnreadable, "its spool holds nothing");
    Write(decoded.value());
  }

  void Write(const trace::Decoded& decoded) {
    // The main file is written last, so a reader that finds it finds all the others.
    for (std::size_t i = decoded.processes.size(); i-- > 0;) {
      if (Status written = WriteRecovered(RankFile(i), decoded.processes[i].tables); !written.ok()) {
        Is(SlotRecovery::kUnwritten, written.error().what);
        return;
      }
      slot_.records += RowsOf(decoded.processes[i].tables, schema::kEvents);
    }
    for (std::size_t i = 0; i < decoded.processes.size(); ++i) slot_.files.push_back(RankFile(i));
    slot_.state = SlotRecovery::kRecovered;
    slot_.from_rings = decoded.recovered_from_rings;
    slot_.bad_blocks = decoded.bad_blocks;
    Describe(decoded.processes.front().tables, slot_);
    slot_.end_known = decoded.ended;
    RemoveSegment();
    slot_.spool_kept = decoded.bad_blocks > 0;
    if (!slot_.spool_kept) RemoveSpool();
    RemoveParts();
  }

  static bool Exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
  }
  void Remove(const std::string& path) {
    if (RemoveOwn(path)) recovery_.removed.push_back(path);
  }
  void RemoveSegment() {
    if (spool_.segment.state == trace::SpoolSegment::State::kFound && spool_.segment.removable)
      Remove(spool_.segment.path);
  }
  void RemoveSpool() {
    // A spool in another directory records which run directory it belongs to. A link alone proves nothing: it may have
    // been copied or made up.
    if (spool_.of_this_run)
      Remove(spool_.path);
    else
      slot_.why = "its spool is left: it names another run directory (" + spool_.path + ")";
    if (spool_.linked && RemoveOwnLink(Path(".spool"))) recovery_.removed.push_back(Path(".spool"));
  }
  // Removes the unfinished files of interrupted writers under the names that older versions used, where the finished
  // files exist.
  void RemoveParts() {
    for (std::size_t i = 0; i < slot_.files.size(); ++i) Remove(slot_.files[i] + ".part");
  }

  const std::string& run_dir_;
  fs::path ranks_;
  std::string base_;
  const RecoverOptions& options_;
  Recovery& recovery_;
  LeftSpool spool_;
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

Recovery RecoverRun(const std::string& run_dir, bool without_memory) {
  const RecoverOptions options{NotOurRun(run_dir), without_memory};
  Recovery recovery;
  std::set<std::string> bases;
  std::error_code error;
  const std::string ranks = run_dir + "/ranks";
  for (fs::directory_iterator at(ranks, error), end; !error && at != end; at.increment(error))
    if (const std::string base = BaseOf(at->path().filename().string()); !base.empty()) bases.insert(base);
  for (const std::string& base : bases) recovery.slots.push_back(SlotFiles(run_dir, base, options, recovery).Run());
  std::stable_sort(recovery.slots.begin(), recovery.slots.end(),
                   [](const RecoveredSlot& a, const RecoveredSlot& b) { return a.slot < b.slot; });
  if (options.not_ours.empty())
    for (std::string& part : RemoveDeadPartsIn(ranks)) recovery.removed.push_back(std::move(part));
  return recovery;
}

std::size_t FinishLeftSpools(const std::string& run_dir) {
  const RecoverOptions options{NotOurRun(run_dir), false};
  if (!options.not_ours.empty()) return 0;
  std::error_code ignored;
  std::vector<std::string> bases;
  const fs::path ranks = fs::path(run_dir) / "ranks";
  for (fs::directory_iterator at(ranks, ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::error_code absent;
    if (at->path().extension() == ".spool" && !fs::exists(ranks / (at->path().stem().string() + ".h5"), absent) &&
        !BaseOf(at->path().filename().string()).empty())
      bases.push_back(at->path().stem().string());
  }
  Recovery recovery;
  std::size_t finished = 0;
  for (const std::string& base : bases)
    finished += SlotFiles(run_dir, base, options, recovery).Run().state == SlotRecovery::kRecovered;
  if (finished > 0) RemoveDeadPartsIn(ranks.string());
  return finished;
}

}  // namespace lockstep::agent
