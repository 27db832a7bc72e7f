// CUDA was used, but nothing recorded what the GPU did: figures of the host alone look correct and are wrong, so the
// verdict mentions it first, with the reason and the remedy.

#include "analysis/core/unrecorded.h"
#include "analysis/passes.h"
#include "analysis/words/render.h"
#include "core/loss.h"

namespace lockstep::analysis {

namespace {

// Findings about ranks that wait for each other hold whatever their GPUs do. Others are priced by the time in which a
// GPU is idle or a host busy, and which of the two it was is not known.
bool HoldsWithoutGpus(FindingId id) {
  switch (id) {
    case FindingId::kStragglerArrival:
    case FindingId::kWaitTurns:
    case FindingId::kP2pLateSender:
    case FindingId::kP2pLateReceiver:
    case FindingId::kStarved:
      return true;
    default:
      return false;
  }
}

}  // namespace

void FindUnrecordedGpus(const Context& context, Analysis& analysis) {
  const bool all = FindUnrecorded(context.timeline()).gpus;
  if (all) std::erase_if(analysis.findings, [](const Finding& finding) { return !HoldsWithoutGpus(finding.id); });
  if (!analysis.unrecorded.empty()) return;
  for (const LossRow& loss : analysis.losses) {
    if (loss.name != Info(Loss::kGpuNotCaptured).name || loss.count == 0) continue;
    analysis.unrecorded = Told(Word::kGpusUnrecorded, {{"some", !all}, {"detail", loss.detail}});
    return;
  }
}

}  // namespace lockstep::analysis
