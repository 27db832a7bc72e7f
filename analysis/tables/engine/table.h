#pragma once
// Answers about the ranks' own events as tables: `lockstep analyze --table NAME`.
// One file per question; the list of all is in tables.cc.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "analysis/gpu/rank_view.h"
#include "analysis/rules/causes.h"
#include "core/interval.h"
#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/kernel_class.h"
#include "merge/timeline/timeline.h"

namespace lockstep::tables {

// How a column is shown. JSON and CSV carry the plain number in the unit its name
// says. kId: a number that names something (rank, stream, step).
enum class ColumnKind : std::uint8_t { kText, kCount, kNs, kBytes, kFraction, kNumber, kId };
// "text", "count", "ns" ...: as JSON and the docs call it.
std::string_view NameOf(ColumnKind kind);

// How rows of several ranks that agree in all kKey columns become one row, of rank
// "all". Tables without a kKey column are not pooled.
enum class Pool : std::uint8_t { kNone, kKey, kSum, kMin, kMax };

struct TableColumn {
  std::string name;  // Unit in it: total_ns, bytes, bytes_per_s.
  ColumnKind kind;
  std::string description;  // For the docs and the JSON.
  Pool pool = Pool::kNone;  // kNone: unknown in pooled rows, or set by derive or pool_row.
  bool detail = false;      // Left out of the text where space is short.
};

// Index of a column in a row.
using Column = std::size_t;

// The columns of one table. A table derives a struct from it with one member per column, in the order in which they
// are shown: `Column count = Add("count", kCount, "calls", kSum);`.
class TableColumns {
 public:
  explicit TableColumns(const char* rank_means = "rank; all: the ranks together") { Add("rank", kId, rank_means); }
  const std::vector<TableColumn>& list() const { return list_; }

  static constexpr Column rank = 0;  // Every table's first column.

 protected:
  using enum ColumnKind;
  using enum Pool;
  Column Add(std::string name, ColumnKind kind, std::string description, Pool pool = kNone) {
    list_.push_back({std::move(name), kind, std::move(description), pool, false});
    return list_.size() - 1;
  }
  // The text leaves it out where space is short.
  Column AddDetail(std::string name, ColumnKind kind, std::string description, Pool pool = kNone) {
    const Column column = Add(std::move(name), kind, std::move(description), pool);
    list_.back().detail = true;
    return column;
  }

 private:
  std::vector<TableColumn> list_;
};

// monostate: unknown (null in JSON, empty in CSV, "-" in text).
using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;
using TableRow = std::vector<Cell>;
// The wholes of which shares are taken, by name: filled by rank_rows, summed over the ranks for pooled rows. Not shown.
using TableTotals = std::map<std::string, std::int64_t, std::less<>>;

struct Table {
  std::string name, title;
  std::vector<TableColumn> columns;
  std::vector<TableRow> rows;      // Each as long as columns; the most interesting first.
  std::vector<std::string> notes;  // What is missing or doubtful, in words.
  TableTotals totals;
  bool incomplete = false;  // A rank could not be read as it should: exit 3.
  std::string sorted_by;    // A column's name, if its rows were asked for in that order.

  // A new row of this rank whose other cells are unknown. The reference holds until the next row is added.
  TableRow& AddRow(std::int32_t rank) {
    TableRow& row = rows.emplace_back(columns.size());
    row[0] = std::int64_t{rank};
    return row;
  }
  void Note(std::string_view text) { notes.emplace_back(text); }
};

struct TableOptions {
  std::vector<std::int32_t> ranks;                   // Empty: all, pooled where the table can be.
  bool every_rank = false;                           // Rows of every rank beside the pooled ones.
  std::int64_t first_step = -1, last_step = -1;      // -1: the analysis window.
  std::size_t top = rules::kTableRowsPerRank;        // Rows per rank at most, 0: all. What was cut is a note.
  std::string filter;                                // Name contains (operators of `sequences`, ranges, kernels).
  std::size_t min_length = rules::kSequenceKernels;  // Kernels of a sequence at least.
  unsigned jobs = 0;                                 // Threads; never changes the result.
  std::function<void(double done)> progress;         // Between ranks, from the calling thread. May be empty.
  std::string sort_by;                               // A column's name; "": the table's own order.
  bool by_shapes = false;                            // ops: a row for each combination of the inputs' shapes.
};

struct TableKind {
  std::string_view name;     // "kernels"
  std::string_view title;    // Above the table.
  std::string_view answers;  // One line for the help.
  const TableColumns* columns;
  // Called for several ranks at once, each with a table of its own.
  void (*rank_rows)(const gpu::RankView& rank, const TableOptions& options, Table& rows);
  // The order of a rank's rows and of the pooled ones; null: as rank_rows and pooling give them.
  bool (*before)(const TableRow& a, const TableRow& b) = nullptr;
  // Fills the cells that follow from others of the row and from totals (the rank's, or of all ranks for a pooled row):
  // shares, means, hints. Null: none do.
  void (*derive)(TableRow& row, const TableTotals& totals) = nullptr;
  // Called for each rank's row (all of them, before any is cut) that goes into a pooled
  // one, before the columns' own rules are applied to it; null: those rules say all.
  void (*pool_row)(const TableRow& of_rank, bool first, TableRow& pooled) = nullptr;
  // Reorders the pooled rows, where `before` cannot say it; null: no need.
  void (*order_pooled)(std::span<TableRow> pooled) = nullptr;
  bool p2p_partners = false;  // Asks for RankView.partners.
  bool charges = false;       // And for RankView.charges.
  // A list of single events: of all ranks' rows the first TableOptions.top in the order of `before`, unless single
  // ranks were asked for (the top rows of thousands of ranks would be too many to read), and a note of how many there
  // were. rank_rows gives at most top rows and adds what it had to totals[kListedRows].
  bool list = false;
};
inline constexpr std::string_view kListedRows = "listed_rows";

// kUsage with the list of columns if the table has none of this name; "" is no column and right.
Status CheckSortBy(const TableKind& kind, const std::string& column);

// Every table there is, in the order of the help. tables.cc
const std::vector<TableKind>& TableKinds();

// kUsage with the list of names for an unknown one, and for ranks that are not there.
// Ranks are read one after the other per thread and not kept. Rows: the pooled ones,
// then each rank's by rank (those only if asked for, if there is one rank or if the
// table cannot be pooled), each part cut to options.top.
Result<Table> MakeTable(std::string_view name, const merge::Timeline& timeline, const TableOptions& options);
// The same where the ranks' tables come from elsewhere (tests).
Result<Table> MakeTable(std::string_view name, const merge::Timeline& timeline, const TableOptions& options,
                        const std::function<Result<schema::RankTables>(std::int32_t rank)>& read);

// One rank's rows of a table, in its order.
Table RankTable(const TableKind& kind, const gpu::RankView& rank, const TableOptions& options);

// Every table with its columns, as Markdown: the generated part of docs/tables.md.
std::string TablesMarkdown();

std::string RenderTableText(const Table& table, bool color, std::size_t width);
std::string RenderTableCsv(const Table& table);
std::string RenderTableJson(const Table& table);  // {"schema":"lockstep.table/1","name",...,"columns":[],"rows":[[]]}

}  // namespace lockstep::tables
