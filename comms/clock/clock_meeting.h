#pragma once
// How agents find each other without MPI: small files in the run directory.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace lockstep::clock {

struct ClockAnnouncement {
  std::int32_t rank = -1, world_size = -1;
  std::uint64_t domain = 0;
  std::string address;   // ClockServer::address(), "" if it serves nobody.
  bool can_mpi = false;  // lockstep-clock is there and was asked for.
};

// Writes DIR/.clock-00005, whole or not at all. kIo.
Status PublishAnnouncement(const std::string& directory, const ClockAnnouncement& announcement);
// Of one rank; nothing if it is absent or unreadable.
std::optional<ClockAnnouncement> ReadAnnouncement(const std::string& directory, std::int32_t rank);
// Of all ranks that have announced themselves so far, by rank.
std::vector<ClockAnnouncement> ReadAnnouncements(const std::string& directory);

// The decision about lockstep-clock must be the same on every rank: MPI_Init
// waits for all. Rank 0 writes it once, the others read it.
Status PublishClockPlan(const std::string& directory, bool use_mpi);
std::optional<bool> ReadClockPlan(const std::string& directory);

// What lockstep-clock measures only makes sense across domains.
bool OneDomain(const std::vector<ClockAnnouncement>& all);

// Removes this rank's files.
void RemoveAnnouncement(const std::string& directory, std::int32_t rank);

}  // namespace lockstep::clock
