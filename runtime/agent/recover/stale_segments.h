#pragma once
// Shared-memory segments (core/ring_layout.h) that no process uses any more.

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_lock.h"

namespace lockstep::agent {

struct StaleSegment {
  std::string path;
  std::uint64_t bytes = 0;  // Of memory it takes.
  std::uint64_t run_hash = 0;
  std::int32_t slot = -1;
  bool unspooled = false;  // Holds records that never reached a spool.
};

// Segments of this user in `directory` that neither an agent nor a process of theirs holds, in whatever pid namespace
// it is, and that none of this one has mapped. By path.
std::vector<StaleSegment> FindStaleSegments(const std::string& directory = "/dev/shm");
// Checks once more, and removes. False: a process uses it by now.
bool RemoveStaleSegment(const StaleSegment& segment);

// Whether a process may still write to a segment: agent or application holds its lock, or (where there are no locks) a
// process that was recorded into it runs. `pid`: which, if that is known, else 0. The lock stays with `file`.
struct SegmentUse {
  bool used = false;
  long pid = 0;
};
SegmentUse UseOfSegment(const OwnedFd& file, const std::string& path);

// What a run's segments are named by (RunDir's .run-id, manifest.json: run_id).
std::uint64_t RunHashOf(const std::string& run_id);

}  // namespace lockstep::agent
