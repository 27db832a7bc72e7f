// lockstep import: traces of other tools -> a run directory.

#include "ingest/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "analysis/core/format.h"
#include "cli/input/imported.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "ingest/formats.h"
#include "merge/work_lock.h"
#include "trace/file/part_file.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct ImportFlags {
  std::vector<std::string> files;
  std::string output;
  unsigned jobs = 0;
  std::string step_range;
  const ingest::ForeignFormat* format = nullptr;  // Null: any format.
  bool python_functions = false, force = false, quiet = false;
};

// A directory with other files must not become a run by mistake.
Status CheckOutput(const ImportFlags& flags) {
  std::error_code ignored;
  if (!fs::exists(flags.output, ignored)) return Ok();
  if (fs::is_directory(flags.output, ignored)) {
    // A part that is being written, here or by another process.
    bool empty = true;
    for (fs::directory_iterator at(flags.output, ignored), end; !ignored && at != end; at.increment(ignored))
      empty &= at->path().filename() == ".lockstep.lock" || trace::IsPart(at->path().filename().string());
    if (empty || ingest::IsMovingRun(flags.output)) return Ok();
  }
  if (!fs::is_directory(flags.output, ignored))
    return Error{ErrorCode::kUsage, "the run directory is a file", flags.output, "choose another with -o"};
  if (!flags.force)
    return Error{ErrorCode::kUsage, "the run directory exists already", flags.output,
                 "choose another with -o, or replace it with --force"};
  return Ok();
}

void PrintLosses(const ingest::ImportResult& result) {
  struct Row {
    std::uint64_t count = 0;
    std::set<std::int32_t> ranks;
    std::vector<std::string> details;
  };
  std::map<Loss, Row> rows;
  for (const ingest::ImportLoss& loss : result.losses) {
    Row& row = rows[loss.loss];
    row.count += loss.count;
    if (loss.rank >= 0) row.ranks.insert(loss.rank);
    if (!loss.detail.empty() && row.details.size() < 3) row.details.push_back(loss.detail);
  }
  for (const bool serious : {true, false}) {
    for (const auto& [loss, row] : rows) {
      const LossInfo& info = Info(loss);
      if ((info.severity == Severity::kDataLoss) != serious) continue;
      const std::string line =
          CountOnRanks(row.count, info.sentence, std::vector<std::int32_t>(row.ranks.begin(), row.ranks.end()));
      Show("  {} {}\n", serious ? "lost:" : "note:", line);
      for (const std::string& detail : row.details)
        if (serious || row.details.size() == 1) Show("        {}\n", detail);
      if (serious) Show("        try: {}\n", info.remedy);
    }
  }
}

std::string Many(std::uint64_t n, const char* word) { return analysis::Plural(static_cast<std::int64_t>(n), word); }

Result<int> RunImport(const ImportFlags& flags) {
  LS_CHECK(CheckOutput(flags));
  LS_TRY(const ingest::TraceFiles traces, ingest::FindTraces(flags.files, flags.format));
  // Written inside the run directory under another name, so that readers of the previous run can finish.
  trace::PartDirectory part;
  std::error_code made;
  const bool is_new = fs::create_directories(flags.output, made);
  if (!made) trace::RemoveLeftovers(flags.output);
  if (const int error = made ? made.value() : part.Open(flags.output + "/import"); error != 0)
    return Error{ErrorCode::kIo, "cannot make the run directory: " + std::generic_category().message(error),
                 flags.output, "choose another with -o"};
  ingest::ImportOptions options;
  options.run_dir = part.directory();
  options.jobs = flags.jobs;
  options.python_functions = flags.python_functions;
  options.step_range = flags.step_range;
  auto meter = std::make_unique<Progress>(flags.quiet);
  options.progress = [&](const ingest::ImportProgress& progress) { ShowImport(*meter, progress); };
  Result<ingest::ImportResult> imported = ingest::Import(traces, options);
  if (!imported.ok()) {
    part.Drop();
    if (is_new) fs::remove(flags.output, made);  // If it is empty.
    return imported.error();
  }
  const ingest::ImportResult r = std::move(imported).value();
  const double seconds = meter->seconds();
  meter.reset();
  {
    const merge::WorkLock lock(merge::WorkLockOf(flags.output), flags.output, [&](const std::string& text) {
      if (!flags.quiet) Note("lockstep: {}\n", text);
    });
    if (lock.others_at_it())
      return Error{ErrorCode::kIo, "another lockstep command works on this run and makes no progress", flags.output,
                   "choose another with -o"};
    // Another process may have made a run meanwhile.
    LS_CHECK(CheckOutput(flags));
    LS_CHECK(ingest::MoveRun(part.directory(), flags.output));
  }
  if (!flags.quiet)
    for (const std::string& skipped : traces.skipped) Note("lockstep: skipped {}\n", skipped);

  Show("{} of {} ranks: {} ({}, {}, {}) from {} in {:.1f} s\n", analysis::Count(r.ranks), analysis::Count(r.world_size),
       Many(r.events, "event"), Many(r.kernels, "kernel"), Many(r.collectives, "collective"), Many(r.steps, "step"),
       analysis::Bytes(r.read_bytes), seconds);
  PrintLosses(r);
  return !Show("{}\n  next:  lockstep analyze {}\n", flags.output, flags.output) ? kFailed
         : r.incomplete                                                          ? kIncomplete
                                                                                 : kOk;
}

// The same flags for files of any format and for those of one format.
void AddFlags(CLI::App& command, const std::shared_ptr<ImportFlags>& flags, const ingest::ForeignFormat* format,
              Chosen& chosen) {
  command.add_option("files", flags->files, "Trace files of all ranks, or directories that hold them")
      ->type_name("FILES");
  command.add_option("-o,--output", flags->output, "The run directory to make")->type_name("RUN");
  command.add_flag("--python-functions", flags->python_functions, "Import Python function calls too (with_stack=True)");
  AddTraceFlags(command, flags->step_range, flags->jobs);
  command.add_flag("--force", flags->force, "Replace the run directory's run if there is one");
  command.add_flag("-q,--quiet", flags->quiet, "No progress and no notices on standard error");
  command.callback([flags, format, &command, &chosen] {
    // If a format is named, its subcommand does the work.
    if (!command.get_subcommands().empty()) return;
    if (flags->files.empty()) throw CLI::RequiredError("files");
    if (flags->output.empty()) throw CLI::RequiredError("--output");
    flags->format = format;
    chosen = [flags] { return RunImport(*flags); };
  });
}

}  // namespace

void AddImport(CLI::App& root, Chosen& chosen) {
  CLI::App* command = root.add_subcommand("import", "Make a run directory of other tools' traces");
  command->footer(
      "Example:\n"
      "  lockstep import traces/ -o RUN      then:  lockstep analyze RUN");
  AddFlags(*command, std::make_shared<ImportFlags>(), nullptr, chosen);
  for (const ingest::ForeignFormat* format : ingest::ForeignFormats()) {
    const std::string name(format->name);
    CLI::App* one = command->add_subcommand(name, std::string(format->what));
    one->footer(fmt::format("Example:\n  lockstep import {} traces/ -o RUN      then:  lockstep analyze RUN", name));
    AddFlags(*one, std::make_shared<ImportFlags>(), format, chosen);
  }
}

}  // namespace lockstep::cli
