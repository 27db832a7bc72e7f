#include "runtime/cupti/callbacks.h"

#include <string.h>

#include <initializer_list>

namespace lockstep::cupti {
namespace {

bool Has(const char* name, const char* part) { return strstr(name, part) != nullptr; }

bool Filter(const Api& api, int domain, int (*enable)(std::uint32_t, std::uint8_t), bool on) {
  std::uint32_t done = 0;
  for (std::uint32_t id = 1; id < kMostCallbacks; ++id) {
    const char* name = nullptr;
    if (api.get_callback_name(domain, id, &name) != kSuccess || name == nullptr) break;  // Numbers have no gaps.
    if (KindOfFunction(name) == 0) continue;
    if (enable(id, on ? 1 : 0) == kSuccess)
      done += 1;
    else if (done == 0)
      return false;
  }
  return done != 0;
}

}  // namespace

std::uint8_t KindOfFunction(const char* name) {
  if (Has(name, "GraphLaunch")) return 4;
  // Functions that build graphs run nothing.
  if (strncmp(name, "cudaGraph", 9) == 0 || strncmp(name, "cuGraph", 7) == 0) return 0;
  if (Has(name, "Launch") && !Has(name, "HostFunc")) return 1;
  if (Has(name, "Synchronize")) return 3;
  if (Has(name, "EventRecord") || Has(name, "WaitEvent")) return 6;
  if (Has(name, "Memcpy") || Has(name, "Memset") || Has(name, "Prefetch")) return 2;
  for (const char* part : {"cudaMalloc", "cudaFree", "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemCreate",
                           "cuMemRelease", "cu64MemAlloc", "cu64MemFree"})
    if (strncmp(name, part, strlen(part)) == 0) return 5;
  return 0;
}

bool PlainName(const char* name, char* plain, std::uint32_t plain_bytes) {
  std::size_t bytes = strlen(name);
  std::size_t digits = bytes;
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  if (digits < bytes && digits > 2 && name[digits - 1] == 'v' && name[digits - 2] == '_') bytes = digits - 2;
  if (bytes + 1 > plain_bytes) return false;
  memcpy(plain, name, bytes);
  plain[bytes] = 0;
  return true;
}

bool FilterFunctions(const Api& api, bool on) {
  if (api.enable_runtime_api == nullptr || api.enable_driver_api == nullptr || api.get_callback_name == nullptr)
    return false;
  const bool runtime = Filter(api, kDomainRuntime, api.enable_runtime_api, on);
  return Filter(api, kDomainDriver, api.enable_driver_api, on) && runtime;
}

}  // namespace lockstep::cupti
