#pragma once
// The data of a record's thread that decoding the record needs.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/schema.h"
#include "trace/decode/tick_converter.h"

namespace lockstep::trace {

// From the first to the last time at which something is known to have existed; kNoTime: never.
struct Extent {
  std::int64_t first_ns = schema::kNoTime, last_ns = schema::kNoTime;

  void Cover(std::int64_t begin_ns, std::int64_t end_ns) {
    if (begin_ns != schema::kNoTime && (first_ns == schema::kNoTime || begin_ns < first_ns)) first_ns = begin_ns;
    last_ns = std::max(last_ns, end_ns);  // kNoTime is less than any time.
  }
  void Cover(const Extent& other) { Cover(other.first_ns, other.last_ns); }
};
// How often something happened, and when.
struct Seen : Extent {
  std::uint64_t count = 0;

  void Add(std::int64_t ns) { Add(1, ns, ns); }
  void Add(std::uint64_t times, std::int64_t begin_ns, std::int64_t end_ns) {
    count = count > UINT64_MAX - times ? UINT64_MAX : count + times;
    Cover(begin_ns, end_ns);
  }
};

struct RecordContext {
  std::uint32_t thread;  // Row of threads.
  TickConverter& clock;
  const std::vector<std::uint32_t>& strings;  // The thread's id -> row of strings.

  std::uint32_t Text(std::uint32_t id) const { return id != 0 && id < strings.size() ? strings[id] : schema::kNone; }
};

template <typename Record>
Record LoadRecord(std::span<const std::byte> bytes) {
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

}  // namespace lockstep::trace
