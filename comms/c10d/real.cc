#include "comms/c10d/real.h"

#include <dlfcn.h>

namespace lockstep::c10d {

namespace {

// As the library in which `address` lies sees it; null: not at all.
void* SeenFrom(const void* address, const char* symbol) {
  Dl_info info;
  if (dladdr(address, &info) == 0) return nullptr;
  void* library = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return nullptr;
  void* found = dlsym(library, symbol);
  dlclose(library);
  return found;
}

void* Keep(std::atomic<void*>& real, void* found) {
  if (found == nullptr) __builtin_trap();
  real.store(found, std::memory_order_release);
  return found;
}

}  // namespace

void* Real(std::atomic<void*>& real, const char* symbol, const void* caller) {
  if (void* found = real.load(std::memory_order_acquire); found != nullptr) return found;
  return Keep(real, SeenFrom(caller, symbol));
}

void* RealOf(std::atomic<void*>& real, const char* symbol, const void* object, const void* caller) {
  if (void* found = real.load(std::memory_order_acquire); found != nullptr) return found;
  // A program that is linked with libtorch has all of it in the scope of all.
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) found = SeenFrom(*static_cast<const void* const*>(object), symbol);
  if (found == nullptr) found = SeenFrom(caller, symbol);
  return Keep(real, found);
}

}  // namespace lockstep::c10d
