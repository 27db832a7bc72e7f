// The GPU runs dry because the host waited for it: .item(), synchronise, blocking copies.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/causes/cause.h"
#include "analysis/core/format.h"
#include "analysis/replayed/replay_price.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint32_t kNone = schema::kNone;

struct Site {
  std::string call, op, range;
  friend auto operator<=>(const Site&, const Site&) = default;
};
struct SiteSum {
  std::int64_t calls = 0, gaps = 0, idle_ns = 0;
};
struct Syncs {
  RankCost cost;
  std::map<Site, SiteSum> sites;
};

struct Remedy {
  std::string_view text;  // Within the operator's or the call's name.
  std::string_view action;
};
// By operator, then by call.
constexpr Remedy kRemedies[] = {
    {"aten::item", "read the value every n-th step, or keep it on the GPU (loss.detach()) and read it one step later"},
    {"aten::_local_scalar_dense",
     "read the value every n-th step, or keep it on the GPU (loss.detach()) and read it one step later"},
    {"aten::is_nonzero", "decide without reading the tensor back: torch.where, or test every n-th step"},
    {"aten::nonzero", "avoid shapes that depend on data: torch.where or a mask instead of indexing with booleans"},
    {"aten::masked_select", "avoid shapes that depend on data: torch.where or a mask instead of masked_select"},
    {"aten::unique", "avoid shapes that depend on data, or find them ahead of time"},
    {"aten::_to_copy", "copy with non_blocking=True into pinned memory, and wait only where the values are used"},
    {"aten::copy_", "copy with non_blocking=True into pinned memory, and wait only where the values are used"},
    {"DeviceSynchronize", "remove the synchronise of the whole device: streams order their work by themselves"},
    {"Memcpy", "copy asynchronously (cudaMemcpyAsync, non_blocking=True) from and into pinned memory"},
    {"StreamSynchronize", "wait on an event where the result is used, not on the stream right after the launch"},
    {"EventSynchronize", "wait later, or let the stream wait for the event (cudaStreamWaitEvent)"},
};

std::string_view ActionFor(const Site& site) {
  for (const Remedy& remedy : kRemedies)
    if (site.op.find(remedy.text) != std::string::npos) return remedy.action;
  for (const Remedy& remedy : kRemedies)
    if (site.call.find(remedy.text) != std::string::npos) return remedy.action;
  return "do not wait for the GPU inside the step, or wait where the result is used";
}

std::string Where(const Site& site) {
  std::string text = ShortName(site.call);
  if (!site.op.empty()) text = fmt::format("{} ({})", ShortName(site.op), text);
  if (!site.range.empty()) text += fmt::format(" in \"{}\"", ShortName(site.range));
  return text;
}

class HostSyncs : public CauseOf<Syncs> {
 public:
  std::optional<Syncs> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    Syncs syncs{RankCost(events), {}};
    const auto& blocking = events.gaps().blocking;
    for (const gpu::BlockingCall& call : blocking)
      if (events.HostStretchAt(call.begin_ns) != kNowhere) ++syncs.sites[SiteOf(events, call)].calls;
    for (const gpu::Gap& gap : events.gaps().gaps) {
      if (gap.device != events.device() || events.KindOf(gap) != IdleKind::kSync || gap.blocking == kNone) continue;
      SiteSum& sum = syncs.sites[SiteOf(events, blocking[gap.blocking])];
      bool inside = false;
      events.ForEachPart(gap, false, [&](std::size_t stretch, std::int64_t ns) {
        syncs.cost.ns[stretch] += ns;
        sum.idle_ns += ns;
        inside = true;
      });
      sum.gaps += inside;
    }
    return syncs;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    std::map<Site, SiteSum> sites;
    std::int64_t stretches = 0;
    for (const Syncs* one : found()) {
      costs.push_back(one->cost);
      stretches += static_cast<std::int64_t>(one->cost.step.size());
      for (const auto& [site, sum] : one->sites) {
        sites[site].calls += sum.calls;
        sites[site].gaps += sum.gaps;
        sites[site].idle_ns += sum.idle_ns;
      }
    }
    const Cost cost = CostOf(costs, whole, context.options().seed);
    if (cost.ns <= 0) return;
    std::vector<std::pair<Site, SiteSum>> order(sites.begin(), sites.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.idle_ns > b.second.idle_ns; });
    const auto& [site, worst] = order.front();
    const double per = static_cast<double>(std::max<std::int64_t>(1, stretches));
    Finding finding;
    finding.id = FindingId::kSyncHost;
    finding.headline = fmt::format("The host waits for the GPU, which is then idle for {}: most after {}.",
                                   OfTheStep(cost, whole), Where(site));
    finding.brief = fmt::format("GPU idle after {}", site.op.empty() ? ShortName(site.call) : ShortName(site.op));
    std::int64_t idle = 0;
    for (const auto& [each, sum] : order) idle += sum.idle_ns;
    finding.evidence =
        cost.per_step ? fmt::format("{}: {:.3g} {} per step, {} of this idle time after {:.3g} of them", Where(site),
                                    static_cast<double>(worst.calls) / per, worst.calls == stretches ? "call" : "calls",
                                    Percent(worst.idle_ns, idle), static_cast<double>(worst.gaps) / per)
                      : fmt::format("{}: {} calls, {} of this idle time after {} of them", Where(site),
                                    Count(worst.calls), Percent(worst.idle_ns, idle), Count(worst.gaps));
    if (order.size() > 1 && order[1].second.idle_ns * 10 > idle)
      finding.evidence += fmt::format("; {} after {}", Percent(order[1].second.idle_ns, idle), Where(order[1].first));
    finding.action = ActionFor(site);
    finding.upper_bound = true;
    finding.confidence = 0.7;
    SetPrice(cost, finding);
    // What limits the step once nothing waits is for the replay to say; never more than these gaps.
    if (const auto price = cost.per_step ? PriceWithoutSyncs(context) : std::nullopt) {
      finding.evidence += fmt::format("; {} steps replayed without waiting for the GPU: {} shorter", price->steps,
                                      Duration(std::max<std::int64_t>(0, price->gain_ns)));
      if (price->gain_ns < cost.ns) {
        finding.saves_ns_per_step = std::max<std::int64_t>(0, price->gain_ns);
        finding.saves_interval_ns = price->interval;
        if (finding.saves_interval_ns)
          finding.saves_interval_ns = {std::max<std::int64_t>(0, price->interval->first),
                                       std::max<std::int64_t>(0, price->interval->second)};
      }
      finding.replayed = true;
      finding.upper_bound = false;
    }
    finding.explain = {{"calls", "idle_gaps", "idle_ns"}, {}};
    for (const auto& [each, sum] : order) {
      if (sum.idle_ns == 0 && finding.explain.rows.size() >= 20) break;
      finding.explain.rows.push_back({sum.calls, sum.gaps, sum.idle_ns});
      finding.explain.names.push_back(Where(each));
    }
    analysis.findings.push_back(std::move(finding));
  }

 private:
  // The innermost operator and the innermost range of the application around the call.
  static Site SiteOf(const RankEvents& events, const gpu::BlockingCall& call) {
    constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp, kPythonFunction = schema::RangeSource::kPython;
    Site site{gpu::BlockingName(events.view(), call), {}, {}};
    if (call.thread == kNone) return site;
    const auto& ranges = events.view().tables.ranges;
    for (std::uint32_t range = events.nest().At(call.thread, call.begin_ns); range != kNone;
         range = events.nest().Parent(range)) {
      const std::uint8_t source = ranges.source[range];
      if (source == kCpuOp) {
        // aten::item calls aten::_local_scalar_dense: what the program wrote is the outer one.
        const std::string_view name = events.RangeName(range);
        if (site.op.empty() || (name.starts_with("aten::") && site.op.starts_with("aten::") && site.range.empty()))
          site.op = name;
      } else if (source != kPythonFunction && site.range.empty() &&
                 !events.RangeName(range).starts_with("ProfilerStep#")) {
        site.range = events.RangeName(range);
      }
    }
    return site;
  }
};

}  // namespace

std::unique_ptr<Cause> MakeHostSyncs() { return std::make_unique<HostSyncs>(); }

}  // namespace lockstep::analysis
