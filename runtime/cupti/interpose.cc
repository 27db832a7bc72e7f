// Other profilers in the process. CUPTI has one pair of buffer callbacks, one clock and one set of
// enabled kinds for everybody, and the last caller wins, silently. These functions are preloaded,
// so callers that are linked to libcupti (torch.profiler's Kineto) reach them; a caller that uses
// dlsym on libcupti's handle, or has CUPTI linked in statically, does not, and simply takes over.
//
// What the other profiler sets is kept until it enables its first kind. Then CUPTI is theirs: our
// kinds go off, our buffers are fetched, clock and thread ids become what they would be without us,
// and every call goes through. The gap is written down, and when their last kind is off and
// they have fetched, the flusher takes CUPTI back. CUPTI itself gets our callbacks all the time, which
// give each buffer to whom it was taken from.
//
// The symbols have no version: a reference to cuptiActivityEnable@libcupti.so.12 binds to them.

#include <dlfcn.h>
#include <time.h>

#include "core/ring_writer.h"
#include "runtime/cupti/capture.h"

namespace lockstep::cupti {
namespace {

constexpr std::int64_t kWaitNs = 250'000'000;
constexpr std::uint64_t kSingleFunctions = std::uint64_t{1} << 63;

// The function that would have been called without us.
template <typename Function>
Function Real(const char* name, Function known) {
  if (known != nullptr) return known;
  if (auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name)); next != nullptr) return next;
  // Loaded with RTLD_LOCAL by somebody: not in our scope.
  char path[512];
  void* library = LoadedCupti(path, sizeof path);
  return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

Owner Now() { return g_capture.owner.load(std::memory_order_acquire); }

// Also while we are at it ourselves: libcupti may call its own functions by name.
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

// CUPTI becomes theirs.
void TakeOver() {
  Control control(kWaitNs);
  if (Now() != Owner::kOurs) return;
  Lost();
  Disarm();
  g_capture.foreign.flushed.store(0);
  g_capture.foreign.finalized.store(0);
  g_capture.owner.store(Owner::kTheirs, std::memory_order_release);
}

// Before a call that switches kinds on. False: it is to be answered with success and not made.
bool BeforeEnable(std::uint32_t kind) {
  if (Control::Mine()) return true;
  if (Now() == Owner::kOurs) {
    // Without callbacks of their own nothing they enable could reach them.
    if (g_capture.foreign.requested.load() == nullptr) return !IsOurs(kind);
    TakeOver();
  }
  g_capture.foreign.kinds.fetch_or(Bit(kind));
  g_capture.foreign.flushed.store(0);
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
    if (enable == 0) return kSuccess;  // Nothing of theirs is on.
    TakeOver();
  }
  if (!Through()) {
    // Off one by one: the last is not known. Whoever enables single functions has kinds on, too.
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
  // Kept before CUDA begins as well: we will register ours over them then.
  if (!Control::Mine() && requested != nullptr && completed != nullptr) {
    g_capture.foreign.completed.store(completed, std::memory_order_release);
    g_capture.foreign.requested.store(requested, std::memory_order_release);
  }
  if (!through) return kSuccess;
  const auto real = Real("cuptiActivityRegisterCallbacks", g_capture.api.register_callbacks);
  return real != nullptr ? real(requested, completed) : int{kNotInitialized};
}

int cuptiActivityRegisterTimestampCallback(TimestampCallback callback) {
  if (!Control::Mine() && callback != nullptr) g_capture.foreign.timestamp.store(callback);
  if (!Through() && Now() == Owner::kOurs) return callback != nullptr ? kSuccess : kInvalidParameter;
  const auto real = Real("cuptiActivityRegisterTimestampCallback", g_capture.api.register_timestamp);
  return real != nullptr ? real(callback) : int{kNotInitialized};
}

// What it would be without our clock.
int cuptiGetTimestamp(std::uint64_t* timestamp) {
  if (!Through() && Now() == Owner::kOurs && g_capture.own_clock && timestamp != nullptr) {
    if (const TimestampCallback theirs = g_capture.foreign.timestamp.load(); theirs != nullptr) {
      *timestamp = theirs();
      return kSuccess;
    }
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    *timestamp = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
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
  // Forced while nothing of theirs is on, it would tear our unfinished records out.
  if (!Through() && Now() == Owner::kOurs) return real != nullptr ? real(0) : int{kNotInitialized};
  const int result = real != nullptr ? real(flags) : int{kNotInitialized};
  if (!Through() && g_capture.foreign.kinds.load() == 0) g_capture.foreign.flushed.store(1);
  return result;
}

// Detaches CUPTI for everybody, us included.
int cuptiFinalize(void) {
  const auto real = Real("cuptiFinalize", g_capture.api.finalize);
  if (!Through()) {
    {
      Control control(kWaitNs);
      Lost();
      g_capture.kinds = 0;
      g_capture.foreign.kinds.store(0);
      g_capture.foreign.changed_ns.store(RawNs());
      g_capture.foreign.finalized.store(1);
      g_capture.foreign.flushed.store(1);
      g_capture.owner.store(Owner::kTheirs, std::memory_order_release);
    }
  }
  const int result = real != nullptr ? real() : int{kNotInitialized};
  g_capture.foreign.changed_ns.store(RawNs());
  return result;
}

}  // extern "C"
#pragma GCC visibility pop
