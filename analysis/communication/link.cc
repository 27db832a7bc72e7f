// A host whose network is slower than the others'.

#include "analysis/communication/link.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

constexpr std::size_t kRowsShown = 20;

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

}  // namespace

void FindSlowLinks(const Context& context, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  if (whole <= 0) return;
  const std::optional<SlowNetwork> found = FindSlowNetwork(context);
  if (!found) return;
  // Data reach a rank that comes late itself, and those it exchanges them with, last: that is no news of the network.
  for (const Straggler& straggler : analysis.stragglers)
    if (std::binary_search(found->ranks.begin(), found->ranks.end(), straggler.rank)) return;
  const std::vector<double> behind(found->behind_ns.begin(), found->behind_ns.end());
  const std::int64_t per_unit = LowerMedian(found->behind_ns);
  if (static_cast<double>(per_unit) < kWorthShare * static_cast<double>(whole)) return;
  const auto [low, high] =
      BootstrapInterval(behind, BlockLength({behind}), Statistic::kMedian, context.options().seed + 211);
  const auto name = [&](std::size_t host) { return std::string(context.timeline().Text(found->all[host])); };
  std::vector<std::string> hosts;
  for (const std::size_t host : found->hosts) hosts.push_back(name(host));
  std::sort(hosts.begin(), hosts.end());
  const std::string slow = Listed(hosts);

  // Nothing says how fast the transfers would be without it, so that all of them are its bound, and the waiting for
  // ranks that are late because of it.
  std::int64_t waiting = s.terms.exposed_wait_ns;
  for (const Finding& finding : analysis.findings)
    if (finding.id == FindingId::kStragglerArrival)
      waiting -= std::min(waiting, finding.saves_ns_per_step.value_or(waiting));
  const std::int64_t price = s.terms.exposed_transfer_ns + s.terms.exposed_unsplit_ns + std::min(waiting, per_unit);
  Finding finding;
  finding.id = FindingId::kLinkSlow;
  finding.headline = fmt::format("Data reach {} ({}) {} later than other hosts: a slow network there costs at most {}.",
                                 slow, RankNames(found->ranks), Duration(per_unit), OfTheStep(s, price));
  finding.brief = fmt::format("data reach {} later than other hosts", slow);
  if (s.per_step) finding.saves_ns_per_step = price;
  finding.upper_bound = true;
  finding.covers_transfer = true;
  finding.confidence = 0.7;
  finding.rank = found->ranks.size() == 1 ? found->ranks[0] : -1;
  finding.evidence =
      fmt::format("{} of {}: {} ({}) {}, {} ({}) {}; later there in {} of {}, p {}; {} to {} per {} (95 %)",
                  Name(static_cast<CollectiveKind>(found->kind)), Bytes(found->bytes), Duration(found->late_ns),
                  Bandwidth(found->late_rate), hosts.size() > 1 ? "on the later of them" : "there",
                  Duration(found->others_ns), Bandwidth(found->others_rate),
                  found->from ? fmt::format("on {} before it", name(*found->from)) : "elsewhere", Count(found->last),
                  Count(found->instances), found->p_value < 0.001 ? "< 0.001" : fmt::format("{:.3f}", found->p_value),
                  Duration(static_cast<std::int64_t>(low)), Duration(static_cast<std::int64_t>(high)),
                  context.units_are_steps() ? "step" : "slice");
  if (found->from)
    finding.action = fmt::format("measure the network from {} to {} (iperf3), their link speed and errors (ethtool)",
                                 name(*found->from), slow);
  else
    finding.action = hosts.size() > 1
                         ? fmt::format(
                               "measure the network of {} and between them (iperf3, ethtool): one that is slow "
                               "delays the host that it exchanges data with",
                               slow)
                         : fmt::format(
                               "measure the network between {} and the other hosts (iperf3), its link speed and "
                               "errors (ethtool), and see what else uses it",
                               slow);
  finding.explain.columns = {context.units_are_steps() ? "step" : "slice", "later_ns"};
  std::vector<std::size_t> order(found->behind_ns.size());
  for (std::size_t u = 0; u < order.size(); ++u) order[u] = u;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return found->behind_ns[a] > found->behind_ns[b]; });
  order.resize(std::min(order.size(), kRowsShown));
  for (const std::size_t u : order) {
    const Unit& unit = context.units()[u];
    finding.explain.rows.push_back(
        {unit.step != kNowhere ? context.tables().steps.index[unit.step] : static_cast<std::int64_t>(u),
         found->behind_ns[u]});
  }
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
