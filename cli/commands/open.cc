// lockstep open: a run's timeline in Perfetto's page.

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "analysis/core/format.h"
#include "cli/commands/merge_command.h"
#include "cli/input/found.h"
#include "cli/input/open_run.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/serve_file.h"
#include "core/own_file.h"
#include "export/export.h"
#include "merge/merge.h"
#include "runtime/agent/rundir/process_state.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargeBytes = 1'000'000'000;  // The page's memory is 2 GB in all (v58).

struct OpenFlags : RunFlags {
  std::optional<std::int64_t> step;
  std::string clock = "auto", ui = "https://ui.perfetto.dev";
  std::uint16_t port = 9001;
  bool stay = false;
};

// A directory of this user's alone, removed with what is in it when the command ends.
struct Temporary {
  std::string directory;
  bool Make() {
    std::error_code ignored;
    directory = (fs::temp_directory_path(ignored) / "lockstep-open-XXXXXX").string();
    if (::mkdtemp(directory.data()) == nullptr) directory.clear();
    return !directory.empty();
  }
  ~Temporary() {
    std::error_code ignored;
    if (!directory.empty()) fs::remove_all(directory, ignored);
  }
};

bool IsFresh(const std::string& file, const std::string& timeline) {
  std::error_code absent;
  const auto made = fs::last_write_time(file, absent);
  if (absent) return false;
  const auto merged = fs::last_write_time(timeline, absent);
  return absent || made >= merged;
}

// Cluster time of 0 in an exported file, which says so in its first packets.
std::optional<std::int64_t> BaseOf(const ServedFile& file) {
  const std::string begin = ReadUpTo(file.fd(), 0, 4096);
  constexpr std::string_view kBefore = "time 0 is ";
  const std::size_t at = begin.find(kBefore);
  if (at == std::string::npos) return std::nullopt;
  std::int64_t base_ns = 0;
  const char* from = begin.data() + at + kBefore.size();
  const auto [end, error] = std::from_chars(from, begin.data() + begin.size(), base_ns);
  if (error != std::errc()) return std::nullopt;
  return base_ns;
}

// The timeline as a file for Perfetto.
struct TimelineFile {
  std::string path;
  int code = kOk;
  std::optional<Interval> window;  // Of --step, cluster time.
};

// The run's own file if it is newer than timeline.h5; otherwise one is made now, in a temporary directory if the run's
// cannot be written to.
Result<TimelineFile> FindOrMake(const OpenFlags& flags, const merge::Timeline& timeline, bool writable,
                                Temporary& temporary, Progress& progress) {
  TimelineFile file{timeline.run_dir + "/timeline.pftrace", kOk, {}};
  if (flags.step) {
    const auto found = exporters::StepWindow(timeline, *flags.step, flags.jobs);
    if (!found.ok()) return Error{found.error().code, found.error().what, "--step", found.error().hint};
    file.window = found.value();
  }
  if (IsFresh(file.path, timeline.run_dir + "/timeline.h5")) return file;
  if (!writable) {
    // Made once, even if the run has to be read again.
    if (temporary.directory.empty() && !temporary.Make())
      return Error{ErrorCode::kIo, "neither the run directory nor a temporary one can be written", timeline.run_dir,
                   "set TMPDIR to a directory that can be written"};
    file.path = temporary.directory + "/timeline.pftrace";
  }
  exporters::ExportOptions options;
  options.format = exporters::FindFormat("perfetto");
  options.jobs = flags.jobs;
  options.output = file.path;
  std::string trouble;
  options.findings = FindingsOf(timeline, flags.jobs, trouble);
  options.progress = [&](std::string_view phase, double done) { progress.Show(phase, done); };
  LS_TRY(const exporters::ExportResult made, exporters::Export(timeline, options));
  for (const std::string& line : made.troubles) progress.Say("lost: " + line);
  if (!made.troubles.empty()) file.code = kIncomplete;
  return file;
}

// Serves the file until the page has fetched it; prints the address and the result.
Result<int> ServeTo(const std::string& origin, const OpenFlags& flags, const TimelineFile& file) {
  const std::string secret = SecretPathPart();
  if (secret.empty())
    return Error{ErrorCode::kIo, "the system provides no random numbers, so the address could be guessed", "",
                 "lockstep export RUN, then open the file in the page by hand"};
  LS_TRY(const ServedFile served_file, ServedFile::Open(file.path));
  const std::uint64_t bytes = served_file.bytes();
  ServeOptions options;
  options.file = &served_file;
  options.path = secret + "/timeline.pftrace";
  options.origin = origin;
  options.port = flags.port;
  options.stay = flags.stay;
  std::string part;
  if (const auto base_ns = file.window ? BaseOf(served_file) : std::nullopt)
    part = fmt::format("&visStart={}&visEnd={}", std::max<std::int64_t>(0, file.window->begin - *base_ns),
                       std::max<std::int64_t>(0, file.window->end - *base_ns));
  options.ready = [&](std::uint16_t port) {
    const std::string host = agent::HostName();
    Show(
        "{} ({})\n  open:  {}/#!/?url=http://127.0.0.1:{}/{}{}\n  from another machine, there:\n    ssh -N -L "
        "{}:127.0.0.1:{} {}\n",
        file.path, lockstep::analysis::Bytes(bytes), origin, port, options.path, part, port, port,
        host.empty() ? "HOST" : host);
    if (bytes > kLargeBytes)
      Show("  this is much for a web page; smaller:  lockstep export RUN --budget 500MB, or --steps A:B\n");
    Show("  served to {} only, under this address only, until {}; Ctrl-C ends it\n", origin,
         flags.stay ? "then" : "it has been fetched");
  };
  LS_TRY(const Served served, Serve(options));
  const bool shown = Show("{}{}\n",
                          served.why == Served::kFetched ? "fetched: done"
                          : served.fetched > 0           ? "interrupted, fetched before"
                                                         : "interrupted, not fetched",
                          served.refused == 0 ? "" : fmt::format(", {} refused", served.refused));
  return shown ? file.code : kFailed;
}

Result<int> RunOpen(const OpenFlags& flags) {
  const std::string origin = flags.ui.substr(0, flags.ui.find('/', flags.ui.find("://") + 3));
  if (!(origin.starts_with("https://") || origin.starts_with("http://")))
    return Error{ErrorCode::kUsage, "no address of a page: " + flags.ui, "--ui", "--ui https://ui.perfetto.dev"};
  LS_TRY(merge::MergeOptions merge, MergeOptionsOf(flags.runs, flags));
  merge.clock = ClockChoiceOf(flags.clock);
  Temporary temporary;
  LS_TRY(const TimelineFile file, WithRun(merge, flags.quiet, [&](const merge::Timeline& timeline, Progress& progress) {
           return FindOrMake(flags, timeline, merge.write, temporary, progress);
         }));
  return ServeTo(origin, flags, file);
}

}  // namespace

void AddOpen(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<OpenFlags>();
  CLI::App* app = root.add_subcommand("open", "Show a run's timeline in Perfetto's page (ui.perfetto.dev)");
  app->footer(
      "Examples:\n"
      "  lockstep open                            the latest run\n"
      "  lockstep open RUN --step 120");
  AddRunsArgument(*app, flags->runs);
  app->add_option("--step", flags->step, "Show this step")->type_name("N");
  AddClockFlag(*app, flags->clock);
  app->add_option("--ui", flags->ui, "Address of a Perfetto page of your own")->type_name("URL")->capture_default_str();
  app->add_option("--port", flags->port, "Port to serve on, 0: any free one; ui.perfetto.dev can read from 9001 only")
      ->type_name("N")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_flag("--stay", flags->stay, "Keep serving after the file has been fetched");
  AddReadFlags(*app, *flags);
  app->callback([flags, &chosen] { chosen = [flags] { return RunOpen(*flags); }; });
}

}  // namespace lockstep::cli
