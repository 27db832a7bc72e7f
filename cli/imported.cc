#include "cli/imported.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "analysis/report/format.h"
#include "cli/command.h"
#include "core/hash.h"
#include "core/own_file.h"

namespace lockstep::cli {
namespace fs = std::filesystem;
namespace {

long long NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

std::string Remaining(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

// Can hold files of ours: made if need be. A link leads where somebody else wants it.
bool Usable(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  return !error && !fs::is_symlink(dir, error) && ::access(dir.c_str(), W_OK | X_OK) == 0;
}

Result<std::string> CacheDirectory(const std::string& beside) {
  const fs::path own = fs::path(beside) / ".lockstep";
  if (!beside.empty() && Usable(own)) return own.string();
  std::vector<fs::path> others;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/') others.emplace_back(xdg);
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    others.push_back(fs::path(home) / ".cache");
  std::error_code ignored;
  if (const fs::path temporary = fs::temp_directory_path(ignored); !ignored) {
    // Where anybody may have been first: what lies there would be taken for our own import.
    const fs::path own_place = temporary / fmt::format("lockstep-{}", ::geteuid());
    if (::mkdir(own_place.c_str(), 0700) == 0 || NotOwnDirectory(own_place.string(), false).empty())
      others.push_back(own_place);
  }
  for (const fs::path& other : others)
    if (Usable(other / "lockstep")) return (other / "lockstep").string();
  return Error{ErrorCode::kIo, "there is no directory to import into", own.string(),
               "lockstep import kineto FILES -o RUN, then lockstep analyze RUN"};
}

Result<std::string> ImportIntoCache(const std::vector<std::string>& given, unsigned jobs, bool quiet) {
  LS_TRY(const import::TraceFiles traces, import::FindTraces(given));
  if (!quiet)
    for (std::size_t i = 0; i < traces.skipped.size(); ++i) {
      if (i == 3 && traces.skipped.size() > 4) {
        std::fprintf(stderr, "lockstep: and %zu more JSON files that are no traces\n", traces.skipped.size() - i);
        break;
      }
      std::fprintf(stderr, "lockstep: skipped %s\n", traces.skipped[i].c_str());
    }
  LS_TRY(const std::string cache, CacheDirectory(import::CommonDirectory(traces.files)));
  Hash64 name;
  for (const import::TraceFile& file : traces.files) name.Add(std::string_view(file.real));
  const std::string run = (fs::path(cache) / fmt::format("import-{:016x}", name.value())).string();
  if (import::InputsOf(run) == import::InputsKey(traces, false)) {
    if (!quiet) std::fprintf(stderr, "lockstep: traces as imported before in %s\n", run.c_str());
    return run;
  }
  // Made beside and moved there whole: two commands at once do not disturb each other.
  import::ImportOptions options;
  options.run_dir = fmt::format("{}.part-{}", run, ::getpid());
  options.jobs = jobs;
  ImportMeter meter(quiet);
  options.progress = [&](const import::ImportProgress& progress) { meter.Show(progress); };
  Result<import::ImportResult> imported = import::Import(traces, options);
  std::error_code error;
  if (!imported.ok()) {
    fs::remove_all(options.run_dir, error);
    return imported.error();
  }
  fs::remove_all(run, error);
  fs::rename(options.run_dir, run, error);
  if (error) return options.run_dir;  // Somebody else's is there again: this one serves as well.
  if (!quiet)
    std::fprintf(stderr, "lockstep: imported %zu %s into %s\n", traces.files.size(),
                 traces.files.size() == 1 ? "trace" : "traces", run.c_str());
  return run;
}

}  // namespace

ImportMeter::ImportMeter(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), begin_ns_(NowNs()), last_ns_(begin_ns_) {}

ImportMeter::~ImportMeter() {
  if (shown_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

double ImportMeter::seconds() const { return static_cast<double>(NowNs() - begin_ns_) / 1e9; }

// One line that rewrites itself on a terminal, a line each ten seconds elsewhere.
void ImportMeter::Show(const import::ImportProgress& progress) {
  const long long now = NowNs();
  if (quiet_ || now - last_ns_ < (terminal_ ? 200'000'000 : 10'000'000'000)) return;
  last_ns_ = now;
  shown_ = true;
  const double elapsed = std::max(seconds(), 1e-3);
  const double done = static_cast<double>(progress.bytes_done),
               all = static_cast<double>(std::max<std::uint64_t>(progress.bytes, 1));
  const std::string text = fmt::format("lockstep: import {:.0f} %  {} of {} files  {:.0f} MB/s{}", 100 * done / all,
                                       progress.files_done, progress.files, done / 1e6 / elapsed,
                                       done > 0 ? "  " + Remaining(elapsed * (all - done) / done) + " left" : "");
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", text.c_str());
  std::fflush(stderr);
}

void AddRunsArgument(CLI::App& app, std::vector<std::string>& runs) {
  app.add_option("run", runs,
                 "Run directory (default: lockstep.out/latest), or traces of torch.profiler: files, directories")
      ->type_name("RUN");
}

Result<std::string> ResolveRunOrTraces(const std::vector<std::string>& given, unsigned jobs, bool quiet) {
  if (given.empty()) return ResolveRun("");
  if (given.size() == 1 && !import::HoldsTraces(given[0])) {
    // A pattern in quotes is no run directory either.
    const bool pattern = given[0].find_first_of("*?[") != std::string::npos && !fs::exists(given[0]);
    if (!pattern) return ResolveRun(given[0]);
  }
  return ImportIntoCache(given, jobs, quiet);
}

}  // namespace lockstep::cli
