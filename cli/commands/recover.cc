// lockstep recover: makes rank files of what a run that ended badly left.

#include "runtime/agent/recover/recover.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "analysis/core/format.h"
#include "cli/input/imported.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "core/loss.h"
#include "merge/readers/run_files.h"
#include "merge/work_lock.h"
#include "runtime/agent/recover/stale_segments.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
struct RecoverFlags {
  std::string run, json;
  bool stale = false, without_memory = false;
};

std::string_view StateName(agent::SlotRecovery state) {
  switch (state) {
    case agent::SlotRecovery::kComplete:
      return "complete";
    case agent::SlotRecovery::kRecovered:
      return "recovered";
    case agent::SlotRecovery::kBefore:
      return "recovered before";
    case agent::SlotRecovery::kRunning:
      return "still running";
    case agent::SlotRecovery::kElsewhere:
      return "elsewhere";
    case agent::SlotRecovery::kForeign:
      return "another's";
    case agent::SlotRecovery::kUnreadable:
      return "unreadable";
    case agent::SlotRecovery::kUnwritten:
      break;
  }
  return "not written";
}

// Everything that is reported, in any form.
struct RecoveryReport {
  std::string run;
  agent::Recovery recovery;
  struct Missing {
    std::int64_t slot;
    std::string why;
  };
  std::vector<Missing> missing;
  std::vector<agent::StaleSegment> removed_segments, left_segments;
};

// Slots that should exist and have no file.
std::vector<RecoveryReport::Missing> FindMissing(const std::string& run, const agent::Recovery& recovery) {
  std::set<std::int64_t> present;
  for (const agent::RecoveredSlot& slot : recovery.slots) present.insert(slot.slot);
  std::vector<RecoveryReport::Missing> missing;
  const auto claimed = [&](std::int64_t slot) {
    std::error_code ignored;
    return fs::exists(fmt::format("{}/ranks/.agent-{:05}", run, slot), ignored);
  };
  const std::int64_t slots = merge::ReadManifest(run).world_size;
  for (std::int64_t slot = 0; slot < slots; ++slot)
    if (!present.contains(slot))
      missing.push_back({slot, claimed(slot)
                                   ? "its agent left neither spool nor rank file"
                                   : "no agent wrote here: it was not started, or it does not see this file system; "
                                     "copy its ranks/ from its machine"});
  return missing;
}

// Removes segments of this run that hold nothing any more; with --stale all of this user that no process uses.
void CleanSegments(const RecoverFlags& flags, RecoveryReport& report) {
  std::vector<std::uint64_t> mine;
  if (const std::string id = report.run.empty() ? "" : merge::ReadManifest(report.run).run_id; !id.empty())
    mine.push_back(agent::RunHashOf(id));
  for (const agent::StaleSegment& segment : agent::FindStaleSegments()) {
    const bool of_run = std::find(mine.begin(), mine.end(), segment.run_hash) != mine.end();
    if (!flags.stale && !of_run) continue;
    // Several runs may have one job id (several `lockstep run` in one script): records of other runs stay.
    if (!flags.stale && segment.unspooled) {
      report.left_segments.push_back(segment);
    } else if (agent::RemoveStaleSegment(segment)) {
      report.removed_segments.push_back(segment);
    }
  }
}

std::string DescribeSlot(const agent::RecoveredSlot& slot) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (!slot.files.empty()) add(analysis::Plural(static_cast<std::int64_t>(slot.records), "event"));
  if (slot.from_rings > 0)
    add("of them from shared memory: " + analysis::Plural(static_cast<std::int64_t>(slot.from_rings), "record"));
  if (!slot.exit.empty()) add("the application ended with " + slot.exit);
  if (!slot.files.empty() && !slot.end_known) add("its end was not seen");
  if (!slot.why.empty()) add(slot.why);
  if (slot.spool_kept) add("the spool is kept: parts of it cannot be read");
  return text;
}

std::string LossText(const agent::RecoveredSlot::Lost& lost) {
  const LossInfo* info = FindLoss(lost.name);
  return analysis::CountOf(lost.count, info == nullptr ? lost.name : info->sentence) +
         (lost.detail.empty() ? "" : "; " + lost.detail);
}

void PrintRecovery(const RecoveryReport& report) {
  std::size_t complete = 0;
  for (const agent::RecoveredSlot& slot : report.recovery.slots)
    complete += slot.state == agent::SlotRecovery::kComplete;
  if (!report.run.empty()) Show("{}\n", report.run);
  // If many ranks ended in good order, they are not listed one by one.
  const bool list_all = complete <= 16;
  if (!list_all) Show("  {} ranks are complete\n", analysis::Count(static_cast<std::int64_t>(complete)));
  for (const agent::RecoveredSlot& slot : report.recovery.slots) {
    if (slot.state == agent::SlotRecovery::kComplete && !list_all && slot.lost.empty()) continue;
    const std::string name = slot.slot < 0 ? std::string("a file of another name") : fmt::format("rank {}", slot.slot);
    Show("  {:<9} {:<17} {}\n", name, StateName(slot.state), DescribeSlot(slot));
    for (const agent::RecoveredSlot::Lost& lost : slot.lost) Show("  {:<9}   missing: {}\n", "", LossText(lost));
  }
  for (const RecoveryReport::Missing& missing : report.missing)
    Show("  {:<9} {:<17} {}\n", fmt::format("rank {}", missing.slot), "missing", missing.why);
  for (const std::string& path : report.recovery.removed) Show("  removed {}\n", path);
  for (const agent::StaleSegment& segment : report.removed_segments)
    Show("  removed {} ({}{})\n", segment.path, analysis::Bytes(segment.bytes),
         segment.unspooled ? ", with records of a run whose spool is gone or was not recovered" : "");
  for (const agent::StaleSegment& segment : report.left_segments)
    Show(
        "  left {} ({}): it holds records of another run of the same job\n    try: lockstep recover on that run, or "
        "--stale to remove it\n",
        segment.path, analysis::Bytes(segment.bytes));
}

Json RecoveryJson(const RecoveryReport& report) {
  Json json{{"schema", "lockstep.recover/1"},
            {"run", report.run.empty() ? Json(nullptr) : Json(report.run)},
            {"ranks", Json::array()}};
  for (const agent::RecoveredSlot& slot : report.recovery.slots) {
    Json lost = Json::array();
    for (const agent::RecoveredSlot::Lost& each : slot.lost)
      lost.push_back({{"name", each.name},
                      {"count", each.count},
                      {"detail", each.detail.empty() ? Json(nullptr) : Json(each.detail)}});
    json["ranks"].push_back({{"rank", slot.slot < 0 ? Json(nullptr) : Json(slot.slot)},
                             {"state", StateName(slot.state)},
                             {"files", slot.files},
                             {"events", slot.files.empty() ? Json(nullptr) : Json(slot.records)},
                             {"from_rings", slot.from_rings},
                             {"bad_blocks", slot.bad_blocks},
                             {"end_known", slot.end_known},
                             {"exit", slot.exit.empty() ? Json(nullptr) : Json(slot.exit)},
                             {"why", slot.why.empty() ? Json(nullptr) : Json(slot.why)},
                             {"spool_kept", slot.spool_kept},
                             {"missing", std::move(lost)}});
  }
  for (const RecoveryReport::Missing& missing : report.missing)
    json["ranks"].push_back({{"rank", missing.slot}, {"state", "missing"}, {"why", missing.why}});
  json["removed"] = report.recovery.removed;
  for (const agent::StaleSegment& segment : report.removed_segments) json["removed"].push_back(segment.path);
  json["left"] = Json::array();
  for (const agent::StaleSegment& segment : report.left_segments) json["left"].push_back(segment.path);
  return json;
}

int CodeOf(const RecoveryReport& report) {
  int code = report.missing.empty() ? kOk : kIncomplete;
  for (const agent::RecoveredSlot& slot : report.recovery.slots) {
    if (slot.state == agent::SlotRecovery::kUnwritten) return kFailed;
    if (slot.files.empty() || !slot.end_known || slot.spool_kept || !slot.lost.empty()) code = kIncomplete;
  }
  return code;
}

Result<int> Recover(const RecoverFlags& flags) {
  // A limit on file sizes is reported as an error and must not end this process, so that no work is left half done.
  ::signal(SIGXFSZ, SIG_IGN);
  // Traces have no agents.
  if (!flags.run.empty() && !flags.stale && ingest::HoldsTraces(flags.run)) {
    if (flags.json == "-")
      ShowJson(JsonText(RecoveryJson(RecoveryReport())));
    else
      Show("{} holds traces: there is nothing to recover\n", flags.run);
    return kOk;
  }
  RecoveryReport report;
  auto run = ResolveRun(flags.run);
  // Shared memory can be cleaned without a run.
  if (!run.ok() && !(flags.stale && flags.run.empty())) return run.error();
  if (run.ok()) {
    report.run = run.value();
    std::error_code ignored;
    if (!fs::is_directory(report.run + "/ranks", ignored))
      return Error{ErrorCode::kNotFound, "this is not a run directory: it has no ranks/", report.run,
                   "lockstep recover DIR, where DIR holds manifest.json and ranks/"};
    const merge::WorkLock lock(merge::WorkLockOf(report.run), report.run,
                               [](const std::string& text) { Note("lockstep: {}\n", text); });
    if (lock.others_at_it())
      return Error{ErrorCode::kIo, "another lockstep command works on this run and makes no progress", report.run,
                   "end it, then run this again"};
    report.recovery = agent::RecoverRun(report.run, flags.without_memory);
    report.missing = FindMissing(report.run, report.recovery);
  }
  CleanSegments(flags, report);
  if (flags.json != "-") PrintRecovery(report);
  if (!flags.json.empty()) LS_CHECK(WriteOrShow(flags.json, JsonText(RecoveryJson(report)), ShowJson));
  for (const agent::RecoveredSlot& slot : report.recovery.slots)
    if (slot.state == agent::SlotRecovery::kUnwritten) {
      PrintError({ErrorCode::kIo, fmt::format("the file of rank {} could not be written: {}", slot.slot, slot.why),
                  report.run + "/ranks",
                  "free space there or make it writable, and run this again: nothing was removed; or copy the run "
                  "elsewhere on this machine and recover the copy"});
      break;
    }
  return CodeOf(report);
}

}  // namespace

void AddRecover(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<RecoverFlags>();
  CLI::App* app =
      root.add_subcommand("recover", "Recover the rank files of a run that was killed, and remove what it left behind");
  app->footer(
      "Examples:\n"
      "  lockstep recover                  the latest run\n"
      "  lockstep recover RUN --stale      and remove shared memory that any run of yours left\n"
      "The other commands recover by themselves; this command also reports what was found and what is missing.\n"
      "Exit code 3: something is missing; 1: a file could not be written.");
  app->add_option("run", flags->run, "Run directory (default: the latest run)")->type_name("RUN");
  app->add_flag("--stale", flags->stale,
                "Remove all shared-memory segments of yours on this machine that no process uses any more");
  app->add_flag("--without-memory", flags->without_memory,
                "Also finish ranks whose shared memory was on a machine or in a container that is gone");
  app->add_option("--json", flags->json, "Write the report to FILE; - for standard output instead of the text")
      ->type_name("FILE");
  app->callback([flags, &chosen] { chosen = [flags] { return Recover(*flags); }; });
}

}  // namespace lockstep::cli
