#pragma once
// How much memory the program and its agents may have together, where that is limited.

#include <cstdint>
#include <string>

namespace lockstep::agent {

inline constexpr std::uint64_t kNoLimit = UINT64_MAX;

// The least limit in bytes of the memory cgroups, of version 1 or 2, around the process whose /proc/PID/cgroup is
// `groups`. `mount` is /sys/fs/cgroup, or a made tree. kNoLimit: there is none, or it cannot be read.
std::uint64_t CgroupMemoryLimit(const std::string& groups, const std::string& mount);

// Upper limit in bytes of what one agent's rings may take: a 32nd of the address space (RLIMIT_AS, which the program's
// mapping of the rings counts against), and of what the cgroup has, shared with the agents of `local_slots`. A job that
// needs nine tenths of what it may have still fits.
std::uint64_t MostForRings(std::int32_t local_slots);

}  // namespace lockstep::agent
