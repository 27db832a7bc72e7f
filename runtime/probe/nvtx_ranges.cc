// NVTX's ranges and marks, the slow path: any clock, recording on or off, names and
// domains seen for the first time, payloads, stacks that are deep or entangled.

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/schema_enums.h"
#include "runtime/probe/nvtx.h"
#include "runtime/probe/range_memory.h"
#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

namespace lockstep::probe {
namespace {

using OpenRange = RingHeader::OpenNvtxRange;

constexpr std::uint32_t kAllRanges = kMaxRangeDepth + kDeepNvtxRanges;

const char* DomainText(const NvtxName* domain) { return domain == nullptr ? nullptr : domain->text(); }

// For windows: as much of the name as can match.
const char* ShortText(const NvtxEvent& event, RangeMemory::Name& room) {
  if (event.registered != nullptr) return event.registered->text();
  if (event.wide != nullptr) return Utf8Of(event.wide, room, sizeof room);
  return event.text;
}

void WriteName(SlowWriter& writer, RecordKind kind, NvtxName& name, std::uint32_t id, std::uint32_t domain) {
  if (name.written.load(std::memory_order_relaxed) != 0) return;
  const bool cut = name.bytes > kMaxStringBytes;
  std::uint32_t bytes = name.bytes;
  if (cut)
    for (bytes = kMaxStringBytes; bytes != 0 && (static_cast<unsigned char>(name.text()[bytes]) & 0xc0) == 0x80;)
      --bytes;
  const auto slots = static_cast<std::uint16_t>(1 + (bytes + kSlotBytes - 1) / kSlotBytes);
  const StringRecord record{{kind, static_cast<std::uint8_t>(cut ? 1 : 0), slots}, id, bytes, {domain}};
  if (writer.Append(&record, 1, name.text(), bytes, 1)) name.written.store(1, std::memory_order_relaxed);
}

NvtxName* CategoryOf(const NvtxName* domain, std::uint32_t category) {
  return category == 0 ? nullptr
                       : FindNvtxName(NvtxTable::kCategories, std::uint64_t{DomainNumber(domain)} << 32 | category);
}

// The thread's id of the text; 0 if it has none.
std::uint32_t KnownId(RingPage& page, const NvtxEvent& event) {
  if (event.registered != nullptr) {
    const std::uint32_t slot = event.registered->number - 1;
    if (slot < kRegisteredSlots) return page.registered[slot];
  } else if (event.text != nullptr && page.names[ring::NameSlot(event.text)] == event.text) {
    return static_cast<std::uint32_t>(page.infos[ring::NameSlot(event.text)]);
  }
  const Closed closed;
  if (event.wide != nullptr) {
    RangeMemory* memory = RangeMemoryOf(page);
    return memory == nullptr ? 0 : FindText(page, Utf8Of(event.wide, memory->text, sizeof memory->text));
  }
  return FindText(page, event.registered != nullptr ? event.registered->text() : event.text);
}

// The thread's id of the event's text; first writes the text, its domain and its category to the ring if that was not
// done yet.
std::uint32_t Introduce(RingPage& page, NvtxName* domain, const NvtxEvent& event) {
  NvtxName* category = CategoryOf(domain, event.category);
  const bool named = event.text != nullptr || event.wide != nullptr || event.registered != nullptr;
  std::uint32_t id = named ? KnownId(page, event) : 0;
  if ((id != 0 || !named) && !NotYetWritten(domain) && !NotYetWritten(category)) return id;
  SlowWriter writer(0);
  if (writer.page() == nullptr) return id;
  if (domain != nullptr) WriteName(writer, RecordKind::kDomain, *domain, domain->number, 0);
  if (category != nullptr) WriteName(writer, RecordKind::kCategory, *category, event.category, DomainNumber(domain));
  if (id != 0 || !named) return id;
  const char* text = event.registered != nullptr ? event.registered->text() : event.text;
  if (event.wide != nullptr) {
    RangeMemory* memory = RangeMemoryOf(page);
    if (memory == nullptr) return 0;
    text = Utf8Of(event.wide, memory->text, sizeof memory->text);
  }
  id = writer.Intern(text);
  if (event.registered != nullptr && event.registered->number - 1 < kRegisteredSlots)
    page.registered[event.registered->number - 1] = id;
  if (event.text != nullptr) writer.RememberName(text, id);
  return id;
}

bool NeedsExtra(const NvtxEvent& event) {
  // NCCL's calls are ended on the slow path, because the fast path ends plain ranges only.
  return event.category != 0 || event.nccl.function != 0 ||
         (event.payload.value != 0 && (event.payload.kind != schema::PayloadKind::kInteger ||
                                       event.payload.value > INT32_MAX || event.payload.value < INT32_MIN));
}

// Returns the slots of the record.
std::uint32_t Fill(RangeRecord& record, RangeExtra& extra, RecordKind kind, const NvtxEvent& event) {
  const bool wide = NeedsExtra(event);
  record.head = {kind, kSourceNvtx, static_cast<std::uint16_t>(wide ? 2 : 1)};
  record.payload = wide ? 0 : static_cast<std::int32_t>(event.payload.value);
  extra = {};
  if (!wide) return 1;
  extra.payload = event.payload.value;
  extra.payload_kind = event.payload.value != 0 ? event.payload.kind : 0;
  extra.category = event.category;
  return 2;
}

// The stack: entries 0 to 63 are in RingHeader::nvtx, the others in deep_nvtx_domains.
std::uint16_t DomainAt(const RingPage& page, std::uint32_t place) {
  return place < kMaxRangeDepth ? page.header.nvtx[place].domain : page.deep_nvtx_domains[place - kMaxRangeDepth];
}

// The topmost entry of the domain; `depth` if there is none.
std::uint32_t Topmost(const RingPage& page, std::uint32_t depth, std::uint16_t domain) {
  for (std::uint32_t place = depth; place-- > 0;)
    if (DomainAt(page, place) == domain) return place;
  return depth;
}

std::uint16_t LevelOf(const RingPage& page, std::uint32_t place, std::uint16_t domain) {
  std::uint32_t level = 0;
  while (place-- > 0) {
    if (DomainAt(page, place) != domain) continue;
    if (place < kMaxRangeDepth) return static_cast<std::uint16_t>(level + page.header.nvtx[place].depth + 1);
    ++level;
  }
  return static_cast<std::uint16_t>(level);
}

// A range that will not be written nevertheless takes its entry.
int PushUnrecorded(RingPage& page, std::uint16_t domain, const char* name) {
  const std::uint32_t depth = page.header.nvtx_depth;
  const std::uint16_t level = LevelOf(page, std::min(depth, kAllRanges), domain);
  page.header.nvtx_depth = depth + 1;
  ring::SignalFence();
  if (depth < kMaxRangeDepth)
    page.header.nvtx[depth] = {.depth = level, .domain = domain};
  else if (depth < kAllRanges)
    page.deep_nvtx_domains[depth - kMaxRangeDepth] = domain;
  if (name != nullptr && depth < kAllRanges)
    if (RangeMemory* memory = RangeMemoryOf(page); memory != nullptr) KeepName(memory->nvtx[depth], name);
  return level;
}

// Removes the entry at `place`. What is above keeps its order; what a signal handler adds meanwhile is above all of it,
// and is removed again before we continue.
void Remove(RingPage& page, std::uint32_t place, bool watched) {
  const std::uint32_t depth = page.header.nvtx_depth, kept = std::min(depth, kAllRanges);
  for (std::uint32_t i = place; i + 1 < kept; ++i) {
    if (i + 1 < kMaxRangeDepth)
      page.header.nvtx[i] = page.header.nvtx[i + 1];
    else if (i < kMaxRangeDepth)
      page.header.nvtx[i] = {.depth = LevelOf(page, i, DomainAt(page, i + 1)), .domain = DomainAt(page, i + 1)};
    else
      page.deep_nvtx_domains[i - kMaxRangeDepth] = page.deep_nvtx_domains[i + 1 - kMaxRangeDepth];
    if (RangeMemory* memory = watched ? RangeMemoryOf(page) : nullptr; memory != nullptr)
      memcpy(memory->nvtx[i], memory->nvtx[i + 1], sizeof memory->nvtx[i]);
    if (auto* memory = static_cast<RangeMemory*>(page.producer.ranges);
        memory != nullptr && memory->nccl_open != 0 && i < kMaxRangeDepth)
      memory->nccl[i] = i + 1 < kMaxRangeDepth ? memory->nccl[i + 1] : NcclRange{};
  }
  ring::SignalFence();
  page.header.nvtx_depth = depth - 1;
}

// The thread's ring to work with. While recording is off, its stack is used without opening its fast path.
RingPage* PageFor() {
  RingPage* page = lockstep_thread_ring;
  if (page->producer.owner != nullptr && !ring::Recording()) return page->producer.owner;
  return lockstep_ring();
}

// Names of open start/end ranges, for windows: by id, as they end on any thread.
struct Started {
  std::atomic<std::uint64_t> id;  // 0 free, 1 being filled in.
  const NvtxName* domain;
  RangeMemory::Name name;
};
constexpr std::uint32_t kStarted = 1024;
constinit Started g_started[kStarted] = {};

void KeepStarted(std::uint64_t id, const NvtxName* domain, const char* name) {
  for (std::uint32_t i = 0; i < kStarted; ++i) {
    Started& at = g_started[(id * 0x9e3779b1u + i) % kStarted];
    std::uint64_t free = 0;
    if (!at.id.compare_exchange_strong(free, 1, std::memory_order_acquire)) continue;
    at.domain = domain;
    KeepName(at.name, name);
    at.id.store(id, std::memory_order_release);
    return;
  }
}

void CloseStarted(std::uint64_t id) {
  for (std::uint32_t i = 0; i < kStarted; ++i) {
    Started& at = g_started[(id * 0x9e3779b1u + i) % kStarted];
    if (at.id.load(std::memory_order_acquire) != id) continue;
    RangeMemory::Name name;
    memcpy(name, at.name, sizeof name);
    const NvtxName* domain = at.domain;
    if (!at.id.compare_exchange_strong(id, 0, std::memory_order_release)) return;
    RangeClosed(kSourceNvtx, DomainText(domain), name, false);
    return;
  }
}

// Ids are unique in the slot for as long as a ring's generation does not come round:
// ring 12 bits, its generation 12, a count 39, and whether the start was written.
std::uint64_t NewId(RingPage* page, bool recorded) {
  constexpr std::uint64_t kCounts = (std::uint64_t{1} << 39) - 1;
  static constinit std::atomic<std::uint64_t> without_ring{0};
  if (page == nullptr) return (without_ring.fetch_add(1, std::memory_order_relaxed) & (kCounts - 1)) << 1 | 2;
  const SegmentView view{reinterpret_cast<std::byte*>(lockstep_probe.segment), lockstep_probe.segment_bytes};
  const std::uint64_t ring = page->producer.ring_index, generation = view.rings()[ring].generation & 0xfff;
  const std::uint64_t count = __atomic_add_fetch(&page->producer.range_ids, 1, __ATOMIC_RELAXED) & kCounts;
  return ring << 52 | generation << 40 | count << 1 | (recorded ? 1 : 0);
}

}  // namespace

NvtxEvent NvtxEventOf(const NvtxName* domain, const nvtx::EventAttributes* attributes) {
  NvtxEvent event;
  // A shorter struct comes from an NVTX older than the first of version 2.
  if (attributes == nullptr || attributes->bytes < sizeof *attributes) return event;
  event.category = attributes->category;
  switch (attributes->message_type) {
    case nvtx::kMessageAscii:
      event.text = attributes->message.ascii;
      break;
    case nvtx::kMessageUnicode:
      event.wide = attributes->message.unicode;
      break;
    case nvtx::kMessageRegistered:
      event.registered = static_cast<const NvtxName*>(attributes->message.registered);
      break;
    default:
      break;
  }
  const auto& payload = attributes->payload;
  double number = 0;
  switch (attributes->payload_type) {
    case nvtx::kPayloadU64:
    case nvtx::kPayloadI64:
      event.payload = {payload.i64, 1};
      return event;
    case nvtx::kPayloadU32:
      event.payload = {payload.u32, 1};
      return event;
    case nvtx::kPayloadI32:
      event.payload = {payload.i32, 1};
      return event;
    case nvtx::kPayloadDouble:
      number = payload.f64;
      break;
    case nvtx::kPayloadFloat:
      number = static_cast<double>(payload.f32);
      break;
    case nvtx::kPayloadExtension: {
      const auto* data = static_cast<const nvtx::PayloadData*>(payload.pointer);
      const std::size_t count = attributes->reserved < 0 ? 0 : static_cast<std::size_t>(attributes->reserved);
      event.payload = ReadPayload(domain, data, count);
      event.nccl = ReadNccl(domain, data, count);
      return event;
    }
    default:
      return event;
  }
  memcpy(&event.payload.value, &number, sizeof number);
  event.payload.kind = schema::PayloadKind::kDouble;
  return event;
}

int NvtxPush(NvtxName* domain, const NvtxEvent& event) {
  if (lockstep_probe.segment == nullptr) return nvtx::kNoTracking;
  const bool watched = WindowWatchesRanges();
  RangeMemory::Name room;
  const char* name = nullptr;
  if (watched) {
    name = ShortText(event, room);
    if (name == nullptr) name = "";
    RangeOpened(kSourceNvtx, DomainText(domain), name);
  }
  const auto number = static_cast<std::uint16_t>(DomainNumber(domain));
  RingPage* page = PageFor();
  if (page == nullptr) return nvtx::kNoTracking;
  MarkNvtxUsed();
  const std::uint32_t depth = page->header.nvtx_depth;
  if (!ring::Recording()) return PushUnrecorded(*page, number, name);
  if (depth >= kMaxRangeDepth) {
    if (ProcessEntry* process = ClaimedProcess(); process != nullptr)
      process->range_too_deep.fetch_add(1, std::memory_order_relaxed);
    return PushUnrecorded(*page, number, name);
  }
  RangeRecord record{.name = Introduce(*page, domain, event)};
  RangeExtra extra;
  const std::uint32_t slots = Fill(record, extra, RecordKind::kRange, event);
  const std::uint16_t level = LevelOf(*page, depth, number);
  if (watched)
    if (RangeMemory* memory = RangeMemoryOf(*page); memory != nullptr) KeepName(memory->nvtx[depth], name);
  if (event.nccl.function != 0)
    if (RangeMemory* memory = RangeMemoryOf(*page); memory != nullptr) {
      memory->nccl[depth] = event.nccl;
      memory->nccl_open += 1;
    }
  page->header.nvtx_depth = depth + 1;
  ring::SignalFence();
  page->header.nvtx[depth] = {.head = (RangeHead(kSourceNvtx) & 0xffff) | slots << 16,
                              .name = record.name,
                              .begin_ticks = ring::Ticks(),
                              .depth = level,
                              .domain = number,
                              .payload = record.payload,
                              .wide_payload = extra.payload,
                              .category = extra.category,
                              .payload_kind = extra.payload_kind};
  return level;
}

int NvtxPop(NvtxName* domain) {
  // A forked child that only ends its parent's ranges does not count as a user of this source.
  if (lockstep_probe.segment == nullptr || ClaimedProcess() == nullptr) return nvtx::kNoTracking;
  RingPage* page = PageFor();
  if (page == nullptr) {
    SlowWriter(1).FlushPolls();  // Counts.
    return nvtx::kNoTracking;
  }
  const std::uint64_t end_ticks = ring::Ticks();
  RingHeader& header = page->header;
  const bool recording = ring::Recording();
  if (header.nvtx_depth > kAllRanges) {  // It is not known to which domains they belonged.
    header.nvtx_depth -= 1;
    return static_cast<int>(kAllRanges);
  }
  const auto number = static_cast<std::uint16_t>(DomainNumber(domain));
  const std::uint32_t place = Topmost(*page, header.nvtx_depth, number);
  if (place == header.nvtx_depth) {
    if (recording) ClaimedProcess()->range_unbalanced.fetch_add(1, std::memory_order_relaxed);
    return -1;
  }
  const int level = LevelOf(*page, place, number);
  const bool watched = WindowWatchesRanges();
  RangeMemory::Name name;
  name[0] = 0;
  if (RangeMemory* memory = watched ? RangeMemoryOf(*page) : nullptr; memory != nullptr)
    memcpy(name, memory->nvtx[place], sizeof name);
  // Read before its entry is free for a signal handler's range.
  const OpenRange open = place < kMaxRangeDepth ? header.nvtx[place] : OpenRange{};
  NcclRange nccl;
  if (auto* memory = static_cast<RangeMemory*>(page->producer.ranges);
      memory != nullptr && memory->nccl_open != 0 && place < kMaxRangeDepth) {
    std::swap(nccl, memory->nccl[place]);
    if (nccl.function != 0) memory->nccl_open -= 1;
  }
  ring::SignalFence();
  Remove(*page, place, watched);
  if (open.head != 0 && recording) {
    struct {
      RangeRecord range;
      RangeExtra extra;
    } record{{{RecordKind::kRange, kSourceNvtx, static_cast<std::uint16_t>(open.head >> 16)},
              open.name,
              open.begin_ticks,
              end_ticks,
              open.depth,
              open.domain,
              open.payload},
             {open.wide_payload, open.payload_kind, {}, open.category, {}}};
    ring::Emit(&record, open.head >> 16);
  }
  if (nccl.function != 0 && open.head != 0 && recording) WriteNccl(nccl, open.name, open.begin_ticks, end_ticks);
  if (watched) RangeClosed(kSourceNvtx, DomainText(domain), name);
  return level;
}

void NvtxMark(NvtxName* domain, const NvtxEvent& event) {
  if (!ring::Recording()) return;
  const std::uint64_t now = ring::Ticks();
  RingPage* page = lockstep_ring();
  if (page == nullptr) {
    SlowWriter(1).FlushPolls();  // Counts.
    return;
  }
  MarkNvtxUsed();
  struct {
    RangeRecord range;
    RangeExtra extra;
  } record{};
  record.range.name = Introduce(*page, domain, event);
  const std::uint32_t slots = Fill(record.range, record.extra, RecordKind::kMark, event);
  const auto number = static_cast<std::uint16_t>(DomainNumber(domain));
  record.range.begin_ticks = record.range.end_ticks = now;
  record.range.depth = LevelOf(*page, std::min(page->header.nvtx_depth, kAllRanges), number);
  record.range.domain = number;
  ring::Emit(&record, slots);
}

std::uint64_t NvtxStart(NvtxName* domain, const NvtxEvent& event) {
  if (lockstep_probe.segment == nullptr) return 0;
  const bool watched = WindowWatchesRanges();
  RangeMemory::Name room;
  const char* name = watched ? ShortText(event, room) : nullptr;
  if (watched) RangeOpened(kSourceNvtx, DomainText(domain), name, false);
  const bool recording = ring::Recording();
  RingPage* page = recording ? lockstep_ring() : nullptr;
  std::uint64_t id = NewId(page, page != nullptr);
  if (page != nullptr) {
    MarkNvtxUsed();
    struct {
      RangeRecord range;
      RangeExtra extra;
    } record{};
    record.range.name = Introduce(*page, domain, event);
    const std::uint32_t slots = Fill(record.range, record.extra, RecordKind::kRangeStart, event);
    record.range.domain = static_cast<std::uint16_t>(DomainNumber(domain));
    record.range.end_ticks = id;
    record.range.begin_ticks = ring::Ticks();
    if (!ring::Emit(&record, slots)) id &= ~std::uint64_t{1};
  } else if (recording) {
    SlowWriter(1).FlushPolls();  // Counts.
  }
  if (watched) KeepStarted(id, domain, name);
  return id;
}

void NvtxEnd(std::uint64_t id) {
  if (lockstep_probe.segment == nullptr || ClaimedProcess() == nullptr) return;
  if ((id & 1) != 0) {
    const bool recording = ring::Recording();
    const RangeRecord record{{RecordKind::kRangeEnd, kSourceNvtx, 1},        0, id, ring::Ticks(),
                             recording ? std::uint16_t{0} : kRangeForgotten, 0, 0};
    ring::Emit(&record, 1);
  }
  if (WindowWatchesRanges()) CloseStarted(id);
}

void NvtxNameThread(std::uint32_t tid, const char* name) {
  if (lockstep_probe.segment == nullptr || name == nullptr || lockstep_ring() == nullptr) return;
  MarkNvtxUsed();
  const ErrnoKeeper errno_keeper;
  const std::uint32_t own = static_cast<std::uint32_t>(syscall(SYS_gettid));
  const auto bytes = static_cast<std::uint32_t>(strnlen(name, kMaxStringBytes));
  const auto slots = static_cast<std::uint16_t>(1 + (bytes + kSlotBytes - 1) / kSlotBytes);
  const StringRecord record{{RecordKind::kThreadName, 0, slots}, tid == own ? 0 : tid, bytes, {}};
  SlowWriter(1).Append(&record, 1, name, bytes, 1);
}

}  // namespace lockstep::probe
