// What hooks inside an interpreter call (runtime/python): ranges, facts, samples of
// memory. A few calls per training step.
//
// A range is begun and ended by two calls that share nothing but the ticks and the
// thread, because Python's context managers need not nest (generators, coroutines).
// So these ranges keep out of the thread's stacks of lockstep.h's and NVTX's.

#include "runtime/probe/hooks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "core/hash.h"
#include "core/schema_enums.h"
#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

namespace lockstep::probe {
namespace {

constexpr std::uint32_t kMaxFactBytes = 32768;
constexpr std::uint16_t kHost = 65535;
// Reading the kernel's counter costs microseconds, and a finer resolution has no use.
constexpr std::int64_t kHostPeriodNs = 20'000'000;

// For this process and, after a fork, its children: what was wrapped stays wrapped.
std::atomic<std::uint8_t> g_python_hook{0};
std::atomic<std::int64_t> g_next_host_ns{0};

void MarkUsed() {
  ProcessEntry* entry = ClaimedProcess();
  if (entry == nullptr || entry->torch_used.load(std::memory_order_relaxed) != 0) return;
  entry->torch_used.store(1, std::memory_order_relaxed);
  entry->python_hook.store(g_python_hook.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void WriteFact(const char* text) {
  if (lockstep_probe.segment == nullptr || text == nullptr || lockstep_ring() == nullptr) return;
  std::uint32_t bytes = static_cast<std::uint32_t>(strnlen(text, kMaxFactBytes + 1));
  const bool cut = bytes > kMaxFactBytes;
  if (cut) bytes = kMaxFactBytes;
  const auto slots = static_cast<std::uint16_t>(1 + (bytes + kSlotBytes - 1) / kSlotBytes);
  const StringRecord record{{RecordKind::kFact, static_cast<std::uint8_t>(cut ? 1 : 0), slots}, 0, bytes, {}};
  SlowWriter(1).Append(&record, 1, text, bytes, 1);
}

// Resident bytes of the process, 0 unknown.
std::uint64_t ResidentBytes() {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[96];
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char* resident = strchr(text, ' ');
  return resident == nullptr ? 0 : strtoull(resident, nullptr, 10) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void WriteMemory(std::uint8_t kind, std::uint16_t device, std::uint64_t allocated, std::uint64_t reserved) {
  const MemoryRecord record{{RecordKind::kMemory, kind, 1}, device, ring::Ticks(), allocated, reserved};
  SlowWriter(1).Append(&record, 1, 1);
}

// Its soname has a version in Debian's build (libtorch_python.so.1.13), none in pip's.
int IsTorch(dl_phdr_info* library, std::size_t, void*) {
  const char* slash = strrchr(library->dlpi_name, '/');
  return slash != nullptr && strncmp(slash + 1, "libtorch_python.so", 18) == 0 ? 1 : 0;
}

// A global int of libpython, 0 if there is none. Since Python 3.8 they only mirror the
// configuration, since 3.12 they are deprecated.
int PythonFlag(const char* name) {
  const void* flag = dlsym(RTLD_DEFAULT, name);
  return flag == nullptr ? 0 : *static_cast<const int*>(flag);
}

}  // namespace

// Reported at the end, because only then it is known whether torch was used at all.
void NoteUnhookedPython() {
  const SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr || segment->agent_gone.load(std::memory_order_relaxed) != 0) return;
  if (g_python_hook.load() != 0 || dlsym(RTLD_DEFAULT, "Py_IsInitialized") == nullptr) return;
  if (dl_iterate_phdr(IsTorch, nullptr) == 0) return;
  const bool isolated = PythonFlag("Py_IsolatedFlag") != 0 || PythonFlag("Py_IgnoreEnvironmentFlag") != 0 ||
                        PythonFlag("Py_NoSiteFlag") != 0;
  MarkUsed();
  WriteFact(isolated ? "python_isolated" : "torch_unhooked\twhat=PYTHONPATH did not lead to Lockstep's sitecustomize");
  if (ProcessEntry* entry = ClaimedProcess(); entry != nullptr) entry->python_hook.store(3, std::memory_order_relaxed);
}

bool HostMemoryIsDue() { return ring::Recording() && RawNs() >= g_next_host_ns.load(std::memory_order_relaxed); }

extern "C" {

// Whether this process is recorded at all.
__attribute__((visibility("default"))) int lockstep_hook_active(void) {
  const SegmentHeader* segment = lockstep_probe.segment;
  return segment != nullptr && segment->agent_gone.load(std::memory_order_relaxed) == 0 ? 1 : 0;
}

// What `lockstep run` was asked to record (WindowKind in core/window.h); -1 while this process is not recorded.
__attribute__((visibility("default"))) int lockstep_hook_window_kind(void) {
  return lockstep_hook_active() != 0 ? static_cast<int>(lockstep_probe.segment->window.kind) : -1;
}

// As ProcessEntry::python_hook. Claims no entry: a process that only loads hooks leaves no file.
__attribute__((visibility("default"))) void lockstep_hook_state(int state) {
  g_python_hook.store(static_cast<std::uint8_t>(state), std::memory_order_relaxed);
  if (ProcessEntry* entry = ClaimedProcess(); entry != nullptr)
    entry->python_hook.store(static_cast<std::uint8_t>(state), std::memory_order_relaxed);
}

// The begin of a range; source as in the table ranges. The result is for lockstep_hook_range_end; 0 while nothing is
// recorded.
__attribute__((visibility("default"))) unsigned long long lockstep_hook_range_begin(const char* name, int source) {
  if (lockstep_probe.segment == nullptr) return 0;
  const ErrnoKeeper errno_keeper;
  if (WindowWatchesRanges()) RangeOpened(static_cast<std::uint8_t>(source), nullptr, name, false);
  if (!ring::Recording()) return 0;
  RingPage* page = lockstep_ring();
  MarkUsed();
  if (page != nullptr) page->producer.hook_depth += 1;
  return ring::Ticks();
}

// The current time, for ranges that are only known when they end. Ticks, 0 while nothing is recorded.
__attribute__((visibility("default"))) unsigned long long lockstep_hook_now(void) {
  return ring::Recording() ? ring::Ticks() : 0;
}

// A range from `begin_ticks` to now. `nested` 0: the begin came from lockstep_hook_now. payload 0: none; of an operator
// it is its number of floating-point operations. An operator's name may end with kShapesFollow and its inputs' shapes.
__attribute__((visibility("default"))) void lockstep_hook_range_end(const char* name, int source, int category,
                                                                    unsigned long long begin_ticks, long long payload,
                                                                    int nested) {
  if (lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  if (begin_ticks != 0) {
    RingPage* page = lockstep_ring();
    std::uint32_t depth = 0;
    if (page != nullptr) {
      std::uint32_t& open = page->producer.hook_depth;
      if (nested != 0 && open > 0) open -= 1;
      depth = open;
    }
    if (ring::Recording()) {
      const std::uint64_t end_ticks = ring::Ticks();
      SlowWriter writer(1);
      const std::uint32_t id = writer.Intern(name);
      const bool wide = payload != static_cast<std::int32_t>(payload);
      struct {
        RangeRecord range;
        RangeExtra extra;
      } record{};
      record.range = {{RecordKind::kRange, static_cast<std::uint8_t>((source & 15) | (category & 15) << 4),
                       std::uint16_t(1 + wide)},
                      id,
                      begin_ticks,
                      std::max<std::uint64_t>(end_ticks, begin_ticks),
                      static_cast<std::uint16_t>(std::min(depth, 65535u)),
                      0,
                      wide ? 0 : static_cast<std::int32_t>(payload)};
      if (wide) {
        record.extra.payload = payload;
        record.extra.payload_kind = schema::PayloadKind::kInteger;
      }
      writer.Append(&record, 1 + wide, 1);
    }
  }
  if (nested != 0 && WindowWatchesRanges()) RangeClosed(static_cast<std::uint8_t>(source), nullptr, name, false);
}

// "name\tkey=value\tkey=value". Written while recording is off as well: facts are about the whole run.
__attribute__((visibility("default"))) void lockstep_hook_fact(const char* text) {
  const ErrnoKeeper errno_keeper;
  if (lockstep_probe.segment != nullptr) MarkUsed();
  WriteFact(text);
}

// The current time, also while recording is off.
__attribute__((visibility("default"))) unsigned long long lockstep_hook_ticks(void) {
  return lockstep_probe.segment == nullptr ? 0 : ring::Ticks();
}

// This process is a rank of a world of `size`: it asked at `begin_ticks` to join it, and has joined. `where` names the
// meeting point of its ranks, "" unknown. Reported whether or not recording is on. Thread: any, one at a time.
__attribute__((visibility("default"))) void lockstep_hook_joined(int rank, int size, unsigned long long begin_ticks,
                                                                 const char* where) {
  if (rank < 0 || size <= rank) return;
  const ErrnoKeeper errno_keeper;
  ProcessEntry* entry = lockstep_process();
  if (entry == nullptr || size <= entry->joined_size.load(std::memory_order_relaxed)) return;
  MarkUsed();
  Hash64 place;
  place.Add(std::string_view(where == nullptr ? "" : where));
  entry->joined_begin_ticks.store(begin_ticks, std::memory_order_relaxed);
  entry->joined_end_ticks.store(ring::Ticks(), std::memory_order_relaxed);
  entry->joined_at.store(where == nullptr || *where == 0 ? 0 : place.value(), std::memory_order_relaxed);
  entry->joined_rank.store(rank, std::memory_order_relaxed);
  entry->joined_size.store(size, std::memory_order_release);
}

// Writes as many facts as needed, each with the position of its first gradient.
__attribute__((visibility("default"))) void lockstep_probe_gradients(const long long* bytes, int count) {
  if (lockstep_probe.segment == nullptr || bytes == nullptr) return;
  const ErrnoKeeper errno_keeper;
  if (RingPage* page = lockstep_ring(); page != nullptr && page->producer.named == 0) MarkLockstepUsed();
  constexpr int kDigits = 21;  // And a blank.
  char text[2048];
  for (int i = 0; i < count;) {
    char* to = text + snprintf(text, sizeof text, "gradients\tfrom=%d\tbytes=", i);
    for (; i < count && to + kDigits < text + sizeof text; ++i) {
      if (to[-1] != '=') *to++ = ' ';
      to = std::to_chars(to, text + sizeof text - 1, std::max(0LL, bytes[i])).ptr;
    }
    *to = 0;
    WriteFact(text);
  }
}
void lockstep_gradients(const long long* bytes, int count)
    __attribute__((alias("lockstep_probe_gradients"), visibility("default")));

// kind as in the table gpu_memory.
__attribute__((visibility("default"))) void lockstep_hook_memory(int kind, int device, unsigned long long allocated,
                                                                 unsigned long long reserved) {
  if (!ring::Recording() || lockstep_ring() == nullptr) return;
  const ErrnoKeeper errno_keeper;
  WriteMemory(static_cast<std::uint8_t>(kind), static_cast<std::uint16_t>(device), allocated, reserved);
}

// The process's resident memory, at most 50 times a second.
__attribute__((visibility("default"))) void lockstep_hook_host_memory(void) {
  if (!HostMemoryIsDue() || lockstep_ring() == nullptr) return;
  g_next_host_ns.store(RawNs() + kHostPeriodNs, std::memory_order_relaxed);
  const ErrnoKeeper errno_keeper;
  if (const std::uint64_t bytes = ResidentBytes(); bytes != 0)
    WriteMemory(schema::MemoryKind::kSample, kHost, bytes, 0);
}
}

}  // namespace lockstep::probe
