// NCCL's operations, interposed: the weak ncclX; pncclX stays NCCL's. They see what the
// plugin does not get: the reduction, the return, operations of communicators of one rank.

#include <string.h>

#include "comms/nccl/traced.h"
#include "core/schema_enums.h"

namespace lockstep::nccl {

void WriteCall(const Shape& shape, CommRef ref, std::uint64_t seq, std::uint64_t begin_ticks, std::uint64_t end_ticks,
               Result result) {
  NcclCallRecord record;
  memset(static_cast<void*>(&record), 0, sizeof record);
  record.head = {RecordKind::kNcclCall, static_cast<std::uint8_t>(NcclSource::kInterposed), 3};
  if (RingPage* page = ring::Page(); page != nullptr) {
    record.comm = NumberOf(FindComm(ref));
    record.name = NameId(MemoryOf(*page), shape.name);
  }
  record.begin_ticks = begin_ticks;
  record.end_ticks = end_ticks;
  record.count = shape.count;
  record.stream = reinterpret_cast<std::uintptr_t>(shape.stream);
  record.buffer = reinterpret_cast<std::uintptr_t>(shape.buffer);
  record.peer = shape.peer;
  record.result = result;
  record.function = static_cast<std::uint8_t>(shape.function);
  record.direction = shape.direction;
  record.dtype = static_cast<std::uint8_t>(shape.dtype);
  record.reduction = shape.reduction;
  record.seq = seq;
  ring::Emit(&record, 3);
  MarkUsed(kUsedInterposed);
}

CommRef Join(CommHandle handle, CommRef known, CommRef seen) {
  Comm* plugin = FindComm(seen);
  if (plugin == nullptr || plugin->source != NcclSource::kPlugin) return known;
  plugin->joined.store(1, std::memory_order_relaxed);
  if (Comm* own = FindComm(known); own != nullptr && own->source == NcclSource::kInterposed) {
    for (std::size_t i = 0; i < 16; ++i)
      plugin->calls[i].fetch_add(own->calls[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    if (own->announced.load(std::memory_order_relaxed) == 0)
      DropComm(known);
    else
      EndComm(known);
  }
  BindHandle(handle, seen);
  return seen;
}

namespace {

Shape CallOn(CommHandle comm, const char* name, Stream stream = nullptr) {
  Shape shape{name};
  shape.comm = comm;
  shape.stream = stream;
  return shape;
}

template <typename Call>
inline Result EndGroup(const char* name, Call&& call) {
  const bool nested = g_frame != nullptr;
  const Result result = Traced({name}, call);
  if (!nested && g_groups > 0) --g_groups;
  return result;
}

}  // namespace
}  // namespace lockstep::nccl

using namespace lockstep;
using namespace lockstep::nccl;

#define LS_STRIP(...) __VA_ARGS__
// A collective, and its twin with settings of its own (2.32). `buffer`, `reduction` and `root` as its record has them.
#define LS_COLLECTIVE(name, kind, parameters, arguments, buffer, reduction, root)                                \
  LS_EXPORT Result nccl##name(LS_STRIP parameters, CommHandle comm, Stream stream) {                             \
    return Traced(                                                                                               \
        ShapeOf("nccl" #name, CollectiveKind::kind, {count, datatype, buffer}, comm, stream, reduction, root),   \
        LS_REAL(nccl##name, LS_STRIP arguments, comm, stream));                                                  \
  }                                                                                                              \
  LS_EXPORT Result nccl##name##Config(LS_STRIP parameters, CommHandle comm, Stream stream, const void* config) { \
    return Traced(ShapeOf("nccl" #name "Config", CollectiveKind::kind, {count, datatype, buffer}, comm, stream,  \
                          reduction, root),                                                                      \
                  LS_REAL(nccl##name##Config, LS_STRIP arguments, comm, stream, config));                        \
  }

LS_COLLECTIVE(AllReduce, kAllReduce, (const void* send, void* receive, std::size_t count, int datatype, int operation),
              (send, receive, count, datatype, operation), send, ReductionOf(operation), -1)
LS_COLLECTIVE(AllGather, kAllGather, (const void* send, void* receive, std::size_t count, int datatype),
              (send, receive, count, datatype), send, 0, -1)
LS_COLLECTIVE(ReduceScatter, kReduceScatter,
              (const void* send, void* receive, std::size_t count, int datatype, int operation),
              (send, receive, count, datatype, operation), send, ReductionOf(operation), -1)
LS_COLLECTIVE(Broadcast, kBroadcast, (const void* send, void* receive, std::size_t count, int datatype, int root),
              (send, receive, count, datatype, root), send != nullptr ? send : receive, 0, root)
LS_COLLECTIVE(Reduce, kReduce,
              (const void* send, void* receive, std::size_t count, int datatype, int operation, int root),
              (send, receive, count, datatype, operation, root), send, ReductionOf(operation), root)
LS_COLLECTIVE(AlltoAll, kAllToAll, (const void* send, void* receive, std::size_t count, int datatype),
              (send, receive, count, datatype), send, 0, -1)
LS_COLLECTIVE(Gather, kGather, (const void* send, void* receive, std::size_t count, int datatype, int root),
              (send, receive, count, datatype, root), send, 0, root)
LS_COLLECTIVE(Scatter, kScatter, (const void* send, void* receive, std::size_t count, int datatype, int root),
              (send, receive, count, datatype, root), send != nullptr ? send : receive, 0, root)

LS_EXPORT Result ncclBcast(void* buffer, std::size_t count, int datatype, int root, CommHandle comm, Stream stream) {
  return Traced(ShapeOf("ncclBcast", CollectiveKind::kBroadcast, {count, datatype, buffer}, comm, stream, 0, root),
                LS_REAL(ncclBcast, buffer, count, datatype, root, comm, stream));
}

LS_EXPORT Result ncclSend(const void* send, std::size_t count, int datatype, int peer, CommHandle comm, Stream stream) {
  return Traced(ShapeOf("ncclSend", CollectiveKind::kSendRecv, {count, datatype, send}, comm, stream, 0, peer),
                LS_REAL(ncclSend, send, count, datatype, peer, comm, stream));
}

LS_EXPORT Result ncclRecv(void* receive, std::size_t count, int datatype, int peer, CommHandle comm, Stream stream) {
  Shape shape = ShapeOf("ncclRecv", CollectiveKind::kSendRecv, {count, datatype, receive}, comm, stream, 0, peer);
  shape.direction = schema::Direction::kReceive;
  return Traced(shape, LS_REAL(ncclRecv, receive, count, datatype, peer, comm, stream));
}

// One-sided (2.29): no operation of two ranks, so that none is made of it; each is a call with its name, bytes, partner
// and times. The plugin gets no events of them (2.32.3).
LS_EXPORT Result ncclPutSignal(const void* local, std::size_t count, int datatype, int peer, void* window,
                               std::size_t offset, int signal, int context, unsigned flags, CommHandle comm,
                               Stream stream) {
  return Traced(
      ShapeOf("ncclPutSignal", CollectiveKind::kNone, {count, datatype, local}, comm, stream, 0, peer),
      LS_REAL(ncclPutSignal, local, count, datatype, peer, window, offset, signal, context, flags, comm, stream));
}
LS_EXPORT Result ncclSignal(int peer, int signal, int context, unsigned flags, CommHandle comm, Stream stream) {
  Shape shape = CallOn(comm, "ncclSignal", stream);
  shape.peer = peer;
  return Traced(shape, LS_REAL(ncclSignal, peer, signal, context, flags, comm, stream));
}
LS_EXPORT Result ncclWaitSignal(int count, void* signals, CommHandle comm, Stream stream) {
  return Traced(CallOn(comm, "ncclWaitSignal", stream), LS_REAL(ncclWaitSignal, count, signals, comm, stream));
}

LS_EXPORT Result ncclGroupStart() {
  const bool nested = g_frame != nullptr;
  const Result result = Traced({"ncclGroupStart"}, LS_REAL(ncclGroupStart));
  if (!nested && result == kSuccess) ++g_groups;
  return result;
}
LS_EXPORT Result ncclGroupEnd() { return EndGroup("ncclGroupEnd", LS_REAL(ncclGroupEnd)); }

// All ranks take part and wait for each other, though it is no operation on data.
LS_EXPORT Result ncclCommWindowRegister(CommHandle comm, void* buffer, std::size_t bytes, void** window, int flags) {
  return Traced(CallOn(comm, "ncclCommWindowRegister"),
                LS_REAL(ncclCommWindowRegister, comm, buffer, bytes, window, flags));
}
// From here on kernels of the program's own may communicate.
LS_EXPORT Result ncclDevCommCreate(CommHandle comm, const void* requirements, void* made) {
  return Traced(CallOn(comm, "ncclDevCommCreate"), LS_REAL(ncclDevCommCreate, comm, requirements, made));
}

// Ends the group as well, and runs nothing.
LS_EXPORT Result ncclGroupSimulateEnd(void* estimate) {
  return EndGroup("ncclGroupSimulateEnd", LS_REAL(ncclGroupSimulateEnd, estimate));
}

LS_EXPORT Result ncclRedOpCreatePreMulSum(int* operation, void* scalar, int datatype, int residence, CommHandle comm) {
  Shape shape = CallOn(comm, "ncclRedOpCreatePreMulSum");
  shape.dtype = TypeOf(datatype);
  return Traced(shape, LS_REAL(ncclRedOpCreatePreMulSum, operation, scalar, datatype, residence, comm));
}
LS_EXPORT Result ncclRedOpDestroy(int operation, CommHandle comm) {
  return Traced(CallOn(comm, "ncclRedOpDestroy"), LS_REAL(ncclRedOpDestroy, operation, comm));
}
