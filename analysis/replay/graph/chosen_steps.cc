#include "analysis/replay/graph/chosen_steps.h"

#include <algorithm>

namespace lockstep::replay {

std::vector<std::size_t> ChooseSteps(const schema::TlSteps& steps, const ReadRunOptions& options) {
  std::vector<std::size_t> order, best, run;
  for (std::size_t i = 0; i < steps.rows(); ++i)
    if (steps.complete[i] && !steps.warmup[i] && steps.step_ns[i] > 0 && steps.index[i] >= options.first_step &&
        steps.index[i] <= options.last_step)
      order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return steps.index[a] < steps.index[b]; });
  for (const std::size_t i : order) {
    if (!run.empty() && steps.index[i] != steps.index[run.back()] + 1) run.clear();
    run.push_back(i);
    if (run.size() >= best.size()) best = run;
  }
  if (best.size() > options.most_steps)
    best.erase(best.begin(), best.end() - static_cast<std::ptrdiff_t>(options.most_steps));
  return best;
}

}  // namespace lockstep::replay
