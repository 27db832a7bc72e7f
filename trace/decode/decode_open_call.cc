// What a thread was inside of when it was last seen -> facts of the name open_call.

#include <algorithm>
#include <utility>

#include "core/mpi_ops.h"
#include "trace/decode/open_call.h"
#include "trace/decode/process_decoder.h"

namespace lockstep::trace {
namespace {

Awaits AwaitsOf(MpiClass cls) {
  switch (cls) {
    case MpiClass::kCollective:
      return Awaits::kCollective;
    case MpiClass::kSend:
    case MpiClass::kSendRecv:
      return Awaits::kSend;
    case MpiClass::kRecv:
    case MpiClass::kProbe:
      return Awaits::kReceive;
    case MpiClass::kComm:
      return Awaits::kCreation;
    default:
      return Awaits::kNothing;
  }
}

OpenCallFact AwaitedMessage(OpenCallFact call, const schema::P2p::Row& posted) {
  call.awaits = posted.direction == schema::Direction::kReceive ? Awaits::kReceive : Awaits::kSend;
  call.posted_ns = posted.begin_ns;
  call.comm = posted.comm;
  call.bytes = posted.bytes;
  call.peer = posted.peer;
  call.tag = posted.tag;
  call.caller = posted.caller;
  return call;
}

}  // namespace

void ProcessDecoder::AddOpenCall(const RingState& state, std::int64_t begin_ns) {
  const OpenCall& open = state.open_call;
  OpenCallFact call{.op = static_cast<std::uint16_t>(state.call_op), .begin_ns = begin_ns};
  const MpiOpInfo* info = FindMpiOp(call.op);
  const bool known = (open.flags & kOpenCallKnown) != 0 && info != nullptr;
  if (known && info->cls == MpiClass::kWait) {
    call.requests = static_cast<std::uint32_t>(std::min<std::uint64_t>(open.bytes, UINT32_MAX));
    AddAwaited(open, call);
    return;
  }
  if (known) {
    call.awaits = AwaitsOf(info->cls);
    call.comm = CommRow(open.comm, begin_ns);
    call.seq = open.seq;
    call.bytes = open.bytes;
    call.count = open.count;
    call.dtype = open.dtype;
    call.uneven = (open.flags & kMpiUneven) != 0;
    call.peer = open.peer;
    call.tag = open.tag;
    call.caller = StackOf(open.stack);
  }
  AddOpenCallFact(call);
  if (!known || (open.flags & kOpenCallReceives) == 0) return;
  call.awaits = Awaits::kReceive;
  call.peer = open.source;
  call.tag = open.source_tag;
  call.bytes = call.count = 0;
  AddOpenCallFact(call);
}

// One for each request of a completion call, as the operation was posted.
void ProcessDecoder::AddAwaited(const OpenCall& open, const OpenCallFact& call) {
  bool any = false;
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(open.handles, kOpenCallHandles); ++i) {
    bool first = true;
    requests_.ForEach(open.handle[i], [&](const OpenRequests::Operation& operation) {
      // Of several with one handle, the oldest completes first.
      if (!std::exchange(first, false)) return;
      OpenCallFact awaited = call;
      if (operation.kind == OpenRequests::Kind::kCollective) {
        const schema::Collectives::Row posted = tables_.collectives.Get(operation.row);
        awaited.awaits = Awaits::kCollective;
        awaited.posted_ns = posted.begin_ns;
        awaited.comm = posted.comm;
        awaited.seq = posted.seq;
        awaited.bytes = posted.bytes;
        awaited.count = posted.count;
        awaited.dtype = posted.dtype;
        awaited.uneven = (posted.uneven & 1) != 0;
        awaited.peer = posted.root;
        awaited.caller = posted.caller;
      } else if (operation.kind == OpenRequests::Kind::kP2p) {
        // Of two the last is told below.
        if (operation.rows > 1) AddOpenCallFact(AwaitedMessage(call, tables_.p2p.Get(operation.row)));
        awaited = AwaitedMessage(call, tables_.p2p.Get(operation.row + operation.rows - 1));
      }
      AddOpenCallFact(awaited);
      any = true;
    });
  }
  if (!any) AddOpenCallFact(call);
}

void ProcessDecoder::AddOpenCallFact(const OpenCallFact& call) {
  const std::uint32_t nth = ++facts_["open_call"];
  AddFact("fact.open_call" + (nth > 1 ? "." + std::to_string(nth) : ""), TextOf(call));
}

}  // namespace lockstep::trace
