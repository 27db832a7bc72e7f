// Support functions for sources: ticks of a clock that is not the TSC, scratch memory, samples of CPU time.

#include <sys/mman.h>
#include <time.h>

#include "runtime/probe/blocked/watch.h"
#include "runtime/probe/ring.h"

namespace lockstep {

using namespace probe;

namespace {

// Waits are recorded from 20 us on (docs/definitions.md); what the rate's error lets pass, the decoder leaves out.
constexpr double kLeastBlockedNs = 19'900;

struct {
  std::atomic<std::uint64_t> ticks{0};
  std::int64_t raw_ns = 0;
} g_rate;  // First sample, for the length of a tick.

}  // namespace

extern "C" std::uint64_t lockstep_ticks_slow(void) {
  return lockstep_probe.segment == nullptr ? 0 : lockstep_probe.clock.Ticks();
}

extern "C" void* lockstep_scratch(std::uint64_t bytes) {
  RingPage* page = OwnRing();
  if (page == nullptr) return nullptr;
  RingProducer& producer = page->producer;
  if (producer.scratch_bytes >= bytes) return producer.scratch;
  const ErrnoKeeper errno_keeper;
  const std::uint64_t rounded = (bytes + 65535) & ~std::uint64_t{65535};
  void* memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (producer.scratch != nullptr) munmap(producer.scratch, producer.scratch_bytes);
  producer.scratch = memory;
  producer.scratch_bytes = rounded;
  return memory;
}

// From two samples at least 10 ms apart.
void probe::LearnRate(std::uint64_t ticks) {
  const std::int64_t raw = RawNs();
  std::uint64_t none = 0;
  if (g_rate.ticks.load(std::memory_order_acquire) == 0) {
    if (g_rate.ticks.compare_exchange_strong(none, 1)) {
      g_rate.raw_ns = raw;
      g_rate.ticks.store(ticks, std::memory_order_release);
    }
  } else if (const std::uint64_t first = g_rate.ticks.load(std::memory_order_acquire);
             first > 1 && ticks > first && raw - g_rate.raw_ns > 10'000'000) {
    const double per_ns = static_cast<double>(ticks - first) / static_cast<double>(raw - g_rate.raw_ns);
    lockstep_probe.sample_ticks.store(static_cast<std::uint64_t>(per_ns * 200'000), std::memory_order_relaxed);
    g_least_ticks.store(static_cast<std::uint64_t>(per_ns * kLeastBlockedNs), std::memory_order_relaxed);
  }
}

extern "C" void lockstep_sample_cpu(RingPage* page, std::uint64_t ticks) {
  RingHeader& header = page->header;
  if (ticks - header.last_cpu_ticks < lockstep_probe.sample_ticks.load(std::memory_order_relaxed)) return;
  WatchThisThread();  // It communicates: it may be the training thread.
  header.last_cpu_ticks = ticks;
  const ErrnoKeeper errno_keeper;
  timespec now{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return;
  const CpuRecord record{
      {RecordKind::kCpu, 0, 1}, 0, ticks, static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec, -1};
  ring::Emit(&record, 1);
  LearnRate(ticks);
}

}  // namespace lockstep
