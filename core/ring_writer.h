#pragma once
// Producing into a ring: the hot path, inline, for liblockstep.so and for the source libraries
// loaded beside it (liblockstep-mpi.so). All slower code is in liblockstep.so (runtime/probe)
// behind the extern "C" functions below; both libraries come from one build, so this is no stable
// interface.
//
// One thread-local pointer leads to the thread's page: the RingHeader, then the producer's own
// state, which fills the rest of kRingHeaderBytes. Whenever the fast path does not apply
// (no ring yet, recording off, clock not TSC, a record being written by the code that this signal
// handler interrupted) the pointer leads to a stand-in page, whose bounds send every writer to
// the slow path. So the hot path needs no test for any of these. Stand-in pages are
// lockstep_idle_ring for all threads and, once a thread has a ring, one of its own whose `owner`
// leads to that ring.

#include <atomic>
#include <cstring>

#include "core/ring_layout.h"

namespace lockstep {

struct RingPage;

// Stored in the ring's header page, but valid inside its process only.
struct RingProducer {
  std::byte* cursor;   // The next record is written here.
  std::byte* limit;    // Records that end at or before it need no further check.
  std::byte* slots;    // Of this ring.
  void* strings;       // StringPool of runtime/probe, null until the first string.
  RingPage* owner;     // Of a stand-in page: the thread's ring, null for common ones. Of a ring: null.
  RingPage* stand_in;  // Of a ring: the thread's own stand-in page; the common one if memory was short.
  void* scratch;       // For calls with many requests; see lockstep_scratch.
  std::uint64_t scratch_bytes;
  std::uint32_t parked;             // 1: the thread-local pointer leads to the idle ring on purpose.
  std::uint32_t busy;               // 1: the slow path is running; what a signal handler records now is dropped.
  std::uint32_t unrecorded_ranges;  // Open ranges that will not be written: pushed while off, or too deep.
  std::uint32_t nested_drops;       // Dropped in signal handlers, not yet in dropped_records.
  std::uint32_t ring_index;
  std::uint32_t named;           // 1: the thread's name is in the ring.
  std::uint32_t scratch_busy;    // 1: a call further up the stack uses the scratch memory.
  std::uint64_t extra_slots;     // head - extra_slots: committed records.
  std::uint64_t poll_gap_ticks;  // A poll that comes later than this after the last one begins a new run.
  // Polls in a row, of one run or several, that were tight (ring::Poll), and how many there must be before the end of
  // one is no longer read.
  std::uint32_t tight_polls, tight_polls_needed;
  std::uint64_t long_poll_ticks;  // End of the last one that took longer.
  void* ranges;                   // NvtxThread of runtime/probe, null until needed.
  std::uint64_t range_ids;        // Start/end ranges begun on this thread.
  std::uint64_t off_since_ticks;  // Recording has been off since then and nothing was written since; 0 if not.
  // Used by runtime/probe/steps.cc: ranges of the capture window's name open on this thread, and whether the outermost
  // one counts; the same for step ranges.
  std::uint32_t window_depth, window_counts, step_depth, step_counts;
  std::uint32_t hook_depth;  // Open ranges of hooks (runtime/probe/hooks.cc) on this thread.
};

// A thread's header page. Names that cannot change (string literals of the
// executable) are found by address alone: infos[i] is their id, with the
// head of a plain range above it.
inline constexpr std::uint32_t kNameSlots = 128;
inline constexpr std::uint32_t kDeepNvtxRanges = 256;  // Beyond kMaxRangeDepth: not recorded, but popped in order.
inline constexpr std::uint32_t kRegisteredSlots = 256;
struct alignas(4096) RingPage {
  RingHeader header;
  RingProducer producer;
  const char* names[kNameSlots];
  std::uint64_t infos[kNameSlots];
  std::uint16_t deep_nvtx_domains[kDeepNvtxRanges];
  // The thread's ids of the first registered strings of NVTX (runtime/probe/nvtx_names.h); 0: not written yet.
  std::uint32_t registered[kRegisteredSlots];
};
static_assert(sizeof(RingPage) == kRingHeaderBytes);

// Set when the probe is loaded. Written once, before any ring exists.
struct ProbeState {
  SegmentHeader* segment = nullptr;  // Null: this process is not profiled.
  std::uint64_t segment_bytes = 0;
  EventClock clock;
  std::atomic<std::uint64_t> sample_ticks{0};  // Between two samples of a thread's CPU time: about 200 us.
  bool watches_ranges = false;                 // WindowSpec has a range_name or a step_range.
  bool call_stacks = false;                    // As SegmentHeader has it.
  bool records_blocked = false;                // Not SegmentHeader::blocked_off.
  // What this process's recording goes by: its own once it has an entry, before that the one that it will begin with.
  // Null: this process is not profiled.
  std::atomic<ProcessWindow*> window{nullptr};
};

#pragma GCC visibility push(default)
extern "C" {
extern __thread RingPage* lockstep_thread_ring __attribute__((tls_model("initial-exec")));
extern RingPage lockstep_idle_ring;
extern ProbeState lockstep_probe;

// The calling thread's ring, claimed on first use. Null if this process is not profiled, if there is no
// free ring, or if a record is being written further down this thread's stack (this is a signal
// handler).
RingPage* lockstep_ring(void);
// This process's entry, claimed on first use; null if not profiled or the table is full.
ProcessEntry* lockstep_process(void);
// Writes `slots` slots of whole records (`count` of them), all or none, whatever state the ring is in; ends a
// run of polls first. Returns false if there is no ring or no space; the records are then dropped and
// counted.
bool lockstep_emit_slow(const void* records, std::uint32_t slots, std::uint32_t count);
std::uint64_t lockstep_ticks_slow(void);
// Id of a text on this thread, written to its ring if new. 0: no string.
std::uint32_t lockstep_intern(const char* text);
// Number of what the calling thread was called from (CallStackRecord), written to its ring if new. 0: not known.
// Whoever asks has tested ProbeState::call_stacks.
std::uint32_t lockstep_call_stack(void);
// ring::Poll where there is no room for it yet, or no run that it belongs to.
void lockstep_poll_slow(std::uint64_t op_and_request, const std::uint64_t* requests, std::uint32_t count,
                        std::uint64_t begin_ticks, std::uint64_t end_ticks);
// At least `bytes` for the calling thread's use until its next call of this; null if memory cannot be allocated.
void* lockstep_scratch(std::uint64_t bytes);
// Writes a CpuRecord if the last one is old enough.
void lockstep_sample_cpu(RingPage* page, std::uint64_t ticks);
// `hook` is called after each switch of recording that a thread of this process made, on that thread. It is never
// removed, so its library must stay loaded. Switches by the agent or by another process of the slot are not reported.
// Returns false if there are 4 hooks already. Thread: any.
bool lockstep_on_switch(void (*hook)(bool on));
}
#pragma GCC visibility pop

namespace ring {

// The position at which RingPage::names may hold this address.
inline std::size_t NameSlot(const char* text) {
  return (static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(text)) * 0x9e3779b1u) >> 25;
}

inline std::uint64_t Ticks() {
#if defined(__x86_64__)
  if (lockstep_probe.clock.mode == ClockMode::kTsc) [[likely]]
    return ReadTsc();
#endif
  return lockstep_ticks_slow();
}

inline bool Recording() {
  const ProcessWindow* window = lockstep_probe.window.load(std::memory_order_relaxed);
  return window != nullptr && IsOn(*window);
}

// What called the operation that is about to be recorded; 0: nobody wants to know, or it is not known.
inline std::uint32_t CallStack() {
  if (!lockstep_probe.call_stacks) [[likely]]
    return 0;
  return lockstep_call_stack();
}

// The fence keeps the compiler from moving stores across; a signal handler runs
// on the same CPU, so no other fence is needed.
inline void SignalFence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// head += slots, published after everything before it. A thread owns its head, so
// no locked instruction is needed; gcc 12 makes three of the portable form.
inline void Publish(RingHeader& header, std::uint64_t slots) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  static_assert(sizeof header.head == 8);
  asm volatile("addq %1, %0" : "+m"(*reinterpret_cast<std::uint64_t*>(&header.head)) : "ri"(slots) : "memory", "cc");
#else
  header.head.store(header.head.load(std::memory_order_relaxed) + slots, std::memory_order_release);
#endif
}

// Writes `count` whole records (`slots` in all), all or none, even while recording is off: the caller tests
// Recording(). `fill(memory)` makes them, in the ring itself or in a copy on the stack; it must not record
// anything. (A record that is made elsewhere and copied costs store-forwarding stalls: its fields are narrower
// than the loads of the copy.) Returns false if they were dropped, and counted. Thread: any, each into its own
// ring.
template <std::uint32_t kSlots, typename Fill>
inline bool EmitMade(Fill&& fill, std::uint32_t count = 1) {
  RingPage* page = lockstep_thread_ring;
  lockstep_thread_ring = &lockstep_idle_ring;  // From here to the end a signal handler cannot write into this ring.
  SignalFence();
  RingProducer& producer = page->producer;
  std::byte* at = producer.cursor;
  constexpr std::ptrdiff_t kBytes = std::ptrdiff_t{kSlots} * kSlotBytes;
  if (producer.limit - at < kBytes) [[unlikely]] {
    lockstep_thread_ring = page;
    alignas(8) std::byte copy[kBytes];
    fill(copy);
    return lockstep_emit_slow(copy, kSlots, count);
  }
  fill(at);
  producer.cursor = at + kBytes;
  producer.extra_slots += kSlots - count;
  Publish(page->header, kSlots);
  SignalFence();
  lockstep_thread_ring = page;
  return true;
}

// The same for existing records.
inline bool Emit(const void* records, std::uint32_t slots, std::uint32_t count = 1) {
  RingPage* page = lockstep_thread_ring;
  lockstep_thread_ring = &lockstep_idle_ring;
  SignalFence();
  RingProducer& producer = page->producer;
  std::byte* at = producer.cursor;
  const std::size_t bytes = std::size_t{slots} * kSlotBytes;
  if (static_cast<std::size_t>(producer.limit - at) < bytes) [[unlikely]] {
    lockstep_thread_ring = page;
    return lockstep_emit_slow(records, slots, count);
  }
  std::memcpy(at, records, bytes);
  producer.cursor = at + bytes;
  producer.extra_slots += slots - count;
  Publish(page->header, slots);
  SignalFence();
  lockstep_thread_ring = page;
  return true;
}

// The thread's page for reading and marking; null in the cases of lockstep_ring().
inline RingPage* Page() {
  RingPage* page = lockstep_thread_ring;
  return page->producer.slots != nullptr ? page : lockstep_ring();
}

inline void CountPoll(OpenPolls& polls, OpenPolls::Row& row, std::uint64_t inside_ticks, std::uint64_t end_ticks) {
  row.calls += 1;
  row.last_ticks = end_ticks;
  row.inside_ticks += inside_ticks;
  polls.last_ticks = end_ticks;
  polls.calls += 1;
}

inline bool IsOf(const OpenPolls& polls, const OpenPolls::Row& row, std::uint64_t op_and_request,
                 const std::uint64_t* requests, std::uint32_t count) {
  return row.op_and_request == op_and_request && row.handles == count &&
         (count == 0 || std::memcmp(polls.handle + row.first_handle, requests, count * sizeof *requests) == 0);
}

// Polls in a row that each took no longer, and came no later after the last one, than what ends a run. Ever more of
// them are needed where polls that take longer (they move data) fill a part of the time; not after each loss of the
// core.
inline constexpr std::uint32_t kTightPolls = 4096, kMostTightPolls = 1u << 20;
inline constexpr std::uint64_t kPartOfTime = 50;
inline void NoteTight(RingProducer& producer, std::uint64_t apart_ticks, std::uint64_t begin_ticks,
                      std::uint64_t end_ticks) {
  const std::uint64_t inside_ticks = end_ticks - begin_ticks;
  if (apart_ticks <= producer.poll_gap_ticks && inside_ticks <= producer.poll_gap_ticks) {
    ++producer.tight_polls;
    return;
  }
  producer.tight_polls = 0;
  if (inside_ticks <= producer.poll_gap_ticks) return;
  if (begin_ticks - producer.long_poll_ticks > kPartOfTime * inside_ticks)
    producer.tight_polls_needed = kTightPolls;
  else if (producer.tight_polls_needed < kMostTightPolls)
    producer.tight_polls_needed *= 2;
  producer.long_poll_ticks = end_ticks;
}

// Counts one more query that found nothing, see kPoll in record.h; the key contains the request, if there was one.
// `requests`: handles known to be incomplete, of a query of several. `end` reads the clock, which takes as long as the
// query itself. After some thousand tight polls it is not asked for, and the poll counts as ended when the next one
// begins, or at its own begin if it is the last of its run. Who then stays away for longer has either worked or been in
// a poll that moved data: it counts as work, and both ends are read again. Where polls that take long show then, ever
// more tight ones are needed.
template <typename End>
inline void Poll(std::uint64_t op_and_request, const std::uint64_t* requests, std::uint32_t count,
                 std::uint64_t begin_ticks, End&& end) {
  RingPage* page = lockstep_thread_ring;
  OpenPolls& polls = page->header.polls;
  RingProducer& producer = page->producer;
  const std::uint64_t apart_ticks = begin_ticks - polls.last_ticks;
  // The number of calls is 0 in the idle ring. A poll long after the last one does not belong to its run, because the
  // thread did something else in between.
  if (polls.calls == 0 || apart_ticks > producer.poll_gap_ticks)
    return lockstep_poll_slow(op_and_request, requests, count, begin_ticks, end());
  OpenPolls::Row* row = &polls.row[polls.at];
  if (!IsOf(polls, *row, op_and_request, requests, count)) {
    const std::uint32_t next = polls.at + 1 < polls.rows ? polls.at + 1 : 0;  // Requests are asked for by turns.
    row = &polls.row[next];
    if (!IsOf(polls, *row, op_and_request, requests, count))
      return lockstep_poll_slow(op_and_request, requests, count, begin_ticks, end());
    polls.at = next;
  }
  if (producer.tight_polls >= producer.tight_polls_needed) return CountPoll(polls, *row, apart_ticks, begin_ticks);
  const std::uint64_t end_ticks = end();
  NoteTight(producer, apart_ticks, begin_ticks, end_ticks);
  CountPoll(polls, *row, end_ticks - begin_ticks, end_ticks);
}
inline void Poll(std::uint64_t op_and_request, std::uint64_t begin_ticks) {
  Poll(op_and_request, nullptr, 0, begin_ticks, Ticks);
}

}  // namespace ring
}  // namespace lockstep
