#include "runtime/agent/sample/nvml.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "core/env.h"
#include "core/schema_enums.h"

namespace lockstep::agent {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";

// nvml.h of CUDA 13.0. Numbers of NVML's interface have never changed.
constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;

template <typename F>
bool Load(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::string UuidText(const GpuUuid& uuid, const char* prefix) {
  std::string text = prefix;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", uuid[i]);
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

std::string Nvml::Reason(Status status) const {
  const char* text = error_ != nullptr ? error_(status) : nullptr;
  return (text != nullptr ? std::string(text) : "error") + " (" + std::to_string(status) + ")";
}

Result<Nvml> Nvml::Open() {
  const char* wanted = std::getenv(env::kNvml);
  const char* path = wanted != nullptr && *wanted != '\0' ? wanted : kLibrary;
  // The library is never closed, because another thread may be inside it.
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return Error{ErrorCode::kNotFound, why != nullptr ? why : "cannot be loaded", path,
                 "containers: NVIDIA_DRIVER_CAPABILITIES=compute,utility"};
  }
  Nvml nvml;
  Load(library, "nvmlErrorString", nvml.error_);
  if (!Load(library, "nvmlInit_v2", nvml.init_) || !Load(library, "nvmlDeviceGetHandleByUUID", nvml.by_uuid_))
    return Error{ErrorCode::kUnsupported, "it lacks NVML's functions", path, ""};
  Load(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", nvml.of_mig_);
  Load(library, "nvmlDeviceGetClockInfo", nvml.clock_);
  Load(library, "nvmlDeviceGetPowerUsage", nvml.power_);
  Load(library, "nvmlDeviceGetTemperature", nvml.temperature_);
  Load(library, "nvmlDeviceGetUtilizationRates", nvml.utilization_);
  // Renamed in driver 535; the old name stays.
  if (!Load(library, "nvmlDeviceGetCurrentClocksEventReasons", nvml.throttle_))
    Load(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.throttle_);
  if (const Status status = nvml.init_(); status != 0)
    return Error{ErrorCode::kUnsupported, "NVML does not start: " + nvml.Reason(status), path, ""};
  return nvml;
}

Result<Nvml::Device> Nvml::Find(const GpuUuid& uuid) const {
  Device device = nullptr;
  const Status status = by_uuid_(UuidText(uuid, "GPU").c_str(), &device);
  if (status == 0 && device != nullptr) return device;
  // A part of a GPU (MIG) has no clocks of its own, so those of the whole GPU are read.
  Device part = nullptr;
  if (of_mig_ != nullptr && by_uuid_(UuidText(uuid, "MIG").c_str(), &part) == 0 && of_mig_(part, &device) == 0 &&
      device != nullptr)
    return device;
  return Error{ErrorCode::kNotFound, "NVML does not know the device: " + Reason(status), UuidText(uuid, "GPU"), ""};
}

bool Nvml::Read(Device device, GpuSample& sample) const {
  constexpr std::uint32_t kUnknown = 0xffffffffu;
  sample.sm_clock_mhz = sample.memory_clock_mhz = sample.power_mw = sample.temperature_c = sample.utilization_percent =
      kUnknown;
  sample.throttle_reasons = 0;
  sample.vendor = schema::Vendor::kNvidia;
  bool any = false;
  unsigned value = 0;
  const auto take = [&](Status status, std::uint32_t& field) {
    if (status != 0) return;
    field = value;
    any = true;
  };
  if (clock_ != nullptr) {
    take(clock_(device, kSmClock, &value), sample.sm_clock_mhz);
    take(clock_(device, kMemoryClock, &value), sample.memory_clock_mhz);
  }
  if (power_ != nullptr) take(power_(device, &value), sample.power_mw);
  if (temperature_ != nullptr) take(temperature_(device, kGpuSensor, &value), sample.temperature_c);
  if (utilization_ != nullptr) {
    Utilization use{};
    const Status status = utilization_(device, &use);
    value = use.gpu;
    take(status, sample.utilization_percent);
  }
  if (unsigned long long reasons = 0; throttle_ != nullptr && throttle_(device, &reasons) == 0) {
    sample.throttle_reasons = reasons;
    any = true;
  }
  return any;
}

}  // namespace lockstep::agent
