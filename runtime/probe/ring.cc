// Claims rings, and writes records when the fast path does not apply.

#include "runtime/probe/ring.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "runtime/probe/blocked/watch.h"
#include "runtime/probe/range_memory.h"

namespace lockstep {

// A template image of TLS: one pointer, initial-exec. dlopen'ed sources share the
// 1.6 KiB that glibc 2.36 keeps for such variables, so it must stay one pointer.
__thread RingPage* lockstep_thread_ring = &lockstep_idle_ring;

// Depth 2^32-1 and an empty stretch of slots: every fast path is left at once.
constinit RingPage lockstep_idle_ring = {.header = {.range_depth = 0xffffffffu, .nvtx_depth = 0xffffffffu}};

namespace probe {
namespace {

// The thread-local pointer leads here while the thread claims its ring, or makes it busy: whatever the ring's other
// state is just then, a signal handler drops its records, all of them.
constinit RingPage g_sealed = {.header = {.range_depth = 0xffffffffu, .nvtx_depth = 0xffffffffu}};

constexpr std::uint32_t kLeastSlots =
    512;  // 10,000 records a second at the agent's usual pace; a text of kMaxStringBytes takes 129 slots.
constexpr std::uint64_t kManyThreads = 512;  // Each should get a ring at the default --ring-total.
// Slots between two tests of the consumer's position and the recording switch.
constexpr std::uint32_t kStretchSlots = 128;

pthread_key_t g_key;
std::atomic<int> g_key_state{0};  // 0 none 1 being made 2 ready 3 failed
std::atomic<std::uint32_t> g_claimed_rings{0};
std::atomic<std::uint64_t> g_claim_failed_ticks{0};  // 0: the last attempt succeeded.

void OnThreadExit(void* page) {
  const ErrnoKeeper errno_keeper;
  CloseRing(*static_cast<RingPage*>(page));
}

bool HaveKey() {
  int state = g_key_state.load(std::memory_order_acquire);
  if (state == 2) return true;
  if (state == 0 && g_key_state.compare_exchange_strong(state, 1)) {
    const bool made = pthread_key_create(&g_key, OnThreadExit) == 0;
    g_key_state.store(made ? 2 : 3, std::memory_order_release);
    return made;
  }
  for (int i = 0; i < 1000 && g_key_state.load(std::memory_order_acquire) == 1; ++i) sched_yield();
  return g_key_state.load(std::memory_order_acquire) == 2;
}

SegmentView View() { return {reinterpret_cast<std::byte*>(lockstep_probe.segment), lockstep_probe.segment_bytes}; }

// Offset of a new ring's header, 0 if the segment is full.
std::uint64_t NewRingMemory(std::uint32_t capacity) {
  SegmentHeader& segment = *lockstep_probe.segment;
  const std::uint64_t bytes = kRingHeaderBytes + std::uint64_t{capacity} * kSlotBytes;
  std::uint64_t begin = segment.next_free.load();
  do {
    if (begin < kArenaOffset || begin + bytes > segment.segment_bytes) return 0;
  } while (!segment.next_free.compare_exchange_weak(begin, begin + bytes));
  const std::uint64_t ready = segment.ready_bytes.load(std::memory_order_acquire);
  if (begin + bytes <= ready || AllocateInSegment(begin, bytes)) return begin;
  std::uint64_t end = begin + bytes;
  // Fails harmlessly if another thread took the next piece already.
  segment.next_free.compare_exchange_strong(end, begin);
  return 0;
}

// The largest ring of [least, most] slots that its last owner closed and the agent
// drained. kMaxRings if there is none.
std::uint32_t RecycledRing(std::uint32_t least, std::uint32_t most) {
  RingEntry* rings = View().rings();
  const std::uint32_t used = std::min(lockstep_probe.segment->rings_used.load(), kMaxRings);
  for (;;) {
    std::uint32_t best = kMaxRings, best_slots = 0;
    for (std::uint32_t i = 0; i < used && best_slots < most; ++i) {
      // It may just be being filled in for the first time: it is not free then, and the exchange below fails.
      const std::uint32_t slots = __atomic_load_n(&rings[i].capacity_slots, __ATOMIC_RELAXED);
      if (rings[i].state.load(std::memory_order_relaxed) != SlotState::kFree ||
          __atomic_load_n(&rings[i].offset, __ATOMIC_RELAXED) == 0)
        continue;
      if (slots < least || slots > most || slots <= best_slots) continue;
      best = i;
      best_slots = slots;
    }
    if (best == kMaxRings) return kMaxRings;
    SlotState expected = SlotState::kFree;
    if (rings[best].state.compare_exchange_strong(expected, SlotState::kClaiming)) return best;
  }
}

// The share of the remaining memory that a new ring gets, so that hundreds of threads and processes still get one: a
// process's first ring may take a quarter, others a sixteenth of what is not reserved for kManyThreads rings of the
// least size. The slot's very first ring has its full size, which the agent reserved.
std::uint32_t Share(std::uint32_t wanted, bool first_of_process) {
  const SegmentHeader& segment = *lockstep_probe.segment;
  if (segment.rings_used.load() == 0) return wanted;
  const std::uint64_t used = segment.next_free.load(), all = segment.segment_bytes;
  const std::uint64_t left = used < all ? all - used : 0;
  constexpr std::uint64_t kLeastBytes = kRingHeaderBytes + std::uint64_t{kLeastSlots} * kSlotBytes;
  const std::uint64_t kept = std::min(kManyThreads * kLeastBytes, all / 4);
  const std::uint64_t part = first_of_process ? left / 4 : left > kept ? (left - kept) / 16 : 0;
  const std::uint64_t slots = std::max<std::uint64_t>(std::bit_floor(part / kSlotBytes), kLeastSlots);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, slots));
}

std::uint32_t FreshRing(std::uint32_t capacity) {
  SegmentHeader& segment = *lockstep_probe.segment;
  RingEntry* rings = View().rings();
  std::uint32_t index = segment.rings_used.load();
  do {
    if (index >= kMaxRings) return kMaxRings;
  } while (!segment.rings_used.compare_exchange_weak(index, index + 1));
  // Entries stay kFree with offset 0 if there is no memory; they are not recycled.
  rings[index].state.store(SlotState::kClaiming);
  const std::uint64_t offset = NewRingMemory(capacity);
  if (offset == 0) {
    rings[index].state.store(SlotState::kFree);
    std::uint32_t end = index + 1;
    segment.rings_used.compare_exchange_strong(end, index);
    return kMaxRings;
  }
  __atomic_store_n(&rings[index].capacity_slots, capacity, __ATOMIC_RELAXED);
  __atomic_store_n(&rings[index].offset, offset, __ATOMIC_RELAXED);
  return index;
}

void Initialise(RingPage& page, std::uint32_t index, std::uint32_t capacity) {
  // head and tail restart at 0 while the entry is kClaiming; the agent distinguishes owners by the generation.
  std::memset(static_cast<void*>(&page), 0, sizeof page);
  page.header.mask = capacity - 1;
  page.header.clock_mode = static_cast<std::uint32_t>(lockstep_probe.clock.mode);
  page.producer.slots = reinterpret_cast<std::byte*>(&page) + kRingHeaderBytes;
  page.producer.cursor = page.producer.limit = page.producer.slots;
  page.producer.ring_index = index;
  page.producer.parked = 1;
  // A page of private memory per thread: it distinguishes "off" from "being written" without a look-up.
  void* memory = mmap(nullptr, sizeof(RingPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  page.producer.stand_in = &lockstep_idle_ring;
  if (memory == MAP_FAILED) return;
  page.producer.stand_in = static_cast<RingPage*>(memory);
  page.producer.stand_in->header.range_depth = page.producer.stand_in->header.nvtx_depth = 0xffffffffu;
  page.producer.stand_in->producer.owner = &page;
}

void CopyIn(RingPage& page, std::uint64_t slot, const void* data, std::uint64_t bytes) {
  RingProducer& producer = page.producer;
  const std::uint64_t capacity_bytes = (std::uint64_t{page.header.mask} + 1) * kSlotBytes;
  const std::uint64_t at = (slot & page.header.mask) * kSlotBytes;
  const std::uint64_t first = std::min(bytes, capacity_bytes - at);
  std::memcpy(producer.slots + at, data, first);
  std::memcpy(producer.slots, static_cast<const std::byte*>(data) + first, bytes - first);
}

// Returns false if the ring has no space for `slots` more.
bool Room(RingPage& page, std::uint64_t slots) {
  RingHeader& header = page.header;
  const std::uint64_t capacity = std::uint64_t{header.mask} + 1;
  const std::uint64_t head = header.head.load(std::memory_order_relaxed);
  if (head - header.tail_cache + slots <= capacity) return true;
  header.tail_cache = header.tail.load(std::memory_order_acquire);
  return head - header.tail_cache + slots <= capacity;
}

void CommitSlots(RingPage& page, std::uint64_t slots, std::uint32_t records) {
  page.producer.extra_slots += slots - records;
  ring::Publish(page.header, slots);
  page.producer.cursor =
      page.producer.slots + (page.header.head.load(std::memory_order_relaxed) & page.header.mask) * kSlotBytes;
}

void CountDrop(RingPage& page, std::uint32_t records) {
  RingHeader& header = page.header;
  const std::uint64_t now = ring::Ticks();
  if (header.dropped_records == 0) header.dropped_first_ticks = now;
  header.dropped_last_ticks = now;
  header.dropped_records += records;
  header.total_dropped += records;
}

}  // namespace

RingPage* OwnRing() {
  RingPage* page = lockstep_thread_ring;
  if (page->producer.owner != nullptr) return page->producer.owner;
  if (page->producer.slots != nullptr) return page;
  return g_key_state.load(std::memory_order_acquire) == 2 ? static_cast<RingPage*>(pthread_getspecific(g_key))
                                                          : nullptr;
}

void CountNoRing(std::uint32_t records) {
  if (records == 0 || lockstep_probe.segment == nullptr) return;
  // Does not claim: this may be a signal handler on top of a claim.
  if (ProcessEntry* entry = ClaimedProcess(); entry != nullptr)
    entry->dropped_no_ring.fetch_add(records, std::memory_order_relaxed);
  else
    lockstep_probe.segment->dropped_no_ring.fetch_add(records, std::memory_order_relaxed);
}

namespace {

RingPage* Claim() {
  SegmentHeader& segment = *lockstep_probe.segment;
  // A failed claim cost system calls, so it is not repeated within a millisecond.
  const std::uint64_t failed_ticks = g_claim_failed_ticks.load(std::memory_order_relaxed);
  if (failed_ticks != 0 &&
      ring::Ticks() - failed_ticks < 5 * lockstep_probe.sample_ticks.load(std::memory_order_relaxed))
    return nullptr;
  if (segment.agent_gone.load(std::memory_order_relaxed) != 0 || !HaveKey()) return nullptr;
  ProcessEntry* process = lockstep_process();
  if (process == nullptr) return nullptr;

  const bool first = g_claimed_rings.fetch_add(1, std::memory_order_relaxed) == 0;
  const std::uint32_t wanted = first ? segment.main_ring_slots : segment.other_ring_slots;
  std::uint32_t index = kMaxRings;
  if (wanted >= 64 && (wanted & (wanted - 1)) == 0) {
    const std::uint32_t share = Share(wanted, first);
    index = RecycledRing(share, wanted);
    if (index == kMaxRings) index = FreshRing(share);
    if (index == kMaxRings) index = RecycledRing(1, segment.main_ring_slots);
  }
  if (index == kMaxRings) {
    if (first) g_claimed_rings.store(0, std::memory_order_relaxed);
    g_claim_failed_ticks.store(ring::Ticks() | 1, std::memory_order_relaxed);
    return nullptr;
  }
  g_claim_failed_ticks.store(0, std::memory_order_relaxed);
  RingEntry& entry = View().rings()[index];
  auto& page = *reinterpret_cast<RingPage*>(View().base + entry.offset);
  Initialise(page, index, entry.capacity_slots);
  entry.generation += 1;
  entry.process = static_cast<std::uint32_t>(process - View().processes());
  entry.tid = static_cast<std::int64_t>(syscall(SYS_gettid));
  if (pthread_setspecific(g_key, &page) != 0) {
    entry.state.store(SlotState::kFree, std::memory_order_release);
    return nullptr;
  }
  entry.state.store(SlotState::kActive, std::memory_order_release);
  return &page;
}

}  // namespace

RingPage* ClaimRing() {
  if (lockstep_thread_ring == &g_sealed) return nullptr;
  lockstep_thread_ring = &g_sealed;
  ring::SignalFence();
  const ErrnoKeeper errno_keeper;
  RingPage* page = Claim();
  lockstep_thread_ring = &lockstep_idle_ring;
  if (page == nullptr) return nullptr;
  Rearm(*page);
  // The first thread of a process is its training thread, unless another one marks steps (steps.cc) or communicates.
  if (static_cast<pid_t>(syscall(SYS_gettid)) == getpid()) WatchThisThread();
  return page;
}

void Park(RingPage& page) {
  page.producer.parked = 1;
  ring::SignalFence();
  lockstep_thread_ring = page.producer.stand_in;
}

namespace {

// Parks the ring and makes it busy. To a signal handler that found one of them done and the other not, a range's push
// (which may not write the name) and its pop would not be alike.
void Occupy(RingPage& page) {
  lockstep_thread_ring = &g_sealed;
  ring::SignalFence();
  page.producer.busy = 1;
  page.producer.parked = 1;
  ring::SignalFence();
  lockstep_thread_ring = page.producer.stand_in;
  ring::SignalFence();
}

// Rearm(), after which the ring is as busy as `busy` says.
void RearmAs(RingPage& page, std::uint32_t busy) {
  RingProducer& producer = page.producer;
  RingHeader& header = page.header;
  Occupy(page);  // Records of a signal handler in between would make the stretch computed below exceed the ring's end.
  const std::uint64_t head = header.head.load(std::memory_order_relaxed);
  header.records = head - producer.extra_slots;
  producer.cursor = producer.slots + (head & header.mask) * kSlotBytes;  // The fast path does not wrap.
  producer.limit = producer.cursor;
  const bool recording = ring::Recording();
  // Ranges pushed while recording was off were only counted (api.cc); now they need entries in the stack.
  if (RingPage& stand_in = *producer.stand_in; recording && stand_in.producer.owner == &page) {
    for (std::uint32_t i = 0; i < stand_in.producer.unrecorded_ranges; ++i)
      if (header.range_depth + i < kMaxRangeDepth) header.ranges[header.range_depth + i] = {0, 0, 0};
    header.range_depth += stand_in.producer.unrecorded_ranges;
    producer.unrecorded_ranges += stand_in.producer.unrecorded_ranges;
    stand_in.producer.unrecorded_ranges = 0;
  }
  if (!recording && producer.off_since_ticks == 0) producer.off_since_ticks = ring::Ticks();
  if (recording && lockstep_probe.clock.mode == ClockMode::kTsc && producer.unrecorded_ranges == 0) {
    std::uint64_t stretch = 0;
    if (header.polls.calls == 0 && header.dropped_records == 0 && producer.off_since_ticks == 0 &&
        __atomic_load_n(&producer.nested_drops, __ATOMIC_RELAXED) == 0) {
      const std::uint64_t capacity = std::uint64_t{header.mask} + 1;
      if (capacity - (head - header.tail_cache) < kStretchSlots)
        header.tail_cache = header.tail.load(std::memory_order_acquire);
      stretch = std::min(
          {capacity - (head - header.tail_cache), capacity - (head & header.mask), std::uint64_t{kStretchSlots}});
    }
    producer.limit = producer.cursor + stretch * kSlotBytes;
    lockstep_thread_ring = &g_sealed;
    ring::SignalFence();
    producer.parked = 0;
    producer.busy = busy;
    ring::SignalFence();
    lockstep_thread_ring = &page;
    return;
  }
  ring::SignalFence();
  producer.busy = busy;
}

}  // namespace

Closed::Closed() : before_(lockstep_thread_ring) {
  lockstep_thread_ring = &g_sealed;
  ring::SignalFence();
}

Closed::~Closed() {
  ring::SignalFence();
  lockstep_thread_ring = before_;
}

void Rearm(RingPage& page) { RearmAs(page, page.producer.busy); }

void CloseRing(RingPage& page) {
  UnwatchThisThread();
  SlowWriter(0).Finish();  // Updates header.records, too.
  RingProducer& producer = page.producer;
  lockstep_thread_ring = &lockstep_idle_ring;
  if (producer.stand_in != &lockstep_idle_ring) munmap(producer.stand_in, sizeof(RingPage));
  FreeStrings(producer.strings);
  FreeRangeMemory(producer.ranges);
  if (producer.scratch != nullptr) munmap(producer.scratch, producer.scratch_bytes);
  View().rings()[producer.ring_index].state.store(SlotState::kClosed, std::memory_order_release);
}

void ForgetRings() {
  lockstep_thread_ring = &lockstep_idle_ring;
  g_claimed_rings.store(0);
  g_claim_failed_ticks.store(0);
  if (g_key_state.load() == 2) pthread_setspecific(g_key, nullptr);
}

SlowWriter::SlowWriter(std::uint32_t records_at_stake) : page_(nullptr) {
  RingPage* page = OwnRing();
  if (page == nullptr) {
    if (records_at_stake != 0) CountNoRing(records_at_stake);
    return;
  }
  RingProducer& producer = page->producer;
  if (producer.busy != 0 || lockstep_thread_ring == &g_sealed ||
      (lockstep_thread_ring != page && producer.parked == 0)) {
    __atomic_fetch_add(&producer.nested_drops, records_at_stake, __ATOMIC_RELAXED);
    return;
  }
  Occupy(*page);
  page_ = page;
  if (const std::uint32_t nested = __atomic_exchange_n(&producer.nested_drops, 0, __ATOMIC_RELAXED); nested != 0)
    CountDrop(*page, nested);
}

SlowWriter::~SlowWriter() {
  if (page_ == nullptr) return;
  RearmAs(*page_, 0);
}

bool SlowWriter::Append(const void* first, std::uint32_t first_slots, const void* second, std::uint32_t second_bytes,
                        std::uint32_t records) {
  if (page_ == nullptr) return false;
  FlushPolls();
  if (page_->producer.named == 0) {
    page_->producer.named = 1;
    char name[32] = {};
    if (prctl(PR_GET_NAME, name) == 0) {
      const StringRecord record{{RecordKind::kThreadName, 0, 2}, 0, static_cast<std::uint32_t>(strlen(name)), {}};
      Append(&record, 1, name, record.bytes, 1);
    }
  }
  RingHeader& header = page_->header;
  RingProducer& producer = page_->producer;
  const std::uint32_t slots = first_slots + (second_bytes + kSlotBytes - 1) / kSlotBytes;
  const bool gap = header.dropped_records != 0, resumed = producer.off_since_ticks != 0 && ring::Recording();
  if (!Room(*page_, std::uint64_t{slots} + gap + resumed)) {
    if (records != 0) CountDrop(*page_, records);
    return false;
  }
  if (resumed) {
    const GapRecord record{{RecordKind::kGap, 0, 1}, 0, producer.off_since_ticks, ring::Ticks(), 0};
    // A time without recording before anything was written is not a gap.
    if (header.head.load(std::memory_order_relaxed) != 0) {
      CopyIn(*page_, header.head.load(std::memory_order_relaxed), &record, sizeof record);
      CommitSlots(*page_, 1, 1);
    }
    producer.off_since_ticks = 0;
  }
  if (gap) {
    const GapRecord record{
        {RecordKind::kGap, 0, 1}, 0, header.dropped_first_ticks, header.dropped_last_ticks, header.dropped_records};
    CopyIn(*page_, header.head.load(std::memory_order_relaxed), &record, sizeof record);
    CommitSlots(*page_, 1, 1);
    header.dropped_records = 0;
  }
  if (slots == 0) return true;
  const std::uint64_t head = header.head.load(std::memory_order_relaxed);
  CopyIn(*page_, head, first, std::uint64_t{first_slots} * kSlotBytes);
  if (second_bytes != 0) {
    CopyIn(*page_, head + first_slots, second, second_bytes);
    static constexpr std::byte kZero[kSlotBytes] = {};
    const std::uint32_t tail_bytes = (slots - first_slots) * kSlotBytes - second_bytes;
    if (tail_bytes != 0) {
      std::byte* last = producer.slots + ((head + slots - 1) & header.mask) * kSlotBytes;
      std::memcpy(last + kSlotBytes - tail_bytes, kZero, tail_bytes);
    }
  }
  CommitSlots(*page_, slots, records);
  return true;
}

void SlowWriter::Finish() {
  FlushPolls();
  if (page_ != nullptr && page_->header.dropped_records != 0) Append(nullptr, 0, 0);
}

}  // namespace probe

using namespace probe;

extern "C" RingPage* lockstep_ring(void) {
  if (lockstep_probe.segment == nullptr) return nullptr;
  RingPage* page = OwnRing();
  if (page == nullptr) return ClaimRing();
  if (lockstep_thread_ring == page) return page;
  if (page->producer.busy != 0 || page->producer.parked == 0 || lockstep_thread_ring == &g_sealed) return nullptr;
  Rearm(*page);
  return page;
}

extern "C" bool lockstep_emit_slow(const void* records, std::uint32_t slots, std::uint32_t count) {
  if (lockstep_probe.segment == nullptr) return false;
  if (OwnRing() == nullptr && ClaimRing() == nullptr) {
    CountNoRing(count);
    return false;
  }
  return SlowWriter(count).Append(records, slots, count);
}

}  // namespace lockstep
