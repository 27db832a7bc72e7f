#include "comms/launch/launch_env.h"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <vector>

#include "core/hash.h"
#include "core/hex.h"
#include "core/own_file.h"
#include "core/process_stat.h"

namespace lockstep::launch {
namespace {

// -1 unless `name` holds a whole non-negative number.
std::int32_t Number(const GetEnv& get, const char* name) {
  const char* text = get(name);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value <= INT_MAX ? static_cast<std::int32_t>(value) : -1;
}

std::string Text(const GetEnv& get, const char* name) {
  const char* text = get(name);
  return text == nullptr ? std::string() : std::string(text);
}

// Step ids of Slurm's own steps (slurm.h: SLURM_BATCH_SCRIPT 0xfffffffb,
// SLURM_EXTERN_CONT 0xfffffffc, SLURM_INTERACTIVE_STEP 0xfffffffa), older versions
// 0xfffffffe: a batch script is one process, whatever SLURM_NTASKS says.
bool InSlurmStep(const GetEnv& get) {
  std::string step = Text(get, "SLURM_STEP_ID");
  if (step.empty()) step = Text(get, "SLURM_STEPID");
  if (step.empty()) return false;
  char* end = nullptr;
  const unsigned long value = std::strtoul(step.c_str(), &end, 10);
  return *end == '\0' && value < 0xfffffff0ul;
}

void ReadRank(const GetEnv& get, LaunchEnv& env) {
  const auto take = [&](LaunchSource source, const char* rank, const char* size, const char* local_rank,
                        const char* local_size) {
    const std::int32_t value = Number(get, rank);
    if (value < 0) return false;
    const std::int32_t world = Number(get, size);
    if (world >= 0 && value >= world) return false;  // A variable left over from another launcher.
    env.source = source;
    env.rank = value;
    env.world_size = world;
    env.local_rank = Number(get, local_rank);
    env.local_size = Number(get, local_size);
    return true;
  };
  if (get("TORCHELASTIC_RUN_ID") != nullptr &&
      take(LaunchSource::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    return;
  if (take(LaunchSource::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
           "OMPI_COMM_WORLD_LOCAL_SIZE"))
    return;
  if (take(LaunchSource::kPmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")) return;
  const bool slurm = InSlurmStep(get);
  const char* slurm_size = Number(get, "SLURM_STEP_NUM_TASKS") >= 0 ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (slurm && take(LaunchSource::kSlurm, "SLURM_PROCID", slurm_size, "SLURM_LOCALID", "")) {
    if (get("PMIX_RANK") != nullptr) env.source = LaunchSource::kPmi;
    return;
  }
  // PMIx alone gives a rank and no size; without the size no rank file can be missed.
  if (take(LaunchSource::kPmi, "PMIX_RANK", "", "", "")) return;
  if (Number(get, "WORLD_SIZE") >= 0)
    take(LaunchSource::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
}

// "/tmp/torchelastic_ab12/none_cd34/attempt_0/1/error.json": everything before the attempt is one launch's, with
// --log_dir too (PyTorch 1.9 to 2.x: agent/server/local_elastic_agent.py, multiprocessing/api.py). "" if it is not
// that: the variable may be a user's.
std::string LaunchKey(const GetEnv& get) {
  const std::string file = Text(get, "TORCHELASTIC_ERROR_FILE");
  const std::size_t attempt = file.rfind("/attempt_");
  if (attempt == std::string::npos || attempt == 0 || BaseName(file) != "error.json") return "";
  Hash64 hash;
  hash.Add(std::string_view(file).substr(0, attempt));
  return Hex(hash.value());
}

std::string RunId(const GetEnv& get, std::string_view hydra, LaunchEnv& env) {
  const std::string torch = Text(get, "MASTER_ADDR") + ":" + Text(get, "MASTER_PORT");
  if (env.source == LaunchSource::kTorchrun && get("TORCHELASTIC_RUN_ID") != nullptr) {
    env.launch_key = LaunchKey(get);
    env.launch_node = Number(get, "GROUP_RANK");
    std::string id =
        "torchrun:" + torch + "/" + Text(get, "TORCHELASTIC_RUN_ID") + "." + Text(get, "TORCHELASTIC_RESTART_COUNT");
    // Ranks of other nodes have another key, so it is part of the name only where all ranks are on this node.
    if (!env.launch_key.empty() && env.world_size > 0 && env.local_size == env.world_size)
      return id + "@" + env.launch_key;
    env.run_id_weak = true;
    return id;
  }
  for (const char* name : {"OMPI_MCA_orte_precondition_transports", "OMPI_MCA_orte_hnp_uri"})
    if (const char* value = get(name); value != nullptr && *value != '\0') return std::string("open-mpi:") + value;
  if (const std::string uuid = Text(get, "I_MPI_HYDRA_UUID"); env.source == LaunchSource::kPmi && !uuid.empty())
    return "intel-mpi:" + uuid + "/" + Text(get, "HYDRA_BSTRAP_PGID");
  if (InSlurmStep(get)) {
    std::string step = Text(get, "SLURM_STEP_ID");
    if (step.empty()) step = Text(get, "SLURM_STEPID");
    const std::string job = Text(get, "SLURM_JOB_ID"), restart = Text(get, "SLURM_RESTART_COUNT");
    if (!job.empty()) return "slurm:" + job + "." + step + "." + (restart.empty() ? "0" : restart);
  }
  env.run_id_weak = true;
  if (env.source == LaunchSource::kTorchrun && torch != ":") return "master:" + torch;
  if (const char* space = get("PMIX_NAMESPACE"); space != nullptr && env.source != LaunchSource::kNone)
    return std::string("pmix:") + space;
  if (env.source == LaunchSource::kPmi && !hydra.empty()) return "hydra:" + std::string(hydra);
  env.run_id_weak = false;
  env.run_id_random = true;
  std::random_device device;
  std::uint64_t bits = device();
  bits = bits << 32 | device();
  static constexpr char kHex[] = "0123456789abcdef";
  std::string id = "random:";
  for (int i = 60; i >= 0; i -= 4) id += kHex[bits >> i & 15];
  return id;
}

// The words of a process's command line; empty if it cannot be read.
std::vector<std::string> CommandLine(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

pid_t ParentOf(pid_t pid) {
  char state = 0;
  int parent = 0;
  return std::sscanf(ProcessStatAfterName(pid).c_str(), "%c %d", &state, &parent) == 2 ? parent : 0;
}

// Hydra's proxies are started with `--control-port HOST:PORT`, where the job's one mpiexec listens, and `--pgid N` for
// jobs that it spawns (MPICH 4.0.2). "" without one among the ancestors.
std::string HydraJob() {
  constexpr int kMostAncestors = 16;  // Wrappers between the proxy and us.
  pid_t pid = ::getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i, pid = ParentOf(pid)) {
    const std::vector<std::string> words = CommandLine(pid);
    if (words.empty() || BaseName(words[0]) != "hydra_pmi_proxy") continue;
    std::string port, group;
    for (std::size_t at = 1; at + 1 < words.size(); ++at) {
      if (words[at] == "--control-port") port = words[at + 1];
      if (words[at] == "--pgid") group = words[at + 1];
    }
    return port.empty() ? "" : port + "/" + group;
  }
  return {};
}

bool NamesInLauncher(const GetEnv& get, std::string_view hydra, const LaunchEnv& env) {
  for (const char* name : {"HYDRA_NAMESERVER", "I_MPI_HYDRA_NAMESERVER"})
    if (!Text(get, name).empty()) return false;
  const bool started_by_it = !hydra.empty() || !Text(get, "I_MPI_HYDRA_UUID").empty();
  return started_by_it && env.source == LaunchSource::kPmi && env.world_size > 1 && env.local_size != env.world_size;
}

}  // namespace

std::string_view Name(LaunchSource source) {
  switch (source) {
    case LaunchSource::kNone:
      return "none";
    case LaunchSource::kOpenMpi:
      return "open-mpi";
    case LaunchSource::kPmi:
      return "pmi";
    case LaunchSource::kSlurm:
      return "slurm";
    case LaunchSource::kTorchrun:
      return "torchrun";
  }
  return "none";
}

LaunchEnv ReadLaunchEnv(const GetEnv& get, std::string_view hydra) {
  LaunchEnv env;
  ReadRank(get, env);
  env.run_id = RunId(get, hydra, env);
  env.names_in_launcher = NamesInLauncher(get, hydra, env);
  Hash64 hash;
  hash.Add(env.run_id);
  env.run_hash = hash.value();
  return env;
}

LaunchEnv ReadLaunchEnv() {
  LaunchEnv env = ReadLaunchEnv([](const char* name) -> const char* { return std::getenv(name); },
                                std::getenv("PMI_RANK") == nullptr ? std::string() : HydraJob());
  env.parent = ::getppid();
  return env;
}

}  // namespace lockstep::launch
