#include "analysis/stragglers/stack_evidence.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <utility>

#include "analysis/rules/run.h"
#include "analysis/rules/stragglers.h"
#include "core/rules/common.h"
#include "merge/timeline/charged.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
namespace {

using Node = std::size_t;

// The same function as called in the other rank; null: it was not seen there.
const StackNode* Counterpart(const SampledStacks& of, Node node, const SampledStacks& in) {
  std::vector<Node> path;
  for (; node != 0; node = of.nodes[node].parent) path.push_back(node);
  Node at = 0;
  for (; !path.empty(); path.pop_back()) {
    const StackNode& frame = of.nodes[path.back()];
    const auto callee = in.nodes[at].callees.find({frame.file, frame.function});
    if (callee == in.nodes[at].callees.end()) return nullptr;
    at = callee->second;
  }
  return &in.nodes[at];
}

class Compared {
 public:
  Compared(const SampledStacks& late, const SampledStacks& healthy) : late_(late), healthy_(healthy) {
    for (Node node = 0; node < late.nodes.size(); ++node) more_.push_back(MoreIn(node));
  }
  // The share of its time that it is longer in this function than the healthy rank is.
  double More(Node node) const { return more_[node]; }
  bool Sure(Node node) const {
    const auto spread = [](std::int64_t in, std::int64_t of) {
      const double p = (static_cast<double>(in) + 1) / (static_cast<double>(of) + 2);
      return p * (1 - p) / static_cast<double>(of);
    };
    return std::cmp_greater_equal(late_.nodes[node].samples, rules::kFewest) &&
           More(node) >= rules::kDeviates * std::sqrt(spread(late_.nodes[node].samples, late_.samples()) +
                                                      spread(Healthy(node), healthy_.samples()));
  }
  std::int64_t Healthy(Node node) const {
    const StackNode* there = Counterpart(late_, node, healthy_);
    return there == nullptr ? 0 : there->samples;
  }

 private:
  double MoreIn(Node node) const {
    return static_cast<double>(late_.nodes[node].samples) / static_cast<double>(late_.samples()) -
           static_cast<double>(Healthy(node)) / static_cast<double>(healthy_.samples());
  }
  const SampledStacks& late_;
  const SampledStacks& healthy_;
  std::vector<double> more_;
};

// From `node` on down to the last function that surely has half of `whole` (with 95 % probability): of few samples of
// several that take alike one may have most by chance. `samples`: of `whole`.
template <typename Weight>
Node Deepest(const SampledStacks& stacks, Node node, double whole, std::int64_t samples, Weight&& weight) {
  const auto least = [&](Node callee) {
    const double p = std::clamp(weight(callee) / whole, 0.0, 1.0);
    return p - rules::kNormal95Below * std::sqrt(p * (1 - p) / static_cast<double>(std::max<std::int64_t>(1, samples)));
  };
  for (;;) {
    Node best = 0;
    for (const auto& [name, callee] : stacks.nodes[node].callees)
      if (best == 0 || weight(callee) > weight(best)) best = callee;
    if (best == 0 || least(best) < rules::kHalf) return node;
    node = best;
  }
}

// What a user knows of it: the innermost function of the program with a line in a source file, else the innermost one
// of the program, else of a library with a line.
Node ShownFor(const SampledStacks& stacks, Node node) {
  Node own = 0, in_source = 0;
  for (Node at = node; at != 0; at = stacks.nodes[at].parent) {
    const StackNode& frame = stacks.nodes[at];
    const bool has_line = frame.line() > 0;
    if (!frame.library && has_line) return at;
    if (own == 0 && !frame.library) own = at;
    if (in_source == 0 && has_line) in_source = at;
  }
  return own != 0 ? own : in_source != 0 ? in_source : node;
}

}  // namespace

std::optional<StackPlace> PlaceOf(const SampledStacks& late, const SampledStacks* healthy, double late_share) {
  StackPlace place;
  Node node = 0;
  if (healthy != nullptr && std::cmp_greater_equal(std::min(late.samples(), healthy->samples()), rules::kEnough)) {
    const Compared compared(late, *healthy);
    for (Node each = 1; each < late.nodes.size(); ++each)
      if (node == 0 || compared.More(each) > compared.More(node)) node = each;
    if (node == 0 || !HalfOf(compared.More(node), late_share)) return std::nullopt;
    node = Deepest(late, node, compared.More(node), late.nodes[node].samples,
                   [&](Node each) { return compared.More(each); });
    if (!compared.Sure(node)) return std::nullopt;
  } else if (healthy == nullptr && std::cmp_greater_equal(late.late(), rules::kFewest)) {
    const auto weight = [&](Node each) { return static_cast<double>(late.nodes[each].late); };
    node = Deepest(late, 0, static_cast<double>(late.late()), late.late(), weight);
  }
  if (node == 0) return std::nullopt;
  const Node shown = ShownFor(late, node);
  const StackNode& frame = late.nodes[shown];
  place.function = frame.function;
  place.file = frame.file;
  place.line = frame.line();
  if (shown != node) place.in = late.nodes[node].function;
  place.late_samples = frame.late;
  place.of_late_samples = late.late();
  place.samples = frame.samples;
  place.of_samples = late.samples();
  if (healthy != nullptr) {
    const StackNode* there = Counterpart(late, shown, *healthy);
    place.healthy_samples = there == nullptr ? 0 : there->samples;
    place.of_healthy_samples = healthy->samples();
  }
  place.longest_stop_ns = late.longest_stop_ns;
  return place;
}

std::optional<StackPlace> FindPlace(const Context& context, std::int32_t rank, CauseId cause, double late_share) {
  if (cause == CauseId::kStarved || cause == CauseId::kClock || cause == CauseId::kKernel) return std::nullopt;
  const auto sampled_of = [&](std::int32_t of, std::int64_t* compared_with) -> std::optional<SampledStacks> {
    const Result<schema::RankTables> tables = context.ReadActivity(of);
    if (!tables.ok() || tables.value().samples.rows() == 0) return std::nullopt;
    *compared_with = trace::MetaNumber(tables.value(), "stacks_compared_with", -1);
    return SampledStacksOf(tables.value(), merge::ClockMap(context.tables().clock, of),
                           merge::ChargedTo(context.timeline(), of));
  };
  std::int64_t healthy_rank = -1, ignored = -1;
  const std::optional<SampledStacks> late = sampled_of(rank, &healthy_rank);
  if (!late) return std::nullopt;
  std::optional<SampledStacks> healthy;
  const auto number = static_cast<std::int32_t>(healthy_rank);
  if (healthy_rank >= 0 && healthy_rank <= INT32_MAX && context.Position(number) != kNowhere)
    healthy = sampled_of(number, &ignored);
  std::optional<StackPlace> place = PlaceOf(*late, healthy ? &*healthy : nullptr, late_share);
  if (place && healthy) place->healthy_rank = number;
  return place;
}

Clause ClauseOf(const StackPlace& place) {
  const bool mostly = std::cmp_greater_equal(place.of_late_samples, rules::kFewest) &&
                      HalfOf(place.late_samples, place.of_late_samples);
  const bool compared = place.healthy_rank >= 0;
  return Say(mostly ? Word::kStragglerLateSamples : Word::kStragglerSamples,
             {{"late_samples", If(mostly, Index{place.late_samples})},
              {"of_late_samples", If(mostly, Index{place.of_late_samples})},
              {"samples", Index{place.samples}},
              {"of_samples", Index{place.of_samples}},
              {"function", place.function},
              {"file", place.file},
              {"line", If(place.line > 0, Index{place.line})},
              {"in", place.in},
              {"healthy_rank", If(compared, Index{place.healthy_rank})},
              {"healthy_samples", If(compared, Index{place.healthy_samples.value_or(0)})},
              {"of_healthy_samples", If(compared, Index{place.of_healthy_samples.value_or(0)})}});
}

}  // namespace lockstep::analysis
