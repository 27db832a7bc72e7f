#include "cli/commands/analyze_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/report/text.h"
#include "analysis/tables/engine/table.h"
#include "cli/options/command.h"
#include "cli/options/similar.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"

namespace lockstep::cli {
namespace {

// "0,4-7"; "all": every rank's rows beside those of all together.
Status FillRanks(const std::string& text, tables::TableOptions& options) {
  if (text.empty()) return Ok();
  if (text == "all") {
    options.every_rank = true;
    return Ok();
  }
  Result<std::vector<std::int32_t>> ranks = ParseRanks(text, "--rank");
  if (!ranks.ok()) {
    Error error = ranks.error();
    error.hint += ", or --rank all";
    return error;
  }
  options.ranks.assign(ranks.value().begin(), ranks.value().end());
  return Ok();
}

}  // namespace

void AddTableFlags(CLI::App& app, TableFlags& flags) {
  app.add_option("--table", flags.name,
                 "Print one table instead of the verdict; help lists them, columns explains them")
      ->type_name("NAME");
  app.add_option("--csv", flags.csv, "With --table: write it to FILE as CSV; - for standard output")->type_name("FILE");
  app.add_option("--rank", flags.ranks,
                 "With --table: show the rows of these ranks; all: the rows of every rank in addition to the sums")
      ->type_name("0-3,7");
  app.add_option("--top", flags.top, "With --table: the most rows per rank; 0 for all")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--sort-by", flags.sort_by,
                 "With --table: order the rows by this column (as in CSV), largest numbers first")
      ->type_name("COLUMN");
  app.add_option("--group-by", flags.group_by, "With --table ops: a row for each combination of the inputs' shapes")
      ->type_name("shapes");
  app.add_option("--filter", flags.filter, "With --table: only names that contain TEXT")->type_name("TEXT");
  app.add_option("--min-length", flags.min_length, "With --table sequences: the least number of kernels in a sequence")
      ->type_name("N")
      ->capture_default_str();
}

bool PrintTableHelp(const TableFlags& flags) {
  if (flags.name == "columns") {
    ShowText(tables::TablesMarkdown());
    return true;
  }
  if (flags.name != "help") return false;
  std::string text;
  for (const tables::TableKind& kind : tables::TableKinds())
    text += fmt::format("  {:<15} {}\n", kind.name, kind.answers);
  ShowText(
      text +
      "\n  lockstep analyze RUN --table NAME [--rank R] [--steps A:B] [--sort-by COLUMN] [--top N] [--csv FILE]\n");
  return true;
}

Status CheckTableFlags(const TableFlags& flags) {
  std::vector<std::string> names;
  for (const tables::TableKind& kind : tables::TableKinds()) {
    if (kind.name == flags.name) {
      LS_CHECK(tables::CheckSortBy(kind, flags.sort_by));
      if (!flags.group_by.empty() && (flags.group_by != "shapes" || flags.name != "ops"))
        return Error{ErrorCode::kUsage, "table " + flags.name + " cannot be grouped by " + flags.group_by, "--group-by",
                     "--table ops --group-by shapes"};
      tables::TableOptions ignored;
      return FillRanks(flags.ranks, ignored);
    }
    names.emplace_back(kind.name);
  }
  const std::string nearest = Nearest(flags.name, names);
  return Error{ErrorCode::kUsage, "there is no table " + flags.name, "--table",
               nearest.empty() ? fmt::format("one of {}", fmt::join(names, ", ")) : "--table " + nearest};
}

Result<MadeTable> MakeTableOf(const TableFlags& flags, std::int64_t first_step, std::int64_t last_step, unsigned jobs,
                              const merge::Timeline& timeline, const std::function<void(double)>& progress) {
  tables::TableOptions options;
  LS_CHECK(FillRanks(flags.ranks, options));
  options.first_step = first_step;
  options.last_step = last_step;
  options.top = flags.top;
  options.sort_by = flags.sort_by;
  options.by_shapes = !flags.group_by.empty();
  options.filter = flags.filter;
  options.min_length = flags.min_length;
  options.jobs = jobs;
  options.progress = progress;
  LS_TRY(tables::Table table, tables::MakeTable(flags.name, timeline, options));
  const bool incomplete = table.incomplete || analysis::IncompleteInput(timeline);
  return MadeTable{std::move(table), incomplete};
}

int PrintTable(const TableFlags& flags, const std::string& json, const MadeTable& made) {
  int code = kOk;
  bool shown = false;
  const std::string hint = "another file, or - for standard output";
  const auto write = [&](const std::string& path, std::string (*render)(const tables::Table&),
                         bool (*show)(std::string_view)) {
    if (path.empty()) return;
    shown |= path == "-";
    if (const Status written = WriteOrShow(path, render(made.table), show, hint); !written.ok())
      code = PrintError(written.error());
  };
  write(flags.csv, tables::RenderTableCsv, ShowText);
  write(json, tables::RenderTableJson, ShowJson);
  if (!shown) {
    const report::TextOptions text = report::TextOptions::ForFile(STDOUT_FILENO);
    if (!ShowText(tables::RenderTableText(made.table, text.color, text.width))) code = kFailed;
  }
  if (code == kOk && made.incomplete) {
    Note("lockstep: the run's data is incomplete or doubtful; lockstep analyze lists the reasons\n");
    code = kIncomplete;
  }
  return code;
}

}  // namespace lockstep::cli
