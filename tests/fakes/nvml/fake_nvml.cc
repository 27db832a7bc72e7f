// A stand-in for libnvidia-ml.so.1 with values that tests can foresee. A device is known if its
// UUID begins with "GPU-": its clock is 1000 MHz plus its first byte, one less with every sample,
// and so on. LOCKSTEP_FAKE_NVML says how it misbehaves:
//   refuse    nvmlInit fails, as without rights to the device
//   hang      the first reading never returns, as with a GPU that fell off the bus
//   lose:N    after N readings every call fails (GPU is lost)
//   mute      utilisation and throttle reasons are not supported
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

constexpr int kOk = 0, kNotSupported = 3, kNoPermission = 4, kNotFound = 6, kLost = 15;

struct Device {
  unsigned first = 0;
  unsigned readings = 0;
};
std::mutex g_mutex;
std::map<std::string, Device> g_devices;

bool Mode(const char* mode) {
  const char* set = std::getenv("LOCKSTEP_FAKE_NVML");
  return set != nullptr && std::strncmp(set, mode, std::strlen(mode)) == 0;
}
bool Lost(const Device& device) {
  return Mode("lose:") && device.readings > static_cast<unsigned>(std::atoi(std::getenv("LOCKSTEP_FAKE_NVML") + 5));
}

}  // namespace

extern "C" {

std::atomic<int> fake_nvml_hanging{0};  // Calls that do not return.

int nvmlInit_v2() { return Mode("refuse") ? kNoPermission : kOk; }
const char* nvmlErrorString(int status) {
  return status == kNoPermission ? "Insufficient Permissions" : status == kLost ? "GPU is lost" : "Not Found";
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  unsigned first = 0;
  if (std::sscanf(uuid, "GPU-%2x", &first) != 1) return kNotFound;
  const std::lock_guard lock(g_mutex);
  Device& entry = g_devices[uuid];
  entry.first = first;
  *device = &entry;
  return kOk;
}

// The first of a sample's calls: counts it.
int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* mhz) {
  Device& device = *static_cast<Device*>(handle);
  fake_nvml_hanging += Mode("hang") ? 1 : 0;
  while (Mode("hang")) ::pause();
  if (type == 1) ++device.readings;
  if (Lost(device)) return kLost;
  *mhz = type == 1 ? 1000 + device.first - (device.readings - 1) : 2619;
  return kOk;
}

int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatt) {
  const Device& device = *static_cast<Device*>(handle);
  *milliwatt = 300'000 + device.first;
  return Lost(device) ? kLost : kOk;
}

int nvmlDeviceGetTemperature(void* handle, int sensor, unsigned* celsius) {
  *celsius = 40;
  return sensor != 0 ? kNotSupported : Lost(*static_cast<Device*>(handle)) ? kLost : kOk;
}

int nvmlDeviceGetUtilizationRates(void* handle, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = 97;
  gpu_and_memory[1] = 31;
  return Mode("mute") ? kNotSupported : Lost(*static_cast<Device*>(handle)) ? kLost : kOk;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  *reasons = 4;  // Software power cap.
  return Mode("mute") ? kNotSupported : Lost(*static_cast<Device*>(handle)) ? kLost : kOk;
}

}  // extern "C"
