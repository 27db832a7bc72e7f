#pragma once
// How much memory the program and its agents may have together, where that is limited, and how often the kernel has
// killed one of them for it.

#include <cstdint>
#include <string>

namespace lockstep::agent {

inline constexpr std::uint64_t kNoLimit = UINT64_MAX;

// The memory cgroups, of version 1 or 2, around the process whose /proc/PID/cgroup is `groups`. `mount` is
// /sys/fs/cgroup, or a made tree. kNoLimit: there is none, or it cannot be read.
std::uint64_t CgroupMemoryLimit(const std::string& groups, const std::string& mount);
// The least in bytes that one of them has left, files that the kernel can drop not counted as taken.
std::uint64_t CgroupMemoryRoom(const std::string& groups, const std::string& mount);

// Upper limit in bytes of what one agent's rings may take: a 32nd of the address space (RLIMIT_AS, which the program's
// mapping of the rings counts against), and of what the cgroup has, shared with the agents of `local_slots`. A job that
// needs nine tenths of what it may have still fits. The rings are a file: RLIMIT_FSIZE limits them, too.
std::uint64_t MostForRings(std::int32_t local_slots);

// A program that needs as much as ten elevenths of its address space, or seven eighths of its memory cgroup, must start
// as without Lockstep: "", or what is too small for Lockstep's libraries, rings and processes in the rest. A process of
// Lockstep's takes `process_memory` when it begins: an allocator that the user preloads may take 5 MB by itself.
std::string TooSmallFor(std::uint64_t address_space, std::uint64_t cgroup_memory, std::uint64_t process_memory,
                        std::int32_t local_slots);
std::string TooSmallHere(std::int32_t local_slots);  // By the limits of this process.
std::uint64_t AddressSpaceLimit();                   // RLIMIT_AS in bytes.

// Whether this process may take `bytes` of memory and map `mapped_bytes` of a file beside them, if `local_slots` of the
// host do so at the same time: half of what the cgroup and the machine (MemAvailable) have left stays theirs who
// compute, and RLIMIT_AS allows both. "", or the reason why it may not.
std::string NoRoomFor(std::uint64_t bytes, std::uint64_t mapped_bytes, std::int32_t local_slots);

// Processes of a memory cgroup that the kernel has killed for want of memory, its own or that of those around it.
struct OomKills {
  std::string group;
  std::uint64_t count = 0;
};
OomKills CountOomKills(const std::string& groups, const std::string& mount);
OomKills CountOomKills();  // Of this process's cgroup.
// "the memory cgroup /job counted 2 oom kills during the job: ..."; "" if it counted none since `before`.
std::string OomKillsSince(const OomKills& before, const OomKills& now);

}  // namespace lockstep::agent
