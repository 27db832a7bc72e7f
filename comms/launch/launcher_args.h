#pragma once
// The command lines of launchers: where the program stands in
// `mpirun -np 4 --bind-to core app args`, so that `lockstep run` can be put in
// front of it. Options as in Open MPI 4.1.4 (mpirun --help full), MPICH's hydra and
// Slurm 22's srun.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace lockstep {

enum class Launcher { kNone, kMpirun, kSrun };

// By the program's name: mpirun, mpiexec, orterun, prterun (also with a suffix as in
// mpirun.openmpi), srun.
Launcher RecognizeLauncher(std::string_view program);

// `command` with `agent` inserted before the program of each application context
// ("a : b" has two). Contexts whose program is `lockstep run` already stay as they
// are. kUsage: an option that this version does not know (it cannot tell whether
// the next word belongs to it), an application file, or no program.
Result<std::vector<std::string>> InsertAgent(const std::vector<std::string>& command,
                                             const std::vector<std::string>& agent);

}  // namespace lockstep
