#pragma once
// Where the probe's libraries are, and the environment that loads them.

#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/agent/inject/elf_file.h"

namespace lockstep::agent {

struct Libraries {
  std::string probe;           // liblockstep.so
  std::string mpi;             // liblockstep-mpi.so, "" if this build has none.
  std::string gpu;             // liblockstep-gpu.so, CUPTI and NCCL; "" if there is none or it is not wanted.
  std::string cudart;          // liblockstep-cudart.so, preloaded with --range cuda only.
  std::string clock_program;   // lockstep-clock, "" if there is none.
  std::string stacks_program;  // lockstep-stacks, the same.
  // Beside `mpi`: liblockstep-mpi-NAME.so, of the ABIs that this build has wrappers for.
  std::vector<std::string> mpi_abis;

  bool Wraps(LinkedMpi mpi) const;
};

// $LOCKSTEP_LIBRARY_DIR, else beside the executable (build tree), else the lib
// directories next to its bin (installed). kNotFound names the directories.
Result<Libraries> FindLibraries();

// "existing:probe:mpi:gpu". What is there already stays and comes first, so that a
// tool that must be first (a sanitizer, a memory allocator) still is; ours are not
// doubled. Only the libraries whose functions ours stand in for (MPI, NCCL, CUPTI) come
// behind them.
std::string PreloadValue(const std::string& existing, const Libraries& libraries);

// This process's environment with the given variables set ("NAME=value").
std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& changes);

// Path of this program.
std::string SelfPath();

}  // namespace lockstep::agent
