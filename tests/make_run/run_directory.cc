#include "make_run/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "make_run/kineto.h"
#include "make_run/simulate.h"
#include "make_run/workers.h"
#include "trace/file/table_file.h"

namespace lockstep::make_run {

Status MakeRun(std::string_view text, std::string_view name, const std::string& out,
               const std::vector<std::string>& sets, unsigned jobs) {
  LS_TRY(const Spec spec, ParseSpec(text, name, sets));
  std::error_code error;
  std::filesystem::create_directories(spec.kineto.on ? out : out + "/ranks", error);
  if (spec.kineto.on && spec.kineto.layout == KinetoSpec::Layout::kFolders)
    for (std::int32_t rank = 0; rank < spec.ranks && !error; ++rank)
      std::filesystem::create_directories(std::filesystem::path(out + "/" + KinetoFileName(spec, rank)).parent_path(),
                                          error);
  if (error)
    return Error{ErrorCode::kIo, "cannot make the run directory: " + error.message(), out, "choose another path"};
  Simulation simulation(spec);
  simulation.Cluster();
  LS_CHECK(ForEachInProcesses(jobs, spec.ranks, [&](std::int32_t rank) -> Status {
    if (std::find(spec.missing.begin(), spec.missing.end(), rank) != spec.missing.end()) return Ok();
    if (spec.kineto.on) return WriteKineto(spec, rank, simulation.Rank(rank), out + "/" + KinetoFileName(spec, rank));
    return trace::WriteRankFile(fmt::format("{}/ranks/rank-{:05}.h5", out, rank), simulation.Rank(rank).tables);
  }));
  if (spec.kineto.on) return Ok();
  const nlohmann::ordered_json manifest = {{"schema", "lockstep.manifest/1"},
                                           {"run_id", "make_run"},
                                           {"world_size", spec.ranks},
                                           {"command", {"synthetic"}},
                                           {"cwd", "/"},
                                           {"created_realtime_ns", 1'700'000'000'000'000'000},
                                           {"lockstep_version", "synthetic"},
                                           {"options", nlohmann::json::object()},
                                           {"launcher", "make_run"},
                                           {"host", "node0"}};
  std::ofstream file(out + "/manifest.json");
  file << manifest.dump(2) << "\n";
  if (!file.flush())
    return Error{ErrorCode::kIo, "cannot write the manifest", out + "/manifest.json", "free space there"};
  return Ok();
}

}  // namespace lockstep::make_run
