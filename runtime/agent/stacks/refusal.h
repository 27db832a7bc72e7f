#pragma once
// Why the stacks of a program cannot be taken although nobody else traces it, with what to do.

#include <sys/types.h>

#include <string>

namespace lockstep::agent {

// What is known of the system and of the program.
struct RefusalFacts {
  int yama = -1;  // kernel.yama.ptrace_scope; -1: there is no Yama.
  // A filter of system calls (seccomp) refuses these to this process.
  bool filters_reads = false, filters_ptrace = false;
  uid_t own_user = 0, program_user = 0;
  // The program may not be looked at by processes of its own user: prctl(PR_SET_DUMPABLE), or it gained rights when it
  // was executed (setuid, capabilities of a file).
  bool guarded = false;
};
// Asks for what this process can ask without touching the program.
RefusalFacts FactsOfRefusal(pid_t pid);

std::string RefusalText(pid_t pid, const RefusalFacts& facts);

}  // namespace lockstep::agent
