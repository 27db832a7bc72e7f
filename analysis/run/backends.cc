// Communication through a torch.distributed backend that no source records (gloo,
// ucc): figures without it look fine and mean nothing, so the verdict says it first.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "analysis/core/format.h"
#include "analysis/passes.h"
#include "core/fact.h"
#include "core/loss.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint8_t kUnrecordedCalls = schema::Phase::kTorchUnrecorded;

// Values of all facts of a name.
template <typename F>
void ForEachFact(const Context& context, std::string_view name, F&& f) {
  const std::string key = "fact." + std::string(name);
  const auto& meta = context.tables().meta;
  for (std::size_t i = 0; i < meta.rows(); ++i) {
    const std::string_view own = context.timeline().Text(meta.key[i]);
    if (own == key || (own.starts_with(key) && own[key.size()] == '.')) f(context.timeline().Text(meta.value[i]));
  }
}

bool RecordedAny(const Context& context) {
  if (context.tables().collectives.rows() > 0) return true;
  const auto& totals = context.tables().rank_totals;
  return std::any_of(totals.comm_high_ns.begin(), totals.comm_high_ns.end(), [](std::int64_t ns) { return ns > 0; });
}

// Largest share over ranks of the window in calls of such a backend.
double ShareOfCalls(const Context& context) {
  const auto& phases = context.tables().step_phases;
  const auto& totals = context.tables().rank_totals;
  double largest = 0;
  for (std::size_t i = 0; i < phases.rows(); ++i) {
    if (phases.index[i] != -1 || phases.phase[i] != kUnrecordedCalls) continue;
    for (std::size_t t = 0; t < totals.rows(); ++t)
      if (totals.rank[t] == phases.rank[i] && totals.end_ns[t] > totals.begin_ns[t])
        largest = std::max(largest, static_cast<double>(phases.phase_ns[i]) /
                                        static_cast<double>(totals.end_ns[t] - totals.begin_ns[t]));
  }
  return largest;
}

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
  // Without hooks nobody knows which backends there were.
  for (const LossRow& loss : analysis.losses) {
    const bool isolated = loss.name == Info(Loss::kPythonIsolated).name;
    if (!isolated && (loss.name != Info(Loss::kTorchHook).name || !loss.detail.starts_with("all: "))) continue;
    analysis.remarks.push_back(fmt::format(
        "PyTorch ran without Lockstep's hooks{}: its steps are not marked, and communication over gloo is not seen.",
        isolated ? " (Python was started with -I, -E or -S)" : ""));
    break;
  }
  ForEachFact(context, "mpi_unrecorded", [&](std::string_view fact) {
    if (!analysis.unrecorded.empty()) return;
    const std::string library(FactValue(fact, "library"));
    analysis.unrecorded = fmt::format(
        "This program uses {}, whose calls Lockstep does not record: MPI waits and transfers are missing below and are "
        "counted as compute. To record them, build the program with Open MPI 4.",
        library.find("mpich") != std::string::npos || library.ends_with(".so.12") ? "MPICH (" + library + ")"
                                                                                  : library);
    AddUnrecorded(analysis, library + ": MPI of another library than Open MPI 4; build the program with that");
  });
  std::set<std::string> backends;
  ForEachFact(context, "torch_backend", [&](std::string_view fact) {
    if (FactValue(fact, "recorded") == "0" && FactValue(fact, "size") != "1") backends.emplace(FactValue(fact, "name"));
  });
  std::string what;
  std::set<std::string> used;
  ForEachFact(context, "torch_unrecorded", [&](std::string_view fact) {
    what = FactValue(fact, "what");
    used.emplace(FactValue(fact, "backend"));
  });
  if (used.empty()) used = backends;
  if (used.empty()) return;
  const double share = ShareOfCalls(context);
  if (what.empty() && share >= kWorthShare)
    what = fmt::format("calls of torch.distributed take {:.0f} % of the time", 100 * share);
  if (what.empty() && !RecordedAny(context)) what = "it is the only communication that this job initialised";
  if (what.empty()) return;

  const std::string names = fmt::format("{}", fmt::join(used, " and "));
  // What helps depends on where the tensors are.
  const std::string remedy =
      analysis.run.gpu_ranks > 0
          ? "use the nccl backend"
          : "reduce over MPI in a DDP communication hook (examples/torch/ddp_train.py) or use the mpi backend; on GPUs "
            "the nccl backend";
  if (!analysis.unrecorded.empty()) return;  // MPI was said to be missing already.
  analysis.unrecorded = fmt::format(
      "Communication through {} is not recorded ({}): its waits and transfers are missing below{}. To record it, {}.",
      names, what, analysis.run.gpu_ranks > 0 ? "" : " and are counted as compute", remedy);
  AddUnrecorded(analysis, fmt::format("{}: {}; {}", names, what, remedy));
}

}  // namespace lockstep::analysis
