// Other profilers in the process. CUPTI has one pair of buffer callbacks, one clock and one set of
// enabled kinds for everybody, and the last caller wins, silently. These functions are preloaded,
// so callers that are linked to libcupti (torch.profiler's Kineto) reach them; a caller that uses
// dlsym on libcupti's handle, or has CUPTI linked in statically, does not, and simply takes over.
//
// What the other profiler sets is kept until it enables its first kind. Then CUPTI is theirs: our
// kinds go off, our buffers are fetched by force (what has not ended by then is lost to us and counted),
// clock, attributes and thread ids become what they would be without us, and every call goes through. The
// gap is written down, and when their last kind is off and CUPTI has none of their buffers any more, the
// flusher takes CUPTI back. CUPTI itself gets our callbacks all the time, which give each buffer to whom it
// was taken from.
//
// The symbols have no version: a reference to cuptiActivityEnable@libcupti.so.12 binds to them.

#include <dlfcn.h>
#include <string.h>

#include <cstddef>

#include "core/ring_writer.h"
#include "runtime/cupti/capture.h"

namespace lockstep::cupti {
namespace {

constexpr std::int64_t kWaitNs = 250'000'000;
constexpr std::uint64_t kSingleFunctions = std::uint64_t{1} << 63;

// The function that would be called without us.
template <typename Function>
Function Real(const char* name, Function known) {
  if (known != nullptr) return known;
  if (auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name)); next != nullptr) return next;
  // Another library loaded it with RTLD_LOCAL, so it is not in our scope.
  char path[512];
  void* library = LoadedCupti(path, sizeof path);
  return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

Owner Now() { return g_capture.owner.load(std::memory_order_acquire); }

// Also true while we call it ourselves, because libcupti may call its own functions by name.
bool Through() {
  const Owner owner = Now();
  return owner == Owner::kNobody || owner == Owner::kEnded || Control::Mine();
}

bool IsOurs(std::uint32_t kind) { return kind < kKindLimit && (g_capture.kinds >> kind & 1) != 0; }

std::uint64_t Bit(std::uint32_t kind) { return kind < 63 ? std::uint64_t{1} << kind : 0; }

void Lost() {
  std::uint64_t none = 0;
  g_capture.foreign.gap_begin_ticks.compare_exchange_strong(none, ring::Ticks());
  g_capture.process->cupti_state.store(3, std::memory_order_relaxed);
}

// The other profiler takes CUPTI over.
void TakeOver() {
  Control control(kWaitNs);
  if (Now() != Owner::kOurs) return;
  Lost();
  Disarm();
  g_capture.foreign.flushed.store(0);
  g_capture.foreign.forced.store(0);
  g_capture.foreign.finalized.store(0);
  g_capture.owner.store(Owner::kTheirs, std::memory_order_release);
}

// Before a call that enables kinds. Returns false if the call must not be made, and success is to be returned.
bool BeforeEnable(std::uint32_t kind) {
  if (Control::Mine()) return true;
  if (Now() == Owner::kOurs) {
    // Without its own callbacks, nothing that it enables could reach it.
    if (g_capture.foreign.requested.load() == nullptr) return !IsOurs(kind);
    TakeOver();
  }
  g_capture.foreign.kinds.fetch_or(Bit(kind));
  g_capture.foreign.flushed.store(0);
  g_capture.foreign.forced.store(0);
  return true;
}

bool BeforeDisable(std::uint32_t kind) {
  if (Control::Mine()) return true;
  if (Now() == Owner::kOurs) return !IsOurs(kind);
  g_capture.foreign.kinds.fetch_and(~Bit(kind));
  g_capture.foreign.changed_ns.store(RawNs());
  return true;
}

template <typename Call>
int SingleFunction(std::uint8_t enable, Call&& call) {
  if (!Through() && Now() == Owner::kOurs) {
    if (g_capture.foreign.requested.load() == nullptr) return kSuccess;
    if (enable == 0) return kSuccess;  // It has nothing enabled.
    TakeOver();
  }
  if (!Through()) {
    // If functions are disabled one by one, the last one is not known. A profiler that enables single functions has
    // kinds enabled, too.
    if (enable != 0 && g_capture.foreign.kinds.load() == 0) g_capture.foreign.kinds.fetch_or(kSingleFunctions);
    if (enable == 0) g_capture.foreign.kinds.fetch_and(~kSingleFunctions);
    g_capture.foreign.changed_ns.store(RawNs());
  }
  return call();
}

}  // namespace
}  // namespace lockstep::cupti

using namespace lockstep;
using namespace lockstep::cupti;

#pragma GCC visibility push(default)
extern "C" {

int cuptiActivityRegisterCallbacks(BufferRequested requested, BufferCompleted completed) {
  const bool through = Through();
  if (!through && (requested == nullptr || completed == nullptr)) return kInvalidParameter;
  // Stored before CUDA begins as well, because we will register ours over them then.
  if (!Control::Mine() && requested != nullptr && completed != nullptr) {
    g_capture.foreign.completed.store(completed, std::memory_order_release);
    g_capture.foreign.requested.store(requested, std::memory_order_release);
  }
  if (!through) return kSuccess;
  const auto real = Real("cuptiActivityRegisterCallbacks", g_capture.api.register_callbacks);
  return real != nullptr ? real(requested, completed) : int{kNotInitialized};
}

int cuptiActivityRegisterTimestampCallback(TimestampCallback callback) {
  const bool through = Through();
  if (!Control::Mine() && callback != nullptr) {
    g_capture.foreign.timestamp.store(callback);
    if (!through && Now() == Owner::kOurs) return kSuccess;
    // CUPTI uses an equal clock already; registering it once more would only misplace kernels, also the other
    // profiler's (cupti_clock.h).
    if (g_capture.process != nullptr && g_capture.clock != nullptr && SameClock(g_capture.clock, callback))
      return kSuccess;
  }
  if (!through && Now() == Owner::kOurs) return kInvalidParameter;
  const auto real = Real("cuptiActivityRegisterTimestampCallback", g_capture.api.register_timestamp);
  const int result = real != nullptr ? real(callback) : int{kNotInitialized};
  if (!Control::Mine() && result == kSuccess) g_capture.clock = callback;
  return result;
}

// The value without us: while CUPTI is ours, the other profiler's clock is not registered.
int cuptiGetTimestamp(std::uint64_t* timestamp) {
  const TimestampCallback theirs = g_capture.foreign.timestamp.load();
  if (!Through() && Now() == Owner::kOurs && theirs != nullptr && timestamp != nullptr) {
    *timestamp = theirs();
    return kSuccess;
  }
  const auto real = Real<int (*)(std::uint64_t*)>("cuptiGetTimestamp", nullptr);
  return real != nullptr ? real(timestamp) : int{kNotInitialized};
}

int cuptiActivityEnable(std::uint32_t kind) {
  if (!BeforeEnable(kind)) return kSuccess;
  const auto real = Real("cuptiActivityEnable", g_capture.api.enable);
  return real != nullptr ? real(kind) : int{kNotInitialized};
}

int cuptiActivityEnableAndDump(std::uint32_t kind) {
  BeforeEnable(kind);
  const auto real = Real<int (*)(std::uint32_t)>("cuptiActivityEnableAndDump", nullptr);
  return real != nullptr ? real(kind) : int{kNotInitialized};
}

int cuptiActivityEnableContext(void* context, std::uint32_t kind) {
  if (!BeforeEnable(kind)) return kSuccess;
  const auto real = Real<int (*)(void*, std::uint32_t)>("cuptiActivityEnableContext", nullptr);
  return real != nullptr ? real(context, kind) : int{kNotInitialized};
}

int cuptiActivityDisable(std::uint32_t kind) {
  if (!BeforeDisable(kind)) return kSuccess;
  const auto real = Real("cuptiActivityDisable", g_capture.api.disable);
  return real != nullptr ? real(kind) : int{kNotInitialized};
}

int cuptiActivityDisableContext(void* context, std::uint32_t kind) {
  if (!BeforeDisable(kind)) return kSuccess;
  const auto real = Real<int (*)(void*, std::uint32_t)>("cuptiActivityDisableContext", nullptr);
  return real != nullptr ? real(context, kind) : int{kNotInitialized};
}

int cuptiActivityEnableRuntimeApi(std::uint32_t callback, std::uint8_t enable) {
  return SingleFunction(enable, [&] {
    const auto real = Real("cuptiActivityEnableRuntimeApi", g_capture.api.enable_runtime_api);
    return real != nullptr ? real(callback, enable) : int{kNotInitialized};
  });
}

int cuptiActivityEnableDriverApi(std::uint32_t callback, std::uint8_t enable) {
  return SingleFunction(enable, [&] {
    const auto real = Real("cuptiActivityEnableDriverApi", g_capture.api.enable_driver_api);
    return real != nullptr ? real(callback, enable) : int{kNotInitialized};
  });
}

int cuptiActivityFlushAll(std::uint32_t flags) {
  const auto real = Real("cuptiActivityFlushAll", g_capture.api.flush_all);
  if (Through()) {
    const int result = real != nullptr ? real(flags) : int{kNotInitialized};
    if (!Control::Mine()) g_capture.lent.Deliver(g_capture.foreign.completed.load());
    return result;
  }
  // Not while CUPTI is taken back: records returned in that moment are for the other profiler.
  const Control control(kWaitNs);
  const bool ours = Now() == Owner::kOurs;
  // If it forced a flush while it has nothing enabled, it would force our unfinished records out.
  const int result = real != nullptr ? real(ours ? 0 : flags) : int{kNotInitialized};
  g_capture.lent.Deliver(g_capture.foreign.completed.load());
  if (!ours && g_capture.foreign.kinds.load() == 0) {
    if ((flags & kFlushForced) != 0) g_capture.foreign.forced.store(1);
    g_capture.foreign.flushed.store(1);
  }
  return result;
}

// Deprecated, with the same effect: "CONTEXT and STREAMID will be ignored" (cupti_activity.h).
int cuptiActivityFlush(void* context, std::uint32_t stream, std::uint32_t flags) {
  if (!Through()) return cuptiActivityFlushAll(flags);
  const auto real = Real<int (*)(void*, std::uint32_t, std::uint32_t)>("cuptiActivityFlush", nullptr);
  return real != nullptr ? real(context, stream, flags) : int{kNotInitialized};
}

int cuptiActivitySetAttribute(int attribute, std::size_t* bytes, void* value) {
  if (!Through() && Now() == Owner::kOurs && bytes != nullptr && g_capture.attributes.Write(attribute, value, *bytes))
    return kSuccess;
  const auto real = Real("cuptiActivitySetAttribute", g_capture.api.set_attribute);
  return real != nullptr ? real(attribute, bytes, value) : int{kNotInitialized};
}

int cuptiActivityGetAttribute(int attribute, std::size_t* bytes, void* value) {
  if (!Through() && Now() == Owner::kOurs && g_capture.attributes.Read(attribute, value, bytes)) return kSuccess;
  const auto real = Real("cuptiActivityGetAttribute", g_capture.api.get_attribute);
  return real != nullptr ? real(attribute, bytes, value) : int{kNotInitialized};
}

// The interface for several subscribers (CUDA 13.2 and later): its functions and buffers belong to one subscriber, and
// NVIDIA does not document what that means for ours.
int cuptiSubscribe_v2(void** subscriber, void* callback, void* data, SubscriberParams* params) {
  const auto real = Real<int (*)(void**, void*, void*, SubscriberParams*)>("cuptiSubscribe_v2", nullptr);
  const int result = real != nullptr ? real(subscriber, callback, data, params) : int{kNotInitialized};
  if (result == kSuccess && params != nullptr && params->struct_bytes >= offsetof(SubscriberParams, padding) &&
      params->allow_multiple_subscribers != 0) {
    if (params->name != nullptr) strncpy(g_capture.subscriber_name, params->name, sizeof g_capture.subscriber_name - 1);
    if (g_capture.api.version < kCuda13_3) g_capture.subscriber_seen = true;
  }
  return result;
}

int cuptiActivityEnable_v2(void* subscriber, std::uint32_t kind, void* config) {
  const auto real = Real<int (*)(void*, std::uint32_t, void*)>("cuptiActivityEnable_v2", nullptr);
  const int result = real != nullptr ? real(subscriber, kind, config) : int{kNotInitialized};
  // From 13.3 on CUPTI refuses one of the two interfaces.
  if (result == kSuccess) g_capture.subscriber_seen = true;
  if (result == kNotCompatible && !Through()) g_capture.subscriber_refused = true;
  return result;
}

// Detaches CUPTI for all users, also for us. Kineto does it after each profile with TEARDOWN_CUPTI=1.
int cuptiFinalize(void) {
  const auto real = Real("cuptiFinalize", g_capture.api.finalize);
  if (Through()) {
    const int result = real != nullptr ? real() : int{kNotInitialized};
    if (!Control::Mine()) g_capture.clock = nullptr;
    return result;
  }
  const Control control(kWaitNs);
  // What was not flushed before is lost (cupti_activity.h).
  if (Now() == Owner::kOurs && g_capture.api.flush_all(kFlushForced) != kSuccess) g_capture.buffers_lost += 1;
  Lost();
  g_capture.kinds = 0;
  g_capture.foreign.kinds.store(0);
  g_capture.foreign.changed_ns.store(RawNs());
  g_capture.foreign.finalized.store(1);
  g_capture.foreign.forced.store(1);
  g_capture.foreign.flushed.store(1);
  g_capture.owner.store(Owner::kTheirs, std::memory_order_release);
  const int result = real != nullptr ? real() : int{kNotInitialized};
  g_capture.pool.Forget();
  g_capture.lent.Forget();
  g_capture.attributes.Forget();
  g_capture.clock = nullptr;
  g_capture.foreign.changed_ns.store(RawNs());
  return result;
}

}  // extern "C"
#pragma GCC visibility pop
