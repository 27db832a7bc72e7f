#include "cli/options/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "analysis/core/format.h"
#include "cli/output/out.h"
#include "core/rank_list.h"
#include "ingest/rank_files/rank_source.h"
#include "merge/readers/run_files.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

CLI::Validator Number(const std::string& wanted, bool (*fits)(double)) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && fits(value);
        return good ? std::string() : "'" + text + "' is no number " + wanted;
      },
      "", "");
}

// What is there instead of a run. A file of a run is named as such, with the run that it belongs to.
Error NoRun(const fs::path& path) {
  std::error_code ignored;
  std::string what = "this file is neither a run nor a trace that can be read",
              hint = "name a run's directory, which holds manifest.json and ranks/, or traces of other tools";
  if (fs::is_directory(path, ignored)) {
    what = fs::is_empty(path, ignored) ? "this directory is empty: there is nothing to read"
                                       : "there is no run in this directory, and no trace that can be read";
  } else {
    const fs::path folder = fs::absolute(path, ignored).lexically_normal().parent_path();
    const fs::path above = folder.filename() == "ranks" ? folder.parent_path() : folder;
    if (fs::is_directory(above / "ranks", ignored)) {
      what = "this is a file of a run, not the run";
      hint = "name the run's directory: " + above.string();
    } else if (path.extension() == ".h5" || path.extension() == ".spool") {
      const auto sources = ingest::OpenRankSources(path.string());
      what = sources.ok() ? "this rank file is not in a run's directory" : sources.error().what;
      hint = sources.ok() ? "mkdir -p RUN/ranks, put it there, and name RUN"
                          : "lockstep recover RUN in its run, if a spool is left; else copy it from its host again";
    }
  }
  return {ErrorCode::kNotFound, std::move(what), path.string(), std::move(hint)};
}

}  // namespace

CLI::Validator AboveZero() {
  return Number("above 0", [](double value) { return value > 0; });
}
CLI::Validator NotNegative() {
  return Number("of 0 or more", [](double value) { return value >= 0; });
}

ExitCode ExitCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kNotFound:
    case ErrorCode::kMalformed:
    case ErrorCode::kDataLoss:
      return kUsage;
    case ErrorCode::kUnsupported:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return kFailed;
}

int PrintError(const Error& error) {
  Note("error: {}\n", error.what);
  if (!error.where.empty()) Note("  {}\n", error.where);
  if (!error.hint.empty()) Note("  try: {}\n", error.hint);
  return ExitCodeOf(error.code);
}

bool HoldsRun(const std::string& path) {
  std::error_code ignored;
  const fs::path run(path);
  return fs::is_directory(run, ignored) &&
         (fs::exists(run / "ranks", ignored) || fs::exists(run / "timeline.h5", ignored) ||
          !merge::ListRunFiles(path).empty());
}

Status MayBeRead(const std::string& path) {
  std::error_code why;
  const bool there = fs::exists(path, why);
  if (why != std::errc::permission_denied && !(there && ::access(path.c_str(), R_OK) != 0 && errno == EACCES))
    return Ok();
  return Error{ErrorCode::kIo, "this cannot be read: Permission denied", path,
               "sudo, or have its owner allow you to read it"};
}

Result<std::string> ResolveRun(const std::string& run) {
  std::error_code ignored;
  const fs::path path = run.empty() || run == "latest" ? fs::path("lockstep.out") / "latest" : fs::path(run);
  LS_CHECK(MayBeRead(path.string()));
  if (!fs::exists(path, ignored)) {
    const bool latest = run.empty() || run == "latest";
    return Error{ErrorCode::kNotFound, latest ? "there is no run here yet" : "no such run directory", path.string(),
                 latest ? "mpirun -np 4 lockstep run -- ./app      or name the run's directory"
                        : "lockstep analyze DIR, where DIR holds manifest.json and ranks/"};
  }
  // `lockstep run` makes it point to a directory beside it. A user who may write here may have replaced it by another
  // link.
  if (run.empty() || run == "latest") {
    const std::string target = fs::read_symlink(path, ignored).string();
    if (!ignored && (target.find('/') != std::string::npos || target.starts_with('.')))
      return Error{ErrorCode::kMalformed, "this link was not made by a run: it points to " + target, path.string(),
                   "name the run's directory"};
  }
  if (!HoldsRun(path.string())) return NoRun(path);
  const fs::path real = fs::canonical(path, ignored);
  return (ignored ? path : real).string();
}

std::string CountOnRanks(std::uint64_t count, std::string_view sentence, const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kMostNamed = 8;
  std::string line = analysis::CountOf(count, sentence);
  if (ranks.empty()) return line;
  const std::size_t named = std::min(ranks.size(), kMostNamed);
  line += fmt::format(" ({} {}", ranks.size() == 1 ? "rank" : "ranks",
                      fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  return line + (ranks.size() > named ? fmt::format(" and {} more)", ranks.size() - named) : ")");
}

Result<StepRange> ParseSteps(std::string_view text) {
  StepRange range;
  if (text.empty()) return range;
  const Error bad{ErrorCode::kUsage, "'" + std::string(text) + "' is not a range of steps", "--steps",
                  "--steps 110:310 for the steps 110 to 309"};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return bad;
  const auto number = [](std::string_view part, std::int64_t& value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() && value >= 0;
  };
  const std::string_view from = text.substr(0, colon), to = text.substr(colon + 1);
  std::int64_t end = -1;
  if (!from.empty() && !number(from, range.first)) return bad;
  if (!to.empty() && (!number(to, end) || end == 0)) return bad;
  if (!from.empty() && !to.empty() && end <= range.first) return bad;
  range.last = to.empty() ? -1 : end - 1;
  return range;
}

Result<std::vector<std::int32_t>> ParseRanks(std::string_view text, const std::string& flag) {
  constexpr std::size_t kMost = std::size_t{1} << 22;
  const Error bad{ErrorCode::kUsage, "not a list of ranks: '" + std::string(text) + "'", flag,
                  flag + " " + std::string(kRankListExample)};
  const auto spans = ParseRankSpans(text);
  if (!spans) return bad;
  std::vector<std::int32_t> ranks;
  for (const auto& [first, end] : *spans) {
    if (ranks.size() + static_cast<std::size_t>(end - first) > kMost) return bad;
    for (std::int32_t rank = first; rank < end; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace lockstep::cli
