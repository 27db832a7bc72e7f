#pragma once
// Brings the files of a run that lie on several hosts, or in several directories, into one run directory.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/gather/place.h"
#include "core/result.h"

namespace lockstep::cli {

struct GatherOptions {
  std::vector<Place> places;
  std::string run;               // The run directory that is added to. It exists, and is locked.
  std::vector<std::string> rsh;  // The remote shell and its options.
};

enum class FileEnd : std::uint8_t {
  kCopied,
  kKept,       // It was there already.
  kDifferent,  // Another file of this name was there; it stays.
  kOtherRun,   // It belongs to another run.
  kUnread,     // It is no recording, or damaged.
  kLost,       // It could not be read or written.
};

struct GatheredFile {
  std::string name;
  std::uint64_t bytes = 0;
  FileEnd end = FileEnd::kLost;
  std::string why;  // kOtherRun, kUnread, kLost.
};

struct GatheredPlace {
  Place place;
  std::string trouble;  // Nothing could be had from there, and why; "" otherwise.
  std::vector<GatheredFile> files;
};

// Files are copied beside the run's others under another name, compared with their digests at the source, opened, and
// only then given their names, which replaces nothing. What cannot be had from one place does not keep the others' from
// being taken. An Error: nothing was done.
Result<std::vector<GatheredPlace>> Gather(const GatherOptions& options,
                                          const std::function<void(std::string_view phase, double done)>& progress);

}  // namespace lockstep::cli
