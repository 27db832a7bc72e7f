// Point-to-point: blocking, non-blocking, persistent, matched probes. The completion record that follows a receive
// describes the received message (core/record.h).

#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

Shape Between(Shape shape, int peer, int tag) {
  shape.peer = PeerOf(peer);
  shape.tag = TagOf(tag);
  return shape;
}
Shape Message(MPI_Count count, MPI_Datatype type, int peer, int tag) {
  return Between(Elements(static_cast<std::uint64_t>(count), type), peer, tag);
}

// The call that receives a message which a probe has matched before. core/record.h: messages are numbered in the order
// in which they were matched.
MpiRecord MatchedRecord(MpiOp op, std::uint64_t begin, std::uint64_t end, MPI_Count count, MPI_Datatype type,
                        const MatchedMessage& matched) {
  Shape shape = Elements(static_cast<std::uint64_t>(count), type);
  shape.peer = matched.source;
  shape.tag = matched.tag;
  MpiRecord record = MakeRecord(op, begin, end, matched.comm, shape);
  record.seq = static_cast<std::uint32_t>(matched.ticks);
  record.start = static_cast<std::uint32_t>(matched.ticks >> 32);
  return record;
}

CompletionRecord Received(const MPI_Status& status) {
  CompletionRecord record{};
  record.head = {RecordKind::kCompletion, kCompletionStatus, 1};
  if (IsCancelled(status)) record.head.flags |= kCompletionCancelled;
  record.source = status.MPI_SOURCE >= 0 ? status.MPI_SOURCE : -1;
  record.tag = status.MPI_TAG;
  record.bytes = BytesOf(status);
  return record;
}

template <typename Call>
int Send(MpiOp op, MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm handle, Call&& call) {
  if (!Active() || !ring::Recording()) return call();
  const std::uint32_t comm = NumberOf(KnownComm(handle));
  const Shape sent = Message(count, type, dest, tag);
  const std::uint32_t stack = ring::CallStack();
  Blocking blocking(op, comm, 0, sent, 0, stack);
  const int result = call();
  const std::uint64_t end = blocking.End();
  WriteOperation(op, result, 0, blocking.begin(), end, 0, comm, 0, sent, stack);
  return result;
}

// Posts and persistent initialisations of both directions.
template <typename Call>
int Post(MpiOp op, MPI_Count count, MPI_Datatype type, int peer, int tag, MPI_Comm handle, MPI_Request* request,
         bool always, Call&& call) {
  const bool recording = Active() && ring::Recording();
  if (!recording && !(always && Active())) return call();
  Comm* comm = KnownComm(handle);
  const std::uint32_t stack = ring::CallStack();
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  WriteOperation(op, result, recording ? 0 : kMpiUnrecorded, begin, end, request != nullptr ? HandleOf(*request) : 0,
                 NumberOf(comm), 0, Message(count, type, peer, tag), stack);
  return result;
}

struct WithCompletion {
  MpiRecord call;
  CompletionRecord completion;
};

void WriteReceive(WithCompletion& records, int result, const MPI_Status& status) {
  if (result != MPI_SUCCESS) {
    Write(records.call, result);
    return;
  }
  records.completion = Received(status);
  ring::Emit(&records, 3, 2);
}

// A post of two messages with one request. `received` is what the call asks for.
template <typename Call>
int PostBoth(MpiOp op, MPI_Comm handle, const Shape& sent, const Shape& received, MPI_Request* request, Call&& call) {
  if (!Active() || !ring::Recording()) return call();
  const std::uint32_t comm = NumberOf(KnownComm(handle)), stack = ring::CallStack();
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  WithCompletion records;
  records.call = MakeRecord(op, begin, end, comm, sent, stack);
  records.call.request = request != nullptr ? HandleOf(*request) : 0;
  Fail(records.call, result);
  records.completion = {};
  constexpr std::uint8_t kFlags = LS_ISENDRECV_TELLS ? kCompletionPending | kCompletionStatus : kCompletionPending;
  records.completion.head = {RecordKind::kCompletion, kFlags, 1};
  records.completion.source = received.peer;
  records.completion.tag = received.tag;
  records.completion.bytes = received.bytes;
  ring::Emit(&records, 3, 2);
  return result;
}

// `call` is passed a status: the caller's, or one of ours if the caller wants none. `open` makes the Blocking from the
// communicator's number and what called it.
template <typename Open, typename Call>
int ReceiveIn(Open&& open, MpiOp op, MPI_Comm handle, const Shape& shape, MPI_Status* status, Call&& call) {
  if (!Active() || !ring::Recording()) return call(status);
  const std::uint32_t comm = NumberOf(KnownComm(handle));
  MPI_Status own;
  MPI_Status* used = status != MPI_STATUS_IGNORE ? status : &own;
  const std::uint32_t stack = ring::CallStack();
  Blocking blocking = open(comm, stack);
  const int result = call(used);
  const std::uint64_t end = blocking.End();
  WithCompletion records;
  records.call = MakeRecord(op, blocking.begin(), end, comm, shape, stack);
  WriteReceive(records, result, *used);
  return result;
}

template <typename Call>
int Receive(MpiOp op, MPI_Comm handle, const Shape& shape, MPI_Status* status, Call&& call) {
  const auto open = [&](std::uint32_t comm, std::uint32_t stack) { return Blocking(op, comm, 0, shape, 0, stack); };
  return ReceiveIn(open, op, handle, shape, status, call);
}

// `shape` is that of the message that is sent.
template <typename Call>
int SendReceive(MpiOp op, MPI_Comm handle, const Shape& shape, int source, int source_tag, MPI_Status* status,
                Call&& call) {
  const auto open = [&](std::uint32_t comm, std::uint32_t stack) {
    return Blocking(op, comm, shape, source, source_tag, stack);
  };
  return ReceiveIn(open, op, handle, shape, status, call);
}

template <typename Call>
int BlockingProbe(MpiOp op, int source, int tag, MPI_Comm handle, MPI_Message* message, MPI_Status* status,
                  Call&& call) {
  if (!Active()) return call(status);
  Comm* comm = KnownComm(handle);
  MPI_Status own;
  MPI_Status* used = status != MPI_STATUS_IGNORE ? status : &own;
  if (!ring::Recording() && message == nullptr) return call(status);
  const bool recording = ring::Recording();
  Blocking blocking(op, NumberOf(comm), 0, Between({}, source, tag));
  const int result = call(used);
  const std::uint64_t end = blocking.End();
  if (message != nullptr && result == MPI_SUCCESS)
    RememberMessage(*message, {NumberOf(comm), PeerOf(used->MPI_SOURCE), used->MPI_TAG, end});
  if (!recording) return result;
  WriteOperation(op, result, 0, blocking.begin(), end, 0, NumberOf(comm), 0, Between({}, source, tag));
  return result;
}

template <typename Call>
int QueryProbe(MpiOp op, int source, int tag, MPI_Comm handle, int* flag, MPI_Message* message, MPI_Status* status,
               Call&& call) {
  if (!Active() || (!ring::Recording() && message == nullptr)) return call(status);
  MPI_Status own;
  MPI_Status* used = status != MPI_STATUS_IGNORE ? status : &own;
  const std::uint64_t begin = ring::Ticks();
  const int result = call(used);
  const bool recording = ring::Recording();
  if (result == MPI_SUCCESS && flag != nullptr && *flag == 0) {
    if (recording) ring::Poll(static_cast<std::uint64_t>(op), begin);
    return result;
  }
  const std::uint64_t end = ring::Ticks();
  Comm* comm = KnownComm(handle);
  if (message != nullptr && result == MPI_SUCCESS)
    RememberMessage(*message, {NumberOf(comm), PeerOf(used->MPI_SOURCE), used->MPI_TAG, end});
  if (!recording) return result;
  WriteOperation(op, result, 0, begin, end, 0, NumberOf(comm), 0, Between({}, source, tag));
  return result;
}

}  // namespace

#define LS_SEND(name)                                                                                      \
  LS_EXPORT int LS_WRAPPER(name)(const void* buffer, LS_COUNT count, MPI_Datatype type, int dest, int tag, \
                                 MPI_Comm comm) {                                                          \
    return Send(MpiOp::k##name, count, type, dest, tag, comm,                                              \
                [&] { return LS_REAL(name, buffer, count, type, dest, tag, comm); });                      \
  }
#define LS_POST(name, buffer_type, always)                                                                 \
  LS_EXPORT int LS_WRAPPER(name)(buffer_type buffer, LS_COUNT count, MPI_Datatype type, int peer, int tag, \
                                 MPI_Comm comm, MPI_Request* request) {                                    \
    return Post(MpiOp::k##name, count, type, peer, tag, comm, request, always,                             \
                [&] { return LS_REAL(name, buffer, count, type, peer, tag, comm, request); });             \
  }

#include "comms/pmpi/count_forms.h"
#include "comms/pmpi/p2p_forms.h"
#if LS_LARGE_COUNTS
#define LS_LARGE 1
#include "comms/pmpi/count_forms.h"
#include "comms/pmpi/p2p_forms.h"
#endif

LS_EXPORT int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status) {
  return BlockingProbe(MpiOp::kProbe, source, tag, comm, nullptr, status,
                       [&](MPI_Status* used) { return LS_PMPI(Probe, source, tag, comm, used); });
}
LS_EXPORT int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  return BlockingProbe(MpiOp::kMprobe, source, tag, comm, message, status,
                       [&](MPI_Status* used) { return LS_PMPI(Mprobe, source, tag, comm, message, used); });
}
LS_EXPORT int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  return QueryProbe(MpiOp::kIprobe, source, tag, comm, flag, nullptr, status,
                    [&](MPI_Status* used) { return LS_PMPI(Iprobe, source, tag, comm, flag, used); });
}
LS_EXPORT int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
  return QueryProbe(MpiOp::kImprobe, source, tag, comm, flag, message, status,
                    [&](MPI_Status* used) { return LS_PMPI(Improbe, source, tag, comm, flag, message, used); });
}

}  // namespace lockstep::pmpi
