// Communication through a torch.distributed backend that no source records (gloo, ucc): figures without it look correct
// and are wrong, so the verdict mentions it first.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "analysis/core/format.h"
#include "analysis/core/source.h"
#include "analysis/core/unrecorded.h"
#include "analysis/passes.h"
#include "core/loss.h"

namespace lockstep::analysis {
namespace {

void AddUnrecorded(Analysis& analysis, std::string detail) {
  const LossInfo& info = Info(Loss::kBackendNotCaptured);
  LossRow loss;
  loss.name = info.name;
  loss.count = 1;
  loss.data_loss = true;
  loss.sentence = info.sentence;
  loss.remedy = info.remedy;
  loss.detail = std::move(detail);
  analysis.losses.insert(analysis.losses.begin(), std::move(loss));
}

}  // namespace

void FindUnrecordedBackend(const Context& context, Analysis& analysis) {
  // Without hooks it is not known which backends were used.
  for (const LossRow& loss : analysis.losses) {
    const bool isolated = loss.name == Info(Loss::kPythonIsolated).name;
    if (!isolated && (loss.name != Info(Loss::kTorchHook).name || !loss.detail.starts_with("all: "))) continue;
    analysis.remarks.push_back(fmt::format(
        "PyTorch ran without Lockstep's hooks{}: its steps are not marked, and communication over gloo is not seen.",
        isolated ? " (Python was started with -I, -E or -S)" : ""));
    break;
  }
  const Unrecorded found = FindUnrecorded(context.timeline());
  if (const std::string& library = found.mpi_library; !library.empty()) {
    analysis.unrecorded =
        found.mpi_reason.empty()
            ? fmt::format(
                  "This program uses {}, whose calls Lockstep does not record: MPI waits and transfers are missing "
                  "below and are counted as compute. To record them, build the program with Open MPI or MPICH, and "
                  "Lockstep where its mpi.h is.",
                  library)
            : fmt::format("MPI waits and transfers are missing below and are counted as compute, because of {}: {}.",
                          library, found.mpi_reason);
  }
  for (const std::string& name : found.beside)
    analysis.remarks.push_back(
        fmt::format("Calls over {} take {} of the time at most; they count as communication that is neither waiting "
                    "nor transfer, because who waited for whom in them is not recorded.",
                    name, Percent(found.share)));
  if (found.backends.empty()) return;
  const std::string names = fmt::format("{}", fmt::join(found.backends, " and "));
  // The remedy depends on where the tensors are, and on what uses MPI already.
  const bool only_gloo = found.backends.size() == 1 && *found.backends.begin() == "gloo";
  const std::string remedy =
      !SourceOf(context.timeline()).imported.empty() && only_gloo
          ? "run the job with `lockstep run`, which sees on which group each operation is"
      : analysis.run.gpu_ranks > 0 ? "use the nccl backend"
      : !found.gradients && context.tables().collectives.rows() > 0
          ? "move what still uses it to the mpi backend (DDP sends a model's buffers so at each forward; "
            "broadcast_buffers=False leaves that out)"
          : "reduce over MPI in a DDP communication hook (examples/torch/ddp_train.py) or use the mpi backend; on GPUs "
            "the nccl backend";
  AddUnrecorded(analysis, fmt::format("{}: {}; {}", names, found.what, remedy));
  if (!analysis.unrecorded.empty()) return;  // The missing MPI was reported already.
  analysis.unrecorded = fmt::format(
      "Communication through {} is not recorded ({}): its waits and transfers are missing below{}. To record it, {}.",
      names, found.what,
      analysis.run.gpu_ranks > 0 ? ""
      : found.share > 0
          ? "; its calls count as communication that cannot be split, and what of it is in no call as compute"
          : " and are counted as compute",
      remedy);
}

}  // namespace lockstep::analysis
