#include "analysis/communication/measure_network.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/choose_findings.h"
#include "analysis/communication/link.h"
#include "analysis/communication/op_names.h"
#include "analysis/core/rates.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/replayed/message_rates.h"
#include "analysis/rules/network.h"
#include "core/collective.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

std::vector<std::uint32_t> Hosts(const Context& context) {
  std::vector<std::uint32_t> nodes;
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (const std::uint32_t node = context.tables().ranks.node[context.RankRow(p)];
        std::find(nodes.begin(), nodes.end(), node) == nodes.end())
      nodes.push_back(node);
  return nodes;
}

// Whether the data of these ranks cross.
bool OnBoth(const Context& context, const std::vector<std::int32_t>& ranks) {
  std::optional<std::uint32_t> one;
  for (const std::int32_t rank : ranks) {
    const std::size_t p = context.Position(rank);
    if (p == kNowhere) continue;
    const std::uint32_t node = context.tables().ranks.node[context.RankRow(p)];
    if (one && *one != node) return true;
    one = node;
  }
  return false;
}

std::vector<Clause> Slow(const Context& context, const Analysis& analysis) {
  const CollectiveRow* slowest = nullptr;
  for (const CollectiveRow& row : analysis.collectives) {
    if (!row.busbw || !row.transfer_ns_median || !OnBoth(context, row.group)) continue;
    const double least_ns =
        static_cast<double>(*row.transfer_ns_median) * *row.busbw / rules::kGigabitEthernetBytesPerS;
    if (least_ns < rules::kMeasureTransferNs ||
        *row.busbw * rules::kNetworkSharedTimes >= rules::kGigabitEthernetBytesPerS)
      continue;
    if (slowest == nullptr || *row.busbw < *slowest->busbw) slowest = &row;
  }
  if (slowest == nullptr) return {};
  return {Say(Word::kMeasureSlow,
              {{"collectives", Clauses{{NameOfCollectives(*slowest, false)}}}, {"rate", Rate{*slowest->busbw}}})};
}

// Transfers of one kind, communicator and size that take far longer than others of them, if that is worth anything.
std::vector<Clause> Differing(const Context& context, const Analysis& analysis) {
  const auto& t = context.tables().collectives;
  std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t>, const CollectiveRow*> rows;
  for (const CollectiveRow& row : analysis.collectives) rows[{row.op, row.comm, row.bytes.value_or(0)}] = &row;
  std::map<const CollectiveRow*, std::vector<std::int64_t>> transfers;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Counts(c) || !HasCertainTransfer(t, c)) continue;
    const auto row = rows.find({Name(static_cast<CollectiveKind>(t.kind[c])), t.comm_id[c], t.bytes[c]});
    if (row != rows.end()) transfers[row->second].push_back(t.transfer_ns[c]);
  }
  const std::int64_t units = std::max<std::int64_t>(1, static_cast<std::int64_t>(context.units().size()));
  std::int64_t most_ns = 0, longer = 0, all = 0;
  const CollectiveRow* most = nullptr;
  for (const auto& [row, list] : transfers) {
    if (list.size() < rules::kFewest || !OnBoth(context, row->group)) continue;
    const std::int64_t median = LowerMedian(list);
    std::int64_t beyond_ns = 0, count = 0;
    for (const std::int64_t ns : list)
      if (static_cast<double>(ns) >= rules::kNetworkSharedTimes * static_cast<double>(median))
        beyond_ns += ns - median, ++count;
    if (count < 2 || beyond_ns <= most_ns) continue;
    most = row, most_ns = beyond_ns, longer = count, all = static_cast<std::int64_t>(list.size());
  }
  if (most == nullptr ||
      static_cast<double>(most_ns / units) <
          rules::kWorthShare * static_cast<double>(std::max<std::int64_t>(1, analysis.summary.terms.Sum())))
    return {};
  return {Say(Word::kMeasureDiffering, {{"longer", Num{longer}},
                                        {"instances", Num{all}},
                                        {"collectives", Clauses{{NameOfCollectives(*most, all == 1)}}}})};
}

std::vector<Clause> OneSlowerDirection(const Context& context) {
  const std::optional<SlowMessages> unlike = FindUnlikeDirections(context);
  if (!unlike) return {};
  return {Say(Word::kMeasureDirection, {{"from", std::string(context.timeline().Text(unlike->hosts[0]))},
                                        {"to", std::string(context.timeline().Text(unlike->hosts[1]))},
                                        {"slow", Ns{unlike->slow_ns}},
                                        {"bytes", Size{unlike->bytes}},
                                        {"others", Ns{unlike->others_ns}}})};
}

// Between more than two hosts.
std::vector<Clause> UnlikeEnds(const Context& context, const Analysis& analysis) {
  const std::optional<UnlikeHosts> unlike = FindUnlikeHosts(context);
  if (!unlike || static_cast<double>(unlike->spread_ns) < rules::kMeasureTransferNs) return {};
  // The data of a rank that is late itself are late by as much.
  std::int64_t own_ns = 0;
  for (const Straggler& straggler : analysis.stragglers)
    own_ns = std::max(own_ns, straggler.own_late_ns.value_or(unlike->behind_ns));
  if (static_cast<double>(unlike->behind_ns - own_ns) <
      rules::kWorthShare * static_cast<double>(analysis.summary.terms.Sum()))
    return {};
  return {Say(Word::kMeasureUnlike, {{"unlike", Num{unlike->unlike}},
                                     {"instances", Num{unlike->instances}},
                                     {"operation", std::string(Name(static_cast<CollectiveKind>(unlike->kind)))},
                                     {"bytes", Size{unlike->bytes}},
                                     {"spread", Ns{unlike->spread_ns}}})};
}

}  // namespace

std::vector<Clause> ReasonToMeasureNetwork(const Context& context, const Analysis& analysis) {
  const std::vector<std::uint32_t> nodes = Hosts(context);
  const bool told = std::any_of(analysis.findings.begin(), analysis.findings.end(),
                                [](const Finding& f) { return f.id == FindingId::kLinkSlow; });
  if (nodes.size() < 2 || told) return {};
  if (nodes.size() > 2) return UnlikeEnds(context, analysis);
  std::vector<Clause> reason = OneSlowerDirection(context);
  if (reason.empty()) reason = Slow(context, analysis);
  if (reason.empty()) reason = Differing(context, analysis);
  if (reason.empty()) return {};
  return {Say(Word::kMeasureNetwork, {{"reason", Clauses{std::move(reason)}},
                                      {"host", std::string(context.timeline().Text(nodes[0]))},
                                      {"other_host", std::string(context.timeline().Text(nodes[1]))}})};
}

}  // namespace lockstep::analysis
