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

// The n-th loaded object's path. They are looked into one by one, outside of the loader's walk: it holds a lock.
struct Nth {
  std::uint32_t wanted, at;
  char path[1024];
};
int TakeNth(dl_phdr_info* info, std::size_t, void* data) {
  auto& nth = *static_cast<Nth*>(data);
  if (nth.at++ != nth.wanted) return 0;
  const char* path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const std::size_t bytes = strnlen(path, sizeof nth.path);
  if (bytes < sizeof nth.path) memcpy(nth.path, path, bytes + 1);
  return 1;
}

// Whatever object has it: an NCCL of another name, or linked statically into a library that was loaded for its user
// alone but calls its own functions by their public names. That one must work, whoever stands before it.
void* InAnyObject(const char* name, const void* ours) {
  for (std::uint32_t i = 0; i < 8192; ++i) {
    Nth nth{i, 0, {}};
    if (dl_iterate_phdr(TakeNth, &nth) == 0) return nullptr;
    if (strchr(nth.path, '/') == nullptr) continue;  // The program itself, the kernel's.
    if (void* found = InLibrary(nth.path, name, ours); found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace

void* FindReal(const char* name, const void* ours) {
  const ErrnoKeeper errno_keeper;
  if (void* found = dlsym(RTLD_NEXT, name); found != nullptr && found != ours) return found;
  for (const char* library : kLibraries)
    if (void* found = InLibrary(library, name, ours); found != nullptr) return found;
  return InAnyObject(name, ours);
}

}  // namespace lockstep::nccl
