// The GPU has nothing to do while the host does something else for longer than launches take.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/core/format.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint32_t kNone = schema::kNone;

struct Sum {
  std::int64_t gaps = 0, ns = 0;
  bool library = false;  // An operator of the framework or a call into the runtime: no work of the program's own.
};
struct Work {
  RankCost cost;
  std::map<std::string, Sum> by_name;
};

class HostWork : public CauseOf<Work> {
 public:
  std::optional<Work> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    Work work{RankCost(events), {}};
    for (const gpu::Gap& gap : events.gaps().gaps) {
      if (gap.device != events.device() || events.KindOf(gap) != IdleKind::kHostWork) continue;
      Sum& sum = work.by_name[NameOf(events, gap)];
      sum.library = IsLibrary(events, gap);
      bool inside = false;
      events.ForEachPart(gap, false, [&](std::size_t stretch, std::int64_t ns) {
        work.cost.ns[stretch] += ns;
        sum.ns += ns;
        inside = true;
      });
      sum.gaps += inside;
    }
    return work;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    std::map<std::string, Sum> by_name;
    std::int64_t stretches = 0, total = 0, gaps = 0, library = 0;
    for (const Work* one : found()) {
      costs.push_back(one->cost);
      stretches += static_cast<std::int64_t>(one->cost.step.size());
      for (const auto& [name, sum] : one->by_name) {
        by_name[name].gaps += sum.gaps;
        by_name[name].ns += sum.ns;
        by_name[name].library = sum.library;
        total += sum.ns, gaps += sum.gaps;
        if (sum.library) library += sum.ns;
      }
    }
    const Cost cost = CostOf(costs, whole, context.options().seed);
    if (cost.ns <= 0 || total <= 0) return;
    std::vector<std::pair<std::string, Sum>> order(by_name.begin(), by_name.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
    const auto& [name, most] = order.front();
    const bool operators = 2 * library > total, named = !name.empty() && !operators && 2 * most.ns > total;
    Finding finding;
    finding.id = FindingId::kHostWork;
    finding.headline =
        fmt::format("The GPU is idle for {} while the host {}.", OfTheStep(cost, whole),
                    named       ? fmt::format("is in \"{}\"", name)
                    : operators ? fmt::format("works through operators, mainly \"{}\"", LargestLibrary(order))
                                : "does other work between launches");
    finding.brief = named       ? fmt::format("GPU idle while the host is in {}", ShortName(name, 32))
                    : operators ? "GPU idle: operators take too long on the host"
                                : "GPU idle while the host does other work";
    const auto of = [&](const std::pair<std::string, Sum>& one) {
      return fmt::format("{} {}", Percent(one.second.ns, total),
                         one.first.empty() ? std::string("outside all ranges") : fmt::format("in \"{}\"", one.first));
    };
    const std::string count =
        cost.per_step ? fmt::format("{:.3g} gaps per step", static_cast<double>(gaps) / static_cast<double>(stretches))
                      : fmt::format("{} gaps", Count(gaps));
    finding.evidence =
        fmt::format("{} of {} on average: {}", count, Duration(total / std::max<std::int64_t>(1, gaps)), of(order[0]));
    for (std::size_t i = 1; i < std::min<std::size_t>(3, order.size()); ++i)
      if (order[i].second.ns * 10 > total) finding.evidence += ", " + of(order[i]);
    if (operators)
      finding.action = cost.per_step
                           ? "let the host do less per step: torch.compile or CUDA graphs, a larger batch, a faster or "
                             "less shared core; profiling operators slows them as well"
                           : "first calls load libraries and tune: record later steps; "
                             "if it stays: torch.compile or CUDA graphs";
    else if (named)
      finding.action =
          fmt::format("take \"{}\" out of the step, into another thread, or do it while the GPU still has work", name);
    else
      finding.action = WhatTheHostDoes(SourceOf(context.timeline()));
    finding.upper_bound = true;
    finding.confidence = named || operators ? 0.6 : 0.5;
    SetPrice(cost, finding);
    finding.explain = {{"gaps", "idle_ns"}, {}};
    for (const auto& [each, sum] : order) {
      if (finding.explain.rows.size() >= 20) break;
      finding.explain.rows.push_back({sum.gaps, sum.ns});
      finding.explain.names.push_back(each.empty() ? "outside all ranges" : each);
    }
    analysis.findings.push_back(std::move(finding));
  }

 private:
  static bool IsLibrary(const RankEvents& events, const gpu::Gap& gap) {
    constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp;
    return gap.host_range != kNone ? events.view().tables.ranges.source[gap.host_range] == kCpuOp
                                   : gap.host_call != kNone;
  }
  static std::string LargestLibrary(const std::vector<std::pair<std::string, Sum>>& order) {
    for (const auto& [name, sum] : order)
      if (sum.library) return name;
    return {};
  }

  // How to learn the reason that the trace does not hold: flags of `lockstep run` only for what it recorded.
  static std::string_view WhatTheHostDoes(const Source& source) {
    if (source.imported.find("kineto") != std::string::npos)
      return "see what the host does there: name ranges (record_function), or profile with with_stack=True and import "
             "with --python-functions";
    if (!source.imported.empty()) return "see what the host does there: name ranges (NVTX) in the program";
    return source.torch ? "see what the host does there: name ranges (record_function, NVTX), or record operators "
                          "(--torch-ops)"
                        : "see what the host does there: name ranges (lockstep.h, NVTX)";
  }

  // What covers half of the wait; a whole step or the profiler's mark says nothing.
  static std::string NameOf(const RankEvents& events, const gpu::Gap& gap) {
    std::uint32_t range = gap.host_range;
    while (range != kNone && events.RangeName(range).starts_with("ProfilerStep#")) range = events.nest().Parent(range);
    if (range != kNone) return ShortName(events.RangeName(range));
    if (gap.host_call != kNone) return ShortName(events.view().Text(events.view().tables.api.name[gap.host_call]));
    return {};
  }
};

}  // namespace

std::unique_ptr<Cause> MakeHostWork() { return std::make_unique<HostWork>(); }

}  // namespace lockstep::analysis
