#pragma once
// What NCCL's RAS subsystem answered, the same of its text and its JSON. What the fields mean is told by NCCL's
// documentation (troubleshooting, RAS) and by src/ras/client_support.cc, NCCL 2.24 to 2.31; RCCL writes the same.

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::ras {

inline constexpr std::int64_t kNotKnown = -1;

// A GPU of a process, which is what has a rank in communicators.
struct Process {
  std::string host;        // An address as a rule; "" unknown.
  std::int32_t cuda = -1;  // As CUDA counts in the process.
  std::int32_t gpu = -1;   // NVML's number, else CUDA's.
  std::int64_t pid = -1;
  bool known() const { return !host.empty() && pid > 0; }
  auto operator<=>(const Process&) const = default;
};

enum class Status : std::uint8_t { kUnknown, kInit, kRunning, kFinalize, kAbort, kNoMember };

struct CommRank {
  std::int32_t rank = -1;  // In the communicator.
  Process process;
  Status status = Status::kUnknown;
  bool silent = false;  // Its process did not answer.
  bool dead = false;    // And has not for a minute.
  std::string error;    // Of its initialisation or since; "" none.
  // By kind ("all_reduce"; "" all kinds together): so many were called. Messages are not counted, nor is what
  // completed.
  std::map<std::string, std::int64_t> counts;
};

struct Communicator {
  std::string hash;  // "27a079b828ff1a75".
  std::int32_t size = 0;
  // Kinds that are not among the counts were not called. Otherwise all ranks may have called them, equally often.
  bool counts_are_whole = false;
  std::vector<CommRank> ranks;  // Ascending, without those of which nothing is said.
};

struct Answer {
  std::int64_t told_ns = kNotKnown;  // Local time of the host that answered, as if it were UTC.
  std::int64_t time_ns = kNotKnown;  // On one clock for all answers of a job.
  std::string name;                  // Of the file, to print.
  std::int64_t gpus = kNotKnown;     // Of the whole job.
  std::vector<Communicator> communicators;
  std::vector<Process> silent, dead;  // Processes, as far as they are listed.
  std::int64_t dead_count = 0;
  bool cut_off = false;
};

// "AllReduce" is "all_reduce", as in all other sources.
std::string KindOf(const std::string& name);

// Without "0x" and leading zeros.
std::string PlainHash(const std::string& hash);

// No job has communicators as large, whatever a file says.
inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

}  // namespace lockstep::ras
