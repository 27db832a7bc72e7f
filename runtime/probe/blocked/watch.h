#pragma once
// Which threads' waits are recorded, and who ends them.

#include <cstdint>

#include "core/ring_writer.h"

namespace lockstep::probe {

inline constexpr std::uint32_t kKnownLibraries = 4;

// A watched thread. Others read what it waits for when they signal, and leave a note.
struct alignas(64) Watch {
  std::atomic<std::uint64_t> object;  // 0: it does not wait.
  std::atomic<std::uint32_t> note;    // NoteState
  std::atomic<std::uint32_t> waker_tid;
  std::atomic<std::uint64_t> woken_ticks;
  std::atomic<std::uint32_t> used;

  // The thread's own.
  const void* frame;             // Of the wrapper that waits; see Began.
  std::uint64_t cpu_turn_ticks;  // See MayReadCpu.
  // Where calls came from lately, by address: to ask the dynamic linker and to look up the name takes longer than all
  // the rest. A library that is unloaded, and another one loaded in its place, keep their first name here.
  struct Library {
    std::uintptr_t begin, end;
    std::uint32_t name;  // The thread's string id.
  } libraries[kKnownLibraries];
  std::uint32_t next_library;
};
enum NoteState : std::uint32_t { kNoNote, kWriting, kNoted, kNotedForAll };

// When the library is loaded into a process that is recorded. `off`: --blocked off. record.cc
void BeginBlocked(bool off);

// Null: this thread is not watched, or is inside the probe. One test of every wrapper.
extern __thread Watch* t_watch __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Bit i: g_watches[i] waits. While it is 0, who signals looks at nothing.
inline constexpr std::uint32_t kMostWatches = 64;
extern std::atomic<std::uint64_t> g_waiting;
extern Watch g_watches[kMostWatches];

// Before this: not long enough. Follows the rate of the clock once it is known.
extern std::atomic<std::uint64_t> g_least_ticks;

// The calling thread is watched from now on, if waits are recorded at all. Thread: any, not in a signal handler.
void WatchThisThread();
void UnwatchThisThread();
void ForgetWatches();  // In a forked child.

struct Wait {
  std::uint64_t object, begin_ticks, end_ticks;
  std::int64_t others_cpu_ns;  // At the begin; -1 not read.
  std::uint64_t woken_ticks;
  std::uint32_t waker_tid;
  const void* frame;
};
// False: this wait is on top of another one, in a signal handler, and only passes.
bool Began(Watch& watch, std::uint64_t object, const void* frame, Wait& wait);
// Whether it took long enough to be recorded.
bool Ended(Watch& watch, Wait& wait);
// CPU time of the process's threads but this one; -1 it cannot be read.
std::int64_t OthersCpuNs();

// Before the signal is given: afterwards the waiting thread may be gone already.
void NoteSignal(std::uint64_t object, bool for_all);

}  // namespace lockstep::probe
