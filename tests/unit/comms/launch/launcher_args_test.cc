#include "comms/launch/launcher_args.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::launch {
namespace {

std::vector<std::string> Split(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// "!" marks where the agent went; "error" if refused.
std::string Insert(const std::string& command) {
  const auto out = InsertAgent(Split(command), {"!"});
  if (!out.ok()) return "error";
  std::string text;
  for (const std::string& word : out.value()) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(LauncherArgs, Recognition) {
  for (const char* name : {"mpirun", "/usr/bin/mpiexec", "mpirun.openmpi", "orterun", "prterun", "mpiexec.hydra"})
    EXPECT_EQ(RecognizeLauncher(name), Launcher::kMpirun) << name;
  EXPECT_EQ(RecognizeLauncher("/usr/bin/srun"), Launcher::kSrun);
  EXPECT_EQ(RecognizeLauncher("/venv/bin/torchrun"), Launcher::kTorchrun);
  for (const char* name : {"mpirunner", "python3", "./srun.sh", "bash", ""})
    EXPECT_EQ(RecognizeLauncher(name), Launcher::kNone) << name;
}

TEST(LauncherArgs, Mpirun) {
  EXPECT_EQ(Insert("mpirun -np 4 app -np 3"), "mpirun -np 4 ! app -np 3");
  EXPECT_EQ(Insert("mpirun app"), "mpirun ! app");
  EXPECT_EQ(Insert("mpirun --allow-run-as-root --oversubscribe -n 2 ./a b"),
            "mpirun --allow-run-as-root --oversubscribe -n 2 ! ./a b");
  EXPECT_EQ(Insert("mpirun -mca btl self,vader --gmca pml ob1 -x A=1 -x B --bind-to core app"),
            "mpirun -mca btl self,vader --gmca pml ob1 -x A=1 -x B --bind-to core ! app");
  EXPECT_EQ(Insert("mpirun -H a:2,b:2 -N 2 --map-by ppr:1:socket -wdir /tmp --tag-output -q app"),
            "mpirun -H a:2,b:2 -N 2 --map-by ppr:1:socket -wdir /tmp --tag-output -q ! app");
  EXPECT_EQ(Insert("mpirun --map-by slot --rank-by core --report-bindings --timeout 60 --stdin none -rf f python x.py"),
            "mpirun --map-by slot --rank-by core --report-bindings --timeout 60 --stdin none -rf f ! python x.py");
  EXPECT_EQ(Insert("mpirun -np 2 -- app -x"), "mpirun -np 2 -- ! app -x");
  EXPECT_EQ(Insert("mpirun -qv -np 2 app"), "mpirun -qv -np 2 ! app");
  EXPECT_EQ(Insert("mpiexec -env A 1 -genv B 2 -ppn 2 -hosts a,b app"),
            "mpiexec -env A 1 -genv B 2 -ppn 2 -hosts a,b ! app");
}

TEST(LauncherArgs, SeveralProgramsAndAgentsAlreadyThere) {
  EXPECT_EQ(Insert("mpirun -np 1 a x : -np 2 -x V b : c"), "mpirun -np 1 ! a x : -np 2 -x V ! b : ! c");
  EXPECT_EQ(Insert("mpirun -np 1 /opt/lockstep run -- a : -np 2 b"), "mpirun -np 1 /opt/lockstep run -- a : -np 2 ! b");
  EXPECT_EQ(Insert("mpirun -np 1 lockstep info x"), "mpirun -np 1 ! lockstep info x");
}

TEST(LauncherArgs, Srun) {
  EXPECT_EQ(Insert("srun -n 4 app -n 3"), "srun -n 4 ! app -n 3");
  EXPECT_EQ(Insert("srun -n4 -N2 -l app"), "srun -n4 -N2 -l ! app");
  EXPECT_EQ(Insert("srun --ntasks=4 --ntasks-per-node 2 --exclusive --label app --x"),
            "srun --ntasks=4 --ntasks-per-node 2 --exclusive --label ! app --x");
  EXPECT_EQ(Insert("srun -K1 -I60 -ul -p debug --mpi pmix app"), "srun -K1 -I60 -ul -p debug --mpi pmix ! app");
  EXPECT_EQ(Insert("srun -lp debug app"), "srun -lp debug ! app");
  EXPECT_EQ(Insert("srun -n1 a : -n2 b"), "srun -n1 ! a : -n2 ! b");
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string Torchrun(const std::string& command, const std::string& python = "/venv/bin/python3") {
  const auto out = InsertAgentForTorchrun(Split(command), {"lockstep", "run", "a b'\\", "--"}, python);
  return out.ok() ? Join(out.value()) : "error";
}

// What torchrun starts in place of `python -u`.
constexpr const char* kStart =
    "--no_python /venv/bin/python3 -IS -cimport os,sys;w=[b'lockstep',b'run',b'a\\x20b\\x27\\x5c',b'--',"
    "b'/venv/bin/python3',b'-u',];os.execvp(w[0],w+sys.argv[1:])";

TEST(LauncherArgs, Torchrun) {
  EXPECT_EQ(Torchrun("torchrun train.py --nnodes 3"), "torchrun " + std::string(kStart) + " train.py --nnodes 3");
  EXPECT_EQ(Torchrun("torchrun --nnodes 2 --nproc_per_node=2 --rdzv-endpoint h:1 -r 1 -t3 --standalone train.py a"),
            "torchrun --nnodes 2 --nproc_per_node=2 --rdzv-endpoint h:1 -r 1 -t3 --standalone " + std::string(kStart) +
                " train.py a");
  EXPECT_EQ(Torchrun("torchrun --nnodes 2 -m pack.train -m x"),
            "torchrun --nnodes 2 " + std::regex_replace(std::string(kStart), std::regex("'-u',"), "'-u',b'-m',") +
                " pack.train -m x");
  EXPECT_EQ(Torchrun("torchrun --no_python ./app x", ""), "torchrun --no_python lockstep run a b'\\ -- ./app x");
  EXPECT_EQ(Torchrun("torchrun --no-python lockstep run -- app"), "torchrun --no-python lockstep run -- app");
  for (const char* command : {"torchrun", "torchrun --nnodes 2", "torchrun --run-path x.py", "torchrun --frob 3 x.py",
                              "torchrun -h", "torchrun --nnod 2 x.py", ""})
    EXPECT_EQ(Torchrun(command), "error") << command;
  EXPECT_EQ(Torchrun("torchrun train.py", ""), "error") << "its Python is not known";
}

TEST(LauncherArgs, TorchrunAsAModule) {
  EXPECT_EQ(Torchrun("/v/bin/python3 -u -m torch.distributed.run --nnodes 1 train.py x"),
            "/v/bin/python3 -u -m torch.distributed.run --nnodes 1 " + std::string(kStart) + " train.py x");
  EXPECT_EQ(WordsOfTorchrun({"python", "-m", "torch.distributed.run", "-m", "x"}), 3u);
  EXPECT_EQ(WordsOfTorchrun({"/a/torchrun", "x.py"}), 1u);
  // The second is torchrun with other rules for its workers' arguments.
  for (const std::vector<std::string>& command : {std::vector<std::string>{},
                                                  {"python", "-m", "torch.distributed.launch", "x.py"},
                                                  {"python", "x.py"},
                                                  {"python", "-W", "-m", "torch.distributed.run"},
                                                  {"perl", "-m", "torch.distributed.run"},
                                                  {"python", "-m"}})
    EXPECT_EQ(WordsOfTorchrun(command), 0u);
}

TEST(LauncherArgs, VariablesTravelWithOpenMpiAlone) {
  const std::vector<std::string> environment = {"PATH=/bin", "LOCKSTEP_NVML=/x y", "LOCKSTEP_SEGMENT=/dev/shm/s",
                                                "LOCKSTEP_LIVE=2"};
  const auto forward = [&](const std::string& command, std::string_view launcher) {
    return Join(ForwardVariables(Split(command), launcher, environment));
  };
  EXPECT_EQ(forward("mpirun -np 2 app", "/usr/bin/orterun"), "-x LOCKSTEP_NVML -x LOCKSTEP_LIVE");
  EXPECT_EQ(forward("mpirun -np 2 -x LOCKSTEP_LIVE=5 -x LOCKSTEP_NVML app", "/usr/bin/orterun"), "");
  EXPECT_EQ(forward("mpirun -np 2 app", "/usr/bin/mpiexec.hydra"), "");
  EXPECT_EQ(forward("mpirun -np 2 app", ""), "");
  // "You can use -x or mca_base_env_list, not both."
  EXPECT_EQ(forward("mpirun -mca mca_base_env_list A=1 app", "/usr/bin/orterun"), "");
  EXPECT_TRUE(
      ForwardVariables(Split("mpirun app"), "orterun", {"LOCKSTEP_LIVE=2", "OMPI_MCA_mca_base_env_list=A"}).empty());
  const auto out = InsertAgent(Split("mpirun -np 1 a : -np 2 b"), {"!"}, {"-x", "V"});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(Join(out.value()), "mpirun -np 1 -x V ! a : -np 2 -x V ! b");
  EXPECT_EQ(Join(InsertAgent(Split("mpirun -np 2 -- a"), {"!"}, {"-x", "V"}).value()), "mpirun -np 2 -x V -- ! a");
}

TEST(LauncherArgs, RefusesWhatItCannotRead) {
  EXPECT_EQ(Insert("mpirun --frobnicate 3 app"), "error");
  EXPECT_EQ(Insert("mpirun --app file"), "error");
  EXPECT_EQ(Insert("mpirun -np 4"), "error");
  EXPECT_EQ(Insert("mpirun --version"), "error");
  EXPECT_EQ(Insert("srun --multi-prog conf"), "error");
  EXPECT_EQ(Insert("python x.py"), "error");
}

}  // namespace
}  // namespace lockstep::launch
