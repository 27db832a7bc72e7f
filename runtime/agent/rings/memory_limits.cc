#include "runtime/agent/rings/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace lockstep::agent {
namespace {

constexpr std::uint64_t kShareForRings = 32;
// Version 1 has a number near 2^63 where there is no limit.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// "max", or a number.
std::uint64_t LimitIn(const std::string& path) {
  const std::string text = ReadText(path);
  std::uint64_t value = kNoLimit;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
  return end == text.data() || value >= kUnlimited ? kNoLimit : value;
}

// Of the group and of those around it. In a container the path may lead out of what is mounted: then only parts of it
// are there, and the mount's own files are the container's.
std::uint64_t LeastAbove(std::string group, const std::string& mount, const char* file) {
  std::uint64_t least = kNoLimit;
  for (;;) {
    least = std::min(least, LimitIn(mount + group + "/" + file));
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

}  // namespace

std::uint64_t CgroupMemoryLimit(const std::string& groups, const std::string& mount) {
  std::uint64_t least = kNoLimit;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      group = line.substr(second + 1);
    if (controllers == ",,") {
      for (const char* place : {"", "/unified"})
        least = std::min(least, LeastAbove(group, mount + place, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, LeastAbove(group, mount + "/memory", "memory.limit_in_bytes"));
    }
  }
  return least;
}

std::uint64_t MostForRings(std::int32_t local_slots) {
  struct rlimit space {};
  std::uint64_t most = kNoLimit;
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) most = space.rlim_cur / kShareForRings;
  const std::uint64_t group = CgroupMemoryLimit(ReadText("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (group != kNoLimit)
    most = std::min(most, group / kShareForRings / static_cast<std::uint64_t>(std::max(local_slots, 1)));
  return most;
}

}  // namespace lockstep::agent
