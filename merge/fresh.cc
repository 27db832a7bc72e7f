#include "merge/fresh.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/hash.h"
#include "core/hex.h"
#include "core/version.h"
#include "merge/readers/run_files.h"

namespace lockstep::merge {
namespace fs = std::filesystem;
namespace {

// Increased when the meaning of a timeline's figures changes; a timeline with another number is made again. 1: a step's
// length is the mean of the ranks' (docs/decisions/step-length.md). 2: members say whom a collective exempts from
// waiting. 3: waiting for messages is exposed wait. 4: a call that another of its messages explains is
// no evidence that messages move only while both ranks are in MPI. 5: receives get the numbers of their sends where
// recording windows differ. 6: what repeats is steps before closing collectives, too; long waits are judged by long
// ones. 7: steps without kernels are a loss of their own.
constexpr std::uint64_t kRules = 7;

}  // namespace

std::string_view ClockName(ClockChoice choice) {
  switch (choice) {
    case ClockChoice::kAuto:
      return "auto";
    case ClockChoice::kOff:
      return "off";
    case ClockChoice::kWall:
      return "wall";
  }
  return "auto";
}

std::string OptionsHash(const MergeOptions& options) {
  Hash64 hash;
  hash.Add(std::string_view(LOCKSTEP_VERSION));
  hash.Add(kRules);
  hash.Add(ClockName(options.clock));
  hash.Add(std::string_view(options.classes));
  hash.Add(std::string_view(options.window));
  hash.Add(static_cast<std::uint64_t>(options.first_step));
  hash.Add(static_cast<std::uint64_t>(options.last_step));
  return Hex(hash.value());
}

std::string InputsHash(const std::string& run_dir) {
  Hash64 hash;
  for (const std::string& file : ListRunFiles(run_dir)) {
    std::error_code ignored;
    hash.Add(std::string_view(file));
    hash.Add(static_cast<std::uint64_t>(fs::file_size(fs::path(run_dir) / file, ignored)));
  }
  return Hex(hash.value());
}

std::string SeenFiles(const std::string& run_dir) {
  Hash64 hash;
  for (const std::string& file : ListRunFiles(run_dir)) {
    const fs::path path = fs::path(run_dir) / file;
    hash.Add(std::string_view(file));
    if (path.extension() == ".spool") continue;
    std::error_code ignored;
    hash.Add(static_cast<std::uint64_t>(fs::file_size(path, ignored)));
    hash.Add(static_cast<std::uint64_t>(fs::last_write_time(path, ignored).time_since_epoch().count()));
  }
  return Hex(hash.value());
}

std::optional<Timeline> OpenFresh(const MergeOptions& options) {
  std::string seen = SeenFiles(options.run_dir);
  std::error_code error;
  const fs::path path = fs::path(options.run_dir) / "timeline.h5";
  const auto made = fs::last_write_time(path, error);
  bool fresh = !error;
  for (const std::string& file : ListRunFiles(options.run_dir)) {
    if (!fresh) break;
    const auto changed = fs::last_write_time(fs::path(options.run_dir) / file, error);
    fresh = !error && changed <= made;
  }
  if (!fresh) return std::nullopt;
  Result<Timeline> timeline = OpenTimeline(options.run_dir);
  if (!timeline.ok() || timeline.value().Meta("options") != OptionsHash(options) ||
      timeline.value().Meta("inputs") != InputsHash(options.run_dir))
    return std::nullopt;
  timeline.value().seen_files = std::move(seen);
  return std::move(timeline).value();
}

Result<Timeline> OpenOrMerge(const MergeOptions& options) {
  if (std::optional<Timeline> timeline = OpenFresh(options)) return std::move(*timeline);
  return MergeRun(options);
}

bool Changed(const Timeline& timeline) { return SeenFiles(timeline.run_dir) != timeline.seen_files; }

}  // namespace lockstep::merge
