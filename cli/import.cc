// lockstep import kineto: traces of torch.profiler -> a run directory.

#include "ingest/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "analysis/report/format.h"
#include "cli/command.h"
#include "cli/imported.h"
#include "cli/out.h"
#include "merge/work_lock.h"
#include "trace/part_file.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct ImportFlags {
  std::vector<std::string> files;
  std::string output;
  unsigned jobs = 0;
  bool python_functions = false, force = false, quiet = false;
};

// A directory of somebody else's must not become a run by mistake.
Status CheckOutput(const ImportFlags& flags) {
  std::error_code ignored;
  if (!fs::exists(flags.output, ignored)) return Ok();
  if (fs::is_directory(flags.output, ignored)) {
    // What is being made, here or by others.
    bool empty = true;
    for (fs::directory_iterator at(flags.output, ignored), end; !ignored && at != end; at.increment(ignored))
      empty &= at->path().filename() == ".lockstep.lock" || IsPart(at->path().filename().string());
    if (empty) return Ok();
  }
  if (!fs::is_directory(flags.output, ignored))
    return Error{ErrorCode::kUsage, "the run directory is a file", flags.output, "choose another with -o"};
  if (!flags.force)
    return Error{ErrorCode::kUsage, "the run directory exists already", flags.output,
                 "choose another with -o, or replace it with --force"};
  return Ok();
}

void PrintLosses(const import::ImportResult& result) {
  struct Row {
    std::uint64_t count = 0;
    std::set<std::int32_t> ranks;
    std::vector<std::string> details;
  };
  std::map<Loss, Row> rows;
  for (const import::ImportLoss& loss : result.losses) {
    Row& row = rows[loss.loss];
    row.count += loss.count;
    if (loss.rank >= 0) row.ranks.insert(loss.rank);
    if (!loss.detail.empty() && row.details.size() < 3) row.details.push_back(loss.detail);
  }
  for (const bool serious : {true, false}) {
    for (const auto& [loss, row] : rows) {
      const LossInfo& info = Info(loss);
      if ((info.severity == Severity::kDataLoss) != serious) continue;
      std::string line = fmt::format("{} {}", row.count, info.sentence);
      if (!row.ranks.empty()) {
        line += row.ranks.size() == 1 ? " (rank " : " (ranks ";
        std::size_t shown = 0;
        for (const std::int32_t rank : row.ranks) {
          if (shown == 8) break;
          line += fmt::format("{}{}", shown++ == 0 ? "" : ", ", rank);
        }
        line += row.ranks.size() > shown ? fmt::format(" and {} more)", row.ranks.size() - shown) : ")";
      }
      Show("  {} {}\n", serious ? "lost:" : "note:", line);
      for (const std::string& detail : row.details)
        if (serious || row.details.size() == 1) Show("        {}\n", detail);
      if (serious) Show("        try: {}\n", info.remedy);
    }
  }
}

int Run(const ImportFlags& flags) {
  if (Status output = CheckOutput(flags); !output.ok()) return PrintError(output.error());
  Result<import::TraceFiles> traces = import::FindTraces(flags.files);
  if (!traces.ok()) return PrintError(traces.error());
  // Made within the run directory under another name: who reads the run of before goes on reading it whole.
  PartDirectory part;
  std::error_code made;
  fs::create_directories(flags.output, made);
  if (!made) RemoveLeftovers(flags.output);
  if (const int error = made ? made.value() : part.Open(flags.output + "/import"); error != 0)
    return PrintError({ErrorCode::kIo, "cannot make the run directory: " + std::generic_category().message(error),
                       flags.output, "choose another with -o"});
  import::ImportOptions options;
  options.run_dir = part.directory();
  options.jobs = flags.jobs;
  options.python_functions = flags.python_functions;
  auto meter = std::make_unique<ImportMeter>(flags.quiet);
  options.progress = [&](const import::ImportProgress& progress) { meter->Show(progress); };
  const Result<import::ImportResult> imported = import::Import(traces.value(), options);
  const double seconds = meter->seconds();
  meter.reset();
  if (!imported.ok()) return PrintError(imported.error());
  {
    const WorkLock lock(WorkLockOf(flags.output), flags.output, [&](const std::string& text) {
      if (!flags.quiet) Note("lockstep: {}\n", text);
    });
    if (lock.others_at_it())
      return PrintError({ErrorCode::kIo, "another lockstep command works on this run and makes no progress",
                         flags.output, "choose another with -o"});
    // Somebody else may have made one meanwhile.
    if (Status output = CheckOutput(flags); !output.ok()) return PrintError(output.error());
    if (Status moved = import::MoveRun(part.directory(), flags.output); !moved.ok()) return PrintError(moved.error());
  }
  if (!flags.quiet)
    for (const std::string& skipped : traces.value().skipped) Note("lockstep: skipped {}\n", skipped);

  const import::ImportResult& r = imported.value();
  const auto many = [](std::uint64_t n, const char* word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
  };
  Show("{} of {} ranks: {} ({}, {}, {}) from {} of JSON in {:.1f} s\n", r.ranks, r.world_size, many(r.events, "event"),
       many(r.kernels, "kernel"), many(r.collectives, "collective"), many(r.steps, "step"), Bytes(r.json_bytes),
       seconds);
  PrintLosses(r);
  return !Show("{}\n  next:  lockstep analyze {}\n", flags.output, flags.output) ? kFailed
         : r.incomplete                                                          ? kIncomplete
                                                                                 : kOk;
}

}  // namespace

void AddImport(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<ImportFlags>();
  CLI::App* command = root.add_subcommand("import", "Make a run directory of other tools' traces");
  command->footer(
      "Example:\n"
      "  lockstep import kineto traces/*.json.gz -o RUN      then:  lockstep analyze RUN");
  command->require_subcommand(1);
  CLI::App* kineto = command->add_subcommand("kineto", "Traces of torch.profiler: Chrome JSON, plain or gzip");
  kineto->footer(
      "Example:\n"
      "  lockstep import kineto traces/*.json.gz -o RUN      then:  lockstep analyze RUN");
  kineto->add_option("files", flags->files, "Trace files of all ranks, or directories that hold them")
      ->type_name("FILES")
      ->required();
  kineto->add_option("-o,--output", flags->output, "The run directory to make")->type_name("RUN")->required();
  kineto->add_flag("--python-functions", flags->python_functions, "Import Python function calls too (with_stack=True)");
  kineto->add_option("-j,--jobs", flags->jobs, "Threads (default: all allowed cores)")->type_name("N");
  kineto->add_flag("--force", flags->force, "Replace the run directory's run if there is one");
  kineto->add_flag("-q,--quiet", flags->quiet, "No progress and no notices on standard error");
  kineto->callback([flags, &chosen] { chosen = [flags] { return Run(*flags); }; });
}

}  // namespace lockstep::cli
