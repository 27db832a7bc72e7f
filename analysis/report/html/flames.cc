#include "analysis/report/html/flames.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/stacks/sampled_stacks.h"
#include "merge/timeline/charged.h"
#include "trace/file/strings.h"

namespace lockstep::report {
namespace {

using analysis::SampledStacks;
using analysis::StackNode;

struct Sampled {
  SampledStacks stacks;
  std::int64_t compared_with = -1;
};

std::optional<Sampled> SampledOf(const analysis::Context& context, std::int32_t rank) {
  const Result<schema::RankTables> tables = context.ReadActivity(rank);
  if (!tables.ok() || tables.value().samples.rows() == 0) return std::nullopt;
  return Sampled{analysis::SampledStacksOf(tables.value(), merge::ClockMap(context.tables().clock, rank),
                                           merge::ChargedTo(context.timeline(), rank)),
                 trace::MetaNumber(tables.value(), "stacks_compared_with", -1)};
}

// Those with most samples; a caller has as many as what it calls, and comes first.
std::vector<bool> Shown(const SampledStacks& stacks) {
  std::vector<std::size_t> order;
  const auto least =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kLeastFlameShare * static_cast<double>(stacks.samples())));
  for (std::size_t node = 1; node < stacks.nodes.size(); ++node)
    if (stacks.nodes[node].samples >= least) order.push_back(node);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return stacks.nodes[a].samples > stacks.nodes[b].samples; });
  if (order.size() > kMostFlameNodes) order.resize(kMostFlameNodes);
  std::vector<bool> shown(stacks.nodes.size());
  shown[0] = true;
  for (const std::size_t node : order) shown[node] = true;
  return shown;
}

PageJson TreeOf(std::int32_t rank, const SampledStacks& stacks) {
  const std::vector<bool> shown = Shown(stacks);
  PageJson functions = PageJson::array();
  std::map<std::pair<std::string, std::string>, std::size_t> numbers;
  std::vector<std::int64_t> function, parent, line, samples, late;
  std::vector<std::int64_t> place(stacks.nodes.size(), -1);  // In the tree of the page; the root has none.
  for (std::size_t node = 1; node < stacks.nodes.size(); ++node) {
    const StackNode& one = stacks.nodes[node];
    if (!shown[node]) continue;
    const auto [at, fresh] = numbers.try_emplace({one.file, one.function}, functions.size());
    if (fresh) functions.push_back({{"name", one.function}, {"file", one.file}, {"library", one.library}});
    place[node] = static_cast<std::int64_t>(function.size());
    function.push_back(static_cast<std::int64_t>(at->second));
    parent.push_back(place[one.parent]);
    line.push_back(one.line());
    samples.push_back(one.samples);
    late.push_back(one.late);
  }
  return {{"rank", rank},
          {"samples", stacks.samples()},
          {"late", stacks.late()},
          {"inside", stacks.inside_communication},
          {"longest_stop_ns", stacks.longest_stop_ns},
          {"left_out", stacks.nodes.size() - 1 - function.size()},
          {"functions", std::move(functions)},
          {"function", function},
          {"parent", parent},
          {"line", line},
          {"samples_in", samples},
          {"late_in", late}};
}

}  // namespace

PageJson FlamesOf(const analysis::Context& context, const analysis::Analysis& analysis) {
  PageJson flames = PageJson::array();
  for (const analysis::Straggler& straggler : analysis.stragglers) {
    if (flames.size() == kMostFlames) break;
    const std::optional<Sampled> late = SampledOf(context, straggler.rank);
    if (!late) continue;
    PageJson flame{{"rank", straggler.rank}, {"healthy", nullptr}, {"trees", PageJson::array()}};
    flame["trees"].push_back(TreeOf(straggler.rank, late->stacks));
    const auto healthy = static_cast<std::int32_t>(late->compared_with);
    if (late->compared_with >= 0 && late->compared_with <= INT32_MAX && context.Position(healthy) != analysis::kNowhere)
      if (const std::optional<Sampled> other = SampledOf(context, healthy)) {
        flame["healthy"] = healthy;
        flame["trees"].push_back(TreeOf(healthy, other->stacks));
      }
    flames.push_back(std::move(flame));
  }
  return flames;
}

}  // namespace lockstep::report
