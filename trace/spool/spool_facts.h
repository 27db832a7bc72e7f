#pragma once
// Reads the facts in a spool and finds the rest of its records, without decoding it.

#include <cstdint>
#include <map>
#include <string>

#include "core/file_lock.h"
#include "core/result.h"

namespace lockstep::trace {

struct SpoolFacts {
  std::map<std::string, std::string, std::less<>> meta;
  bool ended = false;  // SpoolEnd is there: the application has ended and its rings are drained.
  bool good_end = false;
  std::string Meta(std::string_view key) const;  // "" if absent.
};
// kNotFound, kIo; kMalformed if no block is readable.
Result<SpoolFacts> ReadSpoolFacts(const std::string& spool_path);

// The shared segment whose records follow those in the spool.
struct SpoolSegment {
  enum class State : std::uint8_t {
    kNone,    // The spool names none, or one that no agent would have made: it is not touched.
    kFound,   // Opened, and proved to belong to this spool.
    kGone,    // It does not exist any more.
    kHidden,  // It was in a /dev/shm other than this one: of another container, or from before this machine was booted.
  };
  State state = State::kNone;
  std::string path;
  OwnedFd file;            // kFound: for reading and writing.
  bool removable = false;  // kFound: it belongs to this file itself, not to a file of which this is a copy.
};
// A spool may come from anywhere, so its content alone must not decide which file is opened: the file must be where
// agents put it, have a name that they give, be a regular file of this user (O_NOFOLLOW), and hold the spool's nonce.
SpoolSegment FindSegment(const std::string& spool_path, const SpoolFacts& facts);

// The path that FindSegment finds if the file exists, else "".
std::string SegmentOfSpool(const std::string& spool_path);

// For a slot whose spool is only a link here, to a file of another machine (--spool-dir): where it is and what to do,
// as part of a sentence with host, file and command. "" in other cases.
std::string SpoolElsewhere(const std::string& run_dir, std::int32_t slot);

// Whether an agent, or a command that finishes its work, holds the spool's lock now.
bool SpoolIsHeld(const std::string& spool_path);

}  // namespace lockstep::trace
