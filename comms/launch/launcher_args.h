#pragma once
// Parses the command lines of launchers: finds the program in `mpirun -np 4 --bind-to core app args`,
// so that `lockstep run` can be inserted before it. Options as in Open MPI 4.1.4 (mpirun --help
// full), MPICH's hydra, Slurm 22's srun and torchrun (torch/distributed/run.py of PyTorch 1.13 to
// 2.7).

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace lockstep::launch {

enum class Launcher { kNone, kMpirun, kSrun, kTorchrun };

// By the program's name: mpirun, mpiexec, orterun, prterun (also with a suffix as in
// mpirun.openmpi), srun, torchrun.
Launcher RecognizeLauncher(std::string_view program);

// `command` with `agent` inserted before the program of each application context
// ("a : b" has two). Contexts whose program is `lockstep run` already stay as they
// are. kUsage: an option that this version does not know (it is unknown whether
// the next word belongs to it), an application file, or no program.
// `options` are words for the launcher itself, put behind its name in each context.
Result<std::vector<std::string>> InsertAgent(const std::vector<std::string>& command,
                                             const std::vector<std::string>& agent,
                                             const std::vector<std::string>& options = {});

// The number of words at the beginning that start torchrun: 1 for `torchrun`, 3 for `python3 -m torch.distributed.run`,
// 0 for others.
std::size_t WordsOfTorchrun(const std::vector<std::string>& command);

// The same for `torchrun [options] script args`, whose workers become `AGENT python -u script args`, as torchrun itself
// starts them; `python` is the interpreter it would use, with which it starts them now: the report of a worker that
// failed names the script as ever. kUsage where that is unclear: for an unknown option or a program that torchrun runs
// in another way.
Result<std::vector<std::string>> InsertAgentForTorchrun(const std::vector<std::string>& command,
                                                        const std::vector<std::string>& agent,
                                                        const std::string& python);

// Variables of Lockstep's users as mpirun's options (-x NAME): Open MPI's mpirun takes only what -x names to
// other hosts. `launcher` is the file that is started, links resolved: MPICH's mpirun has no -x and forwards
// everything. Empty too where the command or OMPI_MCA_mca_base_env_list names variables in the way that excludes -x.
std::vector<std::string> ForwardVariables(const std::vector<std::string>& command, std::string_view launcher,
                                          const std::vector<std::string>& environment);

}  // namespace lockstep::launch
