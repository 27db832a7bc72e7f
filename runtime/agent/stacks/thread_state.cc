#include "runtime/agent/stacks/thread_state.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace lockstep::agent {
namespace {

// Calls that begin again, or go on with what is left of their time, after a stop: signal(7), and the kernel's
// ERESTARTSYS, ERESTARTNOHAND and ERESTART_RESTARTBLOCK. Every other call is left alone.
constexpr long kGoOn[] = {
    SYS_futex,  SYS_nanosleep,     SYS_clock_nanosleep, SYS_ppoll,           SYS_pselect6,    SYS_wait4,
    SYS_waitid, SYS_rt_sigsuspend, SYS_flock,           SYS_restart_syscall, SYS_sched_yield,
#ifdef SYS_poll
    SYS_poll,   SYS_select,        SYS_pause,
#endif
};
// They go on if their descriptor is a pipe or a terminal's and nothing was moved, which holds for who sleeps in a read.
constexpr long kReads[] = {SYS_read, SYS_readv};
// Those that a program may wait in and that a stop ends with EINTR whatever is set.
constexpr long kEnd[] = {
    SYS_epoll_pwait,
    SYS_rt_sigtimedwait,
    SYS_semop,
    SYS_semtimedop,
    SYS_io_getevents,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
#ifdef SYS_epoll_pwait2
    SYS_epoll_pwait2,
#endif
#ifdef SYS_io_pgetevents
    SYS_io_pgetevents,
#endif
    // With a timeout of the socket (SO_RCVTIMEO, SO_SNDTIMEO).
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_recvmmsg,
    SYS_accept4,
    SYS_connect,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_read,
    SYS_readv,
    SYS_write,
    SYS_writev,
#ifdef SYS_accept
    SYS_accept,
#endif
};

template <std::size_t kCount>
bool IsOneOf(const long (&calls)[kCount], long call) {
  return std::find(std::begin(calls), std::end(calls), call) != std::end(calls);
}

bool IsPipe(pid_t pid, std::uint64_t descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length > 0 && std::string_view(path, static_cast<std::size_t>(length)).starts_with("pipe:");
}

std::string TaskPath(pid_t pid, pid_t thread, const char* file) {
  return "/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread) + "/" + file;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

ThreadState StateOf(pid_t pid, pid_t thread) {
  ThreadState state;
  const std::string stat = FirstLine(TaskPath(pid, thread, "stat"));
  // The name before it may hold anything.
  if (const std::size_t name = stat.rfind(')'); name != std::string::npos && name + 2 < stat.size())
    state.state = stat[name + 2];
  const std::string call = FirstLine(TaskPath(pid, thread, "syscall"));
  if (call.empty() || call[0] == 'r') return state;  // "running".
  unsigned long long a[6] = {}, stack_pointer = 0, program_counter = 0;
  long number = -1;
  int read = std::sscanf(call.c_str(), "%ld %llx %llx %llx %llx %llx %llx %llx %llx", &number, a, a + 1, a + 2, a + 3,
                         a + 4, a + 5, &stack_pointer, &program_counter);
  if (number == -1) read = 6 + std::sscanf(call.c_str(), "%*d %llx %llx", &stack_pointer, &program_counter);
  if (read < 8) return state;
  state.in_kernel = true;
  state.call = number;
  if (number != -1) std::copy(std::begin(a), std::end(a), state.arguments);
  state.stack_pointer = stack_pointer;
  state.program_counter = program_counter;
  return state;
}

bool MayBeStopped(pid_t pid, const ThreadState& state) {
#if defined(__x86_64__)
  if (state.state == 'R' && !state.in_kernel) return true;
  if (state.state != 'S' || !state.in_kernel) return false;
  return IsOneOf(kGoOn, state.call) || (IsOneOf(kReads, state.call) && IsPipe(pid, state.arguments[0]));
#else
  // What a stop has ended cannot be mended where the first argument's register is the result's.
  static_cast<void>(pid);
  static_cast<void>(state);
  return false;
#endif
}

bool EndsByStop(long call) { return IsOneOf(kEnd, call); }

ProcessFacts FactsOfThread(pid_t pid, pid_t thread) {
  ProcessFacts facts;
  std::uint64_t pending = 0, blocked = 0;
  std::ifstream file(TaskPath(pid, thread, "status"));
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = std::string_view(line).substr(0, colon);
    const char* value = line.c_str() + colon + 1;
    const auto bits = [&] { return std::strtoull(value, nullptr, 16); };
    if (key == "Name") facts.name = line.substr(std::min(line.size(), colon + 2));
    if (key == "PPid") facts.parent = static_cast<pid_t>(std::strtol(value, nullptr, 10));
    if (key == "TracerPid") facts.tracer = static_cast<pid_t>(std::strtol(value, nullptr, 10));
    if (key == "SigPnd" || key == "ShdPnd") pending |= bits();
    if (key == "SigBlk") blocked = bits();
    if (key == "SigCgt") facts.caught = bits();
  }
  facts.pending = pending & ~blocked;
  return facts;
}

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  DIR* directory = ::opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  if (directory == nullptr) return threads;
  while (const dirent* entry = ::readdir(directory))
    if (const long thread = std::strtol(entry->d_name, nullptr, 10); thread > 0)
      threads.push_back(static_cast<pid_t>(thread));
  ::closedir(directory);
  std::sort(threads.begin(), threads.end());
  if (const auto own = std::find(threads.begin(), threads.end(), pid); own != threads.end())
    std::rotate(threads.begin(), own, own + 1);
  return threads;
}

}  // namespace lockstep::agent
