#pragma once
// The code around every interposed function.
//
// If the process has no NCCL, a program that looks for one by dlsym(RTLD_DEFAULT, "ncclAllReduce") finds these
// functions and gets ncclSystemError, as from an NCCL that does not work.

#include "comms/nccl/mask.h"
#include "comms/nccl/names.h"
#include "comms/nccl/nccl_abi.h"
#include "comms/nccl/real.h"
#include "comms/nccl/state.h"

namespace lockstep::nccl {

struct Shape {
  const char* name;
  CollectiveKind function = CollectiveKind::kNone;
  std::uint8_t direction = 0;
  CommHandle comm = nullptr;
  std::uint64_t count = 0;
  DataType dtype = DataType::kUnknown;
  std::uint8_t reduction = 0;
  std::int32_t peer = -1;
  const void* buffer = nullptr;
  Stream stream = nullptr;
};

struct Data {
  std::size_t count;
  int datatype;
  const void* buffer;
};

inline Shape ShapeOf(const char* name, CollectiveKind function, const Data& data, CommHandle comm, Stream stream,
                     std::uint8_t reduction, std::int32_t peer) {
  Shape shape{name, function};
  shape.count = data.count;
  shape.dtype = TypeOf(data.datatype);
  shape.buffer = data.buffer;
  shape.comm = comm;
  shape.stream = stream;
  shape.reduction = reduction;
  shape.peer = peer;
  return shape;
}

// The record of a call that returned. `ref` 0: no communicator known.
void WriteCall(const Shape& shape, CommRef ref, std::uint64_t seq, std::uint64_t begin_ticks, std::uint64_t end_ticks,
               Result result);

// An operation's API event came within this call with the context `seen`, so that is its communicator.
CommRef Join(CommHandle handle, CommRef known, CommRef seen);

// Runs `call` within a frame, which notes what the plugin saw meanwhile.
template <typename Call>
inline Result Framed(CallFrame& frame, Call&& call) {
  g_frame = &frame;
  const Result result = call();
  g_frame = nullptr;
  return result;
}

template <typename Call>
inline Result Traced(const Shape& shape, Call&& call) {
  // A call from inside of NCCL, or a process that records nothing.
  if (g_frame != nullptr || Inert()) return call();
  WakeMasks();
  CommRef ref = shape.comm != nullptr ? RefOf(shape.comm) : 0;
  const bool recording = ring::Recording();
  CallFrame frame;
  const std::uint64_t begin = recording ? ring::Ticks() : 0;
  const Result result = Framed(frame, call);
  const std::uint64_t end = recording ? ring::Ticks() : 0;
  if (shape.comm != nullptr && frame.seen != 0 && frame.seen != ref) [[unlikely]]
    ref = Join(shape.comm, ref, frame.seen);
  // Counted whether or not recording is on, because it identifies the operation across ranks.
  std::uint64_t seq = 0;
  if (shape.function != CollectiveKind::kNone && (result == kSuccess || result == kInProgress))
    if (Comm* comm = FindComm(ref); comm != nullptr)
      seq =
          comm->calls[static_cast<unsigned>(shape.function) + shape.direction].fetch_add(1, std::memory_order_relaxed);
  if (recording) WriteCall(shape, ref, seq, begin, end, result);
  return result;
}
static_assert(static_cast<unsigned>(CollectiveKind::kSendRecv) + 1 < 16);

}  // namespace lockstep::nccl

#define LS_EXPORT extern "C" __attribute__((visibility("default")))

// Calls the function behind `name`, or reports that there is none. For the body of the interposed function only, whose
// caller decides which NCCL is used.
#define LS_REAL(name, ...)                                                               \
  [&, caller = __builtin_return_address(0)]() -> ::lockstep::nccl::Result {              \
    static constinit ::lockstep::nccl::Real<decltype(&name)> real(#name);                \
    const auto function = real.Get(&name, caller);                                       \
    return function != nullptr ? function(__VA_ARGS__) : ::lockstep::nccl::kSystemError; \
  }
