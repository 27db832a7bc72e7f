
#include <algorithm>
#include <iterator>
#include <utility>

#include "analysis/core/format.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/engine/pool.h"
#include "analysis/tables/engine/view_index.h"
#include "merge/parallel.h"

namespace lockstep::tables {
namespace {

std::string Names() {
  std::string names;
  for (const TableKind& kind : TableKinds()) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

struct RankResult {
  Table table;
  bool failed = false;
};

// The ranks that have a file, or those of them that were asked for.
Result<std::vector<std::int32_t>> RanksOf(const merge::Timeline& timeline, const TableOptions& options) {
  const std::vector<std::int32_t> all = timeline.PresentRanks();
  if (options.ranks.empty()) return all;
  std::vector<std::int32_t> chosen = options.ranks;
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (const std::int32_t rank : chosen)
    if (!std::binary_search(all.begin(), all.end(), rank))
      return Error{ErrorCode::kUsage, "rank " + std::to_string(rank) + " has no file in this run", "--rank",
                   all.empty() ? "there is none at all" : "one of " + analysis::RankList(all)};
  return chosen;
}

// A remark that many ranks share becomes one line.
class Remarks {
 public:
  void Add(std::int32_t rank, const std::string& text) {
    for (auto& [known, ranks] : remarks_)
      if (known == text) {
        if (ranks.back() != rank) ranks.push_back(rank);
        return;
      }
    remarks_.push_back({text, {rank}});
  }
  std::vector<std::string> Take(std::size_t all) {
    std::vector<std::string> lines;
    for (auto& [text, ranks] : remarks_)
      lines.push_back(ranks.size() == all && all > 1
                          ? "all ranks: " + text
                          : (ranks.size() == 1 ? "rank " : "ranks ") + analysis::RankList(ranks) + ": " + text);
    return lines;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> remarks_;
};

Table EmptyTable(const TableKind& kind) {
  return {std::string(kind.name), std::string(kind.title), kind.columns->list(), {}, {}, {}, false};
}

// Texts in their order, the largest numbers first, what is unknown last.
bool ComesFirst(const Cell& a, const Cell& b) {
  if (Known(a) != Known(b)) return Known(a);
  if (a.index() != b.index()) return a.index() > b.index();  // Rank "all" before numbers.
  return std::holds_alternative<std::string>(a) ? TextOfCell(a) < TextOfCell(b)
         : std::holds_alternative<double>(a)    ? RealOf(a) > RealOf(b)
                                                : IntOf(a) > IntOf(b);
}

// Rows that are equal by the column asked for are in the table's own order.
void Order(const TableKind& kind, const TableOptions& options, std::span<TableRow> rows) {
  if (kind.before != nullptr) std::stable_sort(rows.begin(), rows.end(), kind.before);
  const auto& columns = kind.columns->list();
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (columns[i].name == options.sort_by)
      std::stable_sort(rows.begin(), rows.end(),
                       [i](const TableRow& a, const TableRow& b) { return ComesFirst(a[i], b[i]); });
}

// For a list: keeps the first of all ranks' rows, unless single ranks were asked for.
void KeepFirst(const TableKind& kind, const TableOptions& options, Table& table) {
  if (options.ranks.empty() && !options.every_rank) {
    Order(kind, options, table.rows);
    table.rows.resize(RowsWanted(options, table.rows.size()));
  }
  const std::int64_t hidden = TotalOf(table.totals, kListedRows) - static_cast<std::int64_t>(table.rows.size());
  if (hidden > 0) table.Note(analysis::Plural(hidden, "row") + " more: --top 0 shows all");
}

std::size_t Cut(std::vector<TableRow>& rows, std::size_t top) {
  if (top == 0 || rows.size() <= top) return 0;
  const std::size_t cut = rows.size() - top;
  rows.resize(top);
  return cut;
}

using Contents = merge::Timeline::RankContents;
using Read = std::function<Result<Contents>(std::int32_t rank)>;

void FillRank(const TableKind& kind, const gpu::RankView& view, const TableOptions& options, Table& table) {
  // A list gives its first rows by its own order; by another order any of them may be first.
  TableOptions all = options;
  if (!options.sort_by.empty()) all.top = 0;
  kind.rank_rows(view, all, table);
  if (kind.derive != nullptr)
    for (TableRow& row : table.rows) kind.derive(row, table.totals);
  Order(kind, options, table.rows);
  if (kind.list) table.rows.resize(RowsWanted(options, table.rows.size()));
}

RankResult RowsOf(const TableKind& kind, const ViewIndex& index, const TableOptions& options, std::int32_t rank,
                  const Read& read) {
  RankResult result{EmptyTable(kind), false};
  auto tables = read(rank);
  if (!tables.ok()) {
    result.table.Note("not read: " + tables.error().what);
    result.failed = true;
    return result;
  }
  for (const std::string& damage : tables.value().damaged) result.table.Note("damaged: " + damage);
  result.failed = !tables.value().damaged.empty();
  const gpu::RankView view = MakeRankView(index, rank, std::move(tables.value().tables), options);
  if (view.windows.empty())
    result.table.Note("has none of the steps asked for");
  else
    FillRank(kind, view, options, result.table);
  return result;
}

Result<Table> Make(const TableKind& kind, const merge::Timeline& timeline, const TableOptions& options,
                   const Read& read) {
  LS_TRY(const std::vector<std::int32_t> ranks, RanksOf(timeline, options));
  ViewIndex index(timeline);
  Table table = EmptyTable(kind);
  if (kind.p2p_partners && timeline.tables.p2p_pairs.rows() > 0)
    if (auto partners = merge::FindP2pPartners(timeline, options.jobs); partners.ok())
      index.SetPartners(std::move(partners).value());
  if (kind.charges) index.FindCharges(options.jobs);
  RankPool pool(kind);
  const bool pooled = pool.possible() && ranks.size() > 1 && options.ranks.empty();
  const bool single = !pooled || options.every_rank;
  Remarks remarks;
  std::size_t cut = 0;
  std::vector<TableRow> rank_rows;

  // Ranks are processed a block at a time, and what is kept of each block is cut.
  const auto threads = static_cast<std::size_t>(merge::ThreadsFor(options.jobs));
  const std::size_t block = std::max(rules::kTableBlockRanks,
                                     rules::kTableBlockRanksPerThread * std::min(threads, rules::kTableBlockThreads));
  for (std::size_t begin = 0; begin < ranks.size(); begin += block) {
    std::vector<RankResult> results(std::min(block, ranks.size() - begin));
    if (options.progress) options.progress(static_cast<double>(begin) / static_cast<double>(ranks.size()));
    merge::ParallelFor(options.jobs, results.size(),
                       [&](std::size_t i) { results[i] = RowsOf(kind, index, options, ranks[begin + i], read); });
    for (std::size_t i = 0; i < results.size(); ++i) {
      Table& of_rank = results[i].table;
      table.incomplete |= results[i].failed || of_rank.incomplete;
      for (const std::string& note : of_rank.notes) remarks.Add(ranks[begin + i], note);
      for (const auto& [name, value] : of_rank.totals) table.totals[name] += value;
      if (pooled) pool.Add(of_rank.rows);
      if (!single) continue;
      cut += Cut(of_rank.rows, options.top);
      std::move(of_rank.rows.begin(), of_rank.rows.end(), std::back_inserter(rank_rows));
    }
  }
  table.notes = remarks.Take(ranks.size());
  if (pooled) {
    table.rows = pool.Take();
    if (kind.derive != nullptr)
      for (TableRow& row : table.rows) kind.derive(row, table.totals);
    Order(kind, options, table.rows);
    if (kind.order_pooled != nullptr && options.sort_by.empty()) kind.order_pooled(table.rows);
    cut += Cut(table.rows, options.top);
  }
  std::move(rank_rows.begin(), rank_rows.end(), std::back_inserter(table.rows));
  if (kind.list) KeepFirst(kind, options, table);
  table.sorted_by = options.sort_by;
  if (cut > 0)
    table.notes.push_back(analysis::Plural(static_cast<std::int64_t>(cut), "row") + " more: --top 0 shows all");
  if (pooled && !single && !table.rows.empty())
    table.notes.push_back("of " + analysis::Plural(static_cast<std::int64_t>(ranks.size()), "rank") +
                          " together: --rank 0 or --rank all shows them one by one");
  return table;
}

}  // namespace

bool InOrder(const TableRow& a, const TableRow& b, std::initializer_list<SortKey> keys) {
  for (const auto& [column, descending] : keys) {
    const Cell &x = a[column], &y = b[column];
    if (descending && IntOf(x) != IntOf(y)) return IntOf(x) > IntOf(y);
    if (descending) continue;
    if (IntOf(x, -1) != IntOf(y, -1)) return IntOf(x, -1) < IntOf(y, -1);
    if (TextOfCell(x) != TextOfCell(y)) return TextOfCell(x) < TextOfCell(y);
  }
  return false;
}

Status CheckSortBy(const TableKind& kind, const std::string& column) {
  std::string names;
  for (const TableColumn& each : kind.columns->list()) {
    if (column.empty() || each.name == column) return Ok();
    names += (names.empty() ? "" : ", ") + each.name;
  }
  return Error{ErrorCode::kUsage, "table " + std::string(kind.name) + " has no column " + column, "--sort-by",
               "one of " + names};
}

Table RankTable(const TableKind& kind, const gpu::RankView& rank, const TableOptions& options) {
  Table table = EmptyTable(kind);
  FillRank(kind, rank, options, table);
  return table;
}

const std::vector<TableKind>& TableKinds() {
  static const std::vector<TableKind> kinds = {
      kKernelsTable,     kBreakdownTable,   kOpsTable,      kRangesTable,   kMemoryTable,      kSequencesTable,
      kGroupsTable,      kCollectivesTable, kIdleTable,     kIdleGapsTable, kLaunchesTable,    kLaunchBoundTable,
      kQueueTable,       kCopiesTable,      kCopyListTable, kSyncsTable,    kStreamWaitsTable, kCriticalPathTable,
      kCriticalOpsTable, kGpusTable,        kStacksTable,   kCallersTable,  kBlockedTable,     kWaitsTable,
  };
  return kinds;
}

namespace {

Result<Table> MakeNamed(std::string_view name, const merge::Timeline& timeline, const TableOptions& options,
                        const Read& read) {
  for (const TableKind& kind : TableKinds())
    if (kind.name == name) {
      LS_CHECK(CheckSortBy(kind, options.sort_by));
      return Make(kind, timeline, options, read);
    }
  return Error{ErrorCode::kUsage, "there is no table " + std::string(name), "--table", "one of " + Names()};
}

}  // namespace

Result<Table> MakeTable(std::string_view name, const merge::Timeline& timeline, const TableOptions& options) {
  return MakeNamed(name, timeline, options, [&](std::int32_t rank) { return timeline.ReadRankContents(rank); });
}

Result<Table> MakeTable(std::string_view name, const merge::Timeline& timeline, const TableOptions& options,
                        const std::function<Result<schema::RankTables>(std::int32_t rank)>& read) {
  return MakeNamed(name, timeline, options, [&](std::int32_t rank) -> Result<Contents> {
    LS_TRY(auto tables, read(rank));
    return Contents{std::move(tables), {}};
  });
}

std::string_view NameOf(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::kText:
      return "text";
    case ColumnKind::kCount:
      return "count";
    case ColumnKind::kNs:
      return "ns";
    case ColumnKind::kBytes:
      return "bytes";
    case ColumnKind::kFraction:
      return "fraction";
    case ColumnKind::kNumber:
      return "number";
    case ColumnKind::kId:
      return "id";
  }
  return "";
}

}  // namespace lockstep::tables
