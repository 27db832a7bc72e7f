#pragma once
// What a thread of another process is doing, by /proc: whether it may be stopped for a moment without its noticing.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::agent {

struct ThreadState {
  char state = '?';        // As /proc/PID/stat has it: R, S, D, T, t, Z, X.
  bool in_kernel = false;  // It sleeps, and the following is known.
  long call = -1;          // System call; -1: in none (a page fault).
  std::uint64_t arguments[6] = {};
  std::uint64_t stack_pointer = 0, program_counter = 0;
};

ThreadState StateOf(pid_t pid, pid_t thread);

// Whether a stop of this thread is unknown to the program: it runs, or it sleeps in a call that the kernel goes on with
// after a stop, with what is left of its time. Others end with EINTR, or with a part of the work (signal(7); socket
// calls depend on the socket's timeouts): such a thread is not stopped.
bool MayBeStopped(pid_t pid, const ThreadState& state);

// Whether the kernel ends this call with EINTR after a stop of the thread.
bool EndsByStop(long call);

struct ProcessFacts {
  pid_t parent = 0;
  pid_t tracer = 0;  // 0: none.
  std::uint64_t pending = 0,
                caught = 0;  // Signals of the thread or of its process: pending and not blocked; with a handler.
  std::string name;
};
// Of a thread; `thread` may be the process itself. Zeros if it has ended.
ProcessFacts FactsOfThread(pid_t pid, pid_t thread);

// The first is the process's own.
std::vector<pid_t> ThreadsOf(pid_t pid);

}  // namespace lockstep::agent
