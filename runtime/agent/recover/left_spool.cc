#include "runtime/agent/recover/left_spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/own_file.h"
#include "core/spool_name.h"
#include "runtime/agent/recover/stale_segments.h"
#include "runtime/agent/rundir/claim.h"
#include "runtime/agent/rundir/process_state.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

// Used where no lock can be tested. An agent writes a block every second, but it may be stopped (a suspended job), and
// what another host wrote becomes visible late (NFS: up to a minute).
constexpr std::time_t kSilentSeconds = 900;
// The same for spools of versions that did not record the agent's pid namespace.
constexpr std::time_t kSilentHereSeconds = 30;

std::time_t SecondsSinceBoot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec;
}

bool Here(const trace::SpoolFacts& facts) { return facts.Meta("boot_id") == trace::BootId(); }
bool InThisNamespace(const trace::SpoolFacts& facts) {
  return Here(facts) && facts.Meta("pid_namespace") == PidNamespace();
}

// Decides without a lock, from process ids and the time since the last write.
bool AgentMayRun(const trace::SpoolFacts& facts, std::time_t silent) {
  const std::string name_space = facts.Meta("pid_namespace");
  if (!Here(facts) || (!name_space.empty() && name_space != PidNamespace())) return silent < kSilentSeconds;
  const std::string start = facts.Meta("agent_start");
  const long pid = std::strtol(facts.Meta("agent_pid").c_str(), nullptr, 10);
  if (ProcessRuns(pid)) {
    if (!start.empty()) return ProcessStart(pid) == start;
    // Another process may have been given the same pid by now.
    std::error_code ignored;
    const fs::path exe = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored);
    return ignored || exe.filename() == "lockstep" || exe.filename() == "lockstep (deleted)";
  }
  return name_space.empty() && silent < kSilentHereSeconds;
}

std::string AgentText(const trace::SpoolFacts& facts) {
  return "its agent, process " + facts.Meta("agent_pid") + " on " + facts.Meta("host") +
         (Here(facts) && !InThisNamespace(facts) ? " in a container of its own," : ",");
}

class Taker {
 public:
  Taker(const SpoolPlace& place, bool without_memory) : place_(place), without_memory_(without_memory) {}

  LeftSpool Take() {
    const bool go_on = Find() && Open() && Lock() && Read();
    if (go_on && Dead() && MemorySeen()) left_.state = LeftSpool::State::kFree;
    return std::move(left_);
  }

 private:
  bool Is(LeftSpool::State state, std::string why) {
    left_.state = state;
    left_.why = std::move(why);
    return false;
  }
  std::string RecoverThere() const { return "`lockstep recover " + place_.run_dir + "`"; }
  std::string GivenUp() const { return "lockstep recover " + place_.run_dir + " --without-memory"; }

  bool Find() {
    struct stat info {};
    left_.path = place_.link;
    if (::lstat(place_.link.c_str(), &info) != 0) return Is(LeftSpool::State::kAbsent, "");
    if (!S_ISLNK(info.st_mode)) return true;
    left_.linked = true;
    std::error_code ignored;
    left_.path = fs::read_symlink(place_.link, ignored).string();
    SpoolName name;
    if (!left_.path.starts_with("/") || !ParseSpoolName(fs::path(left_.path).filename().string(), name) ||
        name.slot != place_.slot)
      return Is(LeftSpool::State::kForeign,
                "its spool is a link to " + left_.path + ", which is not a spool of this rank");
    if (::lstat(left_.path.c_str(), &info) == 0) return true;
    const Claim claim = ReadClaim(ClaimPath(place_.run_dir, place_.slot));
    if (claim.boot_id == trace::BootId() && claim.host == HostName())
      return Is(LeftSpool::State::kUnreadable, "its spool is gone: " + left_.path + " on " + claim.host);
    return Is(LeftSpool::State::kElsewhere, trace::SpoolElsewhere(place_.run_dir, place_.slot));
  }

  bool Open() {
    left_.lock = OpenOwn(left_.path, O_RDWR);
    writable_ = left_.lock.open();
    if (!writable_ && (errno == EACCES || errno == EROFS)) left_.lock = OpenOwn(left_.path, O_RDONLY);
    if (left_.lock.open()) return true;
    if (errno == ENOENT) return Is(LeftSpool::State::kAbsent, "");
    if (errno == EPERM) return Is(LeftSpool::State::kForeign, "its spool belongs to another user: it is read as it is");
    if (errno == EINVAL || errno == ELOOP)
      return Is(LeftSpool::State::kForeign, "its spool is not a regular file and is not read");
    return Is(LeftSpool::State::kUnreadable, std::string("its spool cannot be opened: ") + std::strerror(errno));
  }

  bool Lock() {
    const Locked locked = writable_ ? TryLockExclusive(left_.lock.get()) : AskExclusive(left_.lock.get());
    // A lock that is held but not exclusively belongs to a process that may only read the file and so cannot be the
    // agent.
    const bool held = locked == Locked::kHeld && AskExclusive(left_.lock.get()) == Locked::kHeld;
    lock_supported_ = locked != Locked::kUnsupported;
    if (held) {
      const Result<trace::SpoolFacts> facts = trace::ReadSpoolFacts(left_.path);
      if (facts.ok()) left_.facts = facts.value();
      const Claim claim = ReadClaim(ClaimPath(place_.run_dir, place_.slot));
      return Is(LeftSpool::State::kRunning, claim.over() ? "another lockstep command is recovering it"
                                            : facts.ok() ? AgentText(left_.facts) + " still runs"
                                                         : "its agent still runs");
    }
    // The agent or another command may have finished the spool between opening and locking.
    struct stat open {
    }, named{};
    if (::fstat(left_.lock.get(), &open) != 0 || ::lstat(left_.path.c_str(), &named) != 0 ||
        open.st_ino != named.st_ino || open.st_dev != named.st_dev)
      return Is(LeftSpool::State::kAbsent, "");
    silent_ = std::time(nullptr) - open.st_mtime;
    return true;
  }

  bool Read() {
    Result<trace::SpoolFacts> facts = trace::ReadSpoolFacts(left_.path);
    if (!facts.ok()) return Is(LeftSpool::State::kUnreadable, facts.error().what);
    left_.facts = std::move(facts).value();
    struct stat said {
    }, run{};
    left_.of_this_run = !left_.linked || (::stat(left_.facts.Meta("run_dir").c_str(), &said) == 0 &&
                                          ::stat(place_.run_dir.c_str(), &run) == 0 && said.st_ino == run.st_ino &&
                                          said.st_dev == run.st_dev);
    return true;
  }

  bool Dead() {
    // After a bad end of the application the agent does not write to its spool any more, so it may still run.
    if (left_.facts.ended && !left_.facts.good_end) return true;
    if (lock_supported_ && left_.facts.Meta("lock") == "ofd") return true;
    if (!AgentMayRun(left_.facts, silent_)) return true;
    return Is(LeftSpool::State::kRunning,
              InThisNamespace(left_.facts)
                  ? AgentText(left_.facts) + " still runs"
                  : AgentText(left_.facts) +
                        " may still run: its file system has no locks, and the spool was last written " +
                        std::to_string(silent_) + " s ago");
  }

  // Finds what the rings still hold and which processes write to them.
  bool MemorySeen() {
    if (left_.facts.ended) {
      // The rings were drained. An agent that was killed may have left the segment, which is then removed with the
      // spool.
      if (Here(left_.facts)) TakeSegment();
      return true;
    }
    if (!Here(left_.facts)) {
      const std::string host = left_.facts.Meta("host");
      const bool restarted = host == HostName() && silent_ > SecondsSinceBoot();
      if (without_memory_ || restarted) return true;
      return Is(LeftSpool::State::kElsewhere,
                "it was recorded on " + host + ", where its records may still lie in shared memory: run " +
                    RecoverThere() + " there; if " + host + " was started again or is gone: " + GivenUp());
    }
    return TakeSegment();
  }

  bool TakeSegment() {
    trace::SpoolSegment segment = trace::FindSegment(left_.path, left_.facts);
    if (segment.state == trace::SpoolSegment::State::kHidden && !left_.facts.ended && !without_memory_)
      return Is(LeftSpool::State::kElsewhere, "it was recorded in another container of this machine (host name " +
                                                  left_.facts.Meta("host") +
                                                  "), whose shared memory cannot be seen from here: run " +
                                                  RecoverThere() + " there; if it is gone: " + GivenUp());
    if (segment.state != trace::SpoolSegment::State::kFound) return true;
    const SegmentUse use = UseOfSegment(segment.file, segment.path);
    // A process outlived its agent; what it records now belongs to no run.
    if (use.used && left_.facts.ended) return true;
    if (use.used)
      return Is(LeftSpool::State::kRunning, use.pid != 0
                                                ? "its application, process " + std::to_string(use.pid) + ", still runs"
                                                : "its application, or a process that it left behind, still runs");
    left_.segment = std::move(segment);
    return true;
  }

  const SpoolPlace& place_;
  const bool without_memory_;
  LeftSpool left_;
  bool writable_ = false, lock_supported_ = false;
  std::time_t silent_ = 0;  // Seconds since the last write.
};

}  // namespace

LeftSpool TakeSpool(const SpoolPlace& place, bool without_memory) { return Taker(place, without_memory).Take(); }

std::string NotOurRun(const std::string& run_dir) {
  struct stat info {};
  if (::stat(run_dir.c_str(), &info) != 0) return run_dir + ": " + std::strerror(errno);
  if (info.st_uid != ::geteuid()) return "the run directory belongs to user " + std::to_string(info.st_uid);
  const std::string ranks = NotOwnDirectory(run_dir + "/ranks", true);
  return ranks.empty() ? "" : "ranks/ in it is not used for writing: " + ranks;
}

}  // namespace lockstep::agent
