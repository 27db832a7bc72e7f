#include "cli/input/run_progress.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "core/own_file.h"
#include "hang/judge.h"
#include "hang/text.h"
#include "ingest/recorded/progress.h"
#include "merge/readers/run_files.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Result<RunProgress> ProgressOfRun(const std::string& run_dir, std::int64_t least_wait_ns, unsigned jobs) {
  LS_TRY(const merge::RunFiles run, merge::OpenRun(run_dir, jobs));
  std::vector<recorded::RecordedRank> ranks;
  for (const merge::RunRank& rank : run.ranks) {
    const std::string path = (std::filesystem::path(run_dir) / rank.file).string();
    ranks.push_back({rank.rank, path.ends_with(".spool") && trace::SpoolIsHeld(path), rank.source.get(), &rank.head});
  }
  RunProgress progress{recorded::ProgressOf(ranks, run.world_size, least_wait_ns, jobs), ranks.size()};
  for (hang::RankFacts& facts : progress.read.progress.ranks) {
    std::error_code ignored;
    // The spool of a rank on a host without this directory may be here, and the text is there.
    if (!facts.stacks_file.empty() && !facts.host.empty() &&
        !std::filesystem::exists(std::filesystem::path(run_dir) / facts.stacks_file, ignored))
      facts.stacks_file = facts.host + ":" + facts.stacks_file;
  }
  return progress;
}

std::vector<std::string> SaidWhileItRan(const std::string& run_dir) {
  constexpr std::size_t kMostText = 16384;
  std::vector<std::string> lines = LinesOf(ReadPlain(run_dir + "/hang.txt", kMostText));
  if (!lines.empty() && lines.back().starts_with("it moved again")) lines.clear();
  return lines;
}

std::vector<std::string> HangOfRun(const std::string& run_dir, unsigned jobs) {
  const hang::JudgeOptions options{.least_wait_ns = hang::kLeastWaitNs};
  const Result<RunProgress> run = ProgressOfRun(run_dir, options.least_wait_ns, jobs);
  if (!run.ok()) return {};
  // Of a run that goes on, its agents know how long its waits may take.
  const std::vector<hang::RankFacts>& ranks = run.value().read.progress.ranks;
  if (std::all_of(ranks.begin(), ranks.end(), [](const auto& facts) { return facts.state == hang::RankState::kAlive; }))
    return SaidWhileItRan(run_dir);
  const hang::Judgement judgement = hang::Judge(run.value().read.progress, options);
  if (judgement.verdicts.empty()) return SaidWhileItRan(run_dir);
  return LinesOf(hang::TextOf(run.value().read.progress, judgement, false, false));
}

}  // namespace lockstep::cli
