// lockstep merge and lockstep-merge-mpi, all but the processes.

#include "cli/commands/merge_command.h"

#include <unistd.h>

#include <charconv>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "analysis/core/format.h"
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

nlohmann::json TimelineJson(const merge::Timeline& timeline) {
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

void PrintTimelineLosses(const merge::Timeline& timeline) {
  // One line per kind of loss; its ranks and the first details that are known, more of those that lose something.
  constexpr std::size_t kMostDetails = 3;
  struct Group {
    std::uint64_t count = 0;
    std::vector<std::int32_t> ranks;
    std::vector<std::string_view> details;
  };
  std::map<std::string, Group> groups;
  const schema::TlLosses& losses = timeline.tables.losses;
  for (std::size_t i = 0; i < losses.rows(); ++i) {
    Group& group = groups[std::string(timeline.Text(losses.name[i]))];
    group.count += losses.count[i];
    if (losses.rank[i] >= 0 && (group.ranks.empty() || group.ranks.back() != losses.rank[i]))
      group.ranks.push_back(losses.rank[i]);
    if (const std::string_view detail = timeline.Text(losses.detail[i]);
        !detail.empty() && std::find(group.details.begin(), group.details.end(), detail) == group.details.end())
      group.details.push_back(detail);
  }
  for (const auto& [name, group] : groups) {
    const LossInfo* info = FindLoss(name);
    const bool serious = info == nullptr || info->severity == Severity::kDataLoss;
    const std::string line =
        CountOnRanks(group.count, info == nullptr ? std::string_view(name) : info->sentence, group.ranks);
    Show("  {} {}\n", serious ? "lost:" : "note:", line);
    const std::size_t shown = std::min(group.details.size(), serious ? kMostDetails : 1);
    for (std::size_t i = 0; i < shown; ++i) Show("        {}\n", group.details[i]);
    if (serious && group.details.size() > shown) Show("        and {} more\n", group.details.size() - shown);
    if (serious && info != nullptr) Show("        try: {}\n", info->remedy);
  }
}

void PrintTimeline(const merge::Timeline& timeline) {
  const auto meta = [&](const char* key) { return std::string(timeline.Meta(key)); };
  // Counts of meta are texts; what is none is shown as it is.
  const auto count = [&](const char* key) {
    const std::string text = meta(key);
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc() && end == text.data() + text.size() ? analysis::Count(n) : text;
  };
  const auto many = [](std::size_t n, const char* noun) {
    return analysis::Plural(static_cast<std::int64_t>(n), noun);
  };
  Show("{} of {} {}, {}, {} matched, {} {}, {} dropped\n", count("ranks"), count("ranks_expected"),
       meta("ranks_expected") == "1" ? "rank" : "ranks", many(timeline.tables.steps.rows(), "step"),
       many(timeline.tables.collectives.rows(), "collective"), count("events"),
       meta("events") == "1" ? "event" : "events", count("dropped"));
  Show("unmatched {}, mismatches {}, clock violations {}\n", count("unmatched_collectives"), count("mismatches"),
       count("clock_violations"));
  PrintTimelineLosses(timeline);
  Show("{}/timeline.h5\n", timeline.run_dir);
}

}  // namespace

Result<int> RunMerge(const MergeFlags& flags, merge::MergeTeam* team) {
  const bool speaks = team == nullptr || team->index() == 0;
  merge::MergeOptions options;
  options.team = team;
  LS_TRY(options.run_dir, flags.resolve ? flags.resolve(flags.run) : ResolveRun(flags.run));
  options.jobs = flags.jobs;
  LS_CHECK(FillMergeOptions(flags.choices, options));
  auto progress = std::make_unique<Progress>(!speaks || flags.quiet || isatty(STDERR_FILENO) == 0);
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
  // The other processes wait for the files that this one makes.
  if (team != nullptr) (void)team->Share("");
  auto merged = merge::MergeRun(options);
  progress.reset();
  lock.reset();
  LS_TRY(const merge::Timeline timeline, std::move(merged));
  if (speaks && flags.json != "-") PrintTimeline(timeline);
  if (speaks && !flags.json.empty()) LS_CHECK(WriteOrShow(flags.json, JsonText(TimelineJson(timeline)), ShowJson));
  return HasDataLoss(timeline) ? kIncomplete : kOk;
}

void AddClockFlag(CLI::App& app, std::string& clock) {
  app.add_option("--clock", clock, "Clocks: auto, off (as they are), wall (accept wall-clock accuracy)")
      ->check(CLI::IsMember({"auto", "off", "wall"}))
      ->capture_default_str();
}

merge::ClockChoice ClockChoiceOf(const std::string& clock) {
  return clock == "off"    ? merge::ClockChoice::kOff
         : clock == "wall" ? merge::ClockChoice::kWall
                           : merge::ClockChoice::kAuto;
}

void AddStepsFlag(CLI::App& app, std::string& steps) {
  app.add_option("--steps", steps, "Steps A to B-1 only")->type_name("A:B");
}

void AddClassesFlag(CLI::App& app, std::string& classes) {
  app.add_option("--classes", classes, "How kernels are classified: by Lockstep's rules or by HTA's")
      ->check(CLI::IsMember({"lockstep", "hta"}))
      ->capture_default_str();
}

void AddMergeChoices(CLI::App& app, MergeChoices& choices) {
  AddStepsFlag(app, choices.steps);
  AddClassesFlag(app, choices.classes);
  app.add_option("--window", choices.window,
                 "hta: totals over the window of Holistic Trace Analysis, for comparisons with it")
      ->check(CLI::IsMember({"lockstep", "hta"}))
      ->capture_default_str();
  AddClockFlag(app, choices.clock);
}

Status FillMergeOptions(const MergeChoices& choices, merge::MergeOptions& merge) {
  merge.clock = ClockChoiceOf(choices.clock);
  merge.classes = choices.classes;
  merge.window = choices.window;
  LS_TRY(const StepRange steps, ParseSteps(choices.steps));
  merge.first_step = steps.first;
  merge.last_step = steps.last;
  if (choices.window == "hta" && !choices.steps.empty())
    return Error{ErrorCode::kUsage, "--window hta chooses its steps itself", "--steps", "leave one of them out"};
  return Ok();
}

void AddMergeFlags(CLI::App& command, MergeFlags& flags) {
  command.add_option("RUN", flags.run, "Run directory (default: the latest run)");
  command.add_option("-j,--jobs", flags.jobs, "Threads (default: all allowed cores)")->type_name("N");
  AddMergeChoices(command, flags.choices);
  command.add_flag("-q,--quiet", flags.quiet, "No progress and no notices on standard error");
  command.add_option("--json", flags.json, "Write the facts as JSON to this file, - for stdout");
}

}  // namespace lockstep::cli
