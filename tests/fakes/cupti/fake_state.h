#pragma once
// What fake_activity.cc (libcupti's interface) and fake_gpu.cc (streams) share. All under one lock.

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/cupti/abi.h"

namespace lockstep::fake {

namespace cu = lockstep::cupti;

std::int64_t RawNs();

// Work whose times are not known to CUPTI before it has ended.
struct Pending {
  std::uint32_t kind;
  std::int64_t begin_ns, end_ns;
  std::uint32_t begin_at, end_at;  // Where its times are; the same for one time.
  std::vector<std::uint8_t> record;
};

struct State {
  std::recursive_mutex lock;
  std::uint32_t version = 130001;
  cu::BufferRequested requested = nullptr;
  cu::BufferCompleted completed = nullptr;
  cu::TimestampCallback timestamp = nullptr;
  std::int64_t anchor_raw_ns = 0;  // When the timestamp callback was registered ...
  std::uint64_t anchor_time = 0;   // ... on its clock.
  std::uint64_t kinds = 0;
  std::set<std::uint32_t> functions[2];  // Enabled one by one: driver, runtime.
  bool zeroed = false, event_timestamps = false;
  int thread_id_type = 0;
  std::uint8_t* buffer = nullptr;
  std::size_t buffer_bytes = 0, used = 0;
  std::uint64_t dropped = 0, violations = 0;
  bool in_callback = false;
  std::vector<Pending> pending;
  std::uint64_t made[cu::kKindLimit] = {}, delivered[cu::kKindLimit] = {};

  std::uint32_t correlation = 100, next_stream = 13, next_event = 1;
  std::uint64_t next_sync = 1, next_address = 0x7f0000000000;
  std::map<std::uint32_t, std::int64_t> stream_end_ns;
  struct Event {
    std::uint32_t stream = 0;
    std::int64_t at_ns = 0;
    std::uint64_t sync = 0;
  };
  std::map<std::uint32_t, Event> events;
};
State& TheState();

// Bytes of a kind's records in this version; 0 not known to it.
std::uint32_t RecordBytes(std::uint32_t kind, std::uint32_t version);
bool On(std::uint32_t kind);
std::uint64_t Timestamp();  // As CUPTI would stamp a call now.
std::uint32_t ThreadId();
// A record of `kind` as long as this version's, from one of abi.h's.
template <typename Record>
std::vector<std::uint8_t> Cut(const Record& record) {
  std::vector<std::uint8_t> bytes(RecordBytes(record.kind, TheState().version));
  std::memcpy(bytes.data(), static_cast<const void*>(&record), std::min(bytes.size(), sizeof record));
  return bytes;
}
// Puts a finished record into the current buffer.
void Put(std::uint32_t kind, const std::vector<std::uint8_t>& record);
void Log(const char* what, std::int64_t argument, int result);
// The answer that FAKE_CUPTI_FAIL wants, else 0.
int Failure(const char* function);

}  // namespace lockstep::fake
