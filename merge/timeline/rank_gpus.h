#pragma once
// The bits of gpu_samples.throttle_reasons that reduce performance (NVML's; nvml.h, nvmlClocksEventReasons): power cap,
// hardware slowdown, heat (software, hardware), power brake. Not among them: idle (lowers its clocks by itself), an
// application's setting, sync boost.

#include <cstdint>

namespace lockstep::merge {

inline constexpr std::uint64_t kThrottleReasons = 1u << 2 | 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7;

}  // namespace lockstep::merge
