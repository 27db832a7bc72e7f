#include "runtime/agent/stale_segments.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include "core/hash.h"
#include "runtime/agent/process_state.h"
#include "trace/leftover_rings.h"

namespace lockstep {

namespace fs = std::filesystem;

long UserOfSegment(const std::string& path) {
  const Leftover left = ReadLeftover(path, {});
  for (const ProcessState& process : left.processes)
    if (ProcessMaps(process.pid, path)) return process.pid;
  return 0;
}

std::uint64_t RunHashOf(const std::string& run_id) {
  Hash64 hash;
  hash.Add(std::string_view(run_id));
  return hash.value();
}

std::vector<StaleSegment> FindStaleSegments(const std::string& directory) {
  std::vector<StaleSegment> stale;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    // As Segment::Create names them.
    unsigned user = 0;
    std::uint64_t hash = 0;
    int slot = 0, pid = 0, read = 0;
    const std::string name = at->path().filename().string();
    if (std::sscanf(name.c_str(), "lockstep-%u-%16" SCNx64 "-%d-%d%n", &user, &hash, &slot, &pid, &read) != 4 ||
        static_cast<std::size_t>(read) != name.size() || user != static_cast<unsigned>(::getuid()))
      continue;
    struct stat info {};
    const std::string path = at->path().string();
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::getuid()) continue;
    if (ProcessMaps(pid, path)) continue;
    const Leftover left = ReadLeftover(path, {});
    if (std::any_of(left.processes.begin(), left.processes.end(),
                    [&](const ProcessState& process) { return ProcessMaps(process.pid, path); }))
      continue;
    const bool unspooled =
        std::any_of(left.rings.begin(), left.rings.end(), [](const LeftoverRing& ring) { return !ring.slots.empty(); });
    stale.push_back({path, static_cast<std::uint64_t>(info.st_blocks) * 512, hash, slot, unspooled});
  }
  std::sort(stale.begin(), stale.end(), [](const StaleSegment& a, const StaleSegment& b) { return a.path < b.path; });
  return stale;
}

}  // namespace lockstep
