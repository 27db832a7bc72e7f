#pragma once
// What one rank's dump says, in our words but as the rank itself sees it: groups by the rank's own numbers, peers by
// their place in the group.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "hang/progress.h"

namespace lockstep::flight_recorder {

// One entry of the ring.
struct Entry {
  hang::Operation call;                                                  // Without `sequence` and `peer`.
  std::string backend;                                                   // "nccl", "gloo", "xccl"; "" none.
  std::int64_t group = -1;                                               // Index of DumpGroup.
  std::int64_t collective = hang::kNotKnown, message = hang::kNotKnown;  // Both counts at this entry.
  std::int64_t record = hang::kNotKnown;                                 // Counts all entries of the rank.
  std::int64_t operation = hang::kNotKnown;                              // Counts both in the group.
  std::int64_t timeout_ns = 0;
  std::int32_t from = -1, to = -1;  // Of a message: places in the group.
  bool is_message = false, retired = false;
  bool shows_start = false;  // When the GPU started it is recorded.
};

struct DumpGroup {
  std::string name, label;
  std::vector<std::int32_t> ranks;  // As the group orders them; empty: the dump does not say.
  bool has_status = false;          // The three below.
  std::int64_t enqueued = hang::kNotKnown, started = hang::kNotKnown, completed = hang::kNotKnown;
};

struct Dump {
  std::int32_t told_rank = -1;  // By a field of its own.
  std::string version;
  std::vector<DumpGroup> groups;
  std::vector<Entry> entries;                // In the order of the calls.
  bool status_is_whole = false;              // Every status is a known group's: a group without one has had no call.
  bool anything = false;                     // There is an entry or a status.
  std::int64_t latest_ns = hang::kNotKnown;  // The last thing that happened.
};

// From the bytes of a pickle or of JSON. kMalformed: why it is no dump.
Result<Dump> ReadDump(std::string_view bytes);

// "nccl:_all_gather_base" -> "all_gather". `backend` gets the part before the colon.
std::string KindOf(std::string_view profiling_name, std::string* backend);

}  // namespace lockstep::flight_recorder
