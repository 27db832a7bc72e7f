#include "runtime/agent/recover/stale_segments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/hash.h"
#include "core/own_file.h"
#include "core/segment_name.h"
#include "runtime/agent/rundir/process_state.h"
#include "trace/spool/leftover_rings.h"

namespace lockstep::agent {

namespace fs = std::filesystem;

namespace {

long ProcessThatMaps(const trace::Leftover& left, const std::string& path) {
  for (const trace::ProcessState& process : left.processes)
    if (ProcessMaps(process.pid, path)) return process.pid;
  return 0;
}

}  // namespace

SegmentUse UseOfSegment(const OwnedFd& file, const std::string& path) {
  const Locked locked = TryLockExclusive(file.get());
  // Versions without the lock recorded process ids only, so both the lock and the mappings are examined.
  const long pid = ProcessThatMaps(trace::ReadLeftover(path, {}), path);
  return {locked == Locked::kHeld || pid != 0, pid};
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
    SegmentName name;
    const std::string path = at->path().string();
    if (!ParseSegmentName(at->path().filename().string(), name) || name.user != ::geteuid()) continue;
    const OwnedFd file = OpenOwn(path, O_RDWR);
    struct stat info {};
    if (!file.open() || ::fstat(file.get(), &info) != 0) continue;
    if (ProcessMaps(name.pid, path) || UseOfSegment(file, path).used) continue;
    const trace::Leftover left = trace::ReadLeftover(path, {});
    const bool unspooled = std::any_of(left.rings.begin(), left.rings.end(),
                                       [](const trace::LeftoverRing& ring) { return !ring.slots.empty(); });
    stale.push_back({path, static_cast<std::uint64_t>(info.st_blocks) * 512, name.run_hash, name.slot, unspooled});
  }
  std::sort(stale.begin(), stale.end(), [](const StaleSegment& a, const StaleSegment& b) { return a.path < b.path; });
  return stale;
}

bool RemoveStaleSegment(const StaleSegment& segment) {
  const OwnedFd file = OpenOwn(segment.path, O_RDWR);
  return file.open() && !UseOfSegment(file, segment.path).used && RemoveOwn(segment.path);
}

}  // namespace lockstep::agent
