#pragma once
// A report of Nsight Systems as SQLite: what its tables have in common. Which tables and columns there are changes
// with its version and with what was recorded, so everything is asked for and nothing is taken for granted.
//
// From NVIDIA's "SQLite Schema Reference" (Nsight Systems 2021.5 to 2025.x) and from exports of 2022.4.2, which keep
// MPI's calls as NVTX ranges of a domain "MPI"; later versions have tables of their own for them.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ingest/nsys/read/database.h"

namespace lockstep::nsys {

// "Serialized GlobalId": from the top 8 bits each of hardware and virtual machine, then 24 of the process id and 24
// of the thread id, which are 0 in a globalPid.
constexpr std::uint64_t ProcessOf(std::int64_t global_id) { return static_cast<std::uint64_t>(global_id) >> 24; }
constexpr std::int64_t PidOf(std::uint64_t process) { return static_cast<std::int64_t>(process & 0xffffff); }
constexpr std::int64_t TidOf(std::int64_t global_id) { return global_id & 0xffffff; }

// ENUM_NSYS_EVENT_TYPE.
enum NvtxType : std::int64_t {
  kNvtxCategory = 33,
  kNvtxMark = 34,
  kNvtxThread = 39,
  kNvtxPushPop = 59,
  kNvtxStartEnd = 60,
  kNvtxDomain = 75,
};

struct Process {
  std::uint64_t process = 0;
  std::int32_t mpi_rank = -1;
  bool gpu = false;       // Has GPU activity.
  bool launches = false;  // Asked for some.
  bool steps = false;     // Has ranges that are named like steps.
  std::uint64_t events = 0;
};

class Report {
 public:
  static Result<Report> Open(const std::string& path);

  const Database& database() const { return database_; }
  std::string_view Text(std::int64_t id) const;  // A text of StringIds, "" if there is none.
  std::uint64_t strings() const { return strings_.size(); }
  // Wall clock at the time 0 of all events; kAbsent unknown.
  std::int64_t start_utc_ns() const { return start_utc_ns_; }
  const std::string& host() const { return host_; }
  const std::string& product() const { return product_; }  // "2024.6.2.225"
  const std::string& schema() const { return schema_; }    // "3.16.1"
  // A few of the warnings of Nsight Systems itself.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Tables that could not be read to their end, with why.
  const std::vector<std::string>& troubles() const { return troubles_; }

  // Processes with events, by number. Reads the large tables once.
  std::vector<Process> Processes() const;
  // From the environment or the communicators of one process; 0 unknown.
  std::int64_t WorldSize() const;
  // By the launcher's variables in the target's environment: of the one process that was profiled; -1 unknown.
  std::int32_t RankOfEnvironment() const;

 private:
  explicit Report(Database database) : database_(std::move(database)) {}
  void ReadFacts();
  bool IsLaunch(const Rows& call) const;
  bool IsStep(const Rows& event) const;

  Database database_;
  std::unordered_map<std::int64_t, std::string> strings_;
  std::unordered_map<std::string, std::string> environment_;
  std::int64_t start_utc_ns_ = kAbsent;
  std::string host_, product_, schema_;
  std::vector<std::string> troubles_, warnings_;
};

// The reason why a database is not a report of Nsight Systems, "" if it is one.
std::string RefuseReport(const Database& database);

}  // namespace lockstep::nsys
