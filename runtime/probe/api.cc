// lockstep.h in the library: ranges and marks. Names lockstep_probe_* are for the
// header, lockstep_* for dlsym and ctypes.

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "core/schema_enums.h"
#include "runtime/probe/range_memory.h"
#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

#define LOCKSTEP_BUILDING_PROBE
#include "runtime/lockstep.h"

// GCC makes calls through the symbol's alias, so one function has two names.
#define LS_ALIAS(name) __attribute__((alias(#name), visibility("default")))

namespace lockstep::probe {
namespace {

constexpr std::uint8_t kSourceLockstep = schema::RangeSource::kLockstep;

// While a capture window examines ranges, range_depth stays 0 and names are not kept by address. Every push and pop
// then takes the slow path, which costs nothing when no window does so.
std::uint32_t& DepthOf(RingPage& page) {
  return WindowWatchesRanges() ? page.header.watched_depth : page.header.range_depth;
}

// Pushed while recording is off, or too deep: popped without a record. The fast path is closed until then.
void PushUnrecorded(RingPage& page, std::uint32_t depth) {
  if (depth < kMaxRangeDepth) page.header.ranges[depth] = {0, 0, 0};
  DepthOf(page) = depth + 1;
  if (WindowWatchesRanges()) return;
  page.producer.unrecorded_ranges += 1;
  Park(page);
}

__attribute__((noinline)) void PushOn(const char* name, std::uint32_t flags) {
  RingPage* page = lockstep_ring();
  if (page == nullptr) return;
  if (page->producer.named == 0) MarkLockstepUsed();
  const std::uint32_t depth = DepthOf(*page);
  if (WindowWatchesRanges() && depth < kMaxRangeDepth)
    if (RangeMemory* memory = RangeMemoryOf(*page); memory != nullptr) KeepName(memory->lockstep[depth], name);
  if (depth >= kMaxRangeDepth) {
    if (ring::Recording())
      if (ProcessEntry* process = lockstep_process(); process != nullptr)
        process->range_too_deep.fetch_add(1, std::memory_order_relaxed);
    PushUnrecorded(*page, depth);
    return;
  }
  if (!ring::Recording()) {
    PushUnrecorded(*page, depth);
    return;
  }
  std::uint32_t id = 0;
  {
    SlowWriter writer(0);
    id = writer.Intern(name);
    writer.RememberName(name, id);
  }
  DepthOf(*page) = depth + 1;
  ring::SignalFence();
  page->header.ranges[depth] = {ring::Ticks(), id, RangeHead(flags)};
}

// Recording is off as often as on, so this must be cheap too: the range is only counted, in the thread's stand-in page.
// Rearm() makes its entry in the stack if need be.
__attribute__((noinline)) void PushSlow(const char* name, std::uint32_t flags) {
  RingPage* page = lockstep_thread_ring;
  const bool watched = WindowWatchesRanges();
  // Without a run no thread owns a page.
  if (page->producer.owner != nullptr && !watched && !ring::Recording()) [[likely]] {
    page->producer.unrecorded_ranges += 1;
    return;
  }
  if (lockstep_probe.segment == nullptr) return;
  if (watched) RangeOpened(kSourceLockstep, nullptr, name);
  PushOn(name, flags);
}

void WriteRange(const RingHeader::OpenRange& open, std::uint32_t depth) {
  const RangeRecord record{{RecordKind::kRange, static_cast<std::uint8_t>(open.head >> 8), 1},
                           open.name,
                           open.begin_ticks,
                           ring::Ticks(),
                           static_cast<std::uint16_t>(depth),
                           0,
                           0};
  SlowWriter(1).Append(&record, 1, 1);
}

__attribute__((noinline)) void PopOn() {
  RingPage* page = lockstep_ring();
  if (page == nullptr) {
    SlowWriter(1).FlushPolls();  // Counts.
    return;
  }
  RingHeader& header = page->header;
  const bool recording = ring::Recording(), watched = WindowWatchesRanges();
  if (DepthOf(*page) == 0) {
    ProcessEntry* process = recording ? lockstep_process() : nullptr;
    if (process != nullptr) process->range_unbalanced.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::uint32_t depth = DepthOf(*page) - 1;
  RangeMemory::Name name;
  name[0] = 0;
  if (watched && depth < kMaxRangeDepth)
    if (RangeMemory* memory = RangeMemoryOf(*page); memory != nullptr)
      std::memcpy(name, memory->lockstep[depth], sizeof name);
  // Read before the depth frees the entry for a signal handler's range.
  const RingHeader::OpenRange open = depth < kMaxRangeDepth ? header.ranges[depth] : RingHeader::OpenRange{};
  ring::SignalFence();
  DepthOf(*page) = depth;
  if (watched) {
    if (open.begin_ticks != 0 && recording) WriteRange(open, depth);
    RangeClosed(kSourceLockstep, nullptr, name);
    return;
  }
  if (open.begin_ticks == 0) {
    page->producer.unrecorded_ranges -= 1;
    Rearm(*page);
    return;
  }
  if (recording) WriteRange(open, depth);
}

void Pop();

__attribute__((noinline)) void PopSlow() {
  RingPage* page = lockstep_thread_ring;
  const bool watched = WindowWatchesRanges(),
             stacked = page->producer.slots != nullptr && page->header.range_depth != 0;
  if (page->producer.owner != nullptr && page->producer.unrecorded_ranges != 0 && !watched && !stacked &&
      !ring::Recording()) [[likely]] {
    page->producer.unrecorded_ranges -= 1;
    return;
  }
  if (lockstep_probe.segment == nullptr) return;
  if (watched) {
    PopOn();
    return;
  }
  if (stacked) {
    // The fast path was open, so its slots are probably used up.
    Rearm(*page);
    if (lockstep_thread_ring == page && page->producer.cursor < page->producer.limit) {
      Pop();
      return;
    }
  }
  page = lockstep_thread_ring;
  if (page->producer.owner == nullptr || page->producer.unrecorded_ranges == 0 || ring::Recording())
    PopOn();
  else
    page->producer.unrecorded_ranges -= 1;
}

// One instruction where gcc 12 makes two; the addresses in asm operands below have the same reason. The number of
// instructions of the pair is tested.
inline void AddOne(std::uint32_t& value) {
#if defined(__x86_64__)
  asm("addl $1, %0" : "+m"(value) : : "cc");
#else
  value += 1;
#endif
}

// kPlain: flags is 0, so the info in the page can be used as it is.
template <bool kPlain>
inline void Push(const char* name, std::uint32_t flags) {
  RingPage* page = lockstep_thread_ring;
  RingHeader& header = page->header;
  const std::size_t depth = header.range_depth;
  const std::size_t slot = ring::NameSlot(name);
  if (depth >= kMaxRangeDepth || page->names[slot] != name) [[unlikely]] {
    PushSlow(name, flags);
    return;
  }
  // The depth first: ranges of a signal handler that interrupts us here go above ours.
  AddOne(header.range_depth);
  ring::SignalFence();
#if defined(__x86_64__)
  // One 16-byte store, because the pop reads it back as 16 bytes at once: from two
  // stores a range of a few ns would stall there.
  __m128i range = _mm_cvtsi64_si128(static_cast<long long>(ReadTsc()));
  if constexpr (kPlain) {
    asm("movhps %1, %0" : "+x"(range) : "m"(page->infos[slot]));
  } else {
    const std::uint64_t info = page->infos[slot] + (std::uint64_t{flags} << 40);
    range = _mm_unpacklo_epi64(range, _mm_cvtsi64_si128(static_cast<long long>(info)));
  }
  asm volatile("movups %0, %c3(%1,%2)"
               :
               : "x"(range), "r"(page), "r"(depth * sizeof(RingHeader::OpenRange)), "i"(offsetof(RingHeader, ranges))
               : "memory");
#else
  header.ranges[depth] = {ReadTsc(), static_cast<std::uint32_t>(page->infos[slot]), RangeHead(flags)};
#endif
}

inline void Pop() {
  RingPage* page = lockstep_thread_ring;
  lockstep_thread_ring = &lockstep_idle_ring;  // From here to the end a signal handler cannot write into this ring.
  ring::SignalFence();
  RingHeader& header = page->header;
  RingProducer& producer = page->producer;
  std::byte* at = producer.cursor;
  std::uint64_t depth = header.range_depth;
  // The fast path is open only up to the deepest range that is kept, so 0 is the only invalid depth.
  const bool unbalanced = __builtin_sub_overflow(depth, std::uint64_t{1}, &depth);
  if (unbalanced || at >= producer.limit) [[unlikely]] {
    lockstep_thread_ring = page;
    PopSlow();
    return;
  }
  header.range_depth = static_cast<std::uint32_t>(depth);
  auto* record = reinterpret_cast<RangeRecord*>(at);
  std::memcpy(&record->depth, &depth, sizeof depth);  // And payload 0.
#if defined(__x86_64__)
  // {begin, name, head} -> {head, name, begin}
  __m128i range;
  asm volatile("movups %c3(%1,%2), %0"
               : "=x"(range)
               : "r"(page), "r"(depth * sizeof(RingHeader::OpenRange)), "i"(offsetof(RingHeader, ranges))
               : "memory");
  _mm_storeu_si128(reinterpret_cast<__m128i*>(record), _mm_shuffle_epi32(range, _MM_SHUFFLE(1, 0, 2, 3)));
#else
  const RingHeader::OpenRange& open = header.ranges[depth];
  std::memcpy(static_cast<void*>(&record->head), &open.head, sizeof open.head);
  record->name = open.name;
  record->begin_ticks = open.begin_ticks;
#endif
  record->end_ticks = ReadTsc();  // The fast path is open only where the clock is the TSC.
  producer.cursor = at + kSlotBytes;
  ring::Publish(header, 1);
  ring::SignalFence();
  lockstep_thread_ring = page;
}

void Mark(const char* name) {
  if (!ring::Recording()) return;
  const std::uint64_t now = ring::Ticks();
  if (RingPage* page = lockstep_ring(); page != nullptr && page->producer.named == 0) MarkLockstepUsed();
  SlowWriter writer(1);
  if (writer.page() == nullptr) return;
  const std::uint32_t id = writer.Intern(name);
  const auto depth = static_cast<std::uint16_t>(DepthOf(*writer.page()));
  const RangeRecord record{{RecordKind::kMark, kSourceLockstep, 1}, id, now, now, depth, 0, 0};
  writer.Append(&record, 1, 1);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void lockstep_probe_range_push(const char* name) { Push<true>(name, 0); }
__attribute__((visibility("default"))) void lockstep_probe_range_push_category(const char* name, int category) {
  Push<false>(name, kSourceLockstep | (static_cast<std::uint32_t>(category) & 15) << 4);
}
__attribute__((visibility("default"))) void lockstep_probe_range_pop(void) { Pop(); }
__attribute__((visibility("default"))) void lockstep_probe_mark(const char* name) { Mark(name); }

void lockstep_range_push(const char* name) LS_ALIAS(lockstep_probe_range_push);
void lockstep_range_push_category(const char* name, int category) LS_ALIAS(lockstep_probe_range_push_category);
void lockstep_range_pop(void) LS_ALIAS(lockstep_probe_range_pop);
void lockstep_mark(const char* name) LS_ALIAS(lockstep_probe_mark);
}

}  // namespace lockstep::probe
