// Functions in samples of the ranks' stacks, and how many of these were taken while other ranks waited.

#include <map>
#include <string>
#include <utility>

#include "analysis/core/format.h"
#include "analysis/stacks/sampled_stacks.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "merge/timeline/charged.h"

namespace lockstep::tables {
namespace {
namespace sampled {

const struct Columns : TableColumns {
  using TableColumns::TableColumns;
  Column function = Add("function", kText, "function");
  Column file = Add("file", kText, "source file or library");
  Column line = Add("line", kId, "line of most of the samples");
  Column samples = Add("samples", kCount, "samples in it and in what it calls");
  Column share = Add("share", kFraction, "of all samples of the rank, those inside communication included");
  Column self = Add("self", kCount, "samples in itself");
  Column late = Add("late_samples", kCount, "samples in it and in what it calls while other ranks waited for this one");
  Column late_share = Add("late_share", kFraction, "of all samples while others waited");
} col("rank");

struct Function {
  std::int64_t samples = 0, self = 0, late = 0;
  std::map<std::int64_t, std::int64_t> lines;
};

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  if (rank.tables.samples.rows() == 0)
    return table.Note("no samples of its stack: nobody waited for it for long, or they were not taken (--stacks)");
  const analysis::SampledStacks stacks =
      analysis::SampledStacksOf(rank.tables, merge::ClockMap(rank.timeline->tables.clock, rank.rank),
                                merge::ChargedTo(*rank.timeline, rank.rank));
  std::map<std::pair<std::string, std::string>, Function> functions;
  for (std::size_t node = 1; node < stacks.nodes.size(); ++node) {
    const analysis::StackNode& one = stacks.nodes[node];
    Function& function = functions[{one.function, one.file}];
    function.self += one.self;
    // A function that calls itself counts once.
    bool again = false;
    for (std::size_t at = one.parent; at != 0 && !again; at = stacks.nodes[at].parent)
      again = stacks.nodes[at].function == one.function && stacks.nodes[at].file == one.file;
    if (again) continue;
    function.samples += one.samples;
    function.late += one.late;
    for (const auto& [line, count] : one.lines) function.lines[line] += count;
  }
  for (const auto& [name, function] : functions) {
    if (!Passes(name.first, options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.function] = Text(name.first);
    if (!name.second.empty()) row[col.file] = Text(name.second);
    const std::int64_t line = analysis::MostFrequent(function.lines);
    row[col.line] = IntOrUnknown(line, line > 0);
    row[col.samples] = Int(function.samples);
    row[col.self] = Int(function.self);
    row[col.late] = Int(function.late);
  }
  table.totals["samples"] = stacks.samples();
  table.totals["late"] = stacks.late();
  table.Note(analysis::Plural(stacks.samples(), "sample") + ", " + std::to_string(stacks.inside_communication) +
             " of them inside communication, " + std::to_string(stacks.late()) +
             " while others waited for it; the longest stop took " + analysis::Duration(stacks.longest_stop_ns));
}

void Derive(TableRow& row, const TableTotals& totals) {
  row[col.share] = Share(IntOf(row[col.samples]), TotalOf(totals, "samples"));
  row[col.late_share] = Share(IntOf(row[col.late]), TotalOf(totals, "late"));
}

bool Before(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.late), Down(col.samples), Down(col.self), Up(col.function), Up(col.file)});
}

}  // namespace sampled
}  // namespace

const TableKind kStacksTable = {.name = "stacks",
                                .title = "Functions in samples of the ranks' stacks",
                                .answers = "what ranks do that others wait for, by function",
                                .columns = &sampled::col,
                                .rank_rows = sampled::RankRows,
                                .before = sampled::Before,
                                .derive = sampled::Derive};

}  // namespace lockstep::tables
