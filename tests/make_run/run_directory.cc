#include "make_run/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "make_run/simulate.h"
#include "trace/table_file.h"

namespace lockstep::make_run {

Status MakeRun(std::string_view text, std::string_view name, const std::string& out,
               const std::vector<std::string>& sets) {
  LS_TRY(const Spec spec, ParseSpec(text, name, sets));
  std::error_code error;
  std::filesystem::create_directories(out + "/ranks", error);
  if (error)
    return Error{ErrorCode::kIo, "cannot make the run directory: " + error.message(), out, "choose another path"};
  Simulation simulation(spec);
  simulation.Cluster();
  for (std::int32_t rank = 0; rank < spec.ranks; ++rank) {
    if (std::find(spec.missing.begin(), spec.missing.end(), rank) != spec.missing.end()) continue;
    LS_CHECK(WriteRankFile(fmt::format("{}/ranks/rank-{:05}.h5", out, rank), simulation.Rank(rank)));
  }
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
