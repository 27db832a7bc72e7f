// The GPU becomes idle because the host waited for it: .item(), synchronise, blocking copies. The wait causes the time
// until its return and until the launch that it delayed; what the host did in between is work of its own
// (host_work.cc).

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/causes/sync_site.h"
#include "analysis/replayed/replay_price.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

struct SiteSum {
  std::int64_t calls = 0, gaps = 0, idle_ns = 0;
  SiteSum& operator+=(const SiteSum& more) {
    calls += more.calls, gaps += more.gaps, idle_ns += more.idle_ns;
    return *this;
  }
};
// A wait within a gap, by their begins.
struct WaitInGap {
  std::int64_t gap_ns = schema::kNoTime, call_ns = schema::kNoTime;
  SyncSite site;
};
struct Syncs {
  RankCost cost;
  std::map<SyncSite, SiteSum> sites;
  GapEvidence rows;
  WaitInGap first, last;

  void Add(Syncs&& next) {
    cost.Add(std::move(next.cost));
    AddSums(sites, next.sites);
    rows.Add(std::move(next.rows));
    if (next.last.gap_ns == schema::kNoTime) return;
    // A gap may lie in both.
    if (next.first.gap_ns == last.gap_ns && next.first.call_ns == last.call_ns) --sites[last.site].gaps;
    if (first.gap_ns == schema::kNoTime) first = next.first;
    last = next.last;
  }
};

struct Remedy {
  std::string_view text;  // Part of the operator's or the call's name.
  Word action;
};
// By operator, then by call.
constexpr Remedy kRemedies[] = {
    {"aten::item", Word::kSyncItemAction},
    {"aten::_local_scalar_dense", Word::kSyncItemAction},
    {"aten::is_nonzero", Word::kSyncIsNonzeroAction},
    {"aten::nonzero", Word::kSyncNonzeroAction},
    {"aten::masked_select", Word::kSyncMaskedSelectAction},
    {"aten::unique", Word::kSyncUniqueAction},
    {"aten::_to_copy", Word::kSyncTensorCopyAction},
    {"aten::copy_", Word::kSyncTensorCopyAction},
    {"DeviceSynchronize", Word::kSyncDeviceAction},
    {"Memcpy", Word::kSyncCopyAction},
    {"StreamSynchronize", Word::kSyncStreamAction},
    {"EventSynchronize", Word::kSyncEventAction},
};

Word SyncAction(const SyncSite& site) {
  for (const Remedy& remedy : kRemedies)
    if (site.op.find(remedy.text) != std::string::npos) return remedy.action;
  for (const Remedy& remedy : kRemedies)
    if (site.call.find(remedy.text) != std::string::npos) return remedy.action;
  return Word::kSyncOtherAction;
}

class HostSyncs : public CauseOf<Syncs> {
 public:
  std::optional<Syncs> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    Syncs syncs{RankCost(events), {}, {}, {}, {}};
    const auto& blocking = events.gaps().blocking;
    for (const gpu::BlockingCall& call : blocking)
      if (events.HostStretchAt(call.begin_ns) != kNowhere) ++syncs.sites[SiteOf(events, call)].calls;
    const gpu::Gap* last = nullptr;
    std::uint32_t last_call = schema::kNone;
    syncs.rows.Look(events, [&](const gpu::Gap& gap, std::size_t stretch, const gpu::GapPart& part, std::int64_t ns) {
      if (RankEvents::KindOf(gap, part) != IdleKind::kSync || part.blocking == schema::kNone) return false;
      const SyncSite site = SiteOf(events, blocking[part.blocking]);
      SiteSum& sum = syncs.sites[site];
      if (last != &gap || last_call != part.blocking) {
        ++sum.gaps;
        syncs.last = {gap.at.begin, blocking[part.blocking].begin_ns, site};
        if (syncs.first.gap_ns == schema::kNoTime) syncs.first = syncs.last;
      }
      last = &gap;
      last_call = part.blocking;
      sum.idle_ns += ns;
      syncs.cost.ns[stretch] += ns;
      return true;
    });
    return syncs;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    std::map<SyncSite, SiteSum> sites;
    std::int64_t stretches = 0;
    for (const Syncs* one : found()) {
      costs.push_back(one->cost);
      stretches += static_cast<std::int64_t>(one->cost.step.size());
      AddSums(sites, one->sites);
    }
    const Cost cost = CostOf(costs, whole, context.options().seed);
    if (cost.ns <= 0) return;
    std::vector<std::pair<SyncSite, SiteSum>> order(sites.begin(), sites.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.idle_ns > b.second.idle_ns; });
    const auto& [site, worst] = order.front();
    const double per = static_cast<double>(std::max<std::int64_t>(1, stretches));
    Finding finding;
    finding.id = FindingId::kSyncHost;
    finding.said.headline = {Say(Word::kSyncHost, {{"idle", PartOf(cost, whole)}, {"where", Clauses{{Where(site)}}}})};
    finding.said.brief = {
        Say(Word::kSyncHostBrief, {{"short_name", ShortName(site.op.empty() ? site.call : site.op)}})};
    std::int64_t idle = 0;
    for (const auto& [each, sum] : order) idle += sum.idle_ns;
    const auto share = [&](const SiteSum& sum) {
      return Share{static_cast<double>(sum.idle_ns) / static_cast<double>(idle)};
    };
    const auto number = [&](std::int64_t n) {
      return cost.per_step ? Value(MeanNum{static_cast<double>(n) / per}) : Value(Num{n});
    };
    finding.said.evidence = {Say(Word::kSyncCalls, {{"where", Clauses{{Where(site)}}},
                                                    {"calls", number(worst.calls)},
                                                    {"per_step", cost.per_step},
                                                    {"share", share(worst)},
                                                    {"late_calls", number(worst.gaps)}})};
    if (order.size() > 1 && !LittleOf(order[1].second.idle_ns, idle))
      finding.said.evidence.push_back(
          Say(Word::kSyncNextMost, {{"share", share(order[1].second)}, {"where", Clauses{{Where(order[1].first)}}}}));
    finding.said.action = {Say(SyncAction(site))};
    finding.upper_bound = true;
    SetPrice(cost, finding);
    // The replay computes what limits the step without these waits; the gain is never more than these gaps.
    if (const auto price = cost.per_step ? PriceWithoutSyncs(context) : std::nullopt) {
      finding.said.evidence.push_back(
          Say(Word::kSyncReplayed,
              {{"steps", Num{price->steps}}, {"gain", Ns{std::max<std::int64_t>(0, price->gain_ns)}}}));
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
    std::vector<const GapEvidence*> rows;
    for (const Syncs* one : found()) rows.push_back(&one->rows);
    finding.explain = GapEvidence::Rows(rows);
    analysis.findings.push_back(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeHostSyncs() { return std::make_unique<HostSyncs>(); }

}  // namespace lockstep::analysis
