// Writes a BlockedRecord. The thread may have come here while it holds any lock of the program's, an allocator's or the
// dynamic linker's: nothing is allocated, and no function is called that takes a lock.

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "runtime/probe/blocked/calls.h"
#include "runtime/probe/blocked/real.h"
#include "runtime/probe/own_python.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

using Kind = schema::BlockedKind;

// <dlfcn.h> of glibc 2.35, which is the first that has the function. dladdr takes a lock, which another thread may hold
// while its constructors wait for one that this thread holds.
struct FoundObject {
  unsigned long long flags;
  void *begin, *end;
  struct Library {
    std::uintptr_t base;
    const char* name;
  } * library;
  void* frames;
  unsigned long long reserved[7];
};
using FindObject = int (*)(void*, FoundObject*);
constinit FindObject g_find_object = nullptr;

constexpr std::uint32_t kOwnLibrary = 0xffffffff;

// What is worth microseconds is found out of waits of 1 ms and more; sample_ticks are 200 us.
constexpr std::uint64_t kSamplesToLong = 5;

bool IsDescriptor(BlockedCall call) {
  return call >= BlockedCall::poll && call <= BlockedCall::flock && call != BlockedCall::select &&
         call != BlockedCall::pselect;
}

std::uint8_t KindOfDescriptor(int file) {
  struct stat info {};
  if (file < 0 || fstat(file, &info) != 0) return Kind::kOther;
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) || S_ISBLK(info.st_mode)) return Kind::kFile;
  return S_ISSOCK(info.st_mode) || S_ISFIFO(info.st_mode) ? Kind::kSocket : Kind::kOther;
}

bool PeerOf(int file, char* to, std::size_t room) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof peer;
  if (getpeername(file, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return false;
  char host[INET6_ADDRSTRLEN] = {};
  if (peer.ss_family == AF_INET) {
    const auto& inet = reinterpret_cast<const sockaddr_in&>(peer);
    return inet_ntop(AF_INET, &inet.sin_addr, host, sizeof host) != nullptr &&
           snprintf(to, room, "%s:%u", host, ntohs(inet.sin_port)) > 0;
  }
  if (peer.ss_family == AF_INET6) {
    const auto& inet = reinterpret_cast<const sockaddr_in6&>(peer);
    return inet_ntop(AF_INET6, &inet.sin6_addr, host, sizeof host) != nullptr &&
           snprintf(to, room, "[%s]:%u", host, ntohs(inet.sin6_port)) > 0;
  }
  const auto& local = reinterpret_cast<const sockaddr_un&>(peer);
  if (peer.ss_family != AF_UNIX || bytes <= offsetof(sockaddr_un, sun_path) || local.sun_path[0] == 0) return false;
  return snprintf(to, room, "%.*s", static_cast<int>(bytes - offsetof(sockaddr_un, sun_path)), local.sun_path) > 0;
}

bool PathOf(int file, char* to, std::size_t room) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t bytes = readlink(link, to, room - 1);
  if (bytes <= 0 || static_cast<std::size_t>(bytes) == room - 1) return false;
  to[bytes] = 0;
  return to[0] == '/' || strncmp(to, "pipe:", 5) == 0;
}

bool IsOurs(const char* library) {
  const char* slash = strrchr(library, '/');
  return strncmp(slash == nullptr ? library : slash + 1, "liblockstep", 11) == 0;
}

// The thread's id of the library that the address is in; 0: not known.
std::uint32_t LibraryAt(Watch& watch, const void* address, const ProcessEntry& process) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Watch::Library& each : watch.libraries)
    if (at >= each.begin && at < each.end) return each.name;
  FoundObject found{};
  if (g_find_object == nullptr || g_find_object(const_cast<void*>(address), &found) != 0 || found.library == nullptr ||
      found.library->name == nullptr)
    return 0;
  const char* path = found.library->name[0] != 0 ? found.library->name : process.exe;
  const std::uint32_t name = IsOurs(path) ? kOwnLibrary : lockstep_intern(path);
  if (name == 0) return 0;
  Watch::Library& place = watch.libraries[watch.next_library++ % kKnownLibraries];
  place = {reinterpret_cast<std::uintptr_t>(found.begin), reinterpret_cast<std::uintptr_t>(found.end), name};
  return name;
}

// A handler's stack may have a few KiB.
bool OnHandlersStack() {
  stack_t stack{};
  return sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_ONSTACK) != 0;
}

// Of a long wait, on the thread that waited.
[[gnu::noinline]] void LookCloser(const BlockedWait& blocked, bool descriptor, RingPage& page, BlockedRecord& record) {
  LearnRate(ring::Ticks());
  const int file = static_cast<int>(blocked.wait.object);
  const std::uint8_t kind = record.head.flags & ~kBlockedTimedOut;
  char detail[512];  // What is longer is not told: the program may have given this thread a small stack.
  if (descriptor && file >= 0 &&
      ((kind == Kind::kSocket && PeerOf(file, detail, sizeof detail)) ||
       ((kind == Kind::kSocket || kind == Kind::kFile) && PathOf(file, detail, sizeof detail))))
    record.detail = lockstep_intern(detail);
  record.stack = PythonStack(page);
}

void WriteNow(Watch& watch, const BlockedWait& blocked) {
  if (!ring::Recording()) return;
  const RingPage* own = OwnRing();
  if (own == nullptr || own->header.call_op.load(std::memory_order_relaxed) != 0) return;
  RingPage* page = lockstep_ring();
  const ProcessEntry* process = ClaimedProcess();
  if (page == nullptr || process == nullptr) return;  // A record is being written further down this thread's stack.
  const Wait& wait = blocked.wait;
  const bool is_long =
      wait.end_ticks - wait.begin_ticks >= kSamplesToLong * lockstep_probe.sample_ticks.load(std::memory_order_relaxed);
  // A child that shares its parent's memory (vfork). What is shorter is as true of the parent, which waits meanwhile.
  if (is_long && process->pid != getpid()) return;
  const std::uint32_t library = LibraryAt(watch, blocked.caller, *process);
  if (library == kOwnLibrary) return;

  const bool descriptor = IsDescriptor(blocked.call);
  const int file = static_cast<int>(wait.object);
  std::uint8_t kind = blocked.kind == kByDescriptor ? KindOfDescriptor(file) : blocked.kind;
  if ((kind == Kind::kCondition || kind == Kind::kLock) && IsPythonLock(wait.object)) kind = Kind::kPython;
  BlockedRecord record{};
  record.head = {RecordKind::kBlocked,
                 static_cast<std::uint8_t>(kind | (blocked.timed_out ? kBlockedTimedOut : std::uint8_t{0})), 2};
  record.function = static_cast<std::uint16_t>(blocked.call);
  record.begin_ticks = wait.begin_ticks;
  record.end_ticks = wait.end_ticks;
  record.object = descriptor && file < 0 ? 0 : wait.object;
  record.woken_ticks = wait.woken_ticks;
  record.waker_tid = wait.waker_tid;
  record.others_cpu_ns = wait.others_cpu_ns;
  record.module = library;
  if (is_long && !OnHandlersStack()) LookCloser(blocked, descriptor, *page, record);
  ring::Emit(&record, 2);
}

}  // namespace

void WriteBlocked(const BlockedWait& blocked) {
  Watch* const watch = t_watch;
  if (watch == nullptr) return;
  t_watch = nullptr;  // Nothing that is called from here is a wait of the program's.
  ring::SignalFence();
  WriteNow(*watch, blocked);
  ring::SignalFence();
  t_watch = watch;
}

void BeginBlocked(bool off) {
  ResolveReal();
  if (off || OtherWatcher()) return;
  g_find_object = reinterpret_cast<FindObject>(StartedWith("_dl_find_object"));
  ChooseTries();
  FindInterpreterAtStart();
  lockstep_probe.records_blocked = true;
}

}  // namespace lockstep::probe
