// liblockstep-cudart.so, preloaded with --range cuda only: cudaProfilerStart and Stop
// open and close the capture window, then do what they always do.
//
// Without a version script on purpose: references carry the runtime's own version
// (libcudart.so.13 of CUDA 13.0: cudaProfilerStart@@libcudart.so.13), and glibc binds
// them to an earlier library's symbol only if that one has no version (dl-lookup.c).
// A statically linked runtime calls its own copy: nothing here sees that.

#include <dlfcn.h>
#include <errno.h>

extern "C" __attribute__((visibility("default"))) void lockstep_cuda_profiler(int on);

namespace {

using Function = int (*)();
constexpr int kErrorUnknown = 999;  // cudaErrorUnknown

// The runtime may have been loaded by a library that dlopen'ed it for itself.
Function Find(const char* name) {
  if (void* next = dlsym(RTLD_NEXT, name)) return reinterpret_cast<Function>(next);
  constexpr const char* kNames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};
  for (const char* library : kNames) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* found = dlsym(handle, name);
    dlclose(handle);
    if (found != nullptr) return reinterpret_cast<Function>(found);
  }
  return nullptr;
}

int Call(Function function) { return function != nullptr ? function() : kErrorUnknown; }

}  // namespace

extern "C" __attribute__((visibility("default"))) int cudaProfilerStart() {
  const int saved = errno;
  const Function real = Find("cudaProfilerStart");
  errno = saved;
  const int result = Call(real);
  lockstep_cuda_profiler(1);
  return result;
}

extern "C" __attribute__((visibility("default"))) int cudaProfilerStop() {
  lockstep_cuda_profiler(0);
  const int saved = errno;
  const Function real = Find("cudaProfilerStop");
  errno = saved;
  return Call(real);
}
