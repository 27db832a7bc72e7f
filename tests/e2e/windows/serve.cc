// Threads that serve requests: e2e_window_serve MODE THREADS REQUESTS US
// MODE: step (lockstep_step), range (a lockstep.h range "request"), nvtx (the same by
// NVTX), bulk (steps of REQUESTS ranges each). Prints how many requests said that they
// were being recorded when they began.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX 1
#endif

#include "runtime/lockstep.h"

namespace {

std::atomic<long> g_recorded{0};

void Request(const std::string& mode, int us) {
  if (mode == "step") lockstep_step();
  if (mode == "range") lockstep_range_push("request");
#ifdef HAVE_NVTX
  if (mode == "nvtx") nvtxRangePushA("request");
#endif
  g_recorded += lockstep_recording();
  lockstep_range_push("work");
  usleep(static_cast<useconds_t>(us));
  lockstep_range_pop();
#ifdef HAVE_NVTX
  if (mode == "nvtx") nvtxRangePop();
#endif
  if (mode == "range") lockstep_range_pop();
  usleep(100);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string mode = argv[1];
  const int threads = std::atoi(argv[2]), requests = std::atoi(argv[3]), us = std::atoi(argv[4]);
  if (mode == "bulk") {
    for (int step = 0; step < threads; ++step) {
      lockstep_step();
      for (int i = 0; i < requests; ++i) {
        lockstep_range_push("work");
        lockstep_range_pop();
      }
      usleep(static_cast<useconds_t>(us));
    }
    lockstep_step_end();
    return 0;
  }
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&] {
      for (int i = 0; i < requests; ++i) Request(mode, us);
    });
  for (std::thread& each : all) each.join();
  std::printf("%ld\n", g_recorded.load());
  return 0;
}
