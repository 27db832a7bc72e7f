// CUDA was used and nothing recorded what the GPU did: figures of the host alone look fine and mean
// nothing, so the verdict says it first, with the reason and what to do.

#include <fmt/format.h>

#include "analysis/passes.h"
#include "core/loss.h"

namespace lockstep::analysis {

void FindUnrecordedGpus(const Context&, Analysis& analysis) {
  if (!analysis.unrecorded.empty()) return;
  for (const LossRow& loss : analysis.losses) {
    if (loss.name != Info(Loss::kGpuNotCaptured).name || loss.count == 0) continue;
    analysis.unrecorded = fmt::format(
        "GPU activity was not recorded{}{}: kernels and communication on GPUs are missing below, and the time in which "
        "they ran counts as the host's.",
        analysis.run.gpu_ranks > 0 ? " on some ranks" : "", loss.detail.empty() ? "" : " (" + loss.detail + ")");
    return;
  }
}

}  // namespace lockstep::analysis
