#include "comms/launch/launch_env.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace lockstep::launch {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnv Read(const Variables& variables, std::string_view hydra = {}) {
  return ReadLaunchEnv(
      [&](const char* name) -> const char* {
        const auto at = variables.find(name);
        return at == variables.end() ? nullptr : at->second.c_str();
      },
      hydra);
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"OMPI_MCA_orte_precondition_transports", "aa-bb"},
                            {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://x"},
                            {"OMPI_NUM_APP_CTX", "1"},
                            {"OMPI_COMMAND", "lockstep"},
                            {"OMPI_ARGV", "run -- ./app"},
                            {"PMIX_RANK", "5"},
                            {"PMIX_NAMESPACE", "77"}};

Variables With(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

TEST(LaunchEnv, OpenMpi) {
  const LaunchEnv env = Read(kOpenMpi);
  EXPECT_EQ(env.source, LaunchSource::kOpenMpi);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_size, 4);
  EXPECT_EQ(env.run_id, "open-mpi:aa-bb");
  EXPECT_FALSE(env.run_id_random);
  EXPECT_FALSE(env.run_id_weak);
}

TEST(LaunchEnv, RunIdIsTheSameOnEveryRankAndAnotherInAnotherJob) {
  const LaunchEnv a = Read(kOpenMpi), b = Read(With(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "6"}, {"PMIX_RANK", "6"}})),
                  c = Read(With(kOpenMpi, {{"OMPI_MCA_orte_precondition_transports", "aa-bc"}}));
  EXPECT_EQ(a.run_hash, b.run_hash);
  EXPECT_NE(a.run_hash, c.run_hash);
}

TEST(LaunchEnv, HnpUriWhenThereIsNoKey) {
  Variables variables = kOpenMpi;
  variables.erase("OMPI_MCA_orte_precondition_transports");
  EXPECT_EQ(Read(variables).run_id, "open-mpi:1.0;tcp://x");
}

TEST(LaunchEnv, OpenMpiBeatsSlurmAndExportedRank) {
  const LaunchEnv env = Read(
      With(kOpenMpi,
           {{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}, {"RANK", "3"}, {"WORLD_SIZE", "4"}}));
  EXPECT_EQ(env.source, LaunchSource::kOpenMpi);
  EXPECT_EQ(env.rank, 5);
}

TEST(LaunchEnv, TorchrunBelowMpirunIsTheInnermost) {
  const LaunchEnv env = Read(With(kOpenMpi, {{"TORCHELASTIC_RUN_ID", "none"},
                                             {"TORCHELASTIC_RESTART_COUNT", "1"},
                                             {"RANK", "13"},
                                             {"WORLD_SIZE", "16"},
                                             {"LOCAL_RANK", "5"},
                                             {"LOCAL_WORLD_SIZE", "8"},
                                             {"MASTER_ADDR", "n1"},
                                             {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(env.source, LaunchSource::kTorchrun);
  EXPECT_EQ(env.rank, 13);
  EXPECT_EQ(env.world_size, 16);
  EXPECT_EQ(env.local_rank, 5);
  EXPECT_EQ(env.run_id, "torchrun:n1:29500/none.1");
  EXPECT_TRUE(env.run_id_weak);
}

TEST(LaunchEnv, LaunchesOfTorchrunDiffer) {
  Variables variables = {{"TORCHELASTIC_RUN_ID", "none"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"},
                         {"TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_a/none_b/attempt_0/0/error.json"},
                         {"RANK", "0"},
                         {"WORLD_SIZE", "2"},
                         {"LOCAL_RANK", "0"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", "29500"}};
  const LaunchEnv first = Read(variables);
  EXPECT_FALSE(first.run_id_weak);
  EXPECT_EQ(first.run_id.substr(0, 33), "torchrun:127.0.0.1:29500/none.0@" + first.launch_key.substr(0, 1));
  variables["RANK"] = variables["LOCAL_RANK"] = "1";
  variables["TORCHELASTIC_ERROR_FILE"] = "/tmp/torchelastic_a/none_b/attempt_0/1/error.json";
  EXPECT_EQ(Read(variables).run_id, first.run_id);
  variables["TORCHELASTIC_ERROR_FILE"] = "/tmp/torchelastic_a/none_c/attempt_0/1/error.json";
  EXPECT_NE(Read(variables).run_id, first.run_id);
  // Other nodes have other directories: there the name is what all share.
  variables["WORLD_SIZE"] = "4";
  const LaunchEnv of_two_nodes = Read(variables);
  EXPECT_TRUE(of_two_nodes.run_id_weak);
  EXPECT_EQ(of_two_nodes.run_id, "torchrun:127.0.0.1:29500/none.0");
  EXPECT_FALSE(of_two_nodes.launch_key.empty());
  // A user's own variable.
  variables["TORCHELASTIC_ERROR_FILE"] = "/var/log/errors";
  EXPECT_TRUE(Read(variables).launch_key.empty());
}

TEST(LaunchEnv, SlurmStepButNotTheBatchScript) {
  Variables variables = {{"SLURM_PROCID", "2"},       {"SLURM_NTASKS", "9"},  {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_LOCALID", "0"},      {"SLURM_JOB_ID", "47"}, {"SLURM_STEP_ID", "3"},
                         {"SLURM_RESTART_COUNT", "1"}};
  const LaunchEnv env = Read(variables);
  EXPECT_EQ(env.source, LaunchSource::kSlurm);
  EXPECT_EQ(env.rank, 2);
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.run_id, "slurm:47.3.1");
  variables["SLURM_STEP_ID"] = "4294967291";
  const LaunchEnv batch = Read(variables);
  EXPECT_EQ(batch.source, LaunchSource::kNone);
  EXPECT_EQ(batch.rank, -1);
  EXPECT_TRUE(batch.run_id_random);
}

TEST(LaunchEnv, Pmi) {
  const LaunchEnv env =
      Read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(env.source, LaunchSource::kPmi);
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.world_size, 2);
  EXPECT_EQ(env.local_size, 2);
}

TEST(LaunchEnv, RanksOfOneHydraAreOneRun) {
  const Variables first = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, second = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_TRUE(Read(first).run_id_random) << "not started by hydra";
  const LaunchEnv a = Read(first, "head:4711/0"), b = Read(second, "head:4711/0");
  EXPECT_EQ(a.run_id, "hydra:head:4711/0");
  EXPECT_EQ(a.run_hash, b.run_hash);
  EXPECT_FALSE(a.run_id_random);
  EXPECT_TRUE(a.run_id_weak) << "a port comes back";
  EXPECT_NE(a.run_hash, Read(first, "head:4712/0").run_hash);
  // Where the launcher names the job itself that counts.
  EXPECT_EQ(Read(kOpenMpi, "head:4711/0").run_id, Read(kOpenMpi).run_id);
}

// Its proxies' command lines do not say where mpiexec listens.
TEST(LaunchEnv, RanksOfOneIntelMpiAreOneRun) {
  const auto rank = [](const char* number, const char* job, const char* group) {
    return Read({{"PMI_RANK", number}, {"PMI_SIZE", "2"}, {"I_MPI_HYDRA_UUID", job}, {"HYDRA_BSTRAP_PGID", group}});
  };
  const LaunchEnv a = rank("0", "2a7d0000", "0");
  EXPECT_EQ(a.run_id, "intel-mpi:2a7d0000/0");
  EXPECT_EQ(a.run_hash, rank("1", "2a7d0000", "0").run_hash);
  EXPECT_FALSE(a.run_id_random || a.run_id_weak);
  EXPECT_NE(a.run_hash, rank("0", "307d0000", "0").run_hash);
  EXPECT_NE(a.run_hash, rank("0", "2a7d0000", "1").run_hash) << "a job that it spawned";
}

TEST(LaunchEnv, NothingIsOneRankWithARandomId) {
  const LaunchEnv a = Read({}), b = Read({});
  EXPECT_EQ(a.source, LaunchSource::kNone);
  EXPECT_EQ(a.slot(), 0);
  EXPECT_EQ(a.slots(), 1);
  EXPECT_TRUE(a.run_id_random);
  EXPECT_NE(a.run_hash, b.run_hash);
}

TEST(LaunchEnv, NonsenseIsNoRank) {
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_RANK", "x"}}).rank, -1);
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_RANK", "-2"}}).rank, -1);
  EXPECT_EQ(Read({{"RANK", "4"}, {"WORLD_SIZE", "4"}}).rank, -1);
  EXPECT_EQ(Read({{"RANK", "4"}}).rank, -1);
}

// Names of a job are told to MPI where its own launcher keeps them, and ranks of other hosts may ask for them.
TEST(LaunchEnv, NamesOfAJobAreInItsLauncher) {
  const Variables hydra = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_TRUE(Read(hydra, "head:4000/0").names_in_launcher);
  EXPECT_TRUE(Read(With(hydra, {{"I_MPI_HYDRA_UUID", "6b"}})).names_in_launcher);
  // Hydra starts its proxies by Slurm's launcher, too.
  EXPECT_TRUE(Read(With(hydra, {{"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "7"}}), "head:4000/0").names_in_launcher);
  // Of PMI without hydra nothing is known.
  EXPECT_FALSE(Read(hydra).names_in_launcher);
  EXPECT_FALSE(Read(With(hydra, {{"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "7"}}), "").names_in_launcher);
  EXPECT_FALSE(Read(kOpenMpi).names_in_launcher);
  // One host; one rank.
  EXPECT_FALSE(Read(With(hydra, {{"MPI_LOCALNRANKS", "4"}}), "head:4000/0").names_in_launcher);
  EXPECT_FALSE(Read(With(hydra, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), "head:4000/0").names_in_launcher);
  // A server of names gives them to everybody.
  for (const char* name : {"HYDRA_NAMESERVER", "I_MPI_HYDRA_NAMESERVER"})
    EXPECT_FALSE(Read(With(hydra, {{name, "head:6392"}}), "head:4000/0").names_in_launcher) << name;
}

}  // namespace
}  // namespace lockstep::launch
