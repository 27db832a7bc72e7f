// Uses NVTX in the executable, in a library it is linked with and in one that it
// loads, and says how many of what it made: one "count NAME N" line each.
//
//   e2e_nvtx LIBRARY_TO_LOAD N [kill|_exit]

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"
#ifdef LOCKSTEP_REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#else
#include "tests/fakes/nvtx_host.h"
#endif

extern "C" void linked_work(int n);

namespace {

__attribute__((constructor)) void Early() {
  nvtxRangePushA("constructor");
  nvtxRangePop();
}
void AtExit() {
  nvtxRangePushA("at exit");
  nvtxRangePop();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int n = std::atoi(argv[2]);
  const char* ending = argc > 3 ? argv[3] : "";
  std::atexit(AtExit);
  nvtxNameCategoryA(4, "forward");
  nvtxNameCategoryA(5, "something else");
  for (int i = 0; i < n; ++i) {
    lockstep_step();
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = i % 2 == 0 ? 4u : 5u;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "categorised";
    event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    event.payload.dValue = 0.5;
    nvtxRangePushEx(&event);
    nvtxRangePop();
  }
  std::vector<nvtxRangeId_t> across;
  for (int i = 0; i < n; ++i) across.push_back(nvtxRangeStartA("across threads"));
  std::thread([&across] {
    for (const nvtxRangeId_t id : across) nvtxRangeEnd(id);
  }).join();
  linked_work(n);
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  void (*work)(int) = nullptr;
  *reinterpret_cast<void**>(&work) = dlsym(library, "loaded_work");
  work(n);
  const pid_t child = fork();
  if (child == 0) {
    nvtxRangePushA("child");
    nvtxRangePop();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  std::printf("done %d\n", n);
  std::fflush(stdout);
  if (std::strcmp(ending, "kill") == 0) {
    nvtxRangePushA("open");
    nvtxRangeStartA("open start/end");
    std::raise(SIGKILL);
  }
  if (std::strcmp(ending, "_exit") == 0) _exit(0);
  return 0;
}
