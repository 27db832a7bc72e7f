#pragma once
// How agents find each other without MPI: small files in the run directory.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/reference.h"
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

// For the other slots of this host: what one of them was told of rank 0's agent (core/reference.h). Only this user can
// read the file.
Status PublishReference(const std::string& directory, const Reference& reference);
// Empty if it is absent, another user's, or readable to others.
std::optional<Reference> ReadPublishedReference(const std::string& directory);
void RemovePublishedReference(const std::string& directory);

// Removes this rank's files.
void RemoveAnnouncement(const std::string& directory, std::int32_t rank);

}  // namespace lockstep::clock
