// Checks whether a program can be recorded: how ld.so will load it.

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/inject/injection.h"
#include "runtime/doctor/check.h"

namespace lockstep::doctor {
Finding LookAtProgram(const Machine& machine) {
  if (machine.program.empty()) return {Status::kNotHere, "no program is named (--program)", ""};
  std::string path = machine.find_program(machine.program);
  if (path.empty())
    return {Status::kBlocker, fmt::format("there is no program {}", machine.program), "correct its name or PATH"};
  if (const std::string interpreter = agent::ScriptInterpreter(path); !interpreter.empty()) {
    const std::string found = machine.find_program(interpreter);
    if (found.empty())
      return {Status::kBlocker, fmt::format("{} is a script of {}, which is not here", path, interpreter),
              "install it"};
    path = found;
  }
  if (::access(path.c_str(), F_OK) != 0)
    return {Status::kBlocker, fmt::format("{} cannot be examined: {}", path, std::strerror(errno)), "correct its path"};
  const agent::ElfFacts elf = agent::LookAtElf(path);
  if (!elf.elf)
    return {Status::kBlocker, path + " is neither a program nor a script with #!", "name the program itself"};
  if (std::string other = agent::OtherLoader(path); !other.empty())
    return {Status::kBlocker, other + ": nothing is recorded", "build it with glibc, for 64 bits"};
  if (std::string none = agent::NoPreload(path, machine.superuser()); !none.empty())
    return {Status::kBlocker, none + ", nothing is recorded",
            elf.has_interpreter ? "run a copy without these rights (cp), or as its owner"
                                : "link it dynamically (without -static)"};
  if (std::string unseen = agent::UnseenMpi(path); !unseen.empty())
    return {Status::kBlocker, unseen + ": its MPI calls are not recorded", agent::kMpiRemedy};
  const agent::ProgramMpi mpi = agent::MpiOfLibraries(elf.needed);
  if (mpi.kind != agent::LinkedMpi::kNone) {
    const auto libraries = machine.libraries();
    if (libraries.ok() && libraries.value().Wraps(mpi.kind))
      return {Status::kOk, path + " uses " + mpi.library + ", whose calls are recorded", ""};
    return {Status::kBlocker,
            fmt::format("{} uses {}, for which this Lockstep has no wrappers: its MPI calls are not recorded", path,
                        mpi.library),
            "build the program with Open MPI or MPICH, and Lockstep where its mpi.h is"};
  }
  return {Status::kOk, path + " can be recorded", ""};
}

}  // namespace lockstep::doctor
