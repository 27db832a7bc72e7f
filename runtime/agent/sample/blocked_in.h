#pragma once
// Which system call a thread sleeps in, from outside: what holds up a rank that does not compute.

#include <string>

namespace lockstep::agent {

// "futex", "read of /data/shard-17", "nanosleep"; "" if it runs, or if the kernel does not tell (/proc/PID/syscall
// needs CONFIG_HAVE_ARCH_TRACEHOOK and, of a process, the right to trace it, which its parent has). Of the process's
// main thread. `before`: what was said of it last, which it is still in where the kernel shows that a call goes on
// after a stop (restart_syscall(2)). Safe to print.
std::string BlockedIn(long pid, const std::string& before);

}  // namespace lockstep::agent
