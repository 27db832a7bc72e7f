#include "comms/nccl/real.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "comms/nccl/state.h"

namespace lockstep::nccl {
namespace {

// RCCL has the same interface.
constexpr const char* kLibraries[] = {"libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so"};

void* InLibrary(const char* library, const char* name, const void* ours) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* found = dlsym(handle, name);
  // Handles search what a library needs as well, and the program's own handle would find us.
  if (found == ours) found = nullptr;
  // A function that is called must stay: the reference is kept then.
  if (found == nullptr) dlclose(handle);
  return found;
}

struct Unusual {
  char path[512];
};

// A library with "nccl" in its name under another soname.
int FindUnusual(dl_phdr_info* info, std::size_t, void* data) {
  const char* slash = info->dlpi_name == nullptr ? nullptr : strrchr(info->dlpi_name, '/');
  if (slash == nullptr || strstr(slash, "ccl") == nullptr || strstr(slash, "profiler") != nullptr ||
      strstr(slash, "-net") != nullptr || strlen(info->dlpi_name) >= sizeof(Unusual::path))
    return 0;
  strcpy(static_cast<Unusual*>(data)->path, info->dlpi_name);
  return 1;
}

}  // namespace

void* FindReal(const char* name, const void* ours) {
  const ErrnoKeeper errno_keeper;
  if (void* found = dlsym(RTLD_NEXT, name); found != nullptr && found != ours) return found;
  for (const char* library : kLibraries)
    if (void* found = InLibrary(library, name, ours); found != nullptr) return found;
  Unusual unusual{};
  if (dl_iterate_phdr(FindUnusual, &unusual) != 0) return InLibrary(unusual.path, name, ours);
  return nullptr;
}

}  // namespace lockstep::nccl
