#pragma once
// Which GPUs the process uses, from the driver itself. CUPTI writes it in records, but these come with a buffer, and
// a buffer does not come while anything in it is unfinished: on a busy GPU seconds later.

#include <cstdint>

namespace lockstep::cupti {

struct UsedDevices {
  std::uint32_t used;
  std::uint8_t uuid[4][16];
};

// Devices whose primary context is active: that of the runtime, and so of PyTorch and NCCL. None if the driver is not
// loaded or does not say. Not within cuInit, and not in callbacks of CUPTI.
UsedDevices AskDriver();

}  // namespace lockstep::cupti
