#pragma once
// A profiler as Kineto is (libkineto, CuptiActivityApi.cpp of 2025): one set of buffers for the process, malloced and
// freed by itself; what comes back is looked at when it fetches, and it does not fetch at all if none of its buffers
// is out; per-thread buffers are switched off behind it. It has no idea that somebody else uses CUPTI.

#include <pthread.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cupti/abi.h"

extern "C" {
int cuptiActivityRegisterCallbacks(lockstep::cupti::BufferRequested, lockstep::cupti::BufferCompleted);
int cuptiActivityRegisterTimestampCallback(lockstep::cupti::TimestampCallback);
int cuptiActivityEnable(std::uint32_t);
int cuptiActivityDisable(std::uint32_t);
int cuptiActivityFlushAll(std::uint32_t);
int cuptiActivityFlush(void*, std::uint32_t, std::uint32_t);
int cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, lockstep::cupti::AnyRecord**);
int cuptiActivitySetAttribute(int, std::size_t*, void*);
int cuptiActivityGetAttribute(int, std::size_t*, void*);
int cuptiFinalize(void);
}

namespace kineto {

using lockstep::cupti::AnyRecord;

inline std::uint64_t Clock(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}
inline std::uint64_t Realtime() { return Clock(CLOCK_REALTIME); }
inline std::uint64_t Boottime() { return Clock(CLOCK_BOOTTIME) + 123'456'789'000'000; }
inline std::uint64_t Tsc() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return Clock(CLOCK_MONOTONIC_RAW);
#endif
}

struct Profiler {
  static inline std::mutex mutex;
  static inline std::vector<std::uint8_t*> out;
  static inline std::vector<std::pair<std::uint8_t*, std::size_t>> ready;
  static inline std::uint64_t (*clock)() = nullptr;  // That it registers; null none: it expects CLOCK_REALTIME.
  static inline std::uint64_t begin = 0;             // Of the session, on that clock.
  static inline long kernels = 0, untimed = 0, strange = 0, wrong_clock = 0, wrong_thread = 0;
  static inline std::map<std::string, long> names;

  static void Requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
    *bytes = 1 << 20;
    *buffer = static_cast<std::uint8_t*>(std::malloc(*bytes));
    std::memset(*buffer, 0xee, *bytes);  // Nothing promises it zeroed.
    *most = 0;
    const std::lock_guard guard(mutex);
    out.push_back(*buffer);
  }
  static void Completed(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    const std::lock_guard guard(mutex);
    if (std::erase(out, buffer) == 0) {
      strange += 1;
      return;
    }
    ready.emplace_back(buffer, valid);
  }

  static void Read(std::uint8_t* buffer, std::size_t valid) {
    const std::uint64_t now = clock != nullptr ? clock() : Realtime();
    AnyRecord* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == 0) {
      if (record->kind == 10) {
        const auto& kernel = *reinterpret_cast<const lockstep::cupti::KernelRecord*>(record);
        kernels += 1;
        names[kernel.name] += 1;
        if (kernel.start == 0 || kernel.end == 0)
          untimed += 1;
        else if (kernel.start < begin || kernel.end > now)
          wrong_clock += 1;
      }
      if (record->kind == 5 && reinterpret_cast<const lockstep::cupti::ApiRecord*>(record)->thread !=
                                   static_cast<std::uint32_t>(pthread_self()))
        wrong_thread += 1;
    }
  }

  static void Start() {
    begin = clock != nullptr ? clock() : Realtime();
    if (clock != nullptr) cuptiActivityRegisterTimestampCallback(clock);
    cuptiActivityRegisterCallbacks(Requested, Completed);
    for (const std::uint32_t kind : {10u, 1u, 2u, 5u}) cuptiActivityEnable(kind);
    if (OutNow() == 0) return;
    cuptiActivityFlushAll(0);  // What is older than the session.
    const std::lock_guard guard(mutex);
    for (const auto& [buffer, valid] : ready) std::free(buffer);
    ready.clear();
  }
  static void Stop() {
    for (const std::uint32_t kind : {10u, 1u, 2u, 5u}) cuptiActivityDisable(kind);
  }
  static void Fetch(std::uint32_t flags = 1, int (*flush)(std::uint32_t) = cuptiActivityFlushAll) {
    if (OutNow() == 0) return;
    flush(flags);
    std::uint8_t off = 0;
    std::size_t bytes = sizeof off;
    cuptiActivitySetAttribute(lockstep::cupti::kAttributePerThreadBuffer, &bytes, &off);
    const std::lock_guard guard(mutex);
    for (const auto& [buffer, valid] : ready) {
      Read(buffer, valid);
      std::free(buffer);
    }
    ready.clear();
  }
  static void Print() {
    std::printf("profiler kernels %ld strange %ld clock %ld thread %ld untimed %ld\n", kernels, strange, wrong_clock,
                wrong_thread, untimed);
  }

 private:
  static std::size_t OutNow() {
    const std::lock_guard guard(mutex);
    return out.size();
  }
};

}  // namespace kineto
