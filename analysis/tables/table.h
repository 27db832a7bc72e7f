#pragma once
// Answers about the ranks' own events as tables: `lockstep analyze --table NAME`.
// One file per question; the list of all is in tables.cc.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/interval.h"
#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/kernel_class.h"
#include "merge/timeline/timeline.h"

namespace lockstep {

// How a column is shown. JSON and CSV carry the plain number in the unit its name says.
enum class ColumnKind : std::uint8_t { kText, kCount, kNs, kBytes, kFraction, kNumber };

struct TableColumn {
  std::string name;  // Unit in it: total_ns, bytes, bytes_per_s.
  ColumnKind kind;
  std::string description;  // For the docs and the JSON.
};

// monostate: unknown (null in JSON, empty in CSV, "-" in text).
using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;

struct Table {
  std::string name, title;
  std::vector<TableColumn> columns;
  std::vector<std::vector<Cell>> rows;  // Each as long as columns; the most interesting first.
  std::vector<std::string> notes;       // What is missing or doubtful, in words.
};

struct TableOptions {
  std::vector<std::int32_t> ranks;               // Empty: all.
  std::int64_t first_step = -1, last_step = -1;  // -1: the analysis window.
  std::size_t top = 20;                          // Rows per rank at most, 0: all. What was cut is a note.
  std::string filter;                            // Name contains (operators of `sequences`, ranges, kernels).
  std::size_t min_length = 3;                    // Kernels of a sequence at least.
  unsigned jobs = 0;                             // Threads; never changes the result.
};

// One rank's events within the window that is asked for, as every table needs them.
// Times: rank clock.
struct RankView {
  std::int32_t rank = -1;
  schema::RankTables tables;         // All events of the file, not clipped.
  std::vector<KernelClass> classes;  // Per row of kernels.
  std::vector<Interval> windows;     // In order, disjoint: the analysis window or the steps asked for.
  struct Step {
    std::int64_t index;
    Interval window;  // As step_ranks has it: of GPU ranks the GPU's.
  };
  std::vector<Step> steps;                        // In order: complete steps within `windows`; empty without steps.
  bool hta = false;                               // `classes` are HTA's: every kernel keeps the device busy.
  std::string_view Text(std::uint32_t id) const;  // Of `strings`, "" for kNone.
  // GPU events that begin, or host events that begin, in one of `windows`.
  bool InWindow(std::int64_t begin_ns) const;
};

struct TableKind {
  std::string_view name;     // "kernels"
  std::string_view answers;  // One line for the help.
  // Columns and title, without rows; the first column is always "rank".
  Table (*head)();
  // Called for several ranks at once, each with a table of its own.
  void (*rank_rows)(const RankView& rank, const TableOptions& options, Table& rows);
  // For answers across ranks that one rank's events cannot give; null: none. Rows
  // from rank_rows of all ranks are in `table` already.
  void (*finish)(const Timeline& timeline, const TableOptions& options, Table& table);
};

// Every table there is, in the order of the help. tables.cc
const std::vector<TableKind>& TableKinds();

// kUsage with the list of names for an unknown one. Ranks are read one after the other
// per thread and not kept.
Result<Table> MakeTable(std::string_view name, const Timeline& timeline, const TableOptions& options);

std::string RenderTableText(const Table& table, bool color, std::size_t width);
std::string RenderTableCsv(const Table& table);
std::string RenderTableJson(const Table& table);  // {"schema":"lockstep.table/1","name",...,"columns":[],"rows":[[]]}

}  // namespace lockstep
