// NCCL's profiler plugin: ncclProfiler_v4 to _v7, of which NCCL takes the newest it
// knows, and RCCL, AMD's, too (ROCm 7: _v4 to _v6; its longer events begin as NCCL's do:
// ROCm/rocm-systems, projects/rccl/src/include/plugin/profiler/profiler_v6.h). Every callback succeeds, whatever it is
// given; none takes a lock, allocates, logs, or calls CUDA: some run on CUDA's host-callback threads, where that is
// forbidden.
//
// What NCCL holds as handle of an event is its id, a number that is never looked up:
// NCCL ends events twice, begins children after their parents' end, and names parents
// again for each replay of a graph. Its bits:
//
//   63..60  NcclEvent; 15: one that only the chained plugin got
//   59      its begin is in the ring
//   58      57..0 number the chained plugin's handle (chain.h); else
//   57..46  ring  45..36 its generation  35..0 count
//
// An end is written although recording is off by then, if the begin was: else the event
// would look open for ever. Events begun while recording is off leave nothing.

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "comms/nccl/chain.h"
#include "comms/nccl/mask.h"
#include "comms/nccl/names.h"
#include "comms/nccl/profiler_abi.h"
#include "comms/nccl/state.h"
#include "core/schema_enums.h"

namespace lockstep::nccl {
namespace {

using namespace profiler;

constexpr std::uint32_t kKindShift = 60;
constexpr std::uint64_t kTheirsOnly = 15, kRecorded = std::uint64_t{1} << 59;
constexpr std::uint64_t kDefaultEvents = kCollApi | kP2pApi | kColl | kP2p | kKernelLaunch | kCeColl;

// The known events. NCCL may use bits that a version does not know for something else.
constexpr std::uint64_t EventsOf(int version) {
  return version == 4   ? kGroupApi - 1
         : version == 5 ? kCeColl - 1
         : version == 6 ? kKernelPhase - 1
                        : ~std::uint64_t{0};
}

constinit CountedLoss g_foreign("NcclForeignProcess", "proxy operations of another rank's communicator");
constinit std::atomic<int> g_pid{0}, g_reported_version{0};
// Used as a part of init's context when the table of communicators is full, because the context must not be null.
constexpr std::uintptr_t kNoContext = 0xffff;

std::uint64_t HandleValue(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }
NcclEvent EventOf(std::uint64_t id) { return static_cast<NcclEvent>(id >> kKindShift); }
CommRef RefOfContext(const void* context) { return reinterpret_cast<std::uintptr_t>(context); }

// Id of an event in our records; 0: not an event of this plugin, or not recorded.
std::uint64_t RecordedId(const void* handle) {
  const std::uint64_t id = HandleValue(handle);
  return (id & kRecorded) != 0 ? id : 0;
}

std::uint64_t NewId(RingPage& page, const RingMemory& memory, NcclEvent event) {
  // Signal handlers on this thread may count too (NVTX's start/end ranges). This is one instruction, and a gap in the
  // numbers is harmless.
  const std::uint64_t count = ++page.producer.range_ids;
  return static_cast<std::uint64_t>(event) << kKindShift | kRecorded |
         std::uint64_t{page.producer.ring_index & 0xfff} << 46 | (memory.owner & 0x3ff) << 36 |
         (count & ((std::uint64_t{1} << 36) - 1));
}

constexpr bool HasRoot(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}

// What version 7 has at an offset of its longer descriptor; earlier ones: 0.
template <typename Value>
Value NewestAt(int version, const Descriptor& event, std::size_t offset) {
  Value value{};
  if (version >= 7) memcpy(&value, reinterpret_cast<const std::byte*>(&event) + offset, sizeof value);
  return value;
}

// The caller's, not one of those that NCCL reserves.
std::uint64_t TagOf(int version, const Descriptor& event, std::size_t offset) {
  const auto tag = NewestAt<std::uint64_t>(version, event, offset);
  return tag >> 63 != 0 ? 0 : tag;
}

// NCCL's description of an event, in the form of the record. None (0): an event that is not recorded.
NcclEvent Describe(int version, const Descriptor& event, RingMemory& memory, NcclBeginRecord& record) {
  const auto function = [&](const char* name) {
    record.function = static_cast<std::uint8_t>(FunctionOf(name));
    record.name = NameId(memory, name);
  };
  switch (event.type) {
    case kGroup:
      return NcclEvent::kGroup;
    case kGroupApi:
      record.flags = event.group_api.captured ? kNcclCaptured : 0;
      record.depth = static_cast<std::uint32_t>(event.group_api.depth);
      return NcclEvent::kGroupApi;
    case kCollApi:
      function(event.coll_api.function);
      record.count = event.coll_api.count;
      record.dtype = static_cast<std::uint8_t>(TypeOf(event.coll_api.datatype));
      if (HasRoot(static_cast<CollectiveKind>(record.function))) record.peer = event.coll_api.root;
      record.stream = HandleValue(event.coll_api.stream);
      record.seq = TagOf(version, event, offsetof(DescriptorV7, coll_api.user_tag));
      record.flags = event.coll_api.captured ? kNcclCaptured : 0;
      return NcclEvent::kCollectiveApi;
    case kP2pApi:
      record.function = DirectionOf(event.p2p_api.function);
      record.name = NameId(memory, event.p2p_api.function);
      record.count = event.p2p_api.count;
      record.dtype = static_cast<std::uint8_t>(TypeOf(event.p2p_api.datatype));
      record.stream = HandleValue(event.p2p_api.stream);
      record.seq = TagOf(version, event, offsetof(DescriptorV7, p2p_api.user_tag));
      record.flags = event.p2p_api.captured ? kNcclCaptured : 0;
      return NcclEvent::kP2pApi;
    case kKernelLaunch:
      record.stream = HandleValue(event.kernel_launch.stream);
      return NcclEvent::kKernelLaunch;
    case kColl: {
      const CollectiveV5& coll = event.coll;
      function(coll.function);
      record.seq = coll.seq;
      record.count = coll.count;
      record.dtype = static_cast<std::uint8_t>(TypeOf(coll.datatype));
      if (HasRoot(static_cast<CollectiveKind>(record.function))) record.peer = coll.root;
      record.buffer = HandleValue(coll.send_buffer != nullptr ? coll.send_buffer : coll.receive_buffer);
      record.channels = coll.channels;
      // The symmetric kernel that carries it; null: another kernel.
      const auto variant = NewestAt<const char*>(version, event, offsetof(DescriptorV7, coll.kernel_variant));
      record.algorithm = NameId(memory, variant != nullptr ? variant : coll.algorithm);
      record.protocol = NameId(memory, coll.protocol);
      record.group = RecordedId(coll.parent_group);
      return NcclEvent::kCollective;
    }
    case kP2p:
      record.function = DirectionOf(event.p2p.function);
      record.name = NameId(memory, event.p2p.function);
      record.count = event.p2p.count;
      record.dtype = static_cast<std::uint8_t>(TypeOf(event.p2p.datatype));
      record.peer = event.p2p.peer;
      record.buffer = HandleValue(event.p2p.buffer);
      record.channels = event.p2p.channels;
      record.group = RecordedId(event.p2p.parent_group);
      return NcclEvent::kP2p;
    case kCeColl: {
      const CopyEngine& copy = event.copy_engine;
      function(copy.function);
      record.seq = copy.seq;
      record.count = copy.count;
      record.dtype = static_cast<std::uint8_t>(TypeOf(copy.datatype));
      if (HasRoot(static_cast<CollectiveKind>(record.function))) record.peer = copy.root;
      record.buffer = HandleValue(copy.send_buffer != nullptr ? copy.send_buffer : copy.receive_buffer);
      record.stream = HandleValue(copy.stream);
      return NcclEvent::kCopyEngine;
    }
    case kKernelCh:
      // A reading of the GPU's clock beside ours: each of these records is a pair for calibration, whose host time is
      // the later one.
      record.channels = event.kernel_channel.channel;
      record.count = event.kernel_channel.timer;
      return NcclEvent::kKernelChannel;
    default:
      return NcclEvent{};
  }
}

// Whether a host's event is recorded at all. Its type decides the rest.
bool Wanted(std::uint64_t type) {
  if (type == kKernelCh) return (lockstep_probe.segment->gpu_options & kNcclKernelChannels) != 0;
  return (type & (kGroup | kColl | kP2p | kGroupApi | kCollApi | kP2pApi | kKernelLaunch | kCeColl)) != 0;
}

// The recorded event's id, 0 if it is not.
std::uint64_t WriteBegin(int version, Comm* comm, const Descriptor& event, std::uint64_t chained) {
  RingPage* page = ring::Page();
  NcclBeginRecord record;
  memset(static_cast<void*>(&record), 0, sizeof record);
  if (page == nullptr) {
    record.head = {RecordKind::kNcclBegin, 0, 3};
    ring::Emit(&record, 3);  // Counts.
    return 0;
  }
  const std::uint32_t number = NumberOf(comm);
  RingMemory& memory = MemoryOf(*page);
  record.peer = -1;
  const NcclEvent kind = Describe(version, event, memory, record);
  record.head = {RecordKind::kNcclBegin, static_cast<std::uint8_t>(kind), 3};
  record.comm = number;
  record.parent = RecordedId(event.parent);
  const std::uint64_t id = chained == 0
                               ? NewId(*page, memory, kind)
                               : static_cast<std::uint64_t>(kind) << kKindShift | kRecorded | chain::kChained | chained;
  record.id = id;
  record.ticks = ring::Ticks();
  return ring::EmitMade<3>([&](std::byte* at) { memcpy(at, static_cast<const void*>(&record), sizeof record); }) ? id
                                                                                                                 : 0;
}

void WriteEnd(std::uint64_t id, std::uint64_t value) {
  const std::uint64_t ticks = ring::Ticks();
  ring::EmitMade<1>([&](std::byte* at) {
    auto* record = reinterpret_cast<NcclEndRecord*>(at);
    record->head = {RecordKind::kNcclEnd, static_cast<std::uint8_t>(EventOf(id)), 1};
    record->reserved = 0;
    record->id = id;
    record->ticks = ticks;
    record->value = value;
  });
}

// `event` of version 7 is longer: see NewestAt.
int StartEvent(int version, void* context, void** handle, const Descriptor* event) {
  if (handle == nullptr) return kSuccess;
  *handle = nullptr;  // NCCL does not reset all its handles, and would end an old event otherwise.
  if (event == nullptr) return kSuccess;
  Comm* comm = FindComm(RefOfContext(context));
  if (CallFrame* frame = g_frame; frame != nullptr && comm != nullptr) frame->seen = RefOfContext(context);
  if (event->type == kProxyOp && !Inert() && event->proxy_op.pid != g_pid.load(std::memory_order_relaxed))
    g_foreign.Note();
  std::uint64_t chained = 0;
  if (chain::Active(version)) [[unlikely]] {
    const ErrnoKeeper errno_keeper;
    chained = chain::Start(version, comm, *event);
  }
  std::uint64_t id = 0;
  if (ring::Recording() && Wanted(event->type) && !Inert()) id = WriteBegin(version, comm, *event, chained);
  if (id == 0 && chained != 0) id = kTheirsOnly << kKindShift | chain::kChained | chained;
  *handle = reinterpret_cast<void*>(id);
  return kSuccess;
}

template <int kVersion>
int StartNew(void* context, void** handle, Descriptor* event) {
  return StartEvent(kVersion, context, handle, event);
}

int StartV7(void* context, void** handle, DescriptorV7* event) {
  return StartEvent(7, context, handle, reinterpret_cast<const Descriptor*>(event));
}

int StartV4(void* context, void** handle, DescriptorV4* event) {
  if (event == nullptr) return StartEvent(4, context, handle, nullptr);
  const Descriptor newest = chain::Newest(*event);
  return StartEvent(4, context, handle, &newest);
}

int StopEvent(void* handle) {
  const std::uint64_t id = HandleValue(handle);
  if ((id & chain::kChained) != 0 && (id & kRecorded || id >> kKindShift == kTheirsOnly)) {
    const ErrnoKeeper errno_keeper;
    chain::Stop(id & chain::kNumber);
  }
  if ((id & kRecorded) == 0) return kSuccess;
  switch (EventOf(id)) {
    case NcclEvent::kCollectiveApi:
    case NcclEvent::kP2pApi: {
      // NCCL 2.28 keeps a collective's handle in the thread and ends it again with each later one that is masked.
      RingPage* page = ring::Page();
      if (page == nullptr) break;
      RingMemory& memory = MemoryOf(*page);
      if (memory.closed == id) return kSuccess;
      memory.closed = id;
      break;
    }
    case NcclEvent::kKernelChannel:
      return kSuccess;  // Its end is the state that brings the GPU's time.
    case NcclEvent::kGroup:
    case NcclEvent::kCollective:
    case NcclEvent::kP2p:
    case NcclEvent::kKernelLaunch:
    case NcclEvent::kGroupApi:
    case NcclEvent::kCopyEngine:
      break;
    default:
      return kSuccess;  // Not a handle of ours.
  }
  if (!Inert()) WriteEnd(id, 0);
  return kSuccess;
}

int RecordState(void* handle, int state, StateArgs* arguments) {
  const std::uint64_t id = HandleValue(handle);
  if ((id & chain::kChained) != 0 && (id & kRecorded || id >> kKindShift == kTheirsOnly)) {
    const ErrnoKeeper errno_keeper;
    chain::Record(id & chain::kNumber, state, arguments);
  }
  if (state == kKernelChStop && arguments != nullptr && (id & kRecorded) != 0 &&
      EventOf(id) == NcclEvent::kKernelChannel && !Inert())
    WriteEnd(id, arguments->kernel_timer);
  return kSuccess;
}

// The logger is a function of the library that calls.
bool IsRccl(Logger log) {
  Dl_info object{};
  if (log == nullptr || dladdr(reinterpret_cast<void*>(log), &object) == 0 || object.dli_fname == nullptr) return false;
  const char* slash = strrchr(object.dli_fname, '/');
  return strncmp(slash != nullptr ? slash + 1 : object.dli_fname, "librccl", 7) == 0;
}

int Init(int version, void** context, std::uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
         Logger log) {
  const ErrnoKeeper errno_keeper;
  if (context == nullptr) return kSuccess;
  const bool inert = Inert();
  std::uint64_t wanted = 0;
  if (!inert) {
    wanted = kDefaultEvents;
    if ((lockstep_probe.segment->gpu_options & kNcclKernelChannels) != 0) wanted |= kKernelCh;
    wanted &= EventsOf(version);
    g_pid.store(getpid(), std::memory_order_relaxed);
    MarkUsed(kUsedPlugin);
    if (ProcessEntry* process = lockstep_process(); process != nullptr && IsRccl(log))
      process->gpu_vendor.store(schema::Vendor::kAmd, std::memory_order_relaxed);
    int none = 0;
    if (g_reported_version.compare_exchange_strong(none, version))
      WriteFact("nccl_plugin\tversion=%d\tevents=%llu", version, static_cast<unsigned long long>(wanted));
  }
  CommFacts facts{NcclSource::kPlugin};
  facts.id = id;
  facts.size = static_cast<std::uint32_t>(ranks);
  facts.nodes = static_cast<std::uint32_t>(nodes);
  facts.rank = rank;
  facts.name = name;
  CallFrame* frame = g_frame;
  const bool called = frame != nullptr && frame->creating;
  CommRef ref = 0;
  if (called) {
    facts.parent = frame->parent;
    if (name == nullptr) facts.name = frame->name;
  } else if (!inert) {
    // Made in a group or by a thread of NCCL: the interposed call came before.
    ref = OnlyUnjoined(NcclSource::kInterposed, facts.size, rank, 0);
    if (Comm* known = FindComm(ref); known != nullptr && known->announced.load(std::memory_order_relaxed) == 0) {
      if (facts.name == nullptr || facts.name[0] == 0) facts.name = nullptr;
      LearnComm(*known, facts);
      known->joined.store(1, std::memory_order_relaxed);
    } else {
      ref = 0;
    }
  }
  if (ref == 0) ref = AddComm(facts);
  Comm* comm = FindComm(ref);
  *context = reinterpret_cast<void*>(ref != 0 ? ref : kNoContext);
  if (comm != nullptr && called) {
    frame->seen = ref;
    frame->inits += 1;
  }
  if (chain::Open(version) && comm != nullptr) chain::Init(*comm, name, log);
  // NCCL 2.31.2 and later times a kernel's channels by two counts of works that it and the GPU keep apart: the GPU
  // counts each, NCCL those that have the bit (src/enqueue.cc, ncclProfilerPostPlanWork; src/device/common.h). Without
  // the bit outside of windows, later times would be those of earlier works.
  const std::uint64_t always = version >= 7 ? wanted & kKernelCh : 0;
  const std::uint8_t index = OpenMask(mask, static_cast<int>(wanted), static_cast<int>(always));
  if (comm != nullptr) {
    comm->mask = index;
    if (!inert) Announce(*comm);
  }
  return kSuccess;
}

int InitV4Of(void** context, int* mask, const char* name, std::uint64_t id, int nodes, int ranks, int rank,
             Logger log) {
  return Init(4, context, id, mask, name, nodes, ranks, rank, log);
}

template <int kVersion>
int InitNew(void** context, std::uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank, Logger log) {
  return Init(kVersion, context, id, mask, name, nodes, ranks, rank, log);
}

int Finalize(void* context) {
  const ErrnoKeeper errno_keeper;
  const CommRef ref = RefOfContext(context);
  Comm* comm = FindComm(ref);
  if (comm == nullptr) return kSuccess;
  chain::Finalize(*comm);
  const std::uint8_t index = comm->mask;
  comm->mask = 0xff;
  CloseMask(index);
  EndComm(ref);
  g_foreign.Flush();
  return kSuccess;
}

__attribute__((destructor)) void OnExit() {
  const ErrnoKeeper errno_keeper;
  g_foreign.Flush();
}

}  // namespace
}  // namespace lockstep::nccl

// NCCL reads this data and never writes it. It is not const, because const symbols would be local.
lockstep::nccl::profiler::TableV4 ncclProfiler_v4 = {"Lockstep",
                                                     lockstep::nccl::InitV4Of,
                                                     lockstep::nccl::StartV4,
                                                     lockstep::nccl::StopEvent,
                                                     lockstep::nccl::RecordState,
                                                     lockstep::nccl::Finalize};
lockstep::nccl::profiler::TableV5 ncclProfiler_v5 = {"Lockstep",
                                                     lockstep::nccl::InitNew<5>,
                                                     lockstep::nccl::StartNew<5>,
                                                     lockstep::nccl::StopEvent,
                                                     lockstep::nccl::RecordState,
                                                     lockstep::nccl::Finalize};
lockstep::nccl::profiler::TableV5 ncclProfiler_v6 = {"Lockstep",
                                                     lockstep::nccl::InitNew<6>,
                                                     lockstep::nccl::StartNew<6>,
                                                     lockstep::nccl::StopEvent,
                                                     lockstep::nccl::RecordState,
                                                     lockstep::nccl::Finalize};
lockstep::nccl::profiler::TableV7 ncclProfiler_v7 = {"Lockstep",
                                                     lockstep::nccl::InitNew<7>,
                                                     lockstep::nccl::StartV7,
                                                     lockstep::nccl::StopEvent,
                                                     lockstep::nccl::RecordState,
                                                     lockstep::nccl::Finalize};
