#pragma once
// Of gpu_samples.throttle_reasons those that cost something (NVML's bits; nvml.h,
// nvmlClocksEventReasons): power cap, hardware slowdown, heat (software, hardware), power
// brake. Not: idle (lowers its clocks by itself), an application's setting, sync boost.

#include <cstdint>

namespace lockstep::merge {

inline constexpr std::uint64_t kThrottleReasons = 4 | 8 | 32 | 64 | 128;

}  // namespace lockstep::merge
