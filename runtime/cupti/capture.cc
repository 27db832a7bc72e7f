// Arming and disarming CUPTI, and the callbacks that it gets.
//
// Kinds stay on while recording is off, and what was launched then is left out when it is decoded.
// Switching them with the window was the alternative: it is done by the application's threads at
// step boundaries, in calls that take CUPTI's locks for milliseconds (cuptiActivityDisable of
// kernels could deadlock before 13.0 Update 1), and kernels launched in a window that run after it
// would be missing. The price is CUPTI's share per launch outside of windows.

#include "runtime/cupti/capture.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "core/ring_writer.h"
#include "runtime/cupti/callbacks.h"

namespace lockstep::cupti {

constinit Capture g_capture{};

namespace {

constinit std::atomic<std::uint32_t> g_control{0};
constinit std::atomic<pthread_t> g_control_thread{};

constexpr std::uint32_t kNullAllowedSince = 27;  // Before CUDA 12.9 a buffer must be given.

void OnRequested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
  Capture& capture = g_capture;
  // Our buffers are for our records only: another profiler looks for its records in its own buffers.
  if (const BufferRequested theirs = capture.foreign.requested.load(std::memory_order_acquire);
      theirs != nullptr && (capture.handing_over || capture.owner.load(std::memory_order_acquire) != Owner::kOurs)) {
    theirs(buffer, bytes, max_records);
    if (*buffer == nullptr) return;
    if (capture.attributes.zeroed()) __builtin_memset(*buffer, 0, *bytes);
    capture.lent.Lend(*buffer);
    return;
  }
  const int error = errno;
  *max_records = 0;
  *buffer = capture.pool.Take(ring::Ticks(), capture.clock, capture.api.version < kNullAllowedSince, *bytes);
  if (ProcessEntry* process = capture.process;
      process != nullptr && process->cupti_used.load(std::memory_order_relaxed) == 0)
    process->cupti_used.store(1, std::memory_order_relaxed);
  errno = error;
}

// A buffer is returned to the profiler from which it was taken, whichever owns CUPTI by now.
void OnCompleted(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                 std::size_t valid_bytes) {
  Capture& capture = g_capture;
  if (buffer == nullptr || capture.pool.Filled(buffer, valid_bytes, context, stream, capture.forcing)) return;
  if ((capture.taking_back || capture.owner.load(std::memory_order_acquire) == Owner::kOurs) &&
      capture.lent.Keep(context, stream, buffer, bytes, valid_bytes))
    return;
  capture.lent.Return(buffer);
  const BufferCompleted theirs = capture.foreign.completed.load(std::memory_order_acquire);
  if (theirs != nullptr) theirs(context, stream, buffer, bytes, valid_bytes);
}

// Registers the clock that the other profiler wants, unless CUPTI's says the same.
void UseTheirClock() {
  Capture& capture = g_capture;
  const TimestampCallback theirs = capture.foreign.timestamp.load();
  if (theirs == nullptr || SameClock(capture.clock, theirs)) return;
  if (capture.api.register_timestamp != nullptr && capture.api.register_timestamp(theirs) == kSuccess)
    capture.clock = theirs;
}

// If one kind cannot be enabled, the others are recorded all the same.
void Enable(std::uint32_t kind) {
  const std::uint64_t bit = std::uint64_t{1} << kind;
  const bool enabled = g_capture.api.enable(kind) == kSuccess;
  (enabled ? g_capture.kinds : g_capture.refused_kinds) |= bit;
}

// A call of ours that CUPTI records, so that it is noticed if records go elsewhere.
void RecordHeartbeat(bool on) {
  Capture& capture = g_capture;
  Api& api = capture.api;
  if (capture.heartbeat == 0 && api.get_callback_name != nullptr)
    for (std::uint32_t id = 1; id < 64 && capture.heartbeat == 0; ++id) {
      const char* name = nullptr;
      if (api.get_callback_name(kDomainDriver, id, &name) != kSuccess || name == nullptr) break;
      if (strcmp(name, "cuDriverGetVersion") == 0) capture.heartbeat = id;
    }
  if (capture.heartbeat != 0 && capture.filters_functions &&
      api.enable_driver_api(capture.heartbeat, on ? 1 : 0) != kSuccess)
    capture.heartbeat = 0;
}

}  // namespace

Control::Control(std::int64_t most_ns) : held_(false) {
  const std::int64_t until = RawNs() + most_ns;
  for (;;) {
    std::uint32_t free = 0;
    if (g_control.compare_exchange_strong(free, 1, std::memory_order_acquire)) {
      g_control_thread.store(pthread_self(), std::memory_order_relaxed);
      held_ = true;
      return;
    }
    if (RawNs() >= until) return;
    const timespec wait{0, 100'000};
    nanosleep(&wait, nullptr);
  }
}

Control::~Control() {
  if (!held_) return;
  g_control_thread.store(pthread_t{}, std::memory_order_relaxed);
  g_control.store(0, std::memory_order_release);
}

bool Control::Mine() {
  return g_control.load(std::memory_order_relaxed) != 0 &&
         pthread_equal(g_control_thread.load(std::memory_order_relaxed), pthread_self()) != 0;
}

void Control::Forget() {
  g_control_thread.store(pthread_t{});
  g_control.store(0);
}

Refusal Route() {
  const int result = g_capture.api.register_callbacks(OnRequested, OnCompleted);
  if (result != kSuccess) return {"cuptiActivityRegisterCallbacks", result};
  return {};
}

bool FlushAll(bool forced) {
  Capture& capture = g_capture;
  if (!forced) return capture.api.flush_all(0) == kSuccess;
  // What comes back by force may have no times because it is unfinished; so what is finished comes back before.
  if (capture.api.version != kCuda13_0) capture.api.flush_all(0);
  capture.forcing = true;
  const bool flushed = capture.api.flush_all(kFlushForced) == kSuccess;
  capture.forcing = false;
  return flushed;
}

Refusal Arm() {
  Capture& capture = g_capture;
  Api& api = capture.api;
  const std::uint32_t options = lockstep_probe.segment->gpu_options;
  capture.handing_over = false;
  // Before the callbacks are registered, because CUPTI reads them then.
  capture.attributes.SetOurs(api);
  if (const Refusal refusal = Route(); refusal.function != nullptr) return refusal;
  if (api.set_thread_id_type != nullptr) api.set_thread_id_type(kThreadIdSystem);
  // No clock is registered (cupti_clock.h).
  if (capture.whole_graphs && api.enable_device_graph != nullptr) api.enable_device_graph(1);
  if (const int result = api.enable(kKindConcurrentKernel); result != kSuccess) {
    capture.kinds = 0;
    return {"cuptiActivityEnable", result};
  }
  capture.kinds = std::uint64_t{1} << kKindConcurrentKernel;
  capture.sessions += 1;
  for (const std::uint32_t kind :
       {kKindDevice, kKindContext, kKindMemcpy, kKindMemcpyPeer, kKindMemset, kKindSynchronization, kKindOverhead})
    Enable(kind);
  // Queries that found nothing completed are not synchronisations; a waiting thread makes millions of them.
  if (api.enable_all_sync_records != nullptr) api.enable_all_sync_records(0);
  if (api.enable_event_timestamps != nullptr) api.enable_event_timestamps(1);
  Enable(kKindCudaEvent);
  capture.filters_functions = FilterFunctions(api, true);
  if (!capture.filters_functions) {
    FilterFunctions(api, false);
    Enable(kKindRuntime);
    Enable(kKindDriver);
  }
  RecordHeartbeat(true);
  if ((options & kGpuMemoryRecords) != 0) Enable(kKindMemory2);
  if (capture.whole_graphs) Enable(kKindGraphTrace);
  if (capture.armed_ticks == 0) capture.armed_ticks = ring::Ticks();
  return {};
}

void Disarm() {
  Capture& capture = g_capture;
  Api& api = capture.api;
  RecordHeartbeat(false);
  if (capture.filters_functions) FilterFunctions(api, false);
  // In 13.0 itself disabling kernels can deadlock (mended in Update 1): the other profiler gets our kinds, too.
  for (std::uint32_t kind = 1; kind < kKindLimit && api.version != kCuda13_0; ++kind)
    if ((capture.kinds >> kind & 1) != 0) api.disable(kind);
  capture.kinds = 0;
  capture.handing_over = true;
  // By force: CUPTI keeps a buffer with one unfinished record through any other flush
  // (cupti_activity.h), goes on filling it, and the other profiler's records would come to us.
  FlushAll(true);
  if (api.enable_event_timestamps != nullptr) api.enable_event_timestamps(0);
  if (api.enable_all_sync_records != nullptr) api.enable_all_sync_records(1);
  capture.attributes.SetTheirs(api);
  if (api.set_thread_id_type != nullptr) api.set_thread_id_type(kThreadIdDefault);
  // Kineto before torch 2.3 registers none and takes times for CLOCK_REALTIME; later ones bring the TSC.
  UseTheirClock();
}

}  // namespace lockstep::cupti
