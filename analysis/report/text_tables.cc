#include "analysis/report/text_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/core/named_ranks.h"
#include "analysis/report/collective_lines.h"
#include "analysis/report/text_table.h"
#include "core/collective.h"
#include "core/printed.h"

namespace lockstep::report {
namespace {

constexpr std::size_t kMaxRankRows = 16, kWorstRanks = 5, kMaxCollectiveRows = 6;

// Of the list of ranks that findings name and no row shows.
constexpr std::size_t kNamedColumns = 200;

// Of a name in a column.
constexpr std::size_t kNameColumns = 24;

// One column of times in the ranks' table.
struct RankColumn {
  std::string_view name;
  std::int64_t (*value)(const analysis::RankRow&);
  int keep;
  bool always;
  bool of_device = false;
};

const analysis::IdentityTerms& TermsOf(const analysis::RankRow& row) {
  return row.step_terms ? *row.step_terms : row.terms;
}

constexpr RankColumn kRankColumns[] = {
    {"compute", [](const analysis::RankRow& r) { return TermsOf(r).compute_ns; }, 7, true, true},
    {"blocked", [](const analysis::RankRow& r) { return TermsOf(r).blocked_ns; }, 4, false},
    {"transfer", [](const analysis::RankRow& r) { return TermsOf(r).exposed_transfer_ns; }, 5, true},
    {"waiting", [](const analysis::RankRow& r) { return TermsOf(r).exposed_wait_ns; }, 6, true},
    {"unsplit", [](const analysis::RankRow& r) { return TermsOf(r).exposed_unsplit_ns; }, 2, false},
    {"copy", [](const analysis::RankRow& r) { return TermsOf(r).exposed_copy_ns; }, 1, false, true},
    {"idle", [](const analysis::RankRow& r) { return TermsOf(r).idle_ns; }, 3, true, true},
};
constexpr int kKeepLast = 4, kKeepLate = 8;

std::string Milliseconds(std::int64_t ns) {
  const double ms = static_cast<double>(ns) / 1e6;
  return fmt::format("{:.{}f}", ms, ns == 0 || ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2);
}

std::string NodeName(const analysis::RankRow& row) { return PrintedShort(Printed(row.node), kNameColumns); }

// How long the bars of latenesses are.
struct LateScale {
  // Of ten glyphs. A tenth of a step at least, so that a glyph is one hundredth at least, whoever is the latest; 0:
  // there are no bars.
  double full_ns = 0;
  // What clocks cannot tell from being on time gets no bar: three times the error, as for stragglers.
  double least_ns = 0;
};

LateScale ScaleOf(const analysis::Analysis& analysis, std::int64_t latest_ns) {
  if (!analysis.trust.clock_error_ns_max) return {};
  std::int64_t unit_ns = analysis.summary.terms.Sum();
  if (!analysis.summary.per_step) {
    // Without steps: from one collective to the next.
    std::int64_t most = 0;
    for (const analysis::ArrivalRow& row : analysis.arrivals) most = std::max(most, row.collectives);
    unit_ns = most > 0 ? unit_ns / most : 0;
  }
  // In floating point: a damaged trace's times may be too large to multiply.
  return {.full_ns = unit_ns > 0 ? std::max(static_cast<double>(unit_ns) / 10, static_cast<double>(latest_ns)) : 0,
          .least_ns = 3 * static_cast<double>(*analysis.trust.clock_error_ns_max)};
}

std::string Lateness(const analysis::RankRow& row, const LateScale& scale, const Glyphs& glyphs) {
  const std::int64_t late_ns = row.late_ns_median.value_or(0);
  if (late_ns <= 0) return {};
  const auto late = static_cast<double>(late_ns);
  const std::size_t length = scale.full_ns > 0 && late > scale.least_ns
                                 ? static_cast<std::size_t>(10 * std::min(1.0, late / scale.full_ns))
                                 : 0;
  return (length > 0 ? Repeat(glyphs.late, length) + " " : "") + analysis::Duration(late_ns);
}

// Ranks that findings name and that have no row: "also named: 17, 40-47, 512".
void AlsoNamed(const std::vector<std::int32_t>& named, const std::set<std::int32_t>& rows, TextLines& out) {
  std::vector<std::int32_t> rest;
  for (const std::int32_t rank : named)
    if (!rows.contains(rank)) rest.push_back(rank);
  if (rest.empty()) return;
  std::sort(rest.begin(), rest.end());
  std::string list;
  for (const char c : analysis::ShortRankList(rest, kNamedColumns))
    list += c == ',' ? std::string(", ") : std::string(1, c);
  out.Wrapped("  ", fmt::format("also named: {}", list));
}

void ShowNotShown(const TextTable::Laid& laid, TextLines& out) {
  out.Wrapped("  ", NotShown(laid.left_out, out.width()), "2");
}

// Where the kind of a collective is not enough: "3 end unknown".
std::string NotesOn(const CollectiveLine& one) {
  std::string notes;
  if (one.censored > 0) notes += fmt::format("  ({} end unknown)", analysis::Count(one.censored));
  if (one.partial > 0)
    notes += fmt::format("  ({} {} members)", analysis::Count(one.partial), one.partial == 1 ? "lacks" : "lack");
  if (one.grouped > 0) notes += fmt::format("  ({} share a kernel)", analysis::Count(one.grouped));
  return notes;
}

}  // namespace

void RanksTable(const analysis::Analysis& analysis, TextLines& out) {
  if (analysis.ranks.empty()) return;
  const bool many = analysis.ranks.size() > 1, per_step = analysis.summary.per_step;
  std::vector<const RankColumn*> shown_columns;
  for (const RankColumn& column : kRankColumns)
    if (column.always || std::any_of(analysis.ranks.begin(), analysis.ranks.end(),
                                     [&](const analysis::RankRow& row) { return column.value(row) != 0; }))
      shown_columns.push_back(&column);

  const bool shortened = analysis.ranks.size() > kMaxRankRows;
  std::vector<std::size_t> order(analysis.ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::int32_t> named;
  if (shortened) {
    named = analysis::RanksOfFindings(analysis);
    std::erase_if(named, [&](std::int32_t rank) {
      return std::none_of(analysis.ranks.begin(), analysis.ranks.end(),
                          [&](const analysis::RankRow& row) { return row.rank == rank; });
    });
    order = analysis::WorstFirst(analysis.ranks, named);
  }
  // Whom a finding names is here, and some others to compare them with.
  const std::size_t shown = shortened ? std::clamp(named.size() + 2, kWorstRanks, kMaxRankRows) : order.size();
  std::int64_t latest = 0;
  std::size_t name_columns = 12;
  for (std::size_t i = 0; i < shown; ++i) {
    const analysis::RankRow& row = analysis.ranks[order[i]];
    latest = std::max(latest, row.late_ns_median.value_or(0));
    name_columns = std::max(name_columns, std::to_string(row.rank).size() + 2 + Columns(NodeName(row)));
  }
  // All of them in the step that STEP shows, or all of the whole window.
  std::vector<TextColumn> columns = {
      {.head = per_step ? "RANKS  ms/step" : "RANKS  ms", .width = name_columns + 2, .right = false, .lead = 0}};
  for (const RankColumn* column : shown_columns)
    columns.push_back({.head = std::string(column->name), .width = 9, .keep = column->keep});
  if (many) {
    columns.push_back({.head = "last", .width = 8, .keep = kKeepLast});
    columns.push_back({.head = "arrives late (median)", .right = false, .lead = 2, .keep = kKeepLate});
  }
  TextTable table(2, std::move(columns));
  const LateScale scale = ScaleOf(analysis, latest);
  std::set<std::int32_t> rows;
  for (std::size_t i = 0; i < shown; ++i) {
    const analysis::RankRow& row = analysis.ranks[order[i]];
    rows.insert(row.rank);
    std::vector<std::string> cells = {fmt::format("{}  {}", row.rank, NodeName(row))};
    // A rank without that step has nothing to be compared with the others.
    const bool known = row.step_terms.has_value() || !per_step;
    for (const RankColumn* column : shown_columns) {
      const bool told = known && !(column->of_device && TermsOf(row).device_unknown);
      cells.push_back(told ? Milliseconds(column->value(row)) : "-");
    }
    if (many) {
      cells.push_back(row.last_fraction ? analysis::Percent(*row.last_fraction) : "-");
      cells.push_back(Lateness(row, scale, out.glyphs()));
    }
    table.Add(std::move(cells));
  }
  const TextTable::Laid laid = table.Lay(out.width());
  out.Line(out.Bold(laid.head));
  for (const std::string& row : laid.rows) out.Line(row);
  if (shortened) {
    AlsoNamed(named, rows, out);
    rows.insert(named.begin(), named.end());
    std::int64_t low = INT64_MAX, high = INT64_MIN, others = 0;
    for (const analysis::RankRow& row : analysis.ranks) {
      if (rows.contains(row.rank)) continue;
      ++others;
      low = std::min(low, TermsOf(row).compute_ns);
      high = std::max(high, TermsOf(row).compute_ns);
    }
    const bool known = std::none_of(analysis.ranks.begin(), analysis.ranks.end(),
                                    [](const analysis::RankRow& row) { return TermsOf(row).device_unknown; });
    if (others > 0)
      out.Line(fmt::format(
          "  {}{}", analysis::Plural(others, "other"),
          known && high > low ? fmt::format(" within {} of compute", analysis::Duration(high - low)) : std::string()));
  }
  ShowNotShown(laid, out);
  out.Line();
}

void CollectivesTable(const analysis::Analysis& analysis, TextLines& out) {
  if (analysis.collectives.empty()) return;
  std::vector<CollectiveLine> lines = CollectiveLines(analysis.collectives, kMaxCollectiveRows);
  // The end of each job is no collective that a user thinks of, unless ranks wait there.
  constexpr std::int64_t kPartOfWindow = 100;
  std::erase_if(lines, [&](const CollectiveLine& one) {
    return one.row->op == Name(CollectiveKind::kFinalize) &&
           one.wait_ns.value_or(0) * kPartOfWindow < analysis.run.window.span_ns;
  });
  if (lines.empty()) return;
  const std::size_t shown = std::min(lines.size(), kMaxCollectiveRows);
  TextTable table(2, {{.head = "COLLECTIVES", .width = 14, .right = false, .lead = 0},
                      {.head = "ranks", .width = 11, .right = false, .keep = 2},
                      {.head = "count", .width = 9, .keep = 4},
                      {.head = "bytes", .width = 8, .keep = 5},
                      {.head = "transfer", .width = 9, .keep = 8},
                      {.head = "mean wait", .width = 9, .keep = 6},
                      {.head = "longest", .width = 9, .keep = 3},
                      {.head = "on rank", .width = 7, .keep = 1},
                      {.head = "bus bandwidth", .right = false, .lead = 2, .keep = 7}});
  for (std::size_t i = 0; i < shown; ++i) {
    const CollectiveLine& one = lines[i];
    std::string group =
        one.groups > 1 ? fmt::format("{} x {}", one.groups, one.row->group.size()) : analysis::RankList(one.row->group);
    if (Columns(group) > 11) group = group.substr(0, 8) + std::string(out.glyphs().rest);
    const auto time = [](const std::optional<std::int64_t>& ns) { return ns ? analysis::Duration(*ns) : "-"; };
    // If no rank waits, none is named.
    const bool waits = one.longest_wait_ns.value_or(0) > 0 && one.longest_wait_rank.has_value();
    table.Add({PrintedShort(one.row->op == "none" ? "unknown kind" : Printed(one.row->op), 14), group,
               analysis::Count(one.count), one.row->bytes ? analysis::Bytes(*one.row->bytes) : "-",
               time(one.transfer_ns), time(one.wait_ns), time(one.longest_wait_ns),
               waits ? fmt::format("{}", *one.longest_wait_rank) : "-",
               one.bus_bandwidth ? analysis::Bandwidth(*one.bus_bandwidth) : "-"});
  }
  const TextTable::Laid laid = table.Lay(out.width());
  out.Line(out.Bold(laid.head));
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string notes = NotesOn(lines[i]);
    if (Columns(laid.rows[i]) + Columns(notes) <= out.width()) {
      out.Line(laid.rows[i] + notes);
    } else {
      out.Line(laid.rows[i]);
      out.Wrapped("    ", notes);
    }
  }
  if (lines.size() > shown)
    out.Line(fmt::format("  {} in analysis.json",
                         analysis::Plural(static_cast<std::int64_t>(lines.size() - shown), "more row")));
  ShowNotShown(laid, out);
  out.Line();
}

}  // namespace lockstep::report
