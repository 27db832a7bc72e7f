#pragma once
// CUDA's functions by CUPTI's numbers: their names, and which of them are recorded.

#include <cstdint>

#include "runtime/cupti/api.h"

namespace lockstep::cupti {

inline constexpr std::uint32_t kMostCallbacks = 4096;  // 13.0: 523 of the runtime, 807 of the driver.

// As api.kind: 1 launch 2 copy 3 synchronisation 4 graph launch 5 memory 6 event; 0 for others, which are not recorded:
// queries and getters are called in loops and have no correlation.
std::uint8_t KindOfFunction(const char* name);

// The name without its version ("cudaLaunchKernel_v7000" is cudaLaunchKernel). False if it does not fit.
bool PlainName(const char* name, char* plain, std::uint32_t plain_bytes);

// Enables the functions whose kind is not 0, or disables them, and disables all others. Returns false if the library
// cannot do so (before CUDA 12.5) or refused: the kinds RUNTIME and DRIVER are to be used then.
bool FilterFunctions(const Api& api, bool on);

}  // namespace lockstep::cupti
