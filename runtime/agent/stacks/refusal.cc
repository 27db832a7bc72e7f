#include "runtime/agent/stacks/refusal.h"

#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace lockstep::agent {
namespace {

bool IsRefusal(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

// A read of this process's own memory needs no rights.
bool ReadsAreFiltered() {
  char from = 1, to = 0;
  const iovec here{&to, 1}, there{&from, 1};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != 1 && IsRefusal(errno);
}

// There is no thread of this number, which the kernel says to who may ask.
bool PtraceIsFiltered() { return ::ptrace(PTRACE_DETACH, -1, nullptr, nullptr) != 0 && IsRefusal(errno); }

// The real user, of "Uid:\treal\teffective\tsaved\tfs".
uid_t UserOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  constexpr std::string_view kUser = "Uid:";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kUser)) return static_cast<uid_t>(std::strtoul(line.c_str() + kUser.size(), nullptr, 10));
  return ::getuid();
}

}  // namespace

RefusalFacts FactsOfRefusal(pid_t pid) {
  RefusalFacts facts;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> facts.yama;
  facts.filters_reads = ReadsAreFiltered();
  facts.filters_ptrace = PtraceIsFiltered();
  facts.own_user = ::getuid();
  facts.program_user = UserOf(pid);
  // Files below /proc/PID, but not itself, belong to root then (proc(5)).
  struct stat status {};
  const std::string maps = "/proc/" + std::to_string(pid) + "/maps";
  facts.guarded = ::stat(maps.c_str(), &status) == 0 && status.st_uid == 0 && facts.program_user != 0;
  return facts;
}

std::string RefusalText(pid_t pid, const RefusalFacts& facts) {
  const std::string what = "stacks of process " + std::to_string(pid) + " cannot be taken: ";
  if (facts.filters_reads || facts.filters_ptrace)
    return what + "a filter of system calls (seccomp) forbids " +
           (facts.filters_reads && facts.filters_ptrace ? "process_vm_readv and ptrace"
            : facts.filters_reads                       ? "process_vm_readv"
                                                        : "ptrace") +
           ": start the container with --cap-add SYS_PTRACE, or with a profile that allows them";
  if (facts.yama == 3)
    return what +
           "Yama forbids it to everybody until the next boot (kernel.yama.ptrace_scope is 3): boot with 1, which lets "
           "a "
           "parent look at its programs";
  if (facts.yama == 2)
    return what +
           "Yama forbids it (kernel.yama.ptrace_scope is 2): sysctl -w kernel.yama.ptrace_scope=1, or a container with "
           "--cap-add SYS_PTRACE";
  if (facts.program_user != facts.own_user)
    return what + "it is of user " + std::to_string(facts.program_user) + ", and its agent of user " +
           std::to_string(facts.own_user) + ": run lockstep as its user, or with the capability SYS_PTRACE";
  if (facts.guarded)
    return what +
           "it is closed to processes of its own user (prctl PR_SET_DUMPABLE, or it gained rights when it was "
           "started): "
           "run lockstep with the capability SYS_PTRACE";
  return what +
         "the system forbids it (SELinux's deny_ptrace, AppArmor): allow it, or start the container with --cap-add "
         "SYS_PTRACE";
}

}  // namespace lockstep::agent
