#pragma once
// What a spool says of itself, and where the rest of its records are: without decoding it.

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
    kNone,    // It names none, or one that no agent would have made: nothing of it is touched.
    kFound,   // Open, and proved to be this spool's.
    kGone,    // It is no more.
    kHidden,  // It was in a /dev/shm that is not this one: of another container, or before this machine was started.
  };
  State state = State::kNone;
  std::string path;
  OwnedFd file;            // kFound: for reading and writing.
  bool removable = false;  // kFound: it belongs to this very file, not to one that this is a copy of.
};
// A spool may come from anywhere, so its word alone opens nothing: the file must lie where agents put it, be called
// as they call it, be a regular file of this user (O_NOFOLLOW), and hold the spool's nonce.
SpoolSegment FindSegment(const std::string& spool_path, const SpoolFacts& facts);

// FindSegment's path if it is there, else "".
std::string SegmentOfSpool(const std::string& spool_path);

// Of a slot whose spool is only a link here, to a file of another machine (--spool-dir): where it is and what to do, as
// a sentence's part with host, file and command. "" if it is not so.
std::string SpoolElsewhere(const std::string& run_dir, std::int32_t slot);

// Whether an agent, or whoever finishes its work, holds the spool's lock now.
bool SpoolIsHeld(const std::string& spool_path);

}  // namespace lockstep::trace
