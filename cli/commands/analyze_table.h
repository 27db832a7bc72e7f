#pragma once
// lockstep analyze --table NAME.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "analysis/tables/engine/table.h"
#include "core/result.h"
#include "merge/timeline/timeline.h"

namespace lockstep::cli {

struct TableFlags {
  std::string name, csv, ranks, sort_by, group_by, filter;
  std::size_t top = 20, min_length = 3;
};

void AddTableFlags(CLI::App& app, TableFlags& flags);

// --table help and --table columns, which need no run: returns true if it was one of them.
bool PrintTableHelp(const TableFlags& flags);

// kUsage: the flags are wrong; checked before any work is done.
Status CheckTableFlags(const TableFlags& flags);

struct MadeTable {
  tables::Table table;
  bool incomplete = false;  // The table is incomplete, or the data from which it was made.
};

// Steps: as in MergeOptions. `progress`: done.
Result<MadeTable> MakeTableOf(const TableFlags& flags, std::int64_t first_step, std::int64_t last_step, unsigned jobs,
                              const merge::Timeline& timeline, const std::function<void(double)>& progress);

// `json`: file or "-" or "". The exit code.
int PrintTable(const TableFlags& flags, const std::string& json, const MadeTable& made);

}  // namespace lockstep::cli
