// lockstep merge and lockstep-merge-mpi, all but the processes.

#include "cli/commands/merge_command.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/progress.h"
#include "cli/output/write_file.h"
#include "core/loss.h"
#include "merge/merge.h"
#include "merge/work_lock.h"
#include "runtime/agent/recover/recover.h"
#include "trace/file/part_file.h"

namespace lockstep::cli {
namespace {

bool HasDataLoss(const merge::Timeline& timeline) {
  for (const std::uint32_t name : timeline.tables.losses.name) {
    const LossInfo* info = FindLoss(timeline.Text(name));
    if (info == nullptr || info->severity == Severity::kDataLoss) return true;
  }
  return false;
}

nlohmann::json Json(const merge::Timeline& timeline) {
  nlohmann::json json;
  json["schema"] = "lockstep.merge/1";
  json["run_dir"] = timeline.run_dir;
  for (std::size_t i = 0; i < timeline.tables.meta.rows(); ++i)
    json["meta"][std::string(timeline.Text(timeline.tables.meta.key[i]))] =
        timeline.Text(timeline.tables.meta.value[i]);
  json["tables"] = nlohmann::json::object();
  timeline.tables.ForEachTable(
      [&](const auto& table) { json["tables"][std::string(table.kInfo.name)] = table.rows(); });
  json["losses"] = nlohmann::json::array();
  const schema::TlLosses& losses = timeline.tables.losses;
  for (std::size_t i = 0; i < losses.rows(); ++i)
    json["losses"].push_back({{"rank", losses.rank[i]},
                              {"name", timeline.Text(losses.name[i])},
                              {"count", losses.count[i]},
                              {"detail", timeline.Text(losses.detail[i])}});
  return json;
}

void PrintLosses(const merge::Timeline& timeline) {
  // One line per kind of loss; its ranks and the first detail that is known.
  struct Group {
    std::uint64_t count = 0;
    std::vector<std::int32_t> ranks;
    std::string_view detail;
  };
  std::map<std::string, Group> groups;
  const schema::TlLosses& losses = timeline.tables.losses;
  for (std::size_t i = 0; i < losses.rows(); ++i) {
    Group& group = groups[std::string(timeline.Text(losses.name[i]))];
    group.count += losses.count[i];
    if (losses.rank[i] >= 0 && (group.ranks.empty() || group.ranks.back() != losses.rank[i]))
      group.ranks.push_back(losses.rank[i]);
    if (group.detail.empty()) group.detail = timeline.Text(losses.detail[i]);
  }
  for (const auto& [name, group] : groups) {
    const LossInfo* info = FindLoss(name);
    const bool serious = info == nullptr || info->severity == Severity::kDataLoss;
    std::string line = std::to_string(group.count) + " " + (info == nullptr ? name : std::string(info->sentence));
    if (!group.ranks.empty()) {
      line += group.ranks.size() == 1 ? " (rank " : " (ranks ";
      for (std::size_t i = 0; i < group.ranks.size() && i < 8; ++i)
        line += (i == 0 ? "" : ", ") + std::to_string(group.ranks[i]);
      if (group.ranks.size() > 8) line += " and " + std::to_string(group.ranks.size() - 8) + " more";
      line += ")";
    }
    Show("  {} {}\n", serious ? "lost:" : "note:", line);
    if (!group.detail.empty()) Show("        {}\n", group.detail);
    if (serious && info != nullptr) Show("        try: {}\n", info->remedy);
  }
}

void Print(const merge::Timeline& timeline) {
  const auto meta = [&](const char* key) { return std::string(timeline.Meta(key)); };
  Show("{} of {} ranks, {} steps, {} collectives matched, {} events, {} dropped\n", meta("ranks"),
       meta("ranks_expected"), timeline.tables.steps.rows(), timeline.tables.collectives.rows(), meta("events"),
       meta("dropped"));
  Show("unmatched {}, mismatches {}, clock violations {}\n", meta("unmatched_collectives"), meta("mismatches"),
       meta("clock_violations"));
  PrintLosses(timeline);
  Show("{}/timeline.h5\n", timeline.run_dir);
}

}  // namespace

int RunMerge(const MergeFlags& flags, merge::MergeTeam* team) {
  const bool speaks = team == nullptr || team->index() == 0;
  const auto failed = [&](const Error& error) {
    if (speaks) return PrintError(error);
    return static_cast<int>(error.code == ErrorCode::kUsage ? kUsage : kFailed);
  };
  merge::MergeOptions options;
  options.team = team;
  auto run_dir = flags.resolve ? flags.resolve(flags.run) : ResolveRun(flags.run);
  if (!run_dir.ok()) return failed(run_dir.error());
  options.run_dir = run_dir.value();
  options.jobs = flags.jobs;
  options.clock = flags.clock == "off"    ? merge::ClockChoice::kOff
                  : flags.clock == "wall" ? merge::ClockChoice::kWall
                                          : merge::ClockChoice::kAuto;
  options.classes = flags.classes;
  options.window = flags.window;
  const Result<StepRange> steps = ParseSteps(flags.steps);
  if (!steps.ok()) return failed(steps.error());
  options.first_step = steps.value().first;
  options.last_step = steps.value().last;
  if (flags.window == "hta" && !flags.steps.empty())
    return failed({ErrorCode::kUsage, "--window hta chooses its steps itself", "--steps", "leave one of them out"});
  auto progress = std::make_unique<Progress>(!speaks || isatty(STDERR_FILENO) == 0);
  std::unique_ptr<merge::WorkLock> lock;
  if (speaks) {
    lock = std::make_unique<merge::WorkLock>(merge::WorkLockOf(options.run_dir), options.run_dir,
                                             [&](const std::string& text) { progress->Say(text); });
    trace::RemoveLeftovers(options.run_dir);
    if (!lock->others_at_it()) agent::FinishLeftSpools(options.run_dir);
  }
  options.progress = [&](std::string_view phase, double done) {
    if (lock) lock->Touch();
    progress->Show(phase, done);
  };
  // The others wait for the files that this makes.
  if (team != nullptr) (void)team->Share("");
  const auto timeline = merge::MergeRun(options);
  progress.reset();
  lock.reset();
  if (!timeline.ok()) return failed(timeline.error());

  const int code = HasDataLoss(timeline.value()) ? kIncomplete : kOk;
  if (!speaks) return code;
  // Names hold any bytes.
  const std::string json =
      flags.json.empty() ? "" : Json(timeline.value()).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  if (flags.json == "-") {
    ShowJson(json + "\n");
  } else {
    if (!flags.json.empty())
      if (Status written = WriteWhole(flags.json, json + "\n", "name a file that can be written"); !written.ok())
        return PrintError(written.error());
    Print(timeline.value());
  }
  return code;
}

void AddMergeFlags(CLI::App& command, MergeFlags& flags) {
  command.add_option("RUN", flags.run, "Run directory (default: the latest run)");
  command.add_option("-j,--jobs", flags.jobs, "Threads, 0: all allowed cores")->capture_default_str();
  command
      .add_option("--clock", flags.clock,
                  "auto: measured clocks only; wall: accept wall-clock accuracy; off: as recorded")
      ->check(CLI::IsMember({"auto", "wall", "off"}))
      ->capture_default_str();
  command.add_option("--classes", flags.classes, "How GPU kernels are classified as communication")
      ->check(CLI::IsMember({"lockstep", "hta"}))
      ->capture_default_str();
  command
      .add_option("--window", flags.window,
                  "hta: totals over the window of Holistic Trace Analysis, for comparisons with it")
      ->check(CLI::IsMember({"lockstep", "hta"}))
      ->capture_default_str();
  command.add_option("--steps", flags.steps, "Analysis window in steps, e.g. 110:310 for 110 to 309");
  command.add_option("--json", flags.json, "Write the facts as JSON to this file, - for stdout");
}

}  // namespace lockstep::cli
