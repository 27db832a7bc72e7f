// As much of libcuda.so.1 as tells which devices a process uses: two are there, the first one has an active context.

#include <dlfcn.h>

#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

int cuDriverGetVersion(int* version) {
  *version = 13000;
  const auto record = reinterpret_cast<void (*)(std::uint32_t)>(dlsym(RTLD_DEFAULT, "fake_gpu_driver_call"));
  if (record != nullptr) record(2);  // CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = device == 0 ? 1 : 0;
  return 0;
}

int cuDeviceGetUuid(std::uint8_t* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<std::uint8_t>(0xa0 + 16 * device + i);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
