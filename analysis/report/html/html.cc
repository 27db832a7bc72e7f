#include "analysis/report/html/html.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "analysis/analyze_with.h"
#include "analysis/core/format.h"
#include "analysis/core/named_ranks.h"
#include "analysis/report/html/attribution.h"
#include "analysis/report/html/flames.h"
#include "analysis/report/html/scatter.h"
#include "analysis/report/html/shell.h"
#include "analysis/report/html/waits.h"
#include "analysis/report/html/what_if_grid.h"
#include "analysis/report/json.h"
#include "analysis/report/text.h"
#include "core/timeline_tables.h"
#include "core/version.h"

namespace lockstep::report {
namespace {

constexpr std::size_t kMostCollectives = 1000, kMostPairs = 200, kMostGpus = 256, kMostShares = 60, kMostEndings = 100;

template <typename T>
void Cut(std::vector<T>& values, std::size_t most) {
  if (values.size() > most) values.resize(most);
}

// analysis.json without its long lists, which the page has as packed columns or shortened.
PageJson Core(const analysis::Analysis& analysis) {
  analysis::Analysis core = analysis;
  core.ranks.clear();
  core.steps.clear();
  core.collectives.clear();
  core.arrivals.clear();
  core.groups.clear();
  core.losses.clear();
  Cut(core.p2p.pairs, kMostPairs);
  Cut(core.gpus, kMostGpus);
  Cut(core.critical_path, kMostShares);
  Cut(core.delays, kMostShares);
  Cut(core.run.endings, kMostEndings);
  if (core.counterfactual) Cut(core.counterfactual->by_rank, kMostShares);
  PageJson json = PageJson::parse(RenderJson(core), nullptr, false);
  for (const char* list : {"ranks", "steps", "collectives", "arrivals", "groups", "losses", "truncated"})
    json.erase(list);
  json["gpu_count"] = analysis.gpus.size();
  return json;
}

// A loss that many ranks share becomes one row.
PageJson Losses(const std::vector<analysis::LossRow>& losses) {
  constexpr std::size_t kMostDetails = 3;
  struct Sum {
    const analysis::LossRow* loss;
    std::uint64_t count = 0;
    std::set<std::int32_t> ranks;
    std::vector<std::string> details;
    std::size_t details_left_out = 0;
  };
  std::vector<Sum> sums;
  std::map<std::string_view, std::size_t> at;
  for (const analysis::LossRow& loss : losses) {
    const auto [found, fresh] = at.try_emplace(loss.name, sums.size());
    if (fresh) sums.push_back({.loss = &loss, .ranks = {}, .details = {}});
    Sum& sum = sums[found->second];
    sum.count += loss.count;
    if (loss.rank >= 0) sum.ranks.insert(loss.rank);
    if (loss.detail.empty() || std::find(sum.details.begin(), sum.details.end(), loss.detail) != sum.details.end())
      continue;
    if (sum.details.size() < kMostDetails)
      sum.details.push_back(loss.detail);
    else
      ++sum.details_left_out;
  }
  PageJson json = PageJson::array();
  for (const Sum& sum : sums)
    json.push_back({{"name", sum.loss->name},
                    {"sentence", sum.loss->sentence},
                    {"count", sum.count},
                    {"ranks", analysis::ShortRankList({sum.ranks.begin(), sum.ranks.end()})},
                    {"data_loss", sum.loss->data_loss},
                    {"remedy", sum.loss->remedy},
                    {"details", sum.details},
                    {"details_left_out", sum.details_left_out}});
  return json;
}

PageJson Collectives(const analysis::Analysis& analysis) {
  const auto cost = [](const analysis::CollectiveRow& row) {
    return (static_cast<double>(row.transfer_ns_median.value_or(0)) +
            static_cast<double>(row.wait_ns_median.value_or(0))) *
           static_cast<double>(row.count);
  };
  std::vector<const analysis::CollectiveRow*> order;
  for (const analysis::CollectiveRow& row : analysis.collectives) order.push_back(&row);
  std::stable_sort(order.begin(), order.end(), [&](const analysis::CollectiveRow* a, const analysis::CollectiveRow* b) {
    return cost(*a) > cost(*b);
  });
  const auto or_null = [](const auto& value) { return value ? PageJson(*value) : PageJson(nullptr); };
  PageJson rows = PageJson::array();
  for (const analysis::CollectiveRow* row : order) {
    if (rows.size() == kMostCollectives) break;
    rows.push_back({{"op", row->op},
                    {"group", analysis::ShortRankList(row->group)},
                    {"members", row->group.size()},
                    {"bytes", or_null(row->bytes)},
                    {"count", row->count},
                    {"censored", row->censored},
                    {"partial", row->partial},
                    {"grouped", row->grouped},
                    {"transfer_ns_median", or_null(row->transfer_ns_median)},
                    {"wait_ns_median", or_null(row->wait_ns_median)},
                    {"longest_wait_rank", or_null(row->longest_wait_rank)},
                    {"longest_wait_ns_median", or_null(row->longest_wait_ns_median)},
                    {"algbw", or_null(row->algbw)},
                    {"busbw", or_null(row->busbw)}});
  }
  return {{"all", analysis.collectives.size()}, {"rows", std::move(rows)}};
}

void AddTerms(PageJson& json, const std::vector<analysis::IdentityTerms>& terms, const std::vector<bool>& known) {
#define LS_TERM_(name) {#name, &analysis::IdentityTerms::name},
  static constexpr std::pair<const char*, std::int64_t analysis::IdentityTerms::*> kTerms[] = {LS_IDENTITY(LS_TERM_)};
#undef LS_TERM_
  for (const auto& [name, term] : kTerms) {
    std::vector<std::int64_t> column;
    for (std::size_t i = 0; i < terms.size(); ++i) column.push_back(known[i] ? terms[i].*term : kUnknownCell);
    json[name] = Packed(column);
  }
}

// What the summary describes, for every rank.
PageJson MeanStep(const analysis::Analysis& analysis) {
  if (!analysis.summary.per_step) return nullptr;
  std::vector<analysis::IdentityTerms> terms;
  std::vector<bool> known;
  std::vector<std::int64_t> span, comm, overlap;
  for (const analysis::RankRow& row : analysis.ranks) {
    const bool any = row.step_terms.has_value();
    terms.push_back(row.step_terms.value_or(analysis::IdentityTerms{}));
    known.push_back(any && !terms.back().device_unknown);
    span.push_back(any ? terms.back().Sum() : kUnknownCell);
    comm.push_back(any ? row.step_comm_ns : kUnknownCell);
    overlap.push_back(any ? row.step_overlap_ns : kUnknownCell);
  }
  PageJson json{{"span_ns", Packed(span)}};
  AddTerms(json, terms, known);
  json["comm_ns"] = Packed(comm);
  json["overlap_ns"] = Packed(overlap);
  return json;
}

PageJson Clocks(const analysis::Context& context) {
  const auto& clock = context.tables().clock;
  const auto& totals = context.tables().rank_totals;
  std::map<std::int32_t, std::int64_t> method, middle;
  for (std::size_t i = 0; i < clock.rows(); ++i) method.emplace(clock.rank[i], clock.method[i]);
  for (std::size_t i = 0; i < totals.rows(); ++i)
    middle.emplace(totals.rank[i], totals.begin_ns[i] + (totals.end_ns[i] - totals.begin_ns[i]) / 2);
  std::vector<std::int64_t> methods, errors;
  for (const std::int32_t rank : context.ranks()) {
    methods.push_back(method.contains(rank) ? method[rank] : kUnknownCell);
    const std::int64_t error = middle.contains(rank) ? merge::ClockMap(clock, rank).ErrorAt(middle[rank]) : INT64_MAX;
    errors.push_back(error == INT64_MAX ? kUnknownCell : error);
  }
  return {{"method", Packed(methods)}, {"error_ns", Packed(errors)}};
}

PageJson Ranks(const analysis::Context& context, const analysis::Analysis& analysis) {
  const std::vector<analysis::RankRow>& rows = analysis.ranks;
  PageJson json;
  const auto column = [&](const char* name, auto&& value) {
    std::vector<std::int64_t> values;
    for (const analysis::RankRow& row : rows) values.push_back(value(row));
    json[name] = Packed(values);
  };
  const auto or_unknown = [](const std::optional<std::int64_t>& value) { return value.value_or(kUnknownCell); };
  column("rank", [](const analysis::RankRow& row) { return row.rank; });
  std::vector<std::string> nodes;
  std::map<std::string, std::int64_t> node_of;
  for (const analysis::RankRow& row : rows)
    if (node_of.try_emplace(row.node, static_cast<std::int64_t>(nodes.size())).second) nodes.push_back(row.node);
  json["nodes"] = nodes;
  column("node", [&](const analysis::RankRow& row) { return node_of[row.node]; });
  column("span_ns", [](const analysis::RankRow& row) { return row.span_ns; });
  std::vector<analysis::IdentityTerms> terms;
  std::vector<bool> known;
  for (const analysis::RankRow& row : rows) {
    terms.push_back(row.terms);
    known.push_back(!row.terms.device_unknown);
  }
  AddTerms(json, terms, known);
  column("comm_ns", [](const analysis::RankRow& row) { return row.comm_ns; });
  column("overlap_ns", [](const analysis::RankRow& row) { return row.overlap_ns; });
  column("input_ns", [](const analysis::RankRow& row) { return row.input_ns; });
  column("mpi_other_ns", [](const analysis::RankRow& row) { return row.mpi_other_ns; });
  column("late_sender_ns", [](const analysis::RankRow& row) { return row.late_sender_ns; });
  column("late_receiver_ns", [](const analysis::RankRow& row) { return row.late_receiver_ns; });
  column("cpu_ns", [&](const analysis::RankRow& row) { return or_unknown(row.cpu_ns); });
  column("offcpu_ns", [&](const analysis::RankRow& row) { return or_unknown(row.offcpu_ns); });
  column("late_ns_median", [&](const analysis::RankRow& row) { return or_unknown(row.late_ns_median); });
  json["last_fraction"] = json["straggler_score"] = json["score_low"] = json["score_high"] = PageJson::array();
  for (const analysis::RankRow& row : rows) {
    json["last_fraction"].push_back(row.last_fraction ? PageJson(*row.last_fraction) : PageJson(nullptr));
    json["straggler_score"].push_back(row.straggler_score ? PageJson(*row.straggler_score) : PageJson(nullptr));
    json["score_low"].push_back(row.straggler_interval ? PageJson(row.straggler_interval->first) : PageJson(nullptr));
    json["score_high"].push_back(row.straggler_interval ? PageJson(row.straggler_interval->second) : PageJson(nullptr));
  }
  std::map<std::int32_t, const analysis::ArrivalRow*> arrivals;
  for (const analysis::ArrivalRow& row : analysis.arrivals) arrivals.emplace(row.rank, &row);
  const auto arrival = [&](std::int64_t analysis::ArrivalRow::*member) {
    return [&arrivals, member](const analysis::RankRow& row) {
      const auto at = arrivals.find(row.rank);
      return at == arrivals.end() ? kUnknownCell : at->second->*member;
    };
  };
  column("last", arrival(&analysis::ArrivalRow::last));
  column("ties", arrival(&analysis::ArrivalRow::ties));
  column("charge_ns", arrival(&analysis::ArrivalRow::charge_ns));
  json["clock"] = Clocks(context);
  return json;
}

PageJson PayloadOf(const analysis::Context& context, const analysis::Analysis& analysis, const HtmlOptions& html) {
  // The run's own name, even if it was given as `latest`.
  std::error_code gone;
  std::filesystem::path directory = std::filesystem::weakly_canonical(context.timeline().run_dir, gone);
  if (gone || directory.filename().empty()) directory = context.timeline().run_dir;
  PageJson json;
  json["schema"] = "lockstep.report/1";
  json["run_name"] = directory.filename().string();
  json["job"] = analysis.run.job;
  json["brief"] = PageJson::array();
  for (const analysis::Finding& finding : analysis.findings) json["brief"].push_back(finding.brief);
  json["unrecorded"] = analysis.unrecorded;
  json["wait_only"] = analysis.wait_only;
  json["incomplete"] = analysis.incomplete();
  json["analysis"] = Core(analysis);
  json["losses"] = Losses(analysis.losses);
  json["collectives"] = Collectives(analysis);
  json["ranks"] = Ranks(context, analysis);
  json["mean_step"] = MeanStep(analysis);
  std::vector<std::int32_t> named = analysis::RanksOfFindings(analysis);
  std::erase_if(named, [&](std::int32_t rank) { return context.Position(rank) == analysis::kNowhere; });
  json["heatmap"] = HeatmapOf(context, named, html.heatmap);
  json["step_lengths"] = StepLengthsOf(context);
  json["waits"] = WaitsOf(context);
  json["named"] = named;
  json["scatter"] = ScatterOf(context);
  json["attribution"] = AttributionOf(context);
  json["flames"] = FlamesOf(context, analysis);
  json["what_if"] = WhatIfGridOf(context, analysis);
  PageJson inside;
  json["lanes"] =
      LanesOf(context, analysis, named, html.lanes, html.first_timeline_step, html.last_timeline_step, inside);
  json["inside"] = std::move(inside);
  return json;
}

}  // namespace

Result<HtmlReport> MakeHtmlReport(const merge::Timeline& timeline, const analysis::AnalyzeOptions& options,
                                  const HtmlOptions& html) {
  PageJson payload;
  LS_TRY(
      analysis::Analysis analysis,
      analysis::AnalyzeWith(timeline, options, [&](const analysis::Context& context, const analysis::Analysis& result) {
        payload = PayloadOf(context, result, html);
      }));
  MakeHarmless(payload);
  std::string name = payload["job"].get<std::string>();
  if (name.empty()) name = payload["run_name"].get<std::string>();
  TextOptions text;
  std::string summary;
  // Line by line: its line breaks are ours.
  const std::string lines = RenderText(analysis, text);
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    summary += Harmless(std::string_view(lines).substr(at, end - at)) + "\n";
    at = end + 1;
  }
  HtmlReport report;
  report.page = FillShell(ReportShell(), "Lockstep: " + name, summary, ScriptSafe(payload));
  report.analysis = std::move(analysis);
  return report;
}

}  // namespace lockstep::report
