#pragma once
// What a rank's agent reports to rank 0's every few seconds: a small file beside the rank
// files, ranks/.live-NNNNN, written under another name and renamed. No connections,
// nothing to wait for: a rank that does not write is a rank that is not seen.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/agent/live/live_steps.h"

namespace lockstep::agent {

// Plain values: written as they are.
struct LiveHead {
  std::int32_t rank = 0;
  std::int64_t epoch = 0;    // Periods since 1970: the same on all ranks whose wall clocks agree to a second.
  std::uint64_t domain = 0;  // Clock domain.
  std::int64_t offset_ns = 0, error_ns = -1;  // Of the reference's clock minus this one's; error -1: not measured here.
  std::int64_t steps_ended = 0;
  std::int64_t open_step = -1, open_ns = 0;  // The step under way (-1 none) and for how long.
  double mpi_share = -1;                     // LiveSteps::MpiShare.
  bool recording = true;
  std::uint64_t records = 0, dropped = 0;  // Since the start.
};
struct LiveRank : LiveHead {
  std::vector<LiveStep> steps;
};

std::string LiveFileName(const std::string& directory, std::int32_t rank);
// False: it could not be written; the one of before, if any, is as it was.
bool WriteLiveFile(const std::string& directory, const LiveRank& rank);
// Nothing if it is not there, cut, or not ours. `size_limit`: of the file.
std::optional<LiveRank> ReadLiveFile(const std::string& directory, std::int32_t rank,
                                     std::size_t size_limit = std::size_t{4} << 20);

}  // namespace lockstep::agent
