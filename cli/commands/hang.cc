// lockstep hang: who holds up a job that does not move, from what it left or what is recorded of it so far.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/report/text.h"
#include "cli/input/run_progress.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "hang/alarm.h"
#include "hang/join.h"
#include "hang/judge.h"
#include "hang/text.h"
#include "ingest/dumps.h"
#include "merge/readers/run_files.h"

namespace lockstep::cli {
namespace {

struct HangFlags {
  std::vector<std::string> given;
  std::string json;
  bool members = false;
  double least_wait_s = static_cast<double>(hang::kLeastWaitNs) / 1e9;
  double alarm_after_s = 0;  // Asked by an agent while the job runs: --hang-after.
  unsigned jobs = 0;
};

void ShowNotes(const std::vector<std::string>& notes, bool all) {
  constexpr std::size_t kMost = 5;
  const std::size_t shown = all ? notes.size() : std::min(kMost, notes.size());
  for (std::size_t i = 0; i < shown; ++i) Note("lockstep: {}\n", notes[i]);
  if (shown < notes.size())
    Note("lockstep: and {} like these; --members shows all\n",
         analysis::Plural(static_cast<std::int64_t>(notes.size() - shown), "note"));
}

// What is read: a run, dumps, or both.
struct Sources {
  std::string run;  // A run directory; "" none.
  std::vector<ingest::FoundDumps> dumps;
};

Result<Sources> FindSources(const std::vector<std::string>& given) {
  Sources sources;
  std::vector<std::string> dumps;
  for (const std::string& argument : given) {
    if (!HoldsRun(argument)) {
      dumps.push_back(argument);
    } else if (sources.run.empty()) {
      sources.run = argument;
    } else {
      return Error{ErrorCode::kUsage, "two runs were given", sources.run + " and " + argument, "name one of them"};
    }
  }
  if (given.empty()) {
    LS_TRY(sources.run, ResolveRun(""));
  }
  if (!sources.run.empty() && ingest::HoldsDumps(sources.run) != nullptr) dumps.push_back(sources.run);
  for (const std::string& argument : dumps)
    if (!argument.empty() && argument.find_first_not_of("0123456789") == std::string::npos &&
        !std::filesystem::exists(argument))
      return Error{ErrorCode::kUsage, "a process by its number cannot be looked at", argument,
                   "lockstep hang RUN, of a job under lockstep run; of any other: py-spy dump --pid " + argument};
  if (!dumps.empty()) {
    LS_TRY(sources.dumps, ingest::FindDumps(dumps));
  }
  return sources;
}

struct Account {
  ingest::ReadProgress read;
  std::vector<std::string> from;  // "rank files of 4 ranks, out/run1", one per source.
  Json sources = Json::array();
};

std::string Ranks(std::size_t count) { return analysis::Plural(static_cast<std::int64_t>(count), "rank"); }

Status ReadRun(const std::string& run_dir, std::int64_t least_wait_ns, unsigned jobs, Account& account) {
  LS_TRY(RunProgress run, ProgressOfRun(run_dir, least_wait_ns, jobs));
  account.read = std::move(run.read);
  account.from.push_back("what Lockstep recorded of " + Ranks(account.read.used) + ", " + run_dir);
  account.sources.push_back({{"format", "lockstep"}, {"files", run.files}, {"ranks", account.read.used}});
  return Ok();
}

// `where`: what they are called when there are no other dumps.
Status ReadDumps(const ingest::FoundDumps& found, const std::string& where, unsigned jobs, Account& account) {
  LS_TRY(ingest::ReadProgress dumps, found.format->read(found.files, jobs));
  std::vector<std::string>& notes = account.read.notes;
  notes.insert(notes.end(), dumps.notes.begin(), dumps.notes.end());
  if (account.sources.empty()) {
    account.read.progress = std::move(dumps.progress);
  } else if (!hang::Join(account.read.progress, std::move(dumps.progress))) {
    notes.push_back(
        fmt::format("{}: it is not known which ranks of the job they are about, so they are left out", where));
    return Ok();
  }
  account.from.push_back(fmt::format("{} of {}, {}", found.format->what, Ranks(dumps.used), where));
  account.sources.push_back({{"format", found.format->name}, {"files", found.files.size()}, {"ranks", dumps.used}});
  return Ok();
}

Result<int> Hang(const HangFlags& flags) {
  LS_TRY(const Sources sources, FindSources(flags.given));
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(std::min(seconds, 1e9) * 1e9); };
  const hang::JudgeOptions options{.least_wait_ns =
                                       ns(flags.alarm_after_s > 0 ? flags.alarm_after_s : flags.least_wait_s)};
  Account account;
  if (!sources.run.empty()) LS_CHECK(ReadRun(sources.run, options.least_wait_ns, flags.jobs, account));
  std::vector<Error> unread;
  for (const ingest::FoundDumps& found : sources.dumps) {
    const bool only = sources.dumps.size() == 1 && !flags.given.empty();
    const Status done = ReadDumps(found, only ? flags.given.back() : found.files.back().path, flags.jobs, account);
    if (!done.ok()) unread.push_back(done.error());
  }
  // Beside what could be read it is one more thing that is missing.
  if (account.sources.empty()) return unread.front();
  for (const Error& error : unread) account.read.notes.push_back(error.where + ": " + error.what);
  if (!unread.empty() && account.read.progress.open == hang::Open::kNothing)
    account.read.progress.open = hang::Open::kUnreadFiles;
  const ingest::ReadProgress& read = account.read;
  hang::Judgement judgement = hang::Judge(read.progress, options);
  if (flags.alarm_after_s > 0) hang::KeepAlarms(read.progress, ns(flags.alarm_after_s), judgement);
  std::vector<std::string> said;
  if (judgement.verdicts.empty() && !sources.run.empty() && flags.alarm_after_s == 0)
    said = SaidWhileItRan(sources.run);
  ShowNotes(read.notes, flags.members);
  if (flags.json != "-") {
    const bool unicode = report::TextOptions::ForFile(STDOUT_FILENO).unicode;
    ShowLines(hang::TextOf(read.progress, judgement, flags.members, unicode));
    for (const std::string& from : account.from) Show("      from {}\n", from);
    if (!said.empty()) Show("While it ran, its agents said:\n");
    for (const std::string& line : said) Show("{}\n", line);
  }
  if (!flags.json.empty()) {
    Json json = Json::parse(hang::JsonOf(read.progress, judgement));
    json["source"] = account.sources.front();
    json["sources"] = account.sources;
    json["notes"] = read.notes;
    if (!said.empty()) json["said_while_it_ran"] = said;
    LS_CHECK(WriteOrShow(flags.json, JsonText(json), ShowJson));
  }
  if (!judgement.verdicts.empty() || !said.empty()) return kHang;
  return judgement.known && read.notes.empty() ? kOk : kIncomplete;
}

}  // namespace

void AddHang(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<HangFlags>();
  CLI::App* app =
      root.add_subcommand("hang", "Say which rank holds up a job that does not move, or did not when it was ended");
  app->footer(
      "Examples:\n"
      "  lockstep hang out/run1                a recorded run: killed, timed out, or hanging now\n"
      "  lockstep hang                         the latest run\n"
      "  lockstep hang /tmp/dumps              the Flight Recorder dumps of all ranks\n"
      "  lockstep hang /tmp/nccl_trace_rank_*  the same, named one by one\n"
      "  lockstep hang ras1.json ras2.json     what ncclras -f json printed, some seconds apart\n"
      "PyTorch writes dumps if TORCH_FR_BUFFER_SIZE is set: docs/hang.md.\n"
      "Exit code 4: something hangs; 3: not known, or files are damaged; 0: nothing hangs.");
  app->add_option("sources", flags->given, "A run directory, dumps of all ranks (files, directories), or both")
      ->type_name("RUN|DUMPS");
  app->add_flag("--members", flags->members, "Name every rank, group and note: nothing is shortened");
  app->add_option("--least-wait", flags->least_wait_s,
                  "Take what was open for less than so many seconds for work under way")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(NotNegative());
  app->add_option("--alarm-after", flags->alarm_after_s)->check(NotNegative())->group("");
  app->add_option("-j,--jobs", flags->jobs, "Threads (default: all allowed cores)")->type_name("N");
  app->add_option("--json", flags->json, "Write the answer to FILE; - for standard output instead of the text")
      ->type_name("FILE");
  app->callback([flags, &chosen] { chosen = [flags] { return Hang(*flags); }; });
}

}  // namespace lockstep::cli
