// Reports communication that compute does not hide.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/choose_findings.h"
#include "analysis/communication/measure_network.h"
#include "analysis/communication/op_names.h"
#include "analysis/core/format.h"
#include "analysis/passes.h"
#include "analysis/replayed/replayed_run.h"
#include "core/collective.h"

namespace lockstep::analysis {

namespace {
std::string PartOfStep(const Summary& summary, std::int64_t ns) {
  return summary.per_step ? Duration(ns) : Percent(ns, summary.terms.Sum());
}

// Whether all that is exposed are collectives of groups with one member.
bool ByItself(const Analysis& analysis) {
  return analysis.p2p.empty() && !analysis.collectives.empty() &&
         std::all_of(analysis.collectives.begin(), analysis.collectives.end(),
                     [](const CollectiveRow& row) { return row.group.size() == 1 && row.partial == 0; });
}

// How many of each row's collectives are in the steps that are compared; all of them where there are none. What is
// reduced once, before the first step, is no part of what is exposed in each.
std::vector<std::int64_t> InSteps(const Context& context, const Analysis& analysis) {
  std::set<std::int64_t> steps;
  for (const std::size_t row : context.usable_steps()) steps.insert(context.tables().steps.index[row]);
  std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t>, std::int64_t> counts;
  const auto& t = context.tables().collectives;
  const auto& step = context.tables().collective_ranks.step;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Counts(c)) continue;
    bool in_step = steps.empty() || !analysis.summary.per_step;
    for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1) && !in_step; ++m)
      in_step = steps.contains(step[m]);
    counts[{Name(static_cast<CollectiveKind>(t.kind[c])), t.comm_id[c], t.bytes[c]}] += in_step;
  }
  std::vector<std::int64_t> result;
  for (const CollectiveRow& row : analysis.collectives)
    result.push_back(counts[{row.op, row.comm, row.bytes.value_or(0)}]);
  return result;
}

}  // namespace

void FindExposedTransfer(const Context& context, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  // What moved only in Wait is priced by that finding; a part of the step is never priced twice.
  std::int64_t exposed = s.terms.exposed_transfer_ns + s.terms.exposed_unsplit_ns;
  for (const Finding& finding : analysis.findings) {
    if (finding.covers_transfer) return;
    if (finding.id == FindingId::kProgressWaitOnly)
      exposed -= std::min(exposed, finding.saves_ns_per_step.value_or(exposed));
  }
  exposed = std::max(exposed, s.terms.exposed_transfer_ns);
  // Exposed time is an upper bound of the cost: if the host decides when the step ends, hiding communication gains
  // nothing.
  const std::int64_t all_exposed = exposed;
  // If the replay knows how much is gained, it replaces this bound (prices.cc).
  const ReplayedRun* replayed = context.Replayed();
  const bool by_replay = replayed != nullptr && replayed->Holds() &&
                         replayed->what_if().Answerable({.kind = replay::Question::kFreeCommunication}).ok();
  if (analysis.comm_on_path_ns && !by_replay) exposed = std::min(exposed, *analysis.comm_on_path_ns);
  if (whole > 0 && 2 * exposed < all_exposed &&
      static_cast<double>(all_exposed) >= kNameShare * static_cast<double>(whole))
    analysis.remarks.push_back(fmt::format(
        "Communication is exposed for {} of the step, but the GPU waits for its host: hiding it would gain {}.",
        Percent(all_exposed, whole),
        static_cast<double>(exposed) < kWorthShare * static_cast<double>(whole)
            ? "next to nothing"
            : fmt::format("at most {}", Percent(exposed, whole))));
  if (whole <= 0 || static_cast<double>(exposed) < kWorthShare * static_cast<double>(whole)) return;

  Finding finding;
  finding.id = FindingId::kTransferExposed;
  // Without the other ranks' files, what looks like transfer may be waiting for them, so the network is not reported as
  // slow.
  const bool others_missing = analysis.run.ranks < analysis.run.ranks_expected && exposed > s.terms.exposed_transfer_ns;
  const bool by_itself = !others_missing && ByItself(analysis);
  finding.headline = fmt::format(
      "Communication is exposed for {}{}: {}.", OfTheStep(s, all_exposed),
      exposed < all_exposed ? fmt::format(", {} of it on the GPUs' critical path", PartOfStep(s, exposed))
                            : std::string(),
      others_missing ? "how much of it is waiting for ranks that are not here, and how much transfer, is not known"
      : by_itself    ? "the groups have one member each, so nobody else has a part in it"
                     : "a faster network or more overlap saves at most that");
  finding.brief = "transfer that compute does not hide";
  SetPrice(s, exposed, finding);
  finding.upper_bound = true;
  finding.confidence = 0.8;
  const CollectiveRow* largest = nullptr;
  const std::vector<std::int64_t> in_steps = InSteps(context, analysis);
  const auto cost = [&](const CollectiveRow& row) {
    return row.transfer_ns_median.value_or(0) * in_steps[static_cast<std::size_t>(&row - analysis.collectives.data())];
  };
  const std::int64_t units =
      s.per_step ? std::max<std::int64_t>(1, static_cast<std::int64_t>(context.usable_steps().size())) : 1;
  finding.explain.columns = {"bytes", "count", "transfer_ns_median", "wait_ns_median", "censored"};
  for (const CollectiveRow& row : analysis.collectives) {
    if (largest == nullptr || cost(row) > cost(*largest)) largest = &row;
    constexpr std::int64_t kUnknown = Evidence::kUnknown;
    finding.explain.rows.push_back({row.bytes ? static_cast<std::int64_t>(*row.bytes) : kUnknown, row.count,
                                    row.transfer_ns_median.value_or(kUnknown), row.wait_ns_median.value_or(kUnknown),
                                    row.censored});
    finding.explain.names.push_back(row.op == "none" ? std::string("unknown kind") : row.op);
  }
  for (const P2pPair& pair : analysis.p2p.pairs) {
    finding.explain.rows.push_back(
        {static_cast<std::int64_t>(pair.messages > 0 ? pair.bytes / static_cast<std::uint64_t>(pair.messages) : 0),
         pair.messages, Evidence::kUnknown, Evidence::kUnknown, 0});
    finding.explain.names.push_back(fmt::format("messages of rank {} to {}, mean size", pair.source, pair.destination));
  }
  if (s.terms.exposed_transfer_ns > 0)
    finding.evidence = fmt::format("{} transferring", Duration(s.terms.exposed_transfer_ns));
  if (exposed > s.terms.exposed_transfer_ns)
    finding.evidence += fmt::format("{}{} that cannot be split into waiting and transfer",
                                    finding.evidence.empty() ? "" : ", ", Duration(s.terms.exposed_unsplit_ns));
  if (largest != nullptr && cost(*largest) * 10 > exposed * units) {
    finding.evidence +=
        fmt::format("; most in {} {}", Count(largest->count), NameOfCollectives(*largest, largest->count));
    if (largest->busbw) finding.evidence += fmt::format(" at {} bus bandwidth", Bandwidth(*largest->busbw));
  }
  finding.evidence += ReasonToMeasureNetwork(context, analysis);
  if (others_missing) finding.evidence += "; part of it may be waiting for ranks without a file";
  const bool barriers = largest != nullptr && largest->op == "barrier" && 2 * cost(*largest) > exposed * units;
  // Hiding no communication at all means that the job does not overlap it.
  finding.action =
      others_missing ? "record all ranks: then waiting and transfer can be told apart"
      : by_itself    ? "leave collectives out where a group has one member: one rank needs no DistributedDataParallel"
      : barriers     ? "leave out barriers that nothing needs: they move no data, and most collectives wait anyway"
      : s.hidden_comm_high_ns * 20 < s.comm_high_ns
          ? "post it earlier (non-blocking, while compute still runs), or send less"
          : "start it earlier in the step, or send less";
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
