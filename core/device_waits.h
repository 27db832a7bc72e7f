#pragma once

#include <string_view>

namespace lockstep {

// Whether a call of CUDA's or HIP's runtime or driver of this name returns when all work of its device or context has
// ended: cudaDeviceSynchronize, hipDeviceSynchronize, cuCtxSynchronize.
inline bool WaitsForDevice(std::string_view call) {
  return call.find("DeviceSynchronize") != std::string_view::npos ||
         call.find("CtxSynchronize") != std::string_view::npos;
}

}  // namespace lockstep
