// A program on a machine without a driver: loads the injected library as libcuda would.

#include <dlfcn.h>
#include <errno.h>

#include <cstdio>
#include <cstdlib>

int main() {
  std::printf("before\n");
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  void* library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  auto* inject = library != nullptr ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
  errno = 77;
  if (inject != nullptr)
    for (int i = 0; i < 2; ++i)
      if (inject() != 1) return 9;
  std::printf("after %d\n", errno);
  return 3;
}
