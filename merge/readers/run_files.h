#pragma once
// Finds the rank files of a run directory and decides which one belongs to which rank.
// Every kind of imperfect input is handled here: missing, doubled, foreign, newer, damaged
// and unfinished files each become one counted loss that names the file; the others are
// used.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/loss.h"
#include "core/result.h"
#include "ingest/rank_files/rank_source.h"
#include "merge/team.h"

namespace lockstep::merge {

struct RunLoss {
  std::int32_t rank;  // -1 the whole run.
  std::string name;   // Info(loss).name, or what a newer version wrote.
  std::uint64_t count;
  std::string detail;
};
inline RunLoss MakeLoss(std::int32_t rank, Loss loss, std::uint64_t count, std::string detail) {
  return {rank, std::string(Info(loss).name), count, std::move(detail)};
}

// Whether the rank's own file contains such a loss.
bool HasLoss(const schema::RankTables& head, Loss loss);

using schema::RankState;

struct RunRank {
  std::int32_t rank = -1;
  std::string file;  // Relative to the run directory.
  RankState::Value state = RankState::kMissing;
  std::unique_ptr<ingest::RankSource> source;
  schema::RankTables head;  // Columns for kernels and enqueued operations are empty where nothing is in them.
  bool mine = true;         // Read by this process, which breaks it down.
};

struct RunFiles {
  std::string run_id, command;
  std::int32_t world_size = 0;  // Ranks the job had, as far as that is known.
  std::vector<RunRank> ranks;   // Present ones, by rank.
  std::vector<std::int32_t> missing;
  std::vector<RunRank> left_out;  // Ranks that were not to be recorded; the merge moves them here.
  std::vector<RunLoss> losses;
};

// kNotFound if there is no readable rank file at all. Opens files with `jobs` threads; `progress`: share of the
// files read. With a team each process opens some of the files and all know all heads afterwards.
Result<RunFiles> OpenRun(const std::string& run_dir, unsigned jobs, const std::function<void(double)>& progress = {},
                         MergeTeam* team = nullptr);

// Paths of everything OpenRun may read, sorted: for deciding whether a timeline is up to date.
std::vector<std::string> ListRunFiles(const std::string& run_dir);

// RUN/manifest.json's run id, command as one line and world size; empty and 0 when absent or broken.
struct ManifestFacts {
  std::string run_id, command;
  std::int32_t world_size = 0;
  std::vector<RunLoss> losses;  // What an import could not put into any rank's file.
};
ManifestFacts ReadManifest(const std::string& run_dir);

}  // namespace lockstep::merge
