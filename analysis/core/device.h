#pragma once
// What stands for no device in the tables (core/rank_tables.h, core/timeline_tables.h).

#include <cstdint>

namespace lockstep::analysis {

// gpu_samples.device and rank_gpus.device where it is not known which.
inline constexpr std::uint16_t kUnknownDevice = UINT16_MAX;
// gpu_memory.device of what is the host's.
inline constexpr std::uint16_t kHostMemory = UINT16_MAX;

}  // namespace lockstep::analysis
