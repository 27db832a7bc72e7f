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
  bool unspooled = false;  // It holds records that are in no spool.
};

// Finds this user's segments in `directory` whose lock is not held by an agent or an application (in any pid namespace)
// and that no process of this pid namespace has mapped. Sorted by path.
std::vector<StaleSegment> FindStaleSegments(const std::string& directory = "/dev/shm");
// Examines the segment once more and removes it. Returns false if a process uses it by now.
bool RemoveStaleSegment(const StaleSegment& segment);

// Whether a process may still write to a segment: an agent or application holds its lock, or (on file systems without
// locks) a process that was recorded into it still runs. `pid` is that process, 0 if it is not known. The lock stays
// with `file`. Waits up to 0.2 s for a lock whose holder is not known.
struct SegmentUse {
  bool used = false;
  long pid = 0;
};
SegmentUse UseOfSegment(const OwnedFd& file, const std::string& path);

// The hash in the names of a run's segments, from RunDir's .run-id (in manifest.json: run_id).
std::uint64_t RunHashOf(const std::string& run_id);

}  // namespace lockstep::agent
