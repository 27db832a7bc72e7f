#pragma once
// What fake_activity.cc (libcupti's interface) and fake_gpu.cc (streams) share. All under one lock.

#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/cupti/abi.h"

namespace lockstep::fake {

namespace cu = lockstep::cupti;

std::int64_t RawNs();

// A buffer that the client gave. Records of work stand in it from the launch on, without times until it has ended.
struct Out {
  std::uint8_t* memory = nullptr;
  std::size_t bytes = 0, used = 0, incomplete = 0;
  std::uint64_t work = 0;
};

// Work whose times are not known to CUPTI before it has ended.
struct Pending {
  std::int64_t begin_ns, end_ns;
  std::uint8_t *begin_at, *end_at;  // Where its times go, null none.
  const Out* out;
  cu::TimestampCallback clock;  // Of when it was launched; null: CLOCK_REALTIME.
};

// When a timestamp callback was registered, and what it said then. Null, CUPTI's own clock: when CUPTI began.
struct Anchor {
  std::int64_t raw_ns;
  std::uint64_t time;
};

struct State {
  std::recursive_mutex lock;
  std::uint32_t version = 130001;
  cu::BufferRequested requested = nullptr;
  cu::BufferCompleted completed = nullptr;
  cu::TimestampCallback timestamp = nullptr;
  std::map<cu::TimestampCallback, Anchor> anchors;
  std::uint32_t sessions = 0;  // How often kernels were enabled.
  std::uint32_t registrations = 0, misplaced_heads = 0;
  std::uint64_t kinds = 0;
  std::set<std::uint32_t> functions[2];  // Enabled one by one: driver, runtime.
  bool event_timestamps = false;
  bool device_graphs = false, graph_level = false;  // The second for ever.
  enum class Family { kNone, kGlobal, kSubscriber } family = Family::kNone;
  int thread_id_type = 0;
  std::map<int, std::uint64_t> attributes;
  std::map<std::uint64_t, Out*> filling;  // By thread, or the only one's 0 (CUPTI_ACTIVITY_ATTR_PER_THREAD_...).
  std::list<Out*> full;
  std::uint64_t dropped = 0, violations = 0, flushes = 0;
  bool in_callback = false;
  std::vector<Pending> pending;
  std::uint64_t device_records = 0;  // Times on the GPU that were not fetched yet.
  bool device_exhausted = false;
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
// Puts a finished record into the calling thread's buffer.
void Put(std::uint32_t kind, const std::vector<std::uint8_t>& record);
// One of work that runs from begin_ns to end_ns: its times, at these offsets (0 none), come when it has ended.
void PutWork(std::uint32_t kind, const std::vector<std::uint8_t>& record, std::uint32_t begin_at, std::uint32_t end_at,
             std::int64_t begin_ns, std::int64_t end_ns);
// Gives buffers back: full ones and, if asked, those that are being filled; those with unfinished work only by force.
void Return(bool filling, bool incomplete);
std::uint64_t Attribute(int attribute);
std::uint64_t RealtimeNs();
void Log(const char* what, std::int64_t argument, int result);
// The answer that FAKE_CUPTI_FAIL wants, else 0.
int Failure(const char* function);

}  // namespace lockstep::fake
