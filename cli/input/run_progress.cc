#include "cli/input/run_progress.h"

#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "hang/judge.h"
#include "hang/text.h"
#include "ingest/recorded/progress.h"
#include "merge/readers/run_files.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::cli {

Result<RunProgress> ProgressOfRun(const std::string& run_dir, std::int64_t least_wait_ns, unsigned jobs) {
  LS_TRY(const merge::RunFiles run, merge::OpenRun(run_dir, jobs));
  std::vector<recorded::RecordedRank> ranks;
  for (const merge::RunRank& rank : run.ranks) {
    const std::string path = (std::filesystem::path(run_dir) / rank.file).string();
    ranks.push_back({rank.rank, path.ends_with(".spool") && trace::SpoolIsHeld(path), rank.source.get(), &rank.head});
  }
  return RunProgress{recorded::ProgressOf(ranks, run.world_size, least_wait_ns, jobs), ranks.size()};
}

std::vector<std::string> HangOfRun(const std::string& run_dir, unsigned jobs) {
  const hang::JudgeOptions options{.least_wait_ns = hang::kLeastWaitNs};
  const Result<RunProgress> run = ProgressOfRun(run_dir, options.least_wait_ns, jobs);
  if (!run.ok()) return {};
  const hang::Judgement judgement = hang::Judge(run.value().read.progress, options);
  if (judgement.verdicts.empty()) return {};
  std::istringstream text(hang::TextOf(run.value().read.progress, judgement, false, false));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::cli
