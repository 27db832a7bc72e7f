#pragma once
// The process's CUPTI and its current owner: this source, another profiler, or none.

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "core/ring_layout.h"
#include "runtime/cupti/api.h"
#include "runtime/cupti/attributes.h"
#include "runtime/cupti/buffers.h"
#include "runtime/cupti/cupti_clock.h"
#include "runtime/cupti/lent_buffers.h"

namespace lockstep::cupti {

enum class Owner : std::uint32_t {
  kNobody = 0,  // Not begun, refused, or a forked child: all calls of CUPTI are passed on as they would be without us.
  kOurs = 1,
  kTheirs = 2,  // Another profiler has enabled kinds of its own.
  kEnded = 3,   // The process is ending: nothing is read any more.
};

// What another profiler has requested from CUPTI (interpose.cc). While CUPTI is ours the requests are only stored.
struct Foreign {
  std::atomic<BufferRequested> requested{nullptr};
  std::atomic<BufferCompleted> completed{nullptr};
  std::atomic<TimestampCallback> timestamp{nullptr};
  std::atomic<std::uint64_t> kinds{0};      // Bit per kind enabled; the highest: single functions.
  std::atomic<std::uint32_t> flushed{0};    // It fetched its records after its last kind was disabled.
  std::atomic<std::uint32_t> forced{0};     // It forced unfinished ones as well, so CUPTI holds nothing of it.
  std::atomic<std::uint32_t> finalized{0};  // It detached CUPTI from the process.
  std::atomic<std::int64_t> changed_ns{0};  // When its last kind was disabled (RawNs).
  std::atomic<std::uint64_t> gap_begin_ticks{0};
};

struct Capture {
  std::atomic<Owner> owner{Owner::kNobody};
  Api api{};
  RecordSizes sizes{};
  BufferPool pool;
  LentBuffers lent;
  Attributes attributes;
  Foreign foreign;
  ProcessEntry* process = nullptr;
  std::atomic<TimestampCallback> clock{nullptr};  // The timestamp callback that CUPTI has; null: none.
  std::atomic<bool> filters_functions{false};
  // The number of cuDriverGetVersion among CUPTI's functions of the driver, if its calls are recorded; else 0.
  std::atomic<std::uint32_t> heartbeat{0};
  std::atomic<std::uint32_t> sessions{0};  // Of ours, and one of another profiler before them.
  std::atomic<bool> forcing{false};        // CUPTI is asked for unfinished records, which have no times.
  bool whole_graphs = false;
  // The buffers that CUPTI requests from now on are for the other profiler's records.
  std::atomic<bool> handing_over{false};
  std::atomic<bool> taking_back{false};         // Returned buffers of the other profiler are kept for it.
  std::atomic<bool> subscriber_seen{false};     // Another tool uses the interface for several subscribers.
  std::atomic<bool> subscriber_refused{false};  // And CUPTI refuses it, because we use the other interface.
  char subscriber_name[64] = {};
  std::atomic<std::uint32_t> buffers_lost{0};   // Lost with all their records when CUPTI was detached.
  std::atomic<std::uint64_t> kinds{0};          // Enabled for us, a bit per kind.
  std::atomic<std::uint64_t> refused_kinds{0};  // Requested, but not supported by the library or for this GPU.
  std::atomic<std::uint64_t> armed_ticks{0};    // First time.
  std::int64_t pid = 0;
};
extern Capture g_capture;

// One thread at a time configures CUPTI: the flusher, and threads of another profiler. The latter wait for a bounded
// time only, because they may hold locks of CUPTI that the flusher needs; then they continue without.
class Control {
 public:
  explicit Control(std::int64_t most_ns);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  bool held() const { return held_; }
  static bool Mine();    // Whether a caller further up this thread's stack holds it.
  static void Forget();  // In a forked child.

 private:
  bool held_;
};

// The result of Arm: which function failed and how. Null function: none failed.
struct Refusal {
  const char* function;
  int result;
};

// Writes a line to standard error, without control characters. `line` may be changed.
void SayPlain(char* line);
// Registers our buffer callbacks with CUPTI; they serve the other profiler while it owns CUPTI.
Refusal Route();
// Fetches all records, by force also unfinished ones. The caller holds Control.
bool FlushAll(bool forced);
// Sets callbacks, clock, attributes and kinds. On failure everything is undone. The caller holds Control.
Refusal Arm();
// Disables all our kinds and removes everything of ours, so that CUPTI is as other profilers expect it. Activities that
// have not ended by then come without times, and are counted so. The caller holds Control.
void Disarm();

}  // namespace lockstep::cupti
