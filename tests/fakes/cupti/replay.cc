// lockstep run -- gpu_replay FILE...: recorded CUPTI buffers as a process of a run.

#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  const auto replay = reinterpret_cast<long long (*)(const char*)>(dlsym(RTLD_DEFAULT, "lockstep_gpu_replay"));
  if (argc < 2 || replay == nullptr) {
    std::fprintf(
        stderr, argc < 2
                    ? "usage: lockstep run -- gpu_replay FILE...\n"
                    : "gpu_replay: liblockstep-gpu.so is not in the process; start with: lockstep run -- gpu_replay\n");
    return 2;
  }
  int result = 0;
  for (int i = 1; i < argc; ++i) {
    const long long records = replay(argv[i]);
    if (records < 0) result = 1;
    std::printf("%s: %lld records\n", argv[i], records);
  }
  return result;
}
