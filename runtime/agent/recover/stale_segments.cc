#include "runtime/agent/recover/stale_segments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
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

// Another command that removes the same segment holds its lock for a moment only, and so does the kernel that of a
// process which has just ended (while somebody reads its /proc/PID/maps, say).
constexpr int kLockTries = 40;
constexpr timespec kLockPause{0, 5'000'000};

}  // namespace

SegmentUse UseOfSegment(const OwnedFd& file, const std::string& path) {
  // Versions without the lock recorded process ids only, so both the lock and the mappings are examined.
  const trace::Leftover left = trace::ReadLeftover(path, {});
  for (int left_tries = kLockTries;; --left_tries) {
    const Locked locked = TryLockExclusive(file.get());
    const long pid = ProcessThatMaps(left, path);
    const bool used = locked == Locked::kHeld || pid != 0;
    if (!used || pid != 0 || left_tries == 0) return {used, pid};
    ::nanosleep(&kLockPause, nullptr);
  }
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
    // Only asked for: a lock that is taken here would tell a `recover` at this moment that the segment is in use.
    if (ProcessMaps(name.pid, path) || AskAny(file.get()) == Locked::kHeld) continue;
    const trace::Leftover left = trace::ReadLeftover(path, {});
    if (ProcessThatMaps(left, path) != 0) continue;
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
