#include "analysis/tune/facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "analysis/rules/diff.h"
#include "core/collective.h"
#include "core/fact.h"
#include "core/rank_list.h"
#include "core/schema_enums.h"

namespace lockstep::tune {
namespace {

using analysis::Context;

// All values of a fact, in the order in which they were noted.
std::vector<std::string_view> FactsNamed(const Context& context, const std::string& name) {
  std::vector<std::string_view> found;
  const std::string key = "fact." + name;
  for (std::size_t i = 1;; ++i) {
    const std::string_view value = context.timeline().Meta(i == 1 ? key : key + "." + std::to_string(i));
    if (value.empty()) return found;
    found.push_back(value);
  }
}

double NumberOf(std::string_view fact, std::string_view key, double otherwise) {
  const std::string text(FactValue(fact, key));
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? otherwise : value;
}

bool FlagOf(std::string_view fact, std::string_view key) { return NumberOf(fact, key, 0) != 0; }

const char* NameOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    default:
      return nullptr;
  }
}

void AddPlaces(const Context& context, Facts& facts) {
  const auto& ranks = context.tables().ranks;
  std::map<std::uint32_t, std::set<std::int32_t>> cpus;
  std::map<std::uint32_t, std::set<std::string_view>> lists;
  std::map<std::uint32_t, std::int64_t> counts;
  for (std::size_t i = 0; i < ranks.rows(); ++i) {
    const std::uint32_t node = ranks.node[i];
    facts.ranks_per_node = std::max(facts.ranks_per_node, ++counts[node]);
    const std::string_view list = context.timeline().Text(ranks.allowed_cpus[i]);
    lists[node].insert(list);
    // Processors are written as ranks are.
    if (const auto spans = ParseRankSpans(list))
      for (const auto& [first, end] : *spans)
        for (std::int32_t cpu = first; cpu < end; ++cpu) cpus[node].insert(cpu);
  }
  facts.nodes = static_cast<std::int64_t>(counts.size());
  for (const auto& [node, of_node] : cpus)
    facts.cores_per_node = std::max(facts.cores_per_node, static_cast<std::int64_t>(of_node.size()));
  for (const auto& [node, of_node] : lists) facts.bindings_differ = facts.bindings_differ || of_node.size() > 1;
}

void AddTorch(const Context& context, Facts& facts) {
  for (const std::string_view fact : FactsNamed(context, "trial_torch")) {
    facts.torch = true;
    facts.threads = std::llround(NumberOf(fact, "threads", 0));
    facts.cuda = FlagOf(fact, "cuda");
    facts.fully_shard = FlagOf(fact, "fully_shard");
    break;
  }
  for (const std::string_view fact : FactsNamed(context, "trial_ddp")) {
    facts.ddp = Facts::Ddp{.bucket_cap_mb = NumberOf(fact, "bucket_cap_mb", rules::kTuneDdpCapMb),
                           .default_cap = FlagOf(fact, "default_cap"),
                           .bytes = static_cast<std::uint64_t>(std::max(NumberOf(fact, "bytes", 0), 0.0)),
                           .bucket_view = FlagOf(fact, "gradient_as_bucket_view"),
                           .static_graph = FlagOf(fact, "static_graph"),
                           .find_unused = FlagOf(fact, "find_unused_parameters")};
    break;
  }
  for (const std::string_view fact : FactsNamed(context, "trial_loader")) {
    facts.loader = Facts::Loader{.workers = std::llround(NumberOf(fact, "num_workers", 0)),
                                 .pin_memory = FlagOf(fact, "pin_memory"),
                                 .iterable = FlagOf(fact, "iterable")};
    break;
  }
}

}  // namespace

Facts FactsOf(const Context& context) {
  Facts facts;
  facts.ranks = static_cast<std::int64_t>(context.ranks().size());
  AddPlaces(context, facts);
  AddTorch(context, facts);
  const auto& steps = context.tables().steps;
  std::set<std::int64_t> usable;
  for (const std::size_t row : context.usable_steps()) usable.insert(steps.index[row]);
  facts.step_ns = LengthOf(context, INT64_MAX).mean_ns;
  if (usable.empty()) return facts;
  const auto count = static_cast<double>(usable.size());
  const auto& collectives = context.tables().collectives;
  for (std::size_t i = 0; i < collectives.rows(); ++i) {
    const auto mode = static_cast<CollectiveMode>(collectives.mode[i]);
    if (mode == CollectiveMode::kGpu) facts.nccl = true;
    const char* name = NameOf(static_cast<CollectiveKind>(collectives.kind[i]));
    if (name == nullptr || mode != CollectiveMode::kBlocking || collectives.transfer_ns[i] < 0 ||
        !usable.contains(collectives.step[i]))
      continue;
    facts.blocking_ns[name] += static_cast<double>(collectives.transfer_ns[i]) / count;
  }
  const auto& phases = context.tables().step_phases;
  for (std::size_t i = 0; i < phases.rows(); ++i)
    if (phases.phase[i] == static_cast<std::uint8_t>(schema::Phase::kInput) && usable.contains(phases.index[i]))
      facts.input_ns += static_cast<double>(phases.phase_ns[i]) / count / static_cast<double>(facts.ranks);
  return facts;
}

StepLength LengthOf(const Context& context, std::int64_t end_index) {
  const auto& steps = context.tables().steps;
  StepLength length;
  for (std::size_t row = 0; row < steps.rows(); ++row)
    length.complete += steps.complete[row] != 0 && steps.index[row] < end_index;
  for (const std::size_t row : context.usable_steps()) {
    if (steps.index[row] >= end_index) continue;
    length.usable += 1;
    length.mean_ns += static_cast<double>(steps.step_ns[row]);
  }
  if (length.usable > 0) length.mean_ns /= static_cast<double>(length.usable);
  return length;
}

Seen SeenIn(const Context& context) {
  Seen seen;
  for (const std::string_view fact : FactsNamed(context, "trial_loss"))
    if (const std::string_view value = FactValue(fact, "value"); !value.empty())
      seen.losses.push_back(std::strtod(std::string(value).c_str(), nullptr));
  for (const std::string_view fact : FactsNamed(context, "trial_set"))
    seen.set.emplace_back(FactValue(fact, "setting"));
  for (const std::string_view fact : FactsNamed(context, "trial_not_set"))
    seen.not_set.emplace_back(FactValue(fact, "setting"), FactValue(fact, "why"));
  for (const std::string_view fact : FactsNamed(context, "trial_torch")) {
    seen.threads = FactValue(fact, "threads");
    break;
  }
  const auto& ranks = context.tables().ranks;
  for (std::size_t i = 0; i < ranks.rows(); ++i)
    seen.cpus.emplace_back(ranks.rank[i], context.timeline().Text(ranks.allowed_cpus[i]));
  std::sort(seen.cpus.begin(), seen.cpus.end());
  return seen;
}

}  // namespace lockstep::tune
