#include "runtime/probe/blocked/watch.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bit>

#include "runtime/probe/ring.h"

namespace lockstep::probe {

__thread Watch* t_watch = nullptr;

// 20 us of the slowest counter there may be (1 GHz) until the rate is known; the decoder leaves out what was shorter.
constinit std::atomic<std::uint64_t> g_least_ticks{20'000};
constinit std::atomic<std::uint64_t> g_waiting{0};
constinit Watch g_watches[kMostWatches] = {};

namespace {

// Of a wait that lasts 1 ms or more the CPU time of the other threads is told; sample_ticks are 200 us. To know it, it
// has to be read before each wait, which takes half a microsecond and more: once in 1 ms, but several times at once,
// because a long wait often comes right behind short ones.
constexpr std::uint64_t kSamplesToCpuPeriod = 5, kCpuReadsAtOnce = 16;

std::uint64_t CpuPeriodTicks() {
  return kSamplesToCpuPeriod * lockstep_probe.sample_ticks.load(std::memory_order_relaxed);
}

bool MayReadCpu(Watch& watch, std::uint64_t now, std::uint64_t period) {
  if (now < watch.cpu_turn_ticks) return false;
  const std::uint64_t oldest = now - kCpuReadsAtOnce * period;
  watch.cpu_turn_ticks = (watch.cpu_turn_ticks > oldest ? watch.cpu_turn_ticks : oldest) + period;
  return true;
}

std::uint64_t BitOf(const Watch& watch) { return std::uint64_t{1} << (&watch - g_watches); }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void WatchThisThread() {
  if (!lockstep_probe.records_blocked) return;
  if (t_watch != nullptr) {
    t_watch->frame =
        nullptr;  // Whoever marks a step is in no wait: what is here is left from one that never came back.
    return;
  }
  for (Watch& watch : g_watches) {
    std::uint32_t free = 0;
    if (watch.used.load(std::memory_order_relaxed) != 0 || !watch.used.compare_exchange_strong(free, 1)) continue;
    watch.object.store(0, std::memory_order_relaxed);
    watch.frame = nullptr;
    watch.cpu_turn_ticks = 0;
    for (Watch::Library& library : watch.libraries) library = {};
    t_watch = &watch;
    return;
  }
}

void UnwatchThisThread() {
  Watch* watch = t_watch;
  if (watch == nullptr) return;
  t_watch = nullptr;
  watch->object.store(0, std::memory_order_relaxed);
  g_waiting.fetch_and(~BitOf(*watch));
  watch->used.store(0, std::memory_order_release);
}

void ForgetWatches() {
  t_watch = nullptr;
  g_waiting.store(0);
  for (Watch& watch : g_watches) watch.used.store(0);
}

std::int64_t OthersCpuNs() {
  timespec all{}, own{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all) != 0 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own) != 0)
    return -1;
  return (static_cast<std::int64_t>(all.tv_sec) - own.tv_sec) * 1'000'000'000 + all.tv_nsec - own.tv_nsec;
}

// A wait that never came back (the thread was cancelled in it, or a handler jumped out) must not make all later ones
// look as if they were on top of it: those are deeper on the stack, later ones mostly are not. Nothing here has a
// destructor that unwinding would have to run: the unwinder is the program's, and this library's is another one.
bool Began(Watch& watch, std::uint64_t object, const void* frame, Wait& wait) {
  if (watch.frame != nullptr && frame < watch.frame) return false;
  watch.frame = frame;
  wait.frame = frame;
  wait.object = object;
  wait.others_cpu_ns = -1;
  wait.woken_ticks = 0;
  wait.waker_tid = 0;
  watch.note.store(kNoNote, std::memory_order_relaxed);
  watch.object.store(object, std::memory_order_relaxed);
  g_waiting.fetch_or(BitOf(watch));
  std::uint64_t now = ring::Ticks();
  if (MayReadCpu(watch, now, CpuPeriodTicks())) {
    wait.others_cpu_ns = OthersCpuNs();
    now = ring::Ticks();
  }
  wait.begin_ticks = now;
  return true;
}

bool Ended(Watch& watch, Wait& wait) {
  wait.end_ticks = ring::Ticks();
  if (watch.frame != wait.frame) return false;  // A handler on a stack of its own waited meanwhile.
  watch.object.store(0, std::memory_order_relaxed);
  g_waiting.fetch_and(~BitOf(watch));
  watch.frame = nullptr;
  const std::uint64_t took = wait.end_ticks - wait.begin_ticks;
  if (took < g_least_ticks.load(std::memory_order_relaxed)) return false;
  // Who writes a note is mostly done before it signals. If it is held up, its note is not waited for.
  constexpr int kTries = 1000;
  std::uint32_t note = watch.note.load(std::memory_order_acquire);
  for (int i = 0; note == kWriting && i < kTries; ++i, note = watch.note.load(std::memory_order_acquire)) Pause();
  if (note == kNoted || note == kNotedForAll) {
    wait.woken_ticks = watch.woken_ticks.load(std::memory_order_relaxed);
    wait.waker_tid = watch.waker_tid.load(std::memory_order_relaxed);
  }
  if (wait.others_cpu_ns >= 0 && took >= CpuPeriodTicks()) {
    const std::int64_t others_cpu_ns = OthersCpuNs();
    wait.others_cpu_ns = others_cpu_ns < wait.others_cpu_ns ? -1 : others_cpu_ns - wait.others_cpu_ns;
  } else {
    wait.others_cpu_ns = -1;
  }
  return true;
}

// Of several signals to one object, the last one before the wait ended counts, because earlier ones may have woken
// other threads; but the first one to all.
void NoteSignal(std::uint64_t object, bool for_all) {
  for (std::uint64_t waiting = g_waiting.load(std::memory_order_relaxed); waiting != 0; waiting &= waiting - 1) {
    Watch& watch = g_watches[std::countr_zero(waiting)];
    if (&watch == t_watch || watch.object.load(std::memory_order_acquire) != object) continue;
    std::uint32_t before = watch.note.load(std::memory_order_relaxed);
    if (before == kWriting || before == kNotedForAll || !watch.note.compare_exchange_strong(before, kWriting)) continue;
    if (watch.object.load() == object) {
      watch.woken_ticks.store(ring::Ticks(), std::memory_order_relaxed);
      watch.waker_tid.store(static_cast<std::uint32_t>(syscall(SYS_gettid)), std::memory_order_relaxed);
      before = for_all ? kNotedForAll : kNoted;
    }
    watch.note.store(before, std::memory_order_release);
  }
}

}  // namespace lockstep::probe
