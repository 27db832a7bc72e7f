#include "runtime/cupti/used_devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

namespace lockstep::cupti {

UsedDevices AskDriver() {
  UsedDevices devices{};
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return devices;
  // As in cuda.h of CUDA 11 to 13. The first version of cuDeviceGetUuid is used: the second one returns a MIG
  // instance's, for which NVML has no clocks.
  const auto count_of = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto state = reinterpret_cast<int (*)(int, unsigned*, int*)>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  auto uuid = reinterpret_cast<int (*)(std::uint8_t*, int)>(dlsym(driver, "cuDeviceGetUuid"));
  if (uuid == nullptr) uuid = reinterpret_cast<decltype(uuid)>(dlsym(driver, "cuDeviceGetUuid_v2"));
  int count = 0;
  if (count_of != nullptr && get != nullptr && state != nullptr && uuid != nullptr && count_of(&count) == 0) {
    for (int i = 0; i < count && devices.used < std::size(devices.uuid); ++i) {
      int device = 0, active = 0;
      unsigned flags = 0;
      if (get(&device, i) == 0 && state(device, &flags, &active) == 0 && active != 0 &&
          uuid(devices.uuid[devices.used], device) == 0)
        devices.used += 1;
    }
  }
  dlclose(driver);
  return devices;
}

}  // namespace lockstep::cupti
