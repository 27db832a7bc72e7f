// What cuInit does on a machine without a driver, or with one: loads the library that CUDA_INJECTION64_PATH
// names and calls it; nothing else of CUDA is here.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

int main() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  void* library = path != nullptr ? dlopen(path, RTLD_NOW) : nullptr;
  auto* enter = library != nullptr ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
  if (enter != nullptr && enter() == 0) std::puts("refused");
  std::puts("worked on");
  return 4;
}
