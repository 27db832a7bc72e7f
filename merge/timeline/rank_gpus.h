#pragma once
// The bits of gpu_samples.throttle_reasons that reduce performance (NVML's; nvml.h, nvmlClocksEventReasons): power cap,
// hardware slowdown, heat (software, hardware), power brake. Not among them: idle (lowers its clocks by itself), an
// application's setting, sync boost.

#include <cstdint>

namespace lockstep::merge {

inline constexpr std::uint64_t kThrottleReasons = 4 | 8 | 32 | 64 | 128;

}  // namespace lockstep::merge
