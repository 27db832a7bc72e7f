// Loading, the segment, this process's entry, fork and exit.

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "core/env.h"
#include "core/file_lock.h"
#include "core/plain_line.h"
#include "runtime/probe/blocked/watch.h"
#include "runtime/probe/hooks.h"
#include "runtime/probe/nvtx.h"
#include "runtime/probe/nvtx_names.h"
#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14, <asm-generic/mman-common.h>
#endif

namespace lockstep {

// Used before any code of this library runs: the constructor below fills it in.
constinit ProbeState lockstep_probe{};

namespace probe {
namespace {

enum ClaimState : int { kNone, kClaiming, kReady, kFailed };
std::atomic<int> g_claim{kNone};
std::atomic<ProcessEntry*> g_entry{nullptr};

// Data without a destructor, so that nothing runs at exit.
struct ReadOnlyRange {
  std::uintptr_t begin, end;
};
ReadOnlyRange g_constant[4];

void Complain(const char* what, const char* path) {
  char line[512];
  const int n = snprintf(line, sizeof line - 1, "lockstep: not recording this process: %s (%s)", what, path);
  MakePlainLine(line);  // The path comes from the environment.
  strcat(line, "\n");   // The buffer is large enough.
  if (n > 0 && write(STDERR_FILENO, line, strlen(line)) < 0) return;
}

// Null if the file is usable.
const char* Unusable(const SegmentHeader& header, std::uint64_t file_bytes) {
  if (header.magic != kSegmentMagic) return "the ring file is not one";
  if (header.version != kSegmentVersion || header.header_bytes != sizeof(SegmentHeader))
    return "the ring file is of another Lockstep version";
  if (header.segment_bytes < kArenaOffset || header.segment_bytes > file_bytes) return "the ring file is too short";
  return nullptr;
}

void MapSegment(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  // The segment was removed: this is a descendant that outlived the run. Nothing is printed.
  if (fd < 0) {
    if (errno != ENOENT) Complain(strerror(errno), path);
    return;
  }
  struct stat info {};
  SegmentHeader header;
  const char* problem = nullptr;
  void* base = MAP_FAILED;
  // The mapping keeps the lock, also in forked children: these rings do not count as left behind while a process of the
  // application maps them. kHeld: a dead agent's work is being recovered, so records written now would not be read.
  if (TryLockShared(fd) == Locked::kHeld) {
    close(fd);
    return;
  }
  if (fstat(fd, &info) != 0 || pread(fd, static_cast<void*>(&header), sizeof header, 0) != ssize_t{sizeof header}) {
    problem = "the ring file cannot be read";
  } else if ((problem = Unusable(header, static_cast<std::uint64_t>(info.st_size))) == nullptr) {
    // Limited after the agent had made the rings ("sh -c 'ulimit -v N; exec app'"): a job that needs nine tenths of
    // what it may have must find them. Where the agent knew the limit they are a 32nd of it, and their header.
    constexpr std::uint64_t kPartsForRings = 16;
    struct rlimit space {};
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
        header.segment_bytes > space.rlim_cur / kPartsForRings)
      problem = "its address space (ulimit -v) has no room for the rings";
    else
      base = mmap(nullptr, header.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED && problem == nullptr) problem = "the ring file cannot be mapped";
  }
  close(fd);
  if (problem != nullptr) {
    Complain(problem, path);
    return;
  }
  lockstep_probe.clock.mode = header.clock_mode;
  lockstep_probe.clock.distortion = header.distortion;
  lockstep_probe.segment_bytes = header.segment_bytes;
  lockstep_probe.watches_ranges = header.window.range_name[0] != 0 || header.window.step_range[0] != 0;
  lockstep_probe.call_stacks = header.call_stacks != 0;
  BeginBlocked(header.blocked_off != 0);
  // Until the rate is measured: 200 us of a 2 GHz counter.
  lockstep_probe.sample_ticks.store(header.clock_mode == ClockMode::kTsc ? 400'000 : 200'000);
  lockstep_probe.segment = static_cast<SegmentHeader*>(base);
  std::uint32_t starter = 0;
  lockstep_probe.window.store(WindowAtBegin(starter), std::memory_order_release);
}

void FindConstantSegments() {
  const auto* table = reinterpret_cast<const ElfW(Phdr)*>(getauxval(AT_PHDR));
  const std::size_t count = getauxval(AT_PHNUM);
  if (table == nullptr) return;
  std::uintptr_t base = 0;
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (table[i].p_type != PT_PHDR) continue;
    base = reinterpret_cast<std::uintptr_t>(table) - table[i].p_vaddr;
    found = true;
  }
  if (!found) return;
  std::size_t used = 0;
  for (std::size_t i = 0; i < count && used < 4; ++i)
    if (table[i].p_type == PT_LOAD && (table[i].p_flags & PF_W) == 0)
      g_constant[used++] = {base + table[i].p_vaddr, base + table[i].p_vaddr + table[i].p_filesz};
}

// -1 unless the variable holds a whole non-negative number.
std::int32_t NumberIn(const char* variable) {
  const char* text = getenv(variable);
  if (text == nullptr) return -1;
  char* end = nullptr;
  const long value = strtol(text, &end, 10);
  return end != text && *end == 0 && value >= 0 && value < 1'000'000'000 ? static_cast<std::int32_t>(value) : -1;
}

void FillEntry(ProcessEntry& entry) {
  entry.generation += 1;
  entry.pid = getpid();
  entry.parent_pid = getppid();
  entry.begin_ticks = ring::Ticks();
  entry.end_ticks.store(0, std::memory_order_relaxed);
  entry.world_rank.store(-1, std::memory_order_relaxed);
  entry.rank_source.store(0, std::memory_order_relaxed);
  entry.mpi_thread_level.store(255, std::memory_order_relaxed);
  entry.mpi_initialized.store(0, std::memory_order_relaxed);
  entry.mpi_finalized.store(0, std::memory_order_relaxed);
  entry.mpi_used.store(0, std::memory_order_relaxed);
  entry.lockstep_used.store(0, std::memory_order_relaxed);
  entry.nvtx_used.store(0, std::memory_order_relaxed);
  entry.torch_used.store(0, std::memory_order_relaxed);
  entry.python_hook.store(0, std::memory_order_relaxed);
  entry.self_test.store(0, std::memory_order_relaxed);
  entry.cupti_used.store(0, std::memory_order_relaxed);
  entry.nccl_used.store(0, std::memory_order_relaxed);
  entry.cupti_state.store(0, std::memory_order_relaxed);
  entry.gpu_flush_wanted.store(0, std::memory_order_relaxed);
  entry.gpu_flush_done.store(0, std::memory_order_relaxed);
  entry.gpu_flushed_ticks.store(0, std::memory_order_relaxed);
  entry.gpu_count.store(0, std::memory_order_relaxed);
  entry.gpu_vendor.store(0, std::memory_order_relaxed);
  for (auto* number : {&entry.world_size, &entry.joined_size, &entry.joined_rank})
    number->store(0, std::memory_order_relaxed);
  for (auto* number : {&entry.joined_begin_ticks, &entry.joined_end_ticks, &entry.joined_at})
    number->store(0, std::memory_order_relaxed);
  for (auto* counter :
       {&entry.dropped_no_ring, &entry.range_unbalanced, &entry.range_too_deep, &entry.request_table_full})
    counter->store(0, std::memory_order_relaxed);
  const ssize_t n = readlink("/proc/self/exe", entry.exe, sizeof entry.exe - 1);
  entry.exe[n < 0 ? 0 : n] = 0;
  // torchrun and similar launchers set the rank this way; MPI overrides it when it starts.
  const std::int32_t rank = NumberIn("RANK"), size = NumberIn("WORLD_SIZE");
  if (rank >= 0 && size > rank) {
    entry.world_rank.store(rank, std::memory_order_relaxed);
    entry.world_size.store(size, std::memory_order_relaxed);
    entry.rank_source.store(2, std::memory_order_relaxed);
  }
}

// Index of an entry that is now kClaiming and ours: one whose owner has ended and whose records are in the spool, else
// a new one. kMaxProcesses: there is none.
std::uint32_t FreeEntry(SegmentHeader& segment, ProcessEntry* entries) {
  const auto take = [&](std::uint32_t index) {
    SlotState expected = SlotState::kFree;
    return entries[index].state.compare_exchange_strong(expected, SlotState::kClaiming);
  };
  const std::uint32_t used =
      segment.processes_used.load() < kMaxProcesses ? segment.processes_used.load() : kMaxProcesses;
  for (std::uint32_t i = 0; i < used; ++i)
    if (entries[i].state.load(std::memory_order_relaxed) == SlotState::kFree && take(i)) return i;
  std::uint32_t index = segment.processes_used.load();
  for (;;) {
    if (index >= kMaxProcesses) return kMaxProcesses;
    if (!segment.processes_used.compare_exchange_weak(index, index + 1)) continue;
    if (take(index)) return index;
    index = segment.processes_used.load();  // Another process took it for an entry that had been released.
  }
}

// Closes the entry of this process before it replaced its program (exec): its threads have ended, so its rings can be
// drained and used again. The parent is compared as well because pids of another pid namespace may be equal.
void CloseFormerSelf(const SegmentView& view) {
  const std::uint32_t processes = view.header().processes_used.load();
  const std::int64_t pid = getpid(), parent = getppid();
  for (std::uint32_t i = 0; i < processes && i < kMaxProcesses; ++i) {
    ProcessEntry& former = view.processes()[i];
    SlotState active = SlotState::kActive;
    if (former.pid != pid || former.parent_pid != parent || former.state.load() != active) continue;
    const std::uint32_t rings = view.header().rings_used.load();
    for (std::uint32_t r = 0; r < rings && r < kMaxRings; ++r) {
      SlotState open = SlotState::kActive;
      if (view.rings()[r].process == i) view.rings()[r].state.compare_exchange_strong(open, SlotState::kClosed);
    }
    if (former.end_ticks.load() == 0) former.end_ticks.store(ring::Ticks());
    former.state.compare_exchange_strong(active, SlotState::kClosed);
  }
}

ProcessEntry* ClaimProcess() {
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr || segment->agent_gone.load(std::memory_order_relaxed) != 0) return nullptr;
  const SegmentView view{reinterpret_cast<std::byte*>(segment), lockstep_probe.segment_bytes};
  std::uint32_t starter = 0;
  ProcessWindow* from = WindowAtBegin(starter);
  CloseFormerSelf(view);
  const std::uint32_t index = FreeEntry(*segment, view.processes());
  if (index == kMaxProcesses) return nullptr;
  ProcessEntry& entry = view.processes()[index];
  FillEntry(entry);
  BeginWindow(index, *from, starter);
  entry.state.store(SlotState::kActive, std::memory_order_release);
  // Whoever switched in between did not see this entry yet.
  if (const bool on = (from->state.load() & kWindowOn) != 0; TurnState(view.windows()[index], on, true))
    FollowState(view.windows()[index]);
  FindConstantSegments();
  return &entry;
}

void InChild() {
  const ErrnoKeeper errno_keeper;
  g_claim.store(kNone);
  g_entry.store(nullptr);
  ResetSteps();
  ForgetWatches();
  ForgetRings();
  ForgetWrittenNames();
  ForgetNccl();
}

std::atomic<int> g_loaded{0};  // 1 being done 2 done

__attribute__((constructor)) void OnLoad() { EnsureLoaded(); }

// The main thread's key destructors do not run at exit. Records made after this (a later destructor's MPI_Finalize) are
// still written.
__attribute__((destructor)) void OnExit() {
  const ErrnoKeeper errno_keeper;
  NoteUnhookedPython();
  ProcessEntry* entry = g_entry.load();
  if (entry == nullptr || entry->pid != getpid()) return;
  if (OwnRing() != nullptr) SlowWriter(0).Finish();
  entry->end_ticks.store(ring::Ticks(), std::memory_order_release);
}

}  // namespace

// Objects that are linked may be initialised before one that is preloaded (glibc 2.36),
// and call NVTX in their constructors.
void EnsureLoaded() {
  if (g_loaded.load(std::memory_order_acquire) == 2) return;
  const ErrnoKeeper errno_keeper;
  int none = 0;
  if (!g_loaded.compare_exchange_strong(none, 1)) {
    for (int i = 0; i < 1000 && g_loaded.load(std::memory_order_acquire) == 1; ++i) sched_yield();
    return;
  }
  const char* path = getenv(env::kSegment);
  if (path != nullptr && *path != 0) MapSegment(path);
  if (lockstep_probe.segment != nullptr) pthread_atfork(nullptr, nullptr, InChild);
  g_loaded.store(2, std::memory_order_release);
}

bool AllocateInSegment(std::uint64_t offset, std::uint64_t bytes) {
  SegmentHeader* mine = lockstep_probe.segment;
  if (madvise(reinterpret_cast<std::byte*>(mine) + offset, bytes, MADV_POPULATE_WRITE) == 0) return true;
  const char* path = errno == EINVAL ? getenv(env::kSegment) : nullptr;
  const int fd = path != nullptr ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return false;
  // The variable may have changed since: the file must be the one that is mapped.
  std::uint64_t identity[5] = {};
  bool done = pread(fd, identity, sizeof identity, 0) == ssize_t{sizeof identity} && identity[0] == kSegmentMagic &&
              identity[4] == mine->run_hash && identity[2] == mine->segment_bytes &&
              identity[3] == static_cast<std::uint64_t>(mine->agent_pid);
  done = done && fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
  close(fd);
  return done;
}

bool IsConstantText(const char* text) {
  const auto at = reinterpret_cast<std::uintptr_t>(text);
  for (const ReadOnlyRange& range : g_constant)
    if (at >= range.begin && at < range.end) return true;
  return false;
}

ProcessEntry* ClaimedProcess() { return g_entry.load(std::memory_order_acquire); }

void MarkLockstepUsed() {
  if (ProcessEntry* entry = ClaimedProcess();
      entry != nullptr && entry->lockstep_used.load(std::memory_order_relaxed) == 0)
    entry->lockstep_used.store(1, std::memory_order_relaxed);
}

}  // namespace probe

extern "C" __attribute__((visibility("default"))) void lockstep_hook_loaded(void) { probe::EnsureLoaded(); }

extern "C" ProcessEntry* lockstep_process(void) {
  using namespace probe;
  if (ProcessEntry* entry = g_entry.load(std::memory_order_acquire); entry != nullptr) return entry;
  if (lockstep_probe.segment == nullptr) return nullptr;
  const ErrnoKeeper errno_keeper;
  int expected = kNone;
  if (g_claim.compare_exchange_strong(expected, kClaiming)) {
    ProcessEntry* entry = ClaimProcess();
    g_entry.store(entry, std::memory_order_release);
    g_claim.store(entry != nullptr ? kReady : kFailed, std::memory_order_release);
    return entry;
  }
  // Another thread is claiming, which takes microseconds. Bounded, because this may be a signal handler on top of that
  // thread.
  for (int i = 0; i < 1000 && g_claim.load(std::memory_order_acquire) == kClaiming; ++i) sched_yield();
  return g_entry.load(std::memory_order_acquire);
}

}  // namespace lockstep
