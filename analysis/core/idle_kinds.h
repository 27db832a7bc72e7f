#pragma once
// Causes of idle time: one list, by which parts of gaps are sorted, summed and reported.

#include <array>
#include <cstdint>
#include <string_view>

#include "analysis/core/findings.h"

namespace lockstep::analysis {

// Causes of GPU idle time that have a remedy of their own; each part of a gap has one kind.
enum class IdleKind : std::uint8_t {
  kLaunch,         // Launches, their starts, and the host's own time between many launches.
  kHostWork,       // The host did something for longer than it takes from one launch to the next.
  kAllocator,      // The host allocated or freed device memory.
  kCopy,           // The host staged a copy from pageable memory.
  kSync,           // The host waited for the GPU, or its launch came late because of such a wait.
  kInput,          // The host loaded input, or did other work at the point where input is loaded.
  kUnexplained,    // The trace does not show the cause.
  kCommunication,  // The host communicated on the CPU, in calls that are in none of the communication terms.
  kOtherDevice,    // Its stream waited for work of another device.
  // Of ranks without a GPU, whose training thread is idle in:
  kFiles,     // MPI-IO.
  kOneSided,  // One-sided MPI.
  kMpiSetup,  // MPI_Init and MPI_Finalize.
  kOtherMpi,  // Other MPI calls.
  kMessages,  // Point-to-point messages that had not been sent yet.
};

struct IdleKindRow {
  std::string_view cause;  // In JSON.
  std::string_view words;  // In a sentence: "the GPU is idle for ... launching".
  FindingId finding;       // The finding that reports it.
};
inline constexpr auto kIdleKindRows = std::to_array<IdleKindRow>({
    {"launch", "launching", FindingId::kLaunchBound},
    {"host_work", "other work of the host", FindingId::kHostWork},
    {"allocator", "allocating GPU memory", FindingId::kMemoryLimit},
    {"copy", "copies from pageable memory", FindingId::kCopyPageable},
    {"sync", "waiting for the GPU", FindingId::kSyncHost},
    {"input", "input", FindingId::kInputBound},
    {"unexplained", "not told by the recording", FindingId::kIdleUnexplained},
    {"communication", "communication on the CPU", FindingId::kIdleCommunication},
    {"other_device", "work of another GPU", FindingId::kIdleOtherDevice},
    {"files", "MPI-IO", FindingId::kIdleOther},
    {"one_sided", "one-sided MPI", FindingId::kIdleOther},
    {"mpi_setup", "MPI_Init and MPI_Finalize", FindingId::kIdleOther},
    {"other_mpi", "other MPI calls", FindingId::kIdleOther},
    {"messages", "late messages", FindingId::kP2pLateSender},
});
inline constexpr std::size_t kIdleKinds = kIdleKindRows.size();
constexpr const IdleKindRow& RowOf(IdleKind kind) { return kIdleKindRows[static_cast<std::size_t>(kind)]; }

}  // namespace lockstep::analysis
