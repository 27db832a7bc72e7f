#pragma once
// Shared-memory segments (core/ring_layout.h) that nobody uses any more.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct StaleSegment {
  std::string path;
  std::uint64_t bytes = 0;  // Of memory it takes.
  std::uint64_t run_hash = 0;
  std::int32_t slot = -1;
  bool unspooled = false;  // Holds records that never reached a spool.
};

// Segments of this user in `directory` whose agent has ended and that no process of theirs has mapped. By path.
std::vector<StaleSegment> FindStaleSegments(const std::string& directory = "/dev/shm");

// A process that was recorded into this segment still runs and has it mapped: its id, else 0.
long UserOfSegment(const std::string& path);

// What a run's segments are named by (RunDir's .run-id, manifest.json: run_id).
std::uint64_t RunHashOf(const std::string& run_id);

}  // namespace lockstep
