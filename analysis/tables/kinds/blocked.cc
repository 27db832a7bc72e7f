// Where training threads are blocked in calls of libc, and how much of that counts as what.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "analysis/core/format.h"
#include "analysis/stacks/blocked_places.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::tables {
namespace {
namespace blocked {

const struct Columns : TableColumns {
  Column kind = Add("kind", kText, "what it is blocked in", kKey);
  Column function = Add("function", kText, "the job's own function that called, where its stack was taken", kKey);
  Column file = Add("file", kText, "its source file", kKey);
  Column line = Add("line", kId, "line of the call", kKey);
  Column module = Add("module", kText, "without that, the library that called", kKey);
  Column call = Add("call", kText, "without that, the function of libc", kKey);
  Column calls = Add("calls", kCount, "calls of 20 us and more", kSum);
  Column total = Add("total_ns", kNs, "of all of them", kSum);
  Column mean = Add("mean_ns", kNs, "mean");
  Column longest = Add("max_ns", kNs, "longest", kMax);
  Column own = Add("blocked_ns", kNs, "the part that counts as blocked", kSum);
  Column share = Add("share", kFraction, "of the time that counts as blocked in recorded calls");
  Column awaited = AddDetail("awaited_ns", kNs, "the part until collectives and messages of other threads end", kSum);
  Column computed = AddDetail("computed_ns", kNs, "the part in which other threads of the process compute", kSum);
  Column per_step = Add("per_step_ns", kNs, "blocked_ns by step, mean over the ranks");
  Column steps = AddDetail("steps", kCount, "steps in which it begins; of all ranks, the most of one", kMax);
  Column detail = Add("detail", kText, "name of the file or the peer, of most of the time");
} col;

struct Sum {
  std::int64_t calls = 0, total_ns = 0, longest_ns = 0, own_ns = 0, awaited_ns = 0, computed_ns = 0;
  std::map<std::string, std::int64_t> details;
  std::set<std::int64_t> steps;
};

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const schema::RankTables& t = rank.tables;
  table.totals["steps"] = static_cast<std::int64_t>(rank.steps.size());
  if (t.blocked.rows() == 0)
    return table.Note("no call of libc is recorded in which its training thread was blocked for 20 us and more");
  const std::uint32_t training = merge::TrainingThread(t);
  const merge::BlockedTime time = merge::FindBlockedTime(t, training);
  std::map<std::uint64_t, std::int64_t> own;  // By row.
  for (const merge::BlockedTime::Own& one : time.own) own[one.row] += one.at.end - one.at.begin;
  std::map<analysis::BlockedPlace, Sum> places;
  for (std::uint64_t row = 0; row < t.blocked.rows(); ++row) {
    const std::int64_t begin = t.blocked.begin_ns[row], length = t.blocked.duration_ns[row];
    if (t.blocked.thread[row] != training || !rank.InHostWindow(begin)) continue;
    Sum& sum = places[analysis::PlaceOfRow(t, row)];
    ++sum.calls;
    sum.total_ns += length;
    sum.longest_ns = std::max(sum.longest_ns, length);
    if (const auto at = own.find(row); at != own.end()) sum.own_ns += at->second;
    sum.awaited_ns += TotalWithin(time.awaited, {begin, begin + length});
    sum.computed_ns += TotalWithin(time.computed, {begin, begin + length});
    if (const std::string_view detail = rank.Text(t.blocked.detail[row]); !detail.empty())
      sum.details[std::string(detail)] += length;
    if (const gpu::RankView::Step* step = rank.StepAt(begin)) sum.steps.insert(step->index);
  }
  if (places.empty()) return table.Note("its training thread was blocked in no call in the window");
  for (const auto& [place, sum] : places) {
    table.totals["blocked_ns"] += sum.own_ns;
    if (!Passes(place.function.empty() ? place.call : place.function, options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.kind] = Text(analysis::NameOfKind(place.kind));
    if (!place.function.empty()) row[col.function] = Text(place.function);
    if (!place.file.empty()) row[col.file] = Text(place.file);
    row[col.line] = IntOrUnknown(place.line, place.line > 0);
    if (!place.module.empty()) row[col.module] = Text(place.module);
    if (!place.call.empty()) row[col.call] = Text(place.call);
    row[col.calls] = Int(sum.calls);
    row[col.total] = Int(sum.total_ns);
    row[col.longest] = Int(sum.longest_ns);
    row[col.own] = Int(sum.own_ns);
    row[col.awaited] = Int(sum.awaited_ns);
    row[col.computed] = Int(sum.computed_ns);
    if (!rank.steps.empty()) row[col.steps] = Int(static_cast<std::int64_t>(sum.steps.size()));
    const auto most = std::max_element(sum.details.begin(), sum.details.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != sum.details.end()) row[col.detail] = Text(most->first);
  }
}

bool Before(const TableRow& a, const TableRow& b) {
  return InOrder(a, b,
                 {Down(col.own), Down(col.total), Up(col.kind), Up(col.file), Up(col.line), Up(col.function),
                  Up(col.module), Up(col.call)});
}

void Derive(TableRow& row, const TableTotals& totals) {
  row[col.mean] = Int(Mean(IntOf(row[col.total]), IntOf(row[col.calls])));
  row[col.share] = Share(IntOf(row[col.own]), TotalOf(totals, "blocked_ns"));

  if (const std::int64_t steps = TotalOf(totals, "steps"); steps > 0)
    row[col.per_step] = Int(Mean(IntOf(row[col.own]), steps));
}

}  // namespace blocked
}  // namespace

const TableKind kBlockedTable = {.name = "blocked",
                                 .title = "Where training threads are blocked",
                                 .answers = "where the training thread sleeps or waits for locks, files, sockets",
                                 .columns = &blocked::col,
                                 .rank_rows = blocked::RankRows,
                                 .before = blocked::Before,
                                 .derive = blocked::Derive};

}  // namespace lockstep::tables
