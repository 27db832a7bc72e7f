// Fetching: FlushAll every half second, and at once when the agent asks or the process ends. Buffers
// that CUPTI gives back by itself are decoded within 50 ms. CUPTI is handed back to us here, too,
// after another profiler had it.

#include "runtime/cupti/flusher.h"

#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <new>

#include "runtime/cupti/capture.h"
#include "runtime/cupti/decode.h"
#include "runtime/cupti/foreign_clock.h"
#include "runtime/cupti/raw_file.h"
#include "runtime/cupti/used_devices.h"

namespace lockstep::cupti {
namespace {

constexpr std::int64_t kTickNs = 50'000'000, kFlushNs = 500'000'000;
// After its last kind was disabled, another profiler still fetches its records; if it does not, it is given up after
// this time.
constexpr std::int64_t kAbandonedNs = 2'000'000'000, kSettleNs = 50'000'000, kFinalizedNs = 500'000'000;
// Over less than this no rate of the ticks is measured.
constexpr std::int64_t kLeastRateNs = 1'000'000;
constexpr std::int64_t kEndNs = 2'000'000'000;
constexpr std::uint64_t kSlackMs = 1000;  // GPU times are interpolated between CPU times.

constinit std::atomic<bool> g_started{false};
constinit std::atomic<std::uint32_t> g_end_wanted{0}, g_end_done{0};
constinit std::atomic<std::uint32_t> g_end_asks{0};
constinit std::atomic<std::int64_t> g_end_until_ns{0}, g_no_room_after_ns{0};

// The words are in shared memory, so FUTEX_PRIVATE_FLAG is not used.
void Wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::int64_t most_ns) {
  const timespec most{static_cast<time_t>(most_ns / 1'000'000'000), static_cast<long>(most_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &most, nullptr, 0);
}
void Wake(std::atomic<std::uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// So many fetches without a record of the call that was made for it: they go elsewhere. Before, it must have come.
constexpr std::uint32_t kMissedBeats = 4, kSeenBeats = 2;

// Another subscriber besides us: reported once.
constexpr char kSubscriberLine[] =
    "lockstep: another profiler uses CUPTI's interface for several subscribers: GPU activity may be missing or wrong "
    "from here on; run without it\n";

class Flusher {
 public:
  Flusher() : decoder_(g_capture.api, g_capture.sizes, output_) { output_.LimitWaits(&g_no_room_after_ns); }
  void Run();

 private:
  void Clock();
  void Devices();
  void Notice();
  void Flush(bool forced);
  void Decode();
  bool Beat();
  void Listen(bool asked);
  void Dropped(void* context, std::uint32_t stream);
  void TakeBack(std::int64_t now_ns);
  void CloseGap(std::uint64_t end_ticks);
  void Publish(std::uint64_t flush_ticks, bool forced);
  void End();

  Capture& capture_ = g_capture;
  Output output_;
  Decoder decoder_;
  RawWriter raw_;
  ForeignClocks foreign_clocks_;
  std::size_t paced_bytes_ = 0;
  std::int64_t paced_ns_ = 0;
  bool devices_written_ = false, subscriber_reported_ = false, refusal_reported_ = false, stranger_ = false;
  std::uint64_t beats_ = 0, beat_ticks_ = 0;
  std::uint32_t missed_beats_ = 0;
  int (*driver_version_)(int*) = nullptr;
  std::uint64_t first_ticks_ = 0;
  std::int64_t first_raw_ns_ = 0, next_take_back_ns_ = 0;
  double ticks_per_ns_ = 1;
  bool rate_known_ = false;
  bool at_exit_ = false;
};

// Measures the length of a tick, and how far times may be off.
void Flusher::Clock() {
  const auto [raw, ticks] = ReadPair([] { return static_cast<std::uint64_t>(RawNs()); });
  const auto raw_ns = static_cast<std::int64_t>(raw);
  if (first_ticks_ == 0) {
    first_ticks_ = ticks;
    first_raw_ns_ = raw_ns;
    if (lockstep_probe.clock.mode == ClockMode::kTsc) ticks_per_ns_ = 3;  // A generous value until the rate is known.
  } else if (raw_ns - first_raw_ns_ > kLeastRateNs) {
    ticks_per_ns_ = static_cast<double>(ticks - first_ticks_) / static_cast<double>(raw_ns - first_raw_ns_);
    rate_known_ = true;
  }
  const auto slack = static_cast<std::uint64_t>(static_cast<double>(kSlackMs) * 1e6 * ticks_per_ns_);
  const std::uint64_t armed_ticks = capture_.armed_ticks.load(std::memory_order_relaxed);
  decoder_.Believe(armed_ticks > slack ? armed_ticks - slack : 0, ticks + slack);
  // Also CUPTI's own: another profiler may have registered its clock before this thread first ran.
  foreign_clocks_.Follow(nullptr, ticks_per_ns_);
  if (capture_.clock != nullptr) foreign_clocks_.Follow(capture_.clock, ticks_per_ns_);
  if (capture_.api.version < kCuda13_1Update1 && capture_.sessions > 1) decoder_.DistrustGraphs();
  decoder_.Heartbeat(capture_.heartbeat);
}

void Flusher::Decode() {
  Buffer* buffer = capture_.pool.TakeFilled();
  if (buffer == nullptr) return;
  if (!at_exit_ && g_end_wanted.load() == 0) {
    // CUDA is initialised by now, so this handler runs before CUDA's own, and before what they end.
    at_exit_ = true;
    atexit([] { EndFlush(true); });
  }
  Clock();
  if (!rate_known_ && !SameClock(buffer->clock, OurTicks)) {
    // Times of another clock cannot be converted without the rate. A program that ends at once waits for it.
    const timespec wait{0, static_cast<long>(kLeastRateNs + kLeastRateNs / 10)};
    nanosleep(&wait, nullptr);
    Clock();
  }
  decoder_.windows().Follow(*lockstep_probe.window.load(std::memory_order_acquire));
  while (buffer != nullptr) {
    Buffer* next = buffer->next;
    const TimeScale scale = foreign_clocks_.Scale(buffer->clock, buffer->out_ticks.load());
    decoder_.Scale(scale);
    decoder_.Forced(buffer->forced);
    raw_.Write(capture_.api, capture_.sizes, scale.foreign, buffer->memory, buffer->valid_bytes);
    paced_bytes_ += buffer->valid_bytes;
    decoder_.Buffer(buffer->memory, buffer->valid_bytes);
    if (buffer->context != nullptr) Dropped(buffer->context, buffer->stream);
    capture_.pool.Recycle(buffer);
    buffer = next;
  }
}

// For the agent's NVML samples. CUPTI's answer is preferred, because it knows contexts of all kinds.
void Flusher::Devices() {
  ProcessEntry& process = *capture_.process;
  if (process.cupti_used.load(std::memory_order_relaxed) == 0) return;
  const auto publish = [&](std::uint32_t used, const std::uint8_t(&uuids)[4][16]) {
    memcpy(process.gpu_uuids, uuids, sizeof uuids);
    process.gpu_count.store(used, std::memory_order_release);
  };
  if (const Decoder::Devices& devices = decoder_.used_devices(); devices.used != 0) {
    devices_written_ = true;
    if (process.gpu_count.load() != devices.used || memcmp(process.gpu_uuids, devices.uuid, sizeof devices.uuid) != 0)
      publish(devices.used, devices.uuid);
  } else if (!devices_written_ && capture_.owner.load() != Owner::kNobody) {
    const UsedDevices asked = AskDriver();
    devices_written_ = asked.used != 0;
    if (asked.used != 0) publish(asked.used, asked.uuid);
  }
}

void Flusher::Notice() {
  if (!subscriber_reported_ && capture_.subscriber_seen) {
    subscriber_reported_ = true;
    const std::uint64_t now = ring::Ticks();
    output_.Lose(Loss::kGpuCaptureShared, nullptr, 1, now, now);
    if (write(STDERR_FILENO, kSubscriberLine, sizeof kSubscriberLine - 1) < 0) return;
  }
  if (!refusal_reported_ && capture_.subscriber_refused) {
    refusal_reported_ = true;
    char line[320];
    snprintf(line, sizeof line,
             "lockstep: \"%s\" gets no GPU activity: CUPTI refuses its interface for several subscribers beside "
             "Lockstep's; set LOCKSTEP_GPU=off to use it",
             capture_.subscriber_name[0] != 0 ? capture_.subscriber_name : "another profiler");
    SayPlain(line);
  }
  if (const std::uint32_t lost = capture_.buffers_lost.exchange(0); lost != 0) {
    const std::uint64_t now = ring::Ticks();
    output_.Lose(Loss::kGpuTailLost, "CUPTI was detached before its last records were fetched", lost, now, now);
  }
}

// Never from CUPTI's callbacks: it takes the lock under which they are called (kineto PR#1347).
void Flusher::Dropped(void* context, std::uint32_t stream) {
  std::size_t count = 0;
  if (capture_.api.get_dropped == nullptr || capture_.owner.load() != Owner::kOurs) return;
  if (capture_.api.get_dropped(context, stream, &count) != kSuccess || count == 0) return;
  const std::uint64_t now = ring::Ticks();
  output_.Lose(Loss::kGpuRecordsDropped, nullptr, count, now, now);
}

void Flusher::Publish(std::uint64_t flush_ticks, bool forced) {
  const std::uint64_t oldest = capture_.pool.OldestOut();
  // A buffer that is handed out still holds records that have not all ended.
  const std::uint64_t done = std::min({flush_ticks, forced ? flush_ticks : oldest, decoder_.HeldSince()});
  if (done > capture_.process->gpu_flushed_ticks.load(std::memory_order_relaxed))
    capture_.process->gpu_flushed_ticks.store(done, std::memory_order_release);
}

// A profiler that found CUPTI by dlsym has replaced our callbacks without our knowing, and all records are its. So a
// call that CUPTI records is made before each fetch.
bool Flusher::Beat() {
  if (driver_version_ == nullptr) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) return false;
    driver_version_ = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  }
  int version = 0;
  return driver_version_ != nullptr && capture_.heartbeat != 0 && driver_version_(&version) == 0;
}

// After a fetch.
void Flusher::Listen(bool asked) {
  const std::uint64_t now = ring::Ticks();
  // Where records come, and none of the call, CUPTI dropped it.
  if (decoder_.heartbeats() != beats_ || paced_bytes_ != 0 || !asked) {
    beats_ = decoder_.heartbeats();
    beat_ticks_ = now;
    missed_beats_ = 0;
    return;
  }
  if (stranger_ || beats_ < kSeenBeats || ++missed_beats_ < kMissedBeats) return;
  stranger_ = true;
  output_.Lose(Loss::kGpuCaptureTaken, "by a profiler that found CUPTI by itself", 1, beat_ticks_, now);
  capture_.process->cupti_state.store(3, std::memory_order_relaxed);
  constexpr char kLine[] =
      "lockstep: another profiler has taken CUPTI's records: GPU activity of this process is not recorded from here "
      "on\n";
  if (write(STDERR_FILENO, kLine, sizeof kLine - 1) < 0) return;
}

void Flusher::Flush(bool forced) {
  const std::uint64_t now = ring::Ticks();
  bool flushed = false, beat = false;
  // In CUDA 13.0 itself a flush can crash (mended in Update 1), so there is one at the end only.
  const bool allowed = forced || capture_.api.version != kCuda13_0;
  // Before the first record there is nothing to fetch, and perhaps cuInit has not even returned.
  const bool used = capture_.process->cupti_used.load(std::memory_order_relaxed) != 0;
  if (used && allowed && capture_.owner.load(std::memory_order_acquire) == Owner::kOurs) {
    Control control(kFlushNs);
    if (control.held() && capture_.owner.load(std::memory_order_acquire) == Owner::kOurs) {
      beat = !forced && Beat();
      flushed = FlushAll(forced);
    }
  }
  Decode();
  Listen(beat && flushed);
  if (flushed) {
    decoder_.Round(forced);
    Dropped(nullptr, 0);
    Publish(now, forced);
  } else if (forced && capture_.owner.load() == Owner::kOurs && capture_.pool.OldestOut() != ~std::uint64_t{0}) {
    output_.Lose(Loss::kGpuTailLost, "CUPTI did not give its last records", 1, capture_.pool.OldestOut(), now);
  }
  Devices();
  Notice();
  output_.WriteLosses();
  capture_.pool.Prepare(2);
  const std::int64_t now_ns = RawNs();
  if (paced_ns_ != 0) capture_.pool.Pace(paced_bytes_, now_ns - paced_ns_);
  paced_bytes_ = 0;
  paced_ns_ = now_ns;
}

void Flusher::CloseGap(std::uint64_t end_ticks) {
  const std::uint64_t begin = capture_.foreign.gap_begin_ticks.exchange(0);
  if (begin != 0) output_.Lose(Loss::kGpuCaptureTaken, nullptr, 1, begin, end_ticks);
}

// Finds out whether another profiler has finished; if so, CUPTI is ours again.
void Flusher::TakeBack(std::int64_t now_ns) {
  Foreign& foreign = capture_.foreign;
  if (capture_.owner.load(std::memory_order_acquire) != Owner::kTheirs || foreign.kinds.load() != 0 ||
      now_ns < next_take_back_ns_)
    return;
  const std::int64_t since = now_ns - foreign.changed_ns.load();
  const std::int64_t settled = foreign.finalized.load() != 0 ? kFinalizedNs : kSettleNs;
  if (since < (foreign.flushed.load() != 0 ? settled : kAbandonedNs)) return;
  Control control(kTickNs);
  if (!control.held() || foreign.kinds.load() != 0) return;
  // Its unfinished records are not forced out: CUPTI stays its own until they have ended. A flush shows whether they
  // have, and what it returns is kept until the profiler fetches it.
  if (foreign.forced.load() == 0 && capture_.lent.AnyOut()) {
    capture_.taking_back = true;
    capture_.api.flush_all(0);
    capture_.taking_back = false;
    if (capture_.lent.AnyOut()) {
      next_take_back_ns_ = now_ns + kFlushNs;
      return;
    }
  }
  // Before the first kind is enabled, so that no buffer is requested from the other profiler.
  capture_.owner.store(Owner::kOurs, std::memory_order_release);
  const Refusal refusal = Arm();
  if (refusal.function != nullptr) {
    capture_.owner.store(Owner::kTheirs, std::memory_order_release);
    next_take_back_ns_ = now_ns + kAbandonedNs;
    return;
  }
  foreign.flushed.store(0);
  foreign.forced.store(0);
  foreign.finalized.store(0);
  capture_.process->cupti_state.store(1, std::memory_order_relaxed);
  CloseGap(ring::Ticks());
}

void Flusher::End() {
  const std::uint32_t wanted = g_end_wanted.load(std::memory_order_acquire);
  if (g_end_asks.load() != 0)
    Flush(true);
  else
    Decode();
  if (capture_.owner.load() == Owner::kTheirs) CloseGap(ring::Ticks());
  decoder_.Round(true);
  Notice();
  output_.WriteLosses();
  g_end_done.store(wanted, std::memory_order_release);
  Wake(g_end_done);
}

void Flusher::Run() {
  ProcessEntry& process = *capture_.process;
  const SegmentHeader& segment = *lockstep_probe.segment;
  char fact[768];
  snprintf(fact, sizeof fact, "cupti\tstate=recording\tversion=%u\tpath=%s\tclock=%s\tfunctions=%s",
           capture_.api.version, capture_.api.path, SameClock(capture_.clock, OurTicks) ? "own" : "realtime",
           capture_.filters_functions ? "filtered" : "all");
  for (std::uint32_t kind = 1; kind < kKindLimit; ++kind) {
    if ((capture_.refused_kinds >> kind & 1) == 0) continue;
    const std::size_t used = strlen(fact);
    snprintf(fact + used, sizeof fact - used, strstr(fact, "refused_kinds") != nullptr ? ",%u" : "\trefused_kinds=%u",
             kind);
  }
  output_.WriteFact(fact);
  Clock();
  std::int64_t next_flush_ns = RawNs() + kFlushNs;
  for (;;) {
    const std::uint32_t asked = process.gpu_flush_wanted.load(std::memory_order_acquire);
    const bool outstanding = asked != process.gpu_flush_done.load(std::memory_order_relaxed);
    if (!outstanding && g_end_wanted.load() == g_end_done.load()) Wait(process.gpu_flush_wanted, asked, kTickNs);
    if (g_end_wanted.load() != g_end_done.load()) {
      End();
      continue;
    }
    const std::int64_t now_ns = RawNs();
    Clock();
    if (segment.agent_gone.load(std::memory_order_relaxed) != 0) {
      // There is no agent to write for, so the application should not pay for recording any longer.
      Control control(kFlushNs);
      if (capture_.owner.load() == Owner::kOurs && control.held()) {
        Disarm();
        capture_.owner.store(Owner::kEnded);
      }
      next_flush_ns = now_ns + kFlushNs;
      const timespec wait{0, static_cast<long>(kTickNs)};
      nanosleep(&wait, nullptr);
      continue;
    }
    if (const std::uint32_t wanted = process.gpu_flush_wanted.load(std::memory_order_acquire);
        wanted != process.gpu_flush_done.load(std::memory_order_relaxed)) {
      Flush(true);
      process.gpu_flush_done.store(wanted, std::memory_order_release);
      Wake(process.gpu_flush_done);
      next_flush_ns = now_ns + kFlushNs;
    } else if (now_ns >= next_flush_ns) {
      decoder_.windows().Follow(*lockstep_probe.window.load(std::memory_order_acquire));
      Flush(false);
      next_flush_ns = RawNs() + kFlushNs;
    } else {
      Decode();
    }
    TakeBack(now_ns);
  }
}

void* Main(void*) {
  prctl(PR_SET_NAME, "lockstep-gpu");
  // It exists as long as the process; a thread of its own never ends before the process.
  alignas(Flusher) static std::byte memory[sizeof(Flusher)];
  (new (memory) Flusher)->Run();
  return nullptr;
}

}  // namespace

bool StartFlusher() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, std::max<std::size_t>(256 << 10, PTHREAD_STACK_MIN));
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool made = pthread_create(&thread, &attributes, Main, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  g_started.store(made);
  return made;
}

namespace {

// The flusher is stuck in CUPTI, so the thread that ends the process reports it.
void TailLost() {
  LossRecord record{};
  record.head = {RecordKind::kLoss, 0, 2};
  record.name = lockstep_intern(Info(Loss::kGpuTailLost).name.data());
  record.detail = lockstep_intern("CUPTI did not give its last records within two seconds");
  record.count = 1;
  record.first_ticks = g_capture.process->gpu_flushed_ticks.load(std::memory_order_relaxed);
  record.last_ticks = ring::Ticks();
  if (ring::Page() != nullptr) lockstep_emit_slow(&record, 2, 1);
}

}  // namespace

void EndFlush(bool ask_cupti) {
  if (!g_started.load() || g_capture.pid != getpid()) return;
  const std::int64_t now = RawNs();
  std::int64_t none = 0;
  g_end_until_ns.compare_exchange_strong(none, now + kEndNs);
  const std::int64_t until = g_end_until_ns.load();
  // Records that find no space in the ring by then are dropped, so that dropping them can still be counted in time.
  g_no_room_after_ns.store(until - kEndNs / 4);
  if (now >= until) return;  // A kernel that never ends has had its time.
  g_end_asks.store(ask_cupti ? 1 : 0);
  const std::uint32_t wanted = g_end_wanted.fetch_add(1) + 1;
  Wake(g_capture.process->gpu_flush_wanted);
  for (;;) {
    const std::uint32_t done = g_end_done.load(std::memory_order_acquire);
    const std::int64_t left = until - RawNs();
    if (static_cast<std::int32_t>(done - wanted) >= 0) return;
    if (left <= 0) return TailLost();
    Wait(g_end_done, done, std::min(left, kTickNs));
  }
}

void ForgetFlusher() {
  g_started.store(false);
  g_end_wanted.store(0);
  g_end_done.store(0);
  g_end_until_ns.store(0);
  g_no_room_after_ns.store(0);
}

}  // namespace lockstep::cupti
