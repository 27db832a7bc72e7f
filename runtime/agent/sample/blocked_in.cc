#include "runtime/agent/sample/blocked_in.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/printed.h"

namespace lockstep::agent {
namespace {

struct Call {
  long number;
  const char* name;
  bool of_file;  // Its first argument is a descriptor.
};

// Those in which programs sleep.
constexpr Call kCalls[] = {
    {SYS_futex, "futex", false},
    {SYS_nanosleep, "nanosleep", false},
    {SYS_clock_nanosleep, "nanosleep", false},
    {SYS_read, "read", true},
    {SYS_pread64, "read", true},
    {SYS_readv, "read", true},
    {SYS_write, "write", true},
    {SYS_pwrite64, "write", true},
    {SYS_writev, "write", true},
    {SYS_fsync, "fsync", true},
    {SYS_fdatasync, "fsync", true},
    {SYS_openat, "open", false},
    {SYS_flock, "flock", true},
    {SYS_fcntl, "fcntl", true},
    {SYS_ioctl, "ioctl", true},
    {SYS_recvfrom, "recv", true},
    {SYS_recvmsg, "recv", true},
    {SYS_sendto, "send", true},
    {SYS_sendmsg, "send", true},
    {SYS_connect, "connect", true},
    {SYS_accept4, "accept", true},
    {SYS_epoll_pwait, "poll", false},
    {SYS_ppoll, "poll", false},
    {SYS_pselect6, "poll", false},
    {SYS_wait4, "wait for a child process", false},
    {SYS_waitid, "wait for a child process", false},
    {SYS_rt_sigsuspend, "pause", false},
    {SYS_rt_sigtimedwait, "wait for a signal", false},
    {SYS_msync, "msync", false},
#ifdef SYS_poll
    {SYS_poll, "poll", false},
    {SYS_select, "poll", false},
    {SYS_epoll_wait, "poll", false},
    {SYS_open, "open", false},
    {SYS_pause, "pause", false},
    {SYS_accept, "accept", true},
#endif
};

// " of PATH" for the address of a path in that process; "" if it cannot be read.
std::string OfText(long pid, const std::string& address) {
  char path[256];
  const iovec here{path, sizeof path};
  const iovec there{reinterpret_cast<void*>(std::strtoul(address.c_str(), nullptr, 16)), sizeof path};
  const ssize_t got = ::process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
  if (got <= 0) return "";
  const std::string_view text(path, static_cast<std::size_t>(got));
  return " of " + Printed(text.substr(0, text.find('\0')));
}

}  // namespace

std::string BlockedIn(long pid, const std::string& before) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::ifstream file(process + "/syscall");  // "0 0x3 0x7f... ...", or "running".
  long number = -1;
  std::string argument, second;
  if (!(file >> number >> argument >> second) || number < 0) return "";
  if (number == SYS_restart_syscall) return before;
  for (const Call& call : kCalls) {
    if (call.number != number) continue;
    std::string text = call.name;
    if (number == SYS_openat) return text + OfText(pid, second);
    if (!call.of_file || argument.size() > 2 + 8) return text;
    const unsigned long descriptor = std::strtoul(argument.c_str(), nullptr, 16);
    char path[PATH_MAX];
    const ssize_t length = ::readlink((process + "/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
    if (length > 0) text += " of " + Printed(std::string(path, static_cast<std::size_t>(length)));
    return text;
  }
  return "system call " + std::to_string(number);
}

}  // namespace lockstep::agent
