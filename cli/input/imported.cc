#include "cli/input/imported.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "analysis/core/format.h"
#include "cli/input/import_cache.h"
#include "cli/options/command.h"
#include "cli/output/out.h"

namespace lockstep::cli {
namespace fs = std::filesystem;
namespace {

long long NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

std::string Remaining(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace

ImportMeter::ImportMeter(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), begin_ns_(NowNs()), last_ns_(begin_ns_) {}

ImportMeter::~ImportMeter() {
  if (shown_ && terminal_) ShowProgress("", true);
}

double ImportMeter::seconds() const { return static_cast<double>(NowNs() - begin_ns_) / 1e9; }

// One line that rewrites itself on a terminal, a line each ten seconds elsewhere.
void ImportMeter::Show(const ingest::ImportProgress& progress) {
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
  ShowProgress(text, terminal_);
}

void AddRunsArgument(CLI::App& app, std::vector<std::string>& runs) {
  app.add_option("run", runs,
                 "Run directory (default: lockstep.out/latest), or traces of other tools: files, directories")
      ->type_name("RUN");
}

Result<std::string> ResolveRunOrTraces(const std::vector<std::string>& given, unsigned jobs, bool quiet) {
  if (given.empty()) return ResolveRun("");
  if (given.size() == 1 && !ingest::HoldsTraces(given[0])) {
    // A pattern in quotes is no run directory either.
    const bool pattern = given[0].find_first_of("*?[") != std::string::npos && !fs::exists(given[0]);
    if (!pattern) return ResolveRun(given[0]);
  }
  return ImportIntoCache(given, jobs, quiet);
}

Result<std::string> ResolveOne(const std::string& given, unsigned jobs, bool quiet) {
  return ResolveRunOrTraces(given.empty() ? std::vector<std::string>() : std::vector{given}, jobs, quiet);
}

}  // namespace lockstep::cli
