// Communication through a torch.distributed backend that no source records (gloo, ucc): figures without it look correct
// and are wrong, so the verdict mentions it first.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "analysis/core/source.h"
#include "analysis/core/unrecorded.h"
#include "analysis/passes.h"
#include "analysis/words/render.h"
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
    if (!isolated && loss.name != Info(Loss::kTorchUnhooked).name) continue;
    analysis.remarks.push_back(Told(Word::kTorchUnhooked, {{"isolated", isolated}}));
    break;
  }
  const Unrecorded found = FindUnrecorded(context.timeline());
  if (!found.mpi_library.empty())
    analysis.unrecorded = Told(found.mpi_reason.empty() ? Word::kMpiUnrecorded : Word::kMpiUnrecordedBecause,
                               {{"library", found.mpi_library}, {"reason", found.mpi_reason}});
  for (const std::string& name : found.beside)
    analysis.remarks.push_back(Told(Word::kBackendBeside, {{"backend", name}, {"share", Share{found.share}}}));
  if (found.backends.empty()) return;
  const std::string names = fmt::format("{}", fmt::join(found.backends, " and "));
  // The remedy depends on where the tensors are, and on what uses MPI already.
  const std::set<std::string> seen_by_run{"gloo", "mpi"};
  const bool run_sees = std::ranges::includes(seen_by_run, found.backends);
  const bool gpus = analysis.run.gpu_ranks > 0, imported = !SourceOf(context.timeline()).imported.empty();
  const Clause remedy = Say(imported && run_sees                                          ? Word::kBackendRunRemedy
                            : gpus                                                        ? Word::kBackendNcclRemedy
                            : !found.gradients && context.tables().collectives.rows() > 0 ? Word::kBackendMoveRemedy
                                                                                          : Word::kBackendHookRemedy);
  const Clause unrecorded = Say(found.in_ranges ? Word::kBackendUnsplit : Word::kBackendUnrecorded,
                                {{"backends", names},
                                 {"what", found.what},
                                 {"in_calls", !gpus && found.share > 0},
                                 {"as_compute", !gpus && found.share <= 0},
                                 {"remedy", Clauses{{remedy}}}});
  AddUnrecorded(analysis, Rendered({Word::kBackendDetail, unrecorded.facts}));
  if (analysis.unrecorded.empty()) analysis.unrecorded = Rendered(unrecorded);  // Unless MPI is missing as well.
}

}  // namespace lockstep::analysis
