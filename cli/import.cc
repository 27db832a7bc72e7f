// lockstep import kineto: traces of torch.profiler -> a run directory.

#include "merge/import/import.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "analysis/report/format.h"
#include "cli/command.h"
#include "cli/imported.h"
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
      std::printf("  %s %s\n", serious ? "lost:" : "note:", line.c_str());
      for (const std::string& detail : row.details)
        if (serious || row.details.size() == 1) std::printf("        %s\n", detail.c_str());
      if (serious) std::printf("        try: %.*s\n", static_cast<int>(info.remedy.size()), info.remedy.data());
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
  if (!made) RemoveDeadParts(flags.output);
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
      if (!flags.quiet) std::fprintf(stderr, "lockstep: %s\n", text.c_str());
    });
    if (lock.others_at_it())
      return PrintError({ErrorCode::kIo, "another lockstep works on the run and does not get on", flags.output,
                         "choose another with -o"});
    // Somebody else may have made one meanwhile.
    if (Status output = CheckOutput(flags); !output.ok()) return PrintError(output.error());
    if (Status moved = import::MoveRun(part.directory(), flags.output); !moved.ok()) return PrintError(moved.error());
  }
  if (!flags.quiet)
    for (const std::string& skipped : traces.value().skipped)
      std::fprintf(stderr, "lockstep: skipped %s\n", skipped.c_str());

  const import::ImportResult& r = imported.value();
  const auto many = [](std::uint64_t n, const char* word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
  };
  std::printf("%s\n", fmt::format("{} of {} ranks: {} ({}, {}, {}) from {} of JSON in {:.1f} s", r.ranks, r.world_size,
                                  many(r.events, "event"), many(r.kernels, "kernel"), many(r.collectives, "collective"),
                                  many(r.steps, "step"), Bytes(r.json_bytes), seconds)
                          .c_str());
  PrintLosses(r);
  std::printf("%s\n  next:  lockstep analyze %s\n", flags.output.c_str(), flags.output.c_str());
  return std::fflush(stdout) != 0 ? kFailed : r.incomplete ? kIncomplete : kOk;
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
