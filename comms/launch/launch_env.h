#pragma once
// What the launcher set in this slot's environment: its rank, how many
// there are, and a name of the run that every rank derives alike.
//
// Rank and sizes, first that is there:
//   1. torchrun below another launcher: TORCHELASTIC_RUN_ID with RANK and WORLD_SIZE
//      (torchrun starts its workers itself, so it is always the innermost launcher)
//   2. Open MPI        OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE}
//   3. PMI, PMIx       PMI_{RANK,SIZE}, MPI_LOCAL{RANKID,NRANKS} (MPICH's hydra); PMIX_RANK, with Slurm's sizes
//   4. Slurm step      SLURM_{PROCID,STEP_NUM_TASKS|NTASKS,LOCALID} with SLURM_STEP_ID (not the batch step)
//   5. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   6. nothing: one rank.
//
// Run id, first that is there (PMIX_NAMESPACE is a pid and repeats in containers,
// so it comes last and is marked weak):
//   torchrun (case 1)  MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, and where all its
//                      ranks are on one node the launch key; else weak
//   Open MPI           OMPI_MCA_orte_precondition_transports, else OMPI_MCA_orte_hnp_uri
//   Intel MPI's hydra  I_MPI_HYDRA_UUID, HYDRA_BSTRAP_PGID (jobs that it spawns)
//   Slurm step         SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT
//   RANK               MASTER_ADDR, MASTER_PORT; weak
//   PMIx               PMIX_NAMESPACE; weak
//   MPICH's hydra      where its mpiexec listens for the nodes' proxies, one of which is our ancestor; weak
//   random: every slot is a run of its own.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::launch {

enum class LaunchSource : std::uint8_t { kNone, kOpenMpi, kPmi, kSlurm, kTorchrun };
std::string_view Name(LaunchSource source);  // "none", "open-mpi", "pmi", "slurm", "torchrun"

struct LaunchEnv {
  LaunchSource source = LaunchSource::kNone;
  std::int32_t rank = -1;        // In the job; -1: no launcher said.
  std::int32_t world_size = -1;  // -1 unknown.
  std::int32_t local_rank = -1, local_size = -1;
  std::string run_id;          // Human-readable source of the hash, e.g. "slurm:4711.0.0".
  std::uint64_t run_hash = 0;  // Of run_id; the same on every rank. Never 0.
  bool run_id_random = false;  // No other process can know it.
  bool run_id_weak = false;    // A later job may have the same: see runtime/agent/rundir/run_dir.h.
  // A text that the ranks started by one launcher process share, and that differs between launches. With torchrun it is
  // the directory that torchrun makes for each launch (TORCHELASTIC_ERROR_FILE, below mkdtemp's). "" if the launcher
  // has none.
  std::string launch_key;
  // The number of this node according to torchrun (GROUP_RANK); -1 unknown. Several may be on one machine.
  std::int32_t launch_node = -1;

  // Hydra, MPICH's or Intel MPI's, started it and has ranks on other hosts, or may have: it keeps the names of its job
  // (MPI_Publish_name) unless it was told of a server that keeps those of all jobs.
  bool names_in_launcher = false;

  // The process that started this slot; 0 unknown.
  long parent = 0;

  std::int32_t slot() const { return rank < 0 ? 0 : rank; }  // For file names.
  std::int32_t slots() const { return world_size < 1 ? 1 : world_size; }
};

// `get` is getenv or a test's replacement: null if unset.
using GetEnv = std::function<const char*(const char*)>;
// `hydra` is "HOST:PORT/GROUP" of MPICH's mpiexec that started this process, "" if there is none, because PMI's
// variables do not name the job.
LaunchEnv ReadLaunchEnv(const GetEnv& get, std::string_view hydra = {});
LaunchEnv ReadLaunchEnv();  // Of this process.

}  // namespace lockstep::launch
