// The phase of each step by PhaseOf, for comparison with torch.profiler.schedule:
// lines "wait warmup active repeat skip_first steps" in, one digit per step out.
#include <cstdio>
#include <string>

#include "core/window.h"

int main() {
  lockstep::WindowSpec spec{};
  spec.kind = lockstep::WindowKind::kSchedule;
  long long wait, warmup, active, repeat, skip_first, steps;
  while (std::scanf("%lld %lld %lld %lld %lld %lld", &wait, &warmup, &active, &repeat, &skip_first, &steps) == 6) {
    spec.wait = wait, spec.warmup = warmup, spec.active = active, spec.repeat = repeat, spec.skip_first = skip_first;
    std::string line;
    for (long long i = 0; i < steps; ++i) line += static_cast<char>('0' + static_cast<int>(PhaseOf(spec, i, 0)));
    std::puts(line.c_str());
  }
}
