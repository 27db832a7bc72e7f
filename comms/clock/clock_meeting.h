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
  std::string address;   // ClockServer::address(), "" if it does not listen.
  bool can_mpi = false;  // lockstep-clock is installed and was requested.
};

// Writes DIR/.clock-00005, whole or not at all. kIo on failure.
Status PublishAnnouncement(const std::string& directory, const ClockAnnouncement& announcement);
// Reads one rank's announcement; empty if it is absent or unreadable.
std::optional<ClockAnnouncement> ReadAnnouncement(const std::string& directory, std::int32_t rank);
// Reads the announcements of all ranks so far, by rank.
std::vector<ClockAnnouncement> ReadAnnouncements(const std::string& directory);

// The decision about lockstep-clock must be the same on every rank: MPI_Init
// waits for all. Rank 0 writes it once, the others read it.
Status PublishClockPlan(const std::string& directory, bool use_mpi);
std::optional<bool> ReadClockPlan(const std::string& directory);

// Whether all ranks share one clock, so that lockstep-clock has nothing to measure.
bool OneDomain(const std::vector<ClockAnnouncement>& all);

// Removes this rank's files.
void RemoveAnnouncement(const std::string& directory, std::int32_t rank);

}  // namespace lockstep::clock
