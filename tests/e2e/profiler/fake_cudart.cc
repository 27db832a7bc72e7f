// Preloaded into a real PyTorch on a machine without a GPU, beside the tests' libcupti: as much of cudart and of
// CUPTI's callback interface as Kineto asks for before it takes a GPU for real. What it then does with CUPTI's activity
// interface is its own code (seen with torch 2.11.0 of PyPI, which is linked to libcupti.so.13).

#include <cstdint>
#include <cstring>

#pragma GCC visibility push(default)
extern "C" {

int cudaGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}
int cudaDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cudaSetDevice(int) { return 0; }
int cudaGetLastError() { return 0; }
// cudaDeviceProp begins with the name, 256 bytes; what follows may be zero.
int cudaGetDeviceProperties(void* properties, int) {
  std::memset(properties, 0, 512);
  std::strcpy(static_cast<char*>(properties), "GPU of the tests");
  return 0;
}
int cudaGetDeviceProperties_v2(void* properties, int device) { return cudaGetDeviceProperties(properties, device); }

int cuptiSubscribe(void** subscriber, void*, void*) {
  static int one;
  *subscriber = &one;
  return 0;
}
int cuptiUnsubscribe(void*) { return 0; }
int cuptiEnableCallback(std::uint32_t, void*, int, std::uint32_t) { return 0; }
int cuptiEnableDomain(std::uint32_t, void*, int) { return 0; }
int cuptiActivityPushExternalCorrelationId(int, std::uint64_t) { return 0; }
int cuptiActivityPopExternalCorrelationId(int, std::uint64_t* id) {
  if (id != nullptr) *id = 0;
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
