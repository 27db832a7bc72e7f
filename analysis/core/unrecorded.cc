#include "analysis/core/unrecorded.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "analysis/rules/run.h"
#include "core/fact.h"
#include "core/loss.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// Values of all facts of a name.
template <typename F>
void ForEachFact(const merge::Timeline& timeline, std::string_view name, F&& f) {
  const std::string key = "fact." + std::string(name);
  const auto& meta = timeline.tables.meta;
  for (std::size_t i = 0; i < meta.rows(); ++i) {
    const std::string_view own = timeline.Text(meta.key[i]);
    if (own == key || (own.starts_with(key) && own[key.size()] == '.')) f(timeline.Text(meta.value[i]));
  }
}

std::int64_t NumberOf(std::string_view fact, std::string_view key) {
  const std::string_view text = FactValue(fact, key);
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The use of a backend, as PyTorch's hooks counted it.
struct GroupUse {
  bool counted = false;  // All of its groups were counted.
  std::int64_t steps = 0, used = 0, operations = 0, covered = 0;

  bool OnlySetsUp() const { return counted && steps > 0 && used <= rules::kBackendSetUpSteps && !MostOf(used, steps); }
  // Each operation was awaited within a call that is recorded as a range.
  bool AllInRanges() const { return counted && steps > 0 && covered >= operations; }
};

GroupUse UseOf(const merge::Timeline& timeline, std::string_view backend) {
  GroupUse use;
  ForEachFact(timeline, "torch_group_use", [&](std::string_view fact) {
    if (FactValue(fact, "backend") != backend || NumberOf(fact, "steps") < use.steps) return;
    use = {.counted = FactValue(fact, "uncounted") == "0",
           .steps = NumberOf(fact, "steps"),
           .used = NumberOf(fact, "used"),
           .operations = NumberOf(fact, "operations"),
           .covered = NumberOf(fact, "covered")};
  });
  return use;
}

double ShareOfCalls(const schema::TimelineTables& tables) {
  const auto& phases = tables.step_phases;
  const auto& totals = tables.rank_totals;
  double largest = 0;
  for (std::size_t i = 0; i < phases.rows(); ++i) {
    if (phases.index[i] != -1 || phases.phase[i] != schema::Phase::kTorchUnrecorded) continue;
    for (std::size_t t = 0; t < totals.rows(); ++t)
      if (totals.rank[t] == phases.rank[i] && totals.end_ns[t] > totals.begin_ns[t])
        largest = std::max(largest, static_cast<double>(phases.phase_ns[i]) /
                                        static_cast<double>(totals.end_ns[t] - totals.begin_ns[t]));
  }
  return largest;
}

bool AnyGpu(const schema::TimelineTables& tables) {
  return std::any_of(tables.ranks.gpu.begin(), tables.ranks.gpu.end(), [](std::uint8_t gpu) { return gpu != 0; });
}

}  // namespace

Unrecorded FindUnrecorded(const merge::Timeline& timeline) {
  const schema::TimelineTables& tables = timeline.tables;
  Unrecorded found;
  ForEachFact(timeline, "mpi_unrecorded", [&](std::string_view fact) {
    if (!found.mpi_library.empty()) return;
    found.mpi_library = FactValue(fact, "library");
    found.mpi_reason = FactValue(fact, "why");
  });
  for (std::size_t i = 0; i < tables.losses.rows(); ++i)
    if (timeline.Text(tables.losses.name[i]) == Info(Loss::kGpuNotCaptured).name && tables.losses.count[i] > 0)
      found.without_gpus.insert(tables.losses.rank[i]);
  const auto there = static_cast<std::size_t>(std::ranges::count_if(tables.ranks.state, merge::IsPresent));
  found.gpus = there > 0 && found.without_gpus.size() >= there;
  found.share = ShareOfCalls(tables);
  bool named = false;
  std::set<std::string> in_ranges;
  ForEachFact(timeline, "torch_ranges", [&](std::string_view fact) { in_ranges.emplace(FactValue(fact, "backend")); });
  ForEachFact(timeline, "torch_backend", [&](std::string_view fact) {
    named = true;
    const std::string name(FactValue(fact, "name"));
    const bool recorded = FactValue(fact, "recorded") != "0" && !in_ranges.contains(name);
    if (recorded || FactValue(fact, "size") == "1") return;
    const GroupUse use = UseOf(timeline, name);
    if (use.OnlySetsUp()) return;
    if (use.AllInRanges() && found.share < rules::kWorthShare) {
      found.beside.push_back(name);
      return;
    }
    found.backends.insert(name);
    if (use.counted && use.steps > 0)
      found.what =
          Clauses{{Say(Word::kBackendOperations,
                       {{"operations", Num{use.operations}}, {"used", Index{use.used}}, {"steps", Num{use.steps}}})}};
  });
  ForEachFact(timeline, "torch_unrecorded", [&](std::string_view fact) {
    const std::string_view what = FactValue(fact, "what");
    found.what = If(!what.empty(), std::string(what));
    found.gradients = true;
    found.backends.emplace(FactValue(fact, "backend"));
  });
  // In a trace that names no backend, the calls show that there was one; those of GPU ranks enqueue kernels.
  if (!named && found.backends.empty() && found.share > 0 && !AnyGpu(tables))
    found.backends.insert("torch.distributed");
  if (found.backends.empty() || found.what != Value()) return found;
  const auto& comm = tables.rank_totals.comm_high_ns;
  found.in_ranges = std::ranges::includes(in_ranges, found.backends);
  const bool else_recorded = tables.collectives.rows() > 0 || tables.p2p_pairs.rows() > 0;
  const bool alone = !else_recorded && std::none_of(comm.begin(), comm.end(), [](std::int64_t ns) { return ns > 0; });
  found.what = Clauses{{Say(found.in_ranges                     ? Word::kBackendInFlight
                            : found.share >= rules::kWorthShare ? Word::kBackendCalls
                            : alone                             ? Word::kBackendAlone
                                                                : Word::kBackendUnknown,
                            {{"share", Real{100 * found.share}}})}};
  return found;
}

}  // namespace lockstep::analysis
