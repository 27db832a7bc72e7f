// lockstep hang: who holds up a job that does not move, from what it left.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/report/text.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "hang/judge.h"
#include "hang/text.h"
#include "ingest/dumps.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::vector<std::string> dumps;
  std::string json;
  bool members = false;
  double least_wait_s = 5;
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

Result<int> Hang(const Flags& flags) {
  LS_TRY(const ingest::FoundDumps found, ingest::FindDumps(flags.dumps));
  LS_TRY(const ingest::ReadProgress read, found.format->read(found.files, flags.jobs));
  const hang::JudgeOptions options{.least_wait_ns = static_cast<std::int64_t>(std::min(flags.least_wait_s, 1e9) * 1e9)};
  const hang::Judgement judgement = hang::Judge(read.progress, options);
  ShowNotes(read.notes, flags.members);
  if (flags.json != "-") {
    const bool unicode = report::TextOptions::ForFile(STDOUT_FILENO).unicode;
    ShowLines(hang::TextOf(read.progress, judgement, flags.members, unicode));
    Show("      from {} of {}, {}\n", found.format->what,
         analysis::Plural(static_cast<std::int64_t>(read.used), "rank"), flags.dumps.front());
  }
  if (!flags.json.empty()) {
    Json json = Json::parse(hang::JsonOf(read.progress, judgement));
    json["source"] = {{"format", found.format->name}, {"files", found.files.size()}, {"ranks", read.used}};
    json["notes"] = read.notes;
    LS_CHECK(WriteOrShow(flags.json, JsonText(json), ShowJson));
  }
  if (!judgement.verdicts.empty()) return kHang;
  return read.notes.empty() && judgement.no_dump.empty() ? kOk : kIncomplete;
}

}  // namespace

void AddHang(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand("hang", "Say which rank holds up a job that does not move, from its dumps");
  app->footer(
      "Examples:\n"
      "  lockstep hang /tmp/dumps              the Flight Recorder dumps of all ranks\n"
      "  lockstep hang /tmp/nccl_trace_rank_*  the same, named one by one\n"
      "PyTorch writes them if TORCH_FR_BUFFER_SIZE is set: docs/hang.md.\n"
      "Exit code 4: something hangs; 3: nothing does in what could be read, and dumps are missing.");
  app->add_option("dumps", flags->dumps, "Dumps of all ranks: files, directories")->type_name("DUMPS")->required();
  app->add_flag("--members", flags->members, "Name every rank, group and note: nothing is shortened");
  app->add_option("--least-wait", flags->least_wait_s,
                  "Take what was open for less than so many seconds for work under way")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(NotNegative());
  app->add_option("-j,--jobs", flags->jobs, "Threads (default: all allowed cores)")->type_name("N");
  app->add_option("--json", flags->json, "Write the answer to FILE; - for standard output instead of the text")
      ->type_name("FILE");
  app->callback([flags, &chosen] { chosen = [flags] { return Hang(*flags); }; });
}

}  // namespace lockstep::cli
