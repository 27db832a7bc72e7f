// Memory, disks, clocks, limits.

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/ring_layout.h"
#include "runtime/agent/recover/stale_segments.h"
#include "runtime/agent/slot/agent.h"
#include "runtime/doctor/check.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string Size(std::uint64_t bytes) {
  if (bytes >= 10240 * kMiB) return fmt::format("{} GiB", bytes / 1024 / kMiB);
  return fmt::format("{} MiB", bytes / kMiB);
}

// The nearest existing directory, in which something would be created.
fs::path Existing(fs::path path) {
  std::error_code ignored;
  path = fs::absolute(path, ignored);
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

}  // namespace

Finding LookAtSharedMemory(const Machine& machine) {
  const std::string& place = machine.shm_dir;
  const auto space = machine.space(place);
  const std::string remedy = fmt::format(
      "make {} larger (mount -o remount,size=1G {}; containers: --shm-size=1g), or record with less --ring-total",
      place, place);
  if (!space)
    return {Status::kWarning, fmt::format("{} is not there: rings will be on disk, which stalls traced calls", place),
            fmt::format("mount a tmpfs at {}", place)};
  if (::access(place.c_str(), W_OK | X_OK) != 0)
    return {Status::kWarning,
            fmt::format("{} cannot be written: rings will be on disk, which stalls traced calls", place),
            fmt::format("chmod 1777 {}", place)};
  const agent::RunOptions usual;
  const int ranks = std::max(1, machine.ranks_per_node);
  // As in Segment::Create: half of the space is left to the job.
  const std::uint64_t share = space->free_bytes / 2 / static_cast<std::uint64_t>(ranks);
  const std::string state =
      fmt::format("{} free in {} for {} rank{}", Size(space->free_bytes), place, ranks, ranks == 1 ? "" : "s");
  if (share < kArenaOffset + kRingHeaderBytes + kMiB)
    return {Status::kWarning, state + ": no room for rings, they will be on disk, which stalls traced calls", remedy};
  if (share < usual.ring_total_bytes)
    return {Status::kWarning,
            fmt::format("{}: rings get {} per rank instead of {}, bursts of events may be dropped (and counted)", state,
                        Size(share), Size(usual.ring_total_bytes)),
            remedy};
  return {Status::kOk, state, ""};
}

Finding LookForStaleMemory(const Machine& machine) {
  const std::vector<agent::StaleSegment> stale = agent::FindStaleSegments(machine.shm_dir);
  std::uint64_t bytes = 0, unspooled = 0;
  for (const agent::StaleSegment& segment : stale) bytes += segment.bytes, unspooled += segment.unspooled;
  if (stale.empty()) return {Status::kOk, "no run of yours has left anything in " + machine.shm_dir, ""};
  return {Status::kWarning,
          fmt::format("{} segment{} of runs that were killed take{} {} in {}{}", stale.size(),
                      stale.size() == 1 ? "" : "s", stale.size() == 1 ? "s" : "", Size(bytes), machine.shm_dir,
                      unspooled == 0 ? "" : fmt::format(", {} of them with records that are in no file", unspooled)),
          "lockstep recover RUN for runs you want, then lockstep recover --stale"};
}

Finding TestScratch(const Machine& machine) {
  const fs::path place = Existing(machine.scratch);
  const std::string name = (place / fmt::format(".lockstep-doctor-{}", ::getpid())).string();
  const std::string elsewhere = "name a directory that can be written to: lockstep run --output DIR";
  const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return {Status::kBlocker, fmt::format("runs cannot be written to {}: {}", place.string(), std::strerror(errno)),
            elsewhere};
  // A run writes what its ranks produce per second; some MB are enough to show whether the disk is too slow.
  const std::vector<char> block(4 * kMiB, 'x');
  constexpr std::uint64_t kMost = 64 * kMiB;
  std::uint64_t written = 0;
  int error = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  while (written < kMost && seconds() < machine.write_seconds) {
    const ssize_t n = ::write(fd, block.data(), block.size());
    if (n <= 0) {
      error = n < 0 ? errno : ENOSPC;
      break;
    }
    written += static_cast<std::uint64_t>(n);
    ::fdatasync(fd);
  }
  const double speed = static_cast<double>(written) / std::max(seconds(), 1e-6) / 1e6;
  ::close(fd);
  ::unlink(name.c_str());
  if (error != 0 && written < block.size())
    return {Status::kBlocker, fmt::format("{} has no space for a run: {}", place.string(), std::strerror(error)),
            elsewhere};
  const auto space = machine.space(place.string());
  const agent::RunOptions usual;
  const std::uint64_t wanted = usual.max_bytes * static_cast<std::uint64_t>(std::max(1, machine.ranks_per_node));
  const std::string state = fmt::format("{}{}: {} free, {:.0f} MB/s written", place.string(),
                                        space && !space->kind.empty() ? " (" + space->kind + ")" : "",
                                        space ? Size(space->free_bytes) : "?", speed);
  if (space && space->free_bytes < wanted / 16)
    return {Status::kWarning, state + "; a long run may fill it",
            "free space, --output elsewhere, or a lower --max-bytes"};
  if (speed < 20)
    return {Status::kWarning, state + ": slow for what busy ranks record",
            "lockstep run --spool-dir on a local disk: the run's files go to --output at the end"};
  return {Status::kOk, state, ""};
}

Finding LookAtClock(const Machine& machine) {
  const auto source = machine.Read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const auto cpu = machine.Read("/proc/cpuinfo");
  std::string name = source.value_or("unknown");
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  const bool invariant =
      cpu && cpu->find("constant_tsc") != std::string::npos && cpu->find("nonstop_tsc") != std::string::npos;
  if (name == "tsc" && invariant)
    return {Status::kOk, "the TSC is invariant and the kernel's clock: events cost least", ""};
  // kvm-clock, hyperv and arm's counter are read without a system call; hpet and acpi_pm are not.
  if (name == "hpet" || name == "acpi_pm" || name == "jiffies" || name == "refined-jiffies" || name == "xen")
    return {Status::kWarning,
            fmt::format("the kernel's clock is {}: each event costs a system call, about a microsecond", name),
            "boot with clocksource=tsc (and tsc=reliable) if the TSC is sound, else expect more overhead"};
  if (name == "tsc")
    return {Status::kWarning, "the processor does not say that its TSC is invariant: CLOCK_MONOTONIC_RAW is used",
            "in a virtual machine: expose invtsc; else nothing need be done, events cost about 20 ns more"};
  return {Status::kOk, fmt::format("the kernel's clock is {}: CLOCK_MONOTONIC_RAW is used", name), ""};
}

Finding LookAtClockSync(const Machine& machine) {
  const auto sync = machine.clock_sync();
  std::error_code ignored;
  std::string by;
  for (const auto& [path, daemon] :
       {std::pair("/run/chrony", "chrony"), std::pair("/var/run/chrony", "chrony"), std::pair("/run/ntpd.pid", "ntpd"),
        std::pair("/var/run/ntpd.pid", "ntpd"), std::pair("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
        std::pair("/run/phc2sys.0", "phc2sys (PTP)")})
    if (fs::exists(machine.Below(path), ignored)) by = daemon;
  if (!by.empty()) by = ", by " + by;
  if (!sync) return {Status::kNotHere, "the kernel does not say whether the wall clock is synchronised", ""};
  if (sync->synchronised)
    return {Status::kOk,
            fmt::format("the wall clock is synchronised{} (the kernel's bound is {} ms); Lockstep measures by itself",
                        by, (sync->max_error_us + 999) / 1000),
            ""};
  return {Status::kWarning,
          "the wall clock is not synchronised; it matters only where nodes cannot measure their clocks (--clock wall)",
          "start chrony or PTP on every node"};
}

Finding LookAtLimits(const Machine& machine) {
  struct Row {
    int resource;
    std::uint64_t least;
    const char *name, *why, *remedy;
    bool blocks;
  };
  const agent::RunOptions usual;
  const Row rows[] = {
      {RLIMIT_NOFILE, 32, "open files", "the agent needs about 20", "ulimit -n 1024", true},
      {RLIMIT_FSIZE, 64 * kMiB, "file size", "a rank's events do not fit", "ulimit -f unlimited", true},
      {RLIMIT_FSIZE, usual.max_bytes, "file size", "a long run is cut", "ulimit -f unlimited", false},
      {RLIMIT_AS, 1024 * kMiB, "address space", "agent and rings need some of it beside the program",
       "ulimit -v unlimited", false},
      {RLIMIT_NPROC, 16, "processes", "an agent needs more processes and threads", "ulimit -u 4096", false},
  };
  for (const Row& row : rows) {
    // The superuser's processes are not counted.
    if (row.resource == RLIMIT_NPROC && machine.superuser()) continue;
    const auto limit = machine.limit(row.resource);
    if (!limit || *limit >= row.least) continue;
    return {
        row.blocks ? Status::kBlocker : Status::kWarning,
        fmt::format("the limit of {} is {}: {}", row.name,
                    row.resource == RLIMIT_FSIZE || row.resource == RLIMIT_AS ? Size(*limit) : std::to_string(*limit),
                    row.why),
        row.remedy};
  }
  return {Status::kOk, "open files, file size, address space and processes are enough", ""};
}

Finding LookAtCores(const Machine& machine) {
  // CPUs beyond the machine's first 1024 are ignored here.
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  double quota = 0;
  if (const auto text = machine.Read("/sys/fs/cgroup/cpu.max")) {
    std::int64_t used = 0, period = 0;
    if (std::sscanf(text->c_str(), "%ld %ld", &used, &period) == 2 && period > 0)
      quota = static_cast<double>(used) / static_cast<double>(period);
  }
  if (cores > 0 && quota > 0 && quota + 0.01 < cores)
    return {Status::kWarning,
            fmt::format("{} cores are visible but a quota allows {:.3g}: ranks are stopped in the middle of steps",
                        cores, quota),
            "give the container as many cores as it sees (cpu.max), or start fewer ranks"};
  if (cores > 0 && machine.ranks_per_node > cores)
    return {Status::kWarning,
            fmt::format("{} ranks on {} cores: ranks share cores and delay each other", machine.ranks_per_node, cores),
            "at most a rank per core"};
  if (cores == 0) return {Status::kNotHere, "the allowed cores are not known", ""};
  return {Status::kOk, fmt::format("{} core{} may be used", cores, cores == 1 ? "" : "s"), ""};
}

}  // namespace lockstep::doctor
