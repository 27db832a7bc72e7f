#include "runtime/agent/rings/memory_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "core/byte_text.h"

namespace lockstep::agent {
namespace {

constexpr std::uint64_t kShareForRings = 32;
// What a program maps more with Lockstep's libraries (x86-64, without the GPU's: 2.1 MB, Open MPI's wrappers 0.6 more),
// and what rings, agent and program take of memory beyond what a slot's two processes begin with.
constexpr std::uint64_t kLibraries = 3 << 20, kSlotMemory = 2 << 20;
// To what a process of Lockstep's grows with what the user preloads (tcmalloc 2.10: 4.7 MB).
constexpr std::uint64_t kPreloaded = 5 << 20;
// Version 1 has a number near 2^63 where there is no limit.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;
constexpr char kOwnGroups[] = "/proc/self/cgroup", kMount[] = "/sys/fs/cgroup";

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The number behind `key` at the beginning of a line; kNoLimit for "max", or if there is none.
std::uint64_t NumberIn(const std::string& path, std::string_view key = "") {
  std::istringstream lines(ReadText(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digits = std::min(line.find_first_not_of(' ', key.size()), line.size());
    std::uint64_t value = kNoLimit;
    std::from_chars(line.data() + digits, line.data() + line.size(), value);
    return value >= kUnlimited ? kNoLimit : value;
  }
  return kNoLimit;
}

// Where a version of cgroups says what. `cached`: files of the group and those below it that the kernel drops first.
struct Files {
  const char *limit, *usage, *cached, *events;
};
constexpr Files kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
                          "memory.oom_control"},
    kVersion2{"memory.max", "memory.current", "inactive_file ", "memory.events"};

// Calls f(directory, files) for the group and those around it. In a container the path may lead out of what is mounted:
// then only parts of it are there, and the mount's own files are the container's.
template <typename F>
void ForEachAbove(std::string group, const std::string& mount, const Files& files, F&& f) {
  for (;;) {
    f(mount + group + "/", files);
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

template <typename F>
void ForEachMemoryGroup(const std::string& groups, const std::string& mount, F&& f) {
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      group = line.substr(second + 1);
    if (controllers == ",,") {
      for (const char* place : {"", "/unified"}) ForEachAbove(group, mount + place, kVersion2, f);
    } else if (controllers.find(",memory,") != std::string::npos) {
      ForEachAbove(group, mount + "/memory", kVersion1, f);
    }
  }
}

std::uint64_t Less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

std::uint64_t LimitOf(decltype(RLIMIT_AS) resource) {
  struct rlimit limit {};
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : kNoLimit;
}

}  // namespace

std::uint64_t CgroupMemoryLimit(const std::string& groups, const std::string& mount) {
  std::uint64_t least = kNoLimit;
  ForEachMemoryGroup(groups, mount, [&](const std::string& directory, const Files& files) {
    least = std::min(least, NumberIn(directory + files.limit));
  });
  return least;
}

std::uint64_t CgroupMemoryRoom(const std::string& groups, const std::string& mount) {
  std::uint64_t least = kNoLimit;
  ForEachMemoryGroup(groups, mount, [&](const std::string& directory, const Files& files) {
    const std::uint64_t limit = NumberIn(directory + files.limit), usage = NumberIn(directory + files.usage);
    if (limit == kNoLimit || usage == kNoLimit) return;
    const std::uint64_t cached = NumberIn(directory + "memory.stat", files.cached);
    least = std::min(least, Less(limit, cached == kNoLimit ? usage : Less(usage, cached)));
  });
  return least;
}

std::uint64_t AddressSpaceLimit() { return LimitOf(RLIMIT_AS); }

std::string TooSmallFor(std::uint64_t address_space, std::uint64_t cgroup_memory, std::uint64_t process_memory,
                        std::int32_t local_slots) {
  const auto text = [](std::uint64_t bytes) { return ByteText(static_cast<double>(bytes)); };
  if (address_space != kNoLimit && address_space / 11 < kLibraries + address_space / kShareForRings)
    return "its address space (ulimit -v) is " + text(address_space);
  const std::uint64_t of_slot = kSlotMemory + 2 * process_memory;
  if (cgroup_memory / 8 < of_slot * static_cast<std::uint64_t>(std::max(local_slots, 1)))
    return "its memory cgroup has " + text(cgroup_memory) +
           (local_slots > 1 ? " for " + std::to_string(local_slots) + " ranks" : "");
  return "";
}

std::string TooSmallHere(std::int32_t local_slots) {
  const std::uint64_t kib = NumberIn("/proc/self/status", "RssAnon:");
  const char* preload = std::getenv("LD_PRELOAD");
  const std::uint64_t grows = preload != nullptr && *preload != '\0' ? kPreloaded : 0;
  return TooSmallFor(AddressSpaceLimit(), CgroupMemoryLimit(ReadText(kOwnGroups), kMount),
                     std::max(grows, kib == kNoLimit ? 0 : kib * 1024), local_slots);
}

std::uint64_t MostForRings(std::int32_t local_slots) {
  std::uint64_t most = LimitOf(RLIMIT_FSIZE);
  if (const std::uint64_t space = LimitOf(RLIMIT_AS); space != kNoLimit) most = std::min(most, space / kShareForRings);
  const std::uint64_t group = CgroupMemoryLimit(ReadText(kOwnGroups), kMount);
  if (group != kNoLimit)
    most = std::min(most, group / kShareForRings / static_cast<std::uint64_t>(std::max(local_slots, 1)));
  return most;
}

std::string NoRoomFor(std::uint64_t bytes, std::uint64_t mapped_bytes, std::int32_t local_slots) {
  const auto says = [&](std::uint64_t room, const char* what) {
    return "it would take " + ByteText(static_cast<double>(bytes)) + " of memory, and " + what + " has " +
           ByteText(static_cast<double>(room)) + " left";
  };
  const std::uint64_t all = bytes * 2 * static_cast<std::uint64_t>(std::max(local_slots, 1));
  if (const std::uint64_t room = CgroupMemoryRoom(ReadText(kOwnGroups), kMount); room < all)
    return says(room, "the memory cgroup");
  if (const std::uint64_t kib = NumberIn("/proc/meminfo", "MemAvailable:"); kib != kNoLimit && kib * 1024 < all)
    return says(kib * 1024, "the machine");
  const std::uint64_t space = LimitOf(RLIMIT_AS), pages = NumberIn("/proc/self/statm");
  if (space == kNoLimit || pages == kNoLimit) return "";
  const std::uint64_t room = Less(space, pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  return room < bytes + mapped_bytes ? says(Less(room, mapped_bytes), "the address space (ulimit -v)") : "";
}

OomKills CountOomKills(const std::string& groups, const std::string& mount) {
  OomKills kills;
  // The kernel counts a kill where the killed process was, whichever group's limit was met: the nearest that says so.
  ForEachMemoryGroup(groups, mount, [&](const std::string& directory, const Files& files) {
    const std::uint64_t count = kills.group.empty() ? NumberIn(directory + files.events, "oom_kill ") : kNoLimit;
    if (count != kNoLimit) kills = {directory.substr(0, directory.size() - 1), count};
  });
  return kills;
}

OomKills CountOomKills() { return CountOomKills(ReadText(kOwnGroups), kMount); }

std::string OomKillsSince(const OomKills& before, const OomKills& now) {
  const std::uint64_t count = now.group == before.group ? Less(now.count, before.count) : 0;
  if (count == 0) return "";
  return "the memory cgroup " + now.group + " counted " + std::to_string(count) +
         (count == 1 ? " oom kill" : " oom kills") + " during the job: give it more memory, or run fewer ranks in it";
}

}  // namespace lockstep::agent
