// Checks whether a program can be recorded: how ld.so will load it.

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
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
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return {Status::kBlocker, fmt::format("{} cannot be examined: {}", path, std::strerror(errno)), "correct its path"};
  const std::string without = "run a copy without these rights (cp), or as its owner";
  const bool other_user = (info.st_mode & S_ISUID) != 0 && info.st_uid != ::geteuid();
  const bool other_group = (info.st_mode & S_ISGID) != 0 && info.st_gid != ::getegid();
  if (other_user || other_group)
    return {Status::kBlocker,
            fmt::format("{} is set-{}-id: ld.so ignores LD_PRELOAD for it, nothing is recorded", path,
                        other_user ? "user" : "group"),
            without};
  if (::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 && !machine.superuser())
    return {Status::kBlocker,
            fmt::format("{} has capabilities: ld.so ignores LD_PRELOAD for it, nothing is recorded", path), without};
  const agent::ElfFacts elf = agent::LookAtElf(path);
  if (!elf.elf)
    return {Status::kBlocker, path + " is neither a program nor a script with #!", "name the program itself"};
  if (std::string other = agent::OtherLoader(path); !other.empty())
    return {Status::kBlocker, other + ": nothing is recorded", "build it with glibc, for 64 bits"};
  if (!elf.has_interpreter)
    return {Status::kBlocker,
            path + " is linked statically: there is no ld.so to load Lockstep's library, nothing is recorded",
            "link it dynamically (without -static)"};
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
