// NVTX's injection: the functions that each object's tables get, and the fast path
// through them for what is common (TSC, recording on, a name known on this thread, no
// payload beyond an int32, one domain at a time). Everything else: nvtx_ranges.cc.

#include "runtime/probe/nvtx.h"

#include <string.h>

#include <algorithm>

#include "runtime/probe/range_memory.h"
#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

namespace lockstep::probe {
namespace {

using OpenRange = RingHeader::OpenNvtxRange;

std::atomic<std::uint32_t> g_objects{0};

constexpr std::uint32_t kPlainHead = RangeHead(kSourceNvtx);

// The last 8 bytes of a RangeRecord and of the head of an OpenRange.
constexpr std::uint64_t Tail(std::uint16_t level, std::uint16_t domain, std::int32_t payload) {
  return level | std::uint64_t{domain} << 16 | std::uint64_t{static_cast<std::uint32_t>(payload)} << 32;
}
static_assert(offsetof(OpenRange, depth) == 16 && offsetof(OpenRange, domain) == 18 &&
              offsetof(OpenRange, payload) == 20);
static_assert(offsetof(RangeRecord, depth) == 24 && offsetof(RangeRecord, domain) == 26);

// Onto the stack of a ring whose fast path is open. The depth first: ranges of a signal
// handler that interrupts us here go above ours.
inline int PushKnown(RingPage& page, std::uint32_t depth, std::uint16_t domain, std::uint32_t name,
                     std::int32_t payload) {
  RingHeader& header = page.header;
  std::uint16_t level = 0;
  for (std::uint32_t i = depth; i-- > 0;) {
    if (header.nvtx[i].domain != domain) continue;
    level = static_cast<std::uint16_t>(header.nvtx[i].depth + 1);
    break;
  }
  header.nvtx_depth = depth + 1;
  ring::SignalFence();
  OpenRange& open = header.nvtx[depth];
  const std::uint64_t first = kPlainHead | std::uint64_t{name} << 32, tail = Tail(level, domain, payload);
  memcpy(static_cast<void*>(&open), &first, sizeof first);
  memcpy(&open.depth, &tail, sizeof tail);
  open.begin_ticks = ReadTsc();
  return level;
}

// The thread's id of a literal of the executable; 0: it may be another text, see KnownText.
inline std::uint32_t KnownLiteral(const RingPage& page, const char* text) {
  const std::size_t slot = ring::NameSlot(text);
  return page.names[slot] == text ? static_cast<std::uint32_t>(page.infos[slot]) : 0;
}

// The thread's id of a text that may have changed since it was last seen; 0 unknown. The page's fast path is open.
inline std::uint32_t KnownText(RingPage& page, const char* text) {
  lockstep_thread_ring = &lockstep_idle_ring;  // A signal handler must not change what is being read.
  ring::SignalFence();
  const std::uint32_t id = FindText(page, text);
  ring::SignalFence();
  lockstep_thread_ring = &page;
  return id;
}

// Functions that are not called in the common case are not inlined, so that the fast path needs no stack.
__attribute__((noinline)) int PushText(NvtxName* domain, const char* text) {
  RingPage* page = lockstep_thread_ring;
  const std::uint32_t depth = page->header.nvtx_depth;
  if (depth < kMaxRangeDepth && text != nullptr && !NotYetWritten(domain))
    if (const std::uint32_t name = KnownText(*page, text); name != 0)
      return PushKnown(*page, depth, static_cast<std::uint16_t>(DomainNumber(domain)), name, 0);
  return NvtxPush(domain, {.text = text});
}

__attribute__((noinline)) int PushSlow(NvtxName* domain, const nvtx::EventAttributes* event) {
  return NvtxPush(domain, NvtxEventOf(domain, event));
}

inline int Push(const char* text) {
  RingPage* page = lockstep_thread_ring;
  const std::uint32_t depth = page->header.nvtx_depth;
  if (depth < kMaxRangeDepth) [[likely]]
    if (const std::uint32_t name = KnownLiteral(*page, text); name != 0) [[likely]]
      return PushKnown(*page, depth, 0, name, 0);
  return PushText(nullptr, text);
}

inline int Push(NvtxName* domain, const nvtx::EventAttributes* event) {
  RingPage* page = lockstep_thread_ring;
  const std::uint32_t depth = page->header.nvtx_depth;
  if (depth >= kMaxRangeDepth || event == nullptr || event->bytes < sizeof *event || event->category != 0 ||
      NotYetWritten(domain)) [[unlikely]]
    return PushSlow(domain, event);
  std::int64_t payload = 0;
  if (event->payload_type != nvtx::kPayloadNone) {
    if (event->payload_type == nvtx::kPayloadU64 || event->payload_type == nvtx::kPayloadI64)
      payload = event->payload.i64;
    else if (event->payload_type == nvtx::kPayloadU32)
      payload = event->payload.u32;
    else if (event->payload_type == nvtx::kPayloadI32)
      payload = event->payload.i32;
    else
      return PushSlow(domain, event);
  }
  const auto narrow = static_cast<std::int32_t>(payload);
  std::uint32_t name = 0;
  if (event->message_type == nvtx::kMessageRegistered) {
    const auto* registered = static_cast<const NvtxName*>(event->message.registered);
    if (registered != nullptr && registered->number <= kRegisteredSlots)
      name = page->registered[registered->number - 1];
  } else if (event->message_type == nvtx::kMessageAscii) {
    if (payload == 0 && KnownLiteral(*page, event->message.ascii) == 0) return PushText(domain, event->message.ascii);
    name = KnownLiteral(*page, event->message.ascii);
  }
  if (name == 0 || narrow != payload) [[unlikely]]
    return PushSlow(domain, event);
  return PushKnown(*page, depth, static_cast<std::uint16_t>(DomainNumber(domain)), name, narrow);
}

inline int Pop(NvtxName* domain) {
  RingPage* page = lockstep_thread_ring;
  lockstep_thread_ring = &lockstep_idle_ring;  // From here to the end a signal handler cannot write into this ring.
  ring::SignalFence();
  RingHeader& header = page->header;
  RingProducer& producer = page->producer;
  const std::uint32_t place = header.nvtx_depth - 1;
  std::byte* at = producer.cursor;
  if (place >= kMaxRangeDepth || at >= producer.limit || header.nvtx[place].head != kPlainHead ||
      header.nvtx[place].domain != DomainNumber(domain)) [[unlikely]] {
    lockstep_thread_ring = page;
    return NvtxPop(domain);
  }
  const OpenRange& open = header.nvtx[place];
  header.nvtx_depth = place;
  auto* record = reinterpret_cast<RangeRecord*>(at);
  std::uint64_t first, tail;
  memcpy(&first, static_cast<const void*>(&open), sizeof first);
  memcpy(&tail, &open.depth, sizeof tail);
  memcpy(static_cast<void*>(record), &first, sizeof first);
  memcpy(&record->depth, &tail, sizeof tail);
  record->begin_ticks = open.begin_ticks;
  record->end_ticks = ReadTsc();  // The fast path is open only where the clock is the TSC.
  producer.cursor = at + kSlotBytes;
  ring::Publish(header, 1);
  ring::SignalFence();
  lockstep_thread_ring = page;
  return static_cast<std::uint16_t>(tail);
}

// The functions NVTX calls. Handles are pointers to NvtxName.
using Attributes = nvtx::EventAttributes;

int PushA(const char* text) { return Push(text); }
int PushW(const wchar_t* text) { return NvtxPush(nullptr, {.wide = text}); }
int PushEx(const Attributes* event) { return Push(nullptr, event); }
int PopDefault() { return Pop(nullptr); }
int DomainPushEx(NvtxName* domain, const Attributes* event) { return Push(domain, event); }
int DomainPop(NvtxName* domain) { return Pop(domain); }

// While a capture window examines ranges there is no fast path.
int WatchedPushA(const char* text) { return NvtxPush(nullptr, {.text = text}); }
int WatchedPushEx(const Attributes* event) { return NvtxPush(nullptr, NvtxEventOf(nullptr, event)); }
int WatchedPopDefault() { return NvtxPop(nullptr); }
int WatchedDomainPushEx(NvtxName* domain, const Attributes* event) {
  return NvtxPush(domain, NvtxEventOf(domain, event));
}
int WatchedDomainPop(NvtxName* domain) { return NvtxPop(domain); }

void MarkA(const char* text) { NvtxMark(nullptr, {.text = text}); }
void MarkW(const wchar_t* text) { NvtxMark(nullptr, {.wide = text}); }
void MarkEx(const Attributes* event) { NvtxMark(nullptr, NvtxEventOf(nullptr, event)); }
void DomainMarkEx(NvtxName* domain, const Attributes* event) { NvtxMark(domain, NvtxEventOf(domain, event)); }

std::uint64_t StartA(const char* text) { return NvtxStart(nullptr, {.text = text}); }
std::uint64_t StartW(const wchar_t* text) { return NvtxStart(nullptr, {.wide = text}); }
std::uint64_t StartEx(const Attributes* event) { return NvtxStart(nullptr, NvtxEventOf(nullptr, event)); }
std::uint64_t DomainStartEx(NvtxName* domain, const Attributes* event) {
  return NvtxStart(domain, NvtxEventOf(domain, event));
}
void End(std::uint64_t id) { NvtxEnd(id); }
void DomainEnd(NvtxName*, std::uint64_t id) { NvtxEnd(id); }

// Converted wide texts of calls that are rare: on the stack.
struct Converted {
  explicit Converted(const wchar_t* wide) : text(Utf8Of(wide, room, sizeof room)) {}
  char room[1024];
  const char* text;
};

NvtxName* DomainCreateA(const char* text) { return NvtxNameOf(NvtxTable::kDomains, 0, text); }
NvtxName* DomainCreateW(const wchar_t* text) { return DomainCreateA(Converted(text).text); }
void DomainDestroy(NvtxName*) {}

NvtxName* RegisterA(NvtxName*, const char* text) { return NvtxNameOf(NvtxTable::kStrings, 0, text); }
NvtxName* RegisterW(NvtxName* domain, const wchar_t* text) { return RegisterA(domain, Converted(text).text); }

void DomainCategoryA(NvtxName* domain, std::uint32_t category, const char* text) {
  NvtxNameOf(NvtxTable::kCategories, std::uint64_t{DomainNumber(domain)} << 32 | category, text);
}
void DomainCategoryW(NvtxName* domain, std::uint32_t category, const wchar_t* text) {
  DomainCategoryA(domain, category, Converted(text).text);
}
void CategoryA(std::uint32_t category, const char* text) { DomainCategoryA(nullptr, category, text); }
void CategoryW(std::uint32_t category, const wchar_t* text) {
  DomainCategoryA(nullptr, category, Converted(text).text);
}

void ThreadA(std::uint32_t tid, const char* text) { NvtxNameThread(tid, text); }
void ThreadW(std::uint32_t tid, const wchar_t* text) { NvtxNameThread(tid, Converted(text).text); }

// Of all resources only threads are stored in the trace.
const void* ResourceCreate(NvtxName*, const nvtx::ResourceAttributes* resource) {
  static constexpr char kHandle = 0;
  if (resource == nullptr || resource->bytes < sizeof *resource) return nullptr;
  if (resource->identifier_type != nvtx::kResourceNativeThread) return &kHandle;
  const auto tid = static_cast<std::uint32_t>(resource->identifier);
  if (resource->message_type == nvtx::kMessageAscii)
    NvtxNameThread(tid, resource->message.ascii);
  else if (resource->message_type == nvtx::kMessageUnicode)
    ThreadW(tid, resource->message.unicode);
  else if (resource->message_type == nvtx::kMessageRegistered && resource->message.registered != nullptr)
    NvtxNameThread(tid, static_cast<const NvtxName*>(resource->message.registered)->text());
  return &kHandle;
}
void ResourceDestroy(const void*) {}
void Initialize(const void*) {}

// A module's table of pointers to function pointers, as one object has it.
class FunctionTable {
 public:
  FunctionTable(const nvtx::CallbackExports& exports, nvtx::Module module) {
    if (exports.module_functions(module, &table_, &entries_) == 0) table_ = nullptr;
  }
  template <typename F>
  void Set(unsigned id, F* function) {
    if (table_ != nullptr && id < entries_ && table_[id] != nullptr)
      *table_[id] = reinterpret_cast<nvtx::FunctionPointer>(function);
  }

 private:
  nvtx::FunctionPointer** table_ = nullptr;
  unsigned entries_ = 0;
};

// Modules for other libraries (CUDA, OpenCL, ...) are left unchanged: NVTX makes them no-ops.
void Inject(const nvtx::CallbackExports& exports) {
  const bool watched = WindowWatchesRanges();
  FunctionTable core(exports, nvtx::kModuleCore);
  core.Set(nvtx::kMarkEx, MarkEx);
  core.Set(nvtx::kMarkA, MarkA);
  core.Set(nvtx::kMarkW, MarkW);
  core.Set(nvtx::kRangeStartEx, StartEx);
  core.Set(nvtx::kRangeStartA, StartA);
  core.Set(nvtx::kRangeStartW, StartW);
  core.Set(nvtx::kRangeEnd, End);
  core.Set(nvtx::kRangePushEx, watched ? WatchedPushEx : PushEx);
  core.Set(nvtx::kRangePushA, watched ? WatchedPushA : PushA);
  core.Set(nvtx::kRangePushW, PushW);
  core.Set(nvtx::kRangePop, watched ? WatchedPopDefault : PopDefault);
  core.Set(nvtx::kNameCategoryA, CategoryA);
  core.Set(nvtx::kNameCategoryW, CategoryW);
  core.Set(nvtx::kNameOsThreadA, ThreadA);
  core.Set(nvtx::kNameOsThreadW, ThreadW);
  FunctionTable domains(exports, nvtx::kModuleCore2);
  domains.Set(nvtx::kDomainMarkEx, DomainMarkEx);
  domains.Set(nvtx::kDomainRangeStartEx, DomainStartEx);
  domains.Set(nvtx::kDomainRangeEnd, DomainEnd);
  domains.Set(nvtx::kDomainRangePushEx, watched ? WatchedDomainPushEx : DomainPushEx);
  domains.Set(nvtx::kDomainRangePop, watched ? WatchedDomainPop : DomainPop);
  domains.Set(nvtx::kDomainResourceCreate, ResourceCreate);
  domains.Set(nvtx::kDomainResourceDestroy, ResourceDestroy);
  domains.Set(nvtx::kInitialize, Initialize);
  domains.Set(nvtx::kDomainNameCategoryA, DomainCategoryA);
  domains.Set(nvtx::kDomainNameCategoryW, DomainCategoryW);
  domains.Set(nvtx::kDomainRegisterStringA, RegisterA);
  domains.Set(nvtx::kDomainRegisterStringW, RegisterW);
  domains.Set(nvtx::kDomainCreateA, DomainCreateA);
  domains.Set(nvtx::kDomainCreateW, DomainCreateW);
  domains.Set(nvtx::kDomainDestroy, DomainDestroy);
}

}  // namespace

void CountInjectedObject() {
  g_objects.fetch_add(1, std::memory_order_relaxed);
  if (ProcessEntry* process = lockstep_process(); process != nullptr)
    process->nvtx_used.store(g_objects.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void MarkNvtxUsed() {
  ProcessEntry* process = ClaimedProcess();
  if (process != nullptr && process->nvtx_used.load(std::memory_order_relaxed) == 0)
    process->nvtx_used.store(std::max(1u, g_objects.load(std::memory_order_relaxed)), std::memory_order_relaxed);
}

extern "C" {

// Once per object that compiled the headers. 0: NVTX makes all its functions no-ops.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(nvtx::ExportTableFunction get_table) {
  EnsureLoaded();
  if (lockstep_probe.segment == nullptr || get_table == nullptr) return 0;
  const auto* exports = static_cast<const nvtx::CallbackExports*>(get_table(nvtx::kExportCallbacks));
  if (exports == nullptr || exports->struct_bytes < sizeof *exports || exports->module_functions == nullptr) return 0;
  Inject(*exports);
  CountInjectedObject();
  return 1;
}

// Once per object and extension.
__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtx::ExtensionModule* module) {
  EnsureLoaded();
  return lockstep_probe.segment != nullptr && module != nullptr && InjectPayload(*module) ? 1 : 0;
}
}

}  // namespace lockstep::probe
