// Steps 5 to 9 between cudaProfilerStart and Stop, of the real runtime; no GPU needed.
#include <cstdio>

#include "runtime/lockstep.h"

extern "C" int cudaProfilerStart();
extern "C" int cudaProfilerStop();

int main() {
  int results[2] = {-1, -1};
  for (int i = 0; i < 20; ++i) {
    if (i == 5) results[0] = cudaProfilerStart();
    lockstep_step();
    if (i == 10) results[1] = cudaProfilerStop();
    lockstep_range_push("work");
    lockstep_range_pop();
  }
  std::printf("%d %d\n", results[0], results[1]);
}
