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
  // Handles also search a library's dependencies, and the program's own handle would find our function.
  if (found == ours) found = nullptr;
  // A function that is called must stay loaded, so the reference is kept then.
  if (found == nullptr) dlclose(handle);
  return found;
}

// Finds the n-th loaded object's path. Objects are examined one by one, outside of the loader's iteration, which holds
// a lock.
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

// Any object that defines it: an NCCL of another name, or one linked statically into a library that was loaded with
// RTLD_LOCAL but calls its own functions by their public names. That one must work, whatever is loaded before it.
void* InAnyObject(const char* name, const void* ours) {
  for (std::uint32_t i = 0; i < 8192; ++i) {
    Nth nth{i, 0, {}};
    if (dl_iterate_phdr(TakeNth, &nth) == 0) return nullptr;
    if (strchr(nth.path, '/') == nullptr) continue;  // The program itself, or the kernel's vDSO.
    if (void* found = InLibrary(nth.path, name, ours); found != nullptr) return found;
  }
  return nullptr;
}

struct Around {
  std::uintptr_t address;
  AddressSpan span;
};
int TakeAround(dl_phdr_info* info, std::size_t, void* data) {
  auto& around = *static_cast<Around*>(data);
  AddressSpan span{~std::uintptr_t{0}, 0};
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
    if (begin < span.begin) span.begin = begin;
    if (end > span.end) span.end = end;
    inside = inside || (around.address >= begin && around.address < end);
  }
  if (!inside) return 0;
  around.span = span;
  return 1;
}

}  // namespace

bool ObjectAround(const void* address, AddressSpan& span) {
  Around around{reinterpret_cast<std::uintptr_t>(address), {}};
  if (address == nullptr || dl_iterate_phdr(TakeAround, &around) == 0) return false;
  span = around.span;
  return true;
}

void* FindReal(const char* name, const void* ours, const void* caller) {
  const ErrnoKeeper errno_keeper;
  if (void* found = dlsym(RTLD_NEXT, name); found != nullptr && found != ours) return found;
  Dl_info object{};
  if (caller != nullptr && dladdr(caller, &object) != 0 && object.dli_fname != nullptr &&
      strchr(object.dli_fname, '/') != nullptr)
    if (void* found = InLibrary(object.dli_fname, name, ours); found != nullptr) return found;
  for (const char* library : kLibraries)
    if (void* found = InLibrary(library, name, ours); found != nullptr) return found;
  return InAnyObject(name, ours);
}

}  // namespace lockstep::nccl
