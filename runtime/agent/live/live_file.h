#pragma once
// What a rank's agent reports to rank 0's every few seconds: a small file beside the rank files, ranks/.live-NNNNN,
// written under another name and renamed. There are no connections and nothing waits: a rank that does not write is
// missing from the figures.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/agent/live/live_steps.h"

namespace lockstep::agent {

// Plain values, written without conversion.
struct LiveHead {
  std::int32_t rank = 0;
  std::int64_t epoch = 0;    // Periods since 1970: the same on all ranks whose wall clocks agree to a second.
  std::uint64_t domain = 0;  // Clock domain.
  // The reference clock minus this one, all over `steps`; error -1: not measured on this rank.
  std::int64_t offset_ns = 0, error_ns = -1;
  std::int64_t steps_ended = 0;
  std::int64_t open_step = -1, open_ns = 0;  // The step in progress (-1 if none) and its duration so far.
  double mpi_share = -1;                     // LiveSteps::MpiShare.
  bool recording = true;
  std::uint64_t records = 0, dropped = 0;  // Since the start.
};
struct LiveRank : LiveHead {
  std::vector<LiveStep> steps;
};

std::string LiveFileName(const std::string& directory, std::int32_t rank);
// Returns false if it could not be written; the previous file, if any, is unchanged.
bool WriteLiveFile(const std::string& directory, const LiveRank& rank);
// Returns nothing if the file does not exist, is incomplete, or is not one of ours. `size_limit`: the largest size
// read.
std::optional<LiveRank> ReadLiveFile(const std::string& directory, std::int32_t rank,
                                     std::size_t size_limit = std::size_t{4} << 20);

}  // namespace lockstep::agent
