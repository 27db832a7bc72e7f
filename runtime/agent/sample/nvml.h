#pragma once
// Reads a GPU's clocks, power and temperature through the few functions of NVML that are needed (libnvidia-ml.so.1,
// part of the driver). The declarations are our own; the library is loaded at run time, in the agent only.

#include <array>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/spool_layout.h"

namespace lockstep::agent {

using GpuUuid = std::array<std::uint8_t, 16>;

// "GPU-2f1a...": as NVML and nvidia-smi write it.
std::string UuidText(const GpuUuid& uuid, const char* prefix);

// Thread: one at a time. Every call may take long or never return (a GPU that fell off the bus).
class Nvml {
 public:
  using Device = void*;

  // $LOCKSTEP_NVML, else the driver's. kUnsupported or kNotFound with the reason.
  static Result<Nvml> Open();

  // Null and the reason if NVML does not know the device or denies access.
  Result<Device> Find(const GpuUuid& uuid) const;
  // Reads everything that the device reports. Returns false if it reports nothing any more.
  bool Read(Device device, GpuSample& sample) const;

 private:
  struct Utilization {
    unsigned gpu, memory;
  };
  using Status = int;
  Status (*init_)() = nullptr;
  const char* (*error_)(Status) = nullptr;
  Status (*by_uuid_)(const char*, Device*) = nullptr;
  Status (*of_mig_)(Device, Device*) = nullptr;
  Status (*clock_)(Device, int, unsigned*) = nullptr;
  Status (*power_)(Device, unsigned*) = nullptr;
  Status (*temperature_)(Device, int, unsigned*) = nullptr;
  Status (*utilization_)(Device, Utilization*) = nullptr;
  Status (*throttle_)(Device, unsigned long long*) = nullptr;

  std::string Reason(Status status) const;
};

}  // namespace lockstep::agent
