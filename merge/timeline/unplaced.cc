#include "merge/timeline/unplaced.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::merge {

std::vector<std::int64_t> Unplaced(const std::vector<StepOnCpu>& steps, const CounterCurve& delay) {
  std::vector<std::int64_t> unplaced(steps.size(), 0);
  const auto usable = [&](std::size_t i) { return steps[i].cpu_ns >= 0 && delay.AtMost(i, i) >= 0; };
  for (std::size_t first = 0; first < steps.size();) {
    if (!usable(first)) {
      ++first;
      continue;
    }
    std::int64_t off_cpu = 0, sum = 0, off_thread = 0, workers = 0, others = 0;
    std::size_t end = first;
    do {
      const StepOnCpu& step = steps[end];
      const std::int64_t off = std::max<std::int64_t>(0, step.compute_ns - step.cpu_ns - step.workers_ns);
      unplaced[end] = std::max<std::int64_t>(0, off - std::max<std::int64_t>(0, delay.Within(end)));
      off_cpu += off, off_thread += step.compute_ns - step.cpu_ns;
      workers += step.workers_ns, others += step.others_ns;
      sum += unplaced[end];
    } while (++end < steps.size() && usable(end) && steps[end].window.begin == steps[end - 1].window.end);
    if (others > workers) off_cpu = std::min(off_cpu, off_thread - others);
    const std::int64_t certain = std::max<std::int64_t>(0, off_cpu - delay.AtMost(first, end - 1));
    for (; first < end; ++first)
      if (sum > certain)
        unplaced[first] = static_cast<std::int64_t>(static_cast<double>(unplaced[first]) *
                                                    static_cast<double>(certain) / static_cast<double>(sum));
  }
  return unplaced;
}

}  // namespace lockstep::merge
