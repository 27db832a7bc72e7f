#pragma once
// Reads from the driver which GPUs the process uses. CUPTI records it too, but records arrive with a buffer, and a
// buffer is not returned while anything in it is unfinished: on a busy GPU seconds later.

#include <cstdint>

namespace lockstep::cupti {

struct UsedDevices {
  std::uint32_t used;
  std::uint8_t uuid[4][16];
};

// Devices whose primary context is active: that of the runtime, and so of PyTorch and NCCL. None if the driver is not
// loaded or does not report them. Must not be called within cuInit or in callbacks of CUPTI.
UsedDevices AskDriver();

}  // namespace lockstep::cupti
