#pragma once
// Reads what the ELF file of a program or library declares about itself. No other file parses ELF.

#include <string>
#include <vector>

namespace lockstep::agent {

struct ElfFacts {
  bool elf = false, elf64 = false, has_interpreter = false, dynamic = false;
  std::string interpreter;          // PT_INTERP: the path of ld.so.
  std::vector<std::string> needed;  // DT_NEEDED: libraries by soname.
};

// All members are false if the path is not an ELF file or cannot be read. Of a 32-bit file only `elf` is set.
ElfFacts LookAtElf(const std::string& path);

// MPI functions that a file has itself, by its symbols.
struct OwnMpi {
  bool library = false;  // PMPI_Init is one: an MPI library, or a program that one is linked into.
  // One that has no PMPI_ name here, so that it stands in front of the library's: others can call it, or not.
  std::string wrapper, hidden;
};
OwnMpi LookForMpi(const std::string& path);

// "#!/usr/bin/env python3" -> python3; "" if it is no script.
std::string ScriptInterpreter(const std::string& path);

// As execvp() would find it; "" if it would not.
std::string FindProgram(const std::string& name);

// The MPI library that a program is evidently linked with.
enum class LinkedMpi {
  kNone,      // No MPI library is named in the file: Python with mpi4py, a script, or MPI behind another library.
  kOpenMpi4,  // libmpi.so.40, which Open MPI 5 has as well.
  kMpich,     // MPICH's interface (libmpich.so.*, libmpi.so.12: Intel MPI, MVAPICH, Cray MPICH too).
  kStandard,  // The ABI of MPI 5.0 (libmpi_abi.so.*).
  kOther,
};
struct ProgramMpi {
  LinkedMpi kind = LinkedMpi::kNone;
  std::string library;  // Its soname.
};
ProgramMpi MpiOfLibraries(const std::vector<std::string>& needed);
ProgramMpi MpiOfProgram(const std::string& name);  // Found by FindProgram.

}  // namespace lockstep::agent
