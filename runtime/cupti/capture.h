#pragma once
// The one CUPTI of the process, and whose it is at the moment: ours, another profiler's, or nobody's.

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
  kNobody = 0,  // Not begun, refused, or a forked child: everything of CUPTI goes where it went without us.
  kOurs = 1,
  kTheirs = 2,  // Another profiler has enabled kinds of its own.
  kEnded = 3,   // The process ends: nothing is read any more.
};

// What another profiler has asked CUPTI for (interpose.cc). While CUPTI is ours it is only kept.
struct Foreign {
  std::atomic<BufferRequested> requested{nullptr};
  std::atomic<BufferCompleted> completed{nullptr};
  std::atomic<TimestampCallback> timestamp{nullptr};
  std::atomic<std::uint64_t> kinds{0};      // Bit per kind enabled; the highest: single functions.
  std::atomic<std::uint32_t> flushed{0};    // It fetched its records after the last kind went off.
  std::atomic<std::uint32_t> forced{0};     // Unfinished ones as well: nothing of it is left in CUPTI.
  std::atomic<std::uint32_t> finalized{0};  // It detached CUPTI from the process.
  std::atomic<std::int64_t> changed_ns{0};  // When its last kind went off (RawNs).
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
  std::atomic<TimestampCallback> clock{nullptr};  // CUPTI has this timestamp callback; null none.
  std::atomic<bool> filters_functions{false};
  std::atomic<bool> handing_over{false};        // What CUPTI asks for from now on is to hold the other profiler's.
  std::atomic<bool> taking_back{false};         // What comes back of the other profiler's is kept for it.
  std::atomic<bool> subscriber_seen{false};     // Somebody uses the interface for several subscribers.
  std::atomic<std::uint32_t> buffers_lost{0};   // With all in them, when CUPTI was detached.
  std::atomic<std::uint64_t> kinds{0};          // Enabled for us, bit per kind.
  std::atomic<std::uint64_t> refused_kinds{0};  // Wanted, but the library has not got them, or not for this GPU.
  std::atomic<std::uint64_t> armed_ticks{0};    // First time.
  std::int64_t pid = 0;
};
extern Capture g_capture;

// One thread at a time configures CUPTI: the flusher, and threads of another profiler. These
// wait for a bounded time only, because they may hold locks of CUPTI that the flusher needs; then
// they go on without.
class Control {
 public:
  explicit Control(std::int64_t most_ns);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  bool held() const { return held_; }
  static bool Mine();    // Held further up the calling thread's stack.
  static void Forget();  // In a forked child.

 private:
  bool held_;
};

// Arm's answer: where it failed and how. Null function: it did not.
struct Refusal {
  const char* function;
  int result;
};

// CUPTI gets our buffer callbacks, which serve the other profiler while CUPTI is its.
Refusal Route();
// Callbacks, clock, attributes, kinds. On failure everything is off again. The caller has Control.
Refusal Arm();
// All our kinds off, everything of ours out of CUPTI, and CUPTI as other profilers expect to find it. What has not
// ended by then comes without times, and is counted so. The caller has Control.
void Disarm();

}  // namespace lockstep::cupti
