#pragma once
// The common code of all wrappers: counts what identities need, times the call and writes its record. Included by the
// wrapper files only.

#include <type_traits>

#include "comms/pmpi/state.h"
#include "core/mpi_ops.h"
#include "core/uneven.h"

// The wrappers: what the slots of the entry points lead to (attach.cc).
#define LS_EXPORT extern "C"

// Calls the library's own function. Returns an error where the library lacks it: nobody could have called it.
#define LS_PMPI(name, ...)                                                                \
  [&]() -> int {                                                                          \
    auto* function = ::lockstep::pmpi::g_table.name;                                      \
    return function != nullptr ? function(__VA_ARGS__) : static_cast<int>(MPI_ERR_OTHER); \
  }()

namespace lockstep::pmpi {

// What a call transfers, in the terms of core/mpi_ops.def.
struct Shape {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  DataType dtype = DataType::kUnknown;
  std::int32_t peer = -1;  // As recorded: -1 none, -2 any.
  std::int32_t tag = -1;
  std::uint8_t flags = 0;  // Of MpiRecord: kMpiUneven, kMpiGivesNothing, kMpiTakesNothing.
};

inline std::int32_t PeerOf(int rank) {
  if (rank == MPI_ANY_SOURCE) return -2;
  return rank >= 0 ? rank : -1;  // MPI_PROC_NULL, MPI_ROOT: none.
}
inline std::int32_t TagOf(int tag) { return tag == MPI_ANY_TAG ? -2 : tag; }

inline Shape Elements(std::uint64_t count, MPI_Datatype type) {
  const TypeInfo info = TypeOf(type);
  Shape shape;
  shape.count = count;
  shape.bytes = count * info.size_bytes;
  shape.dtype = info.type;
  return shape;
}

inline std::uint32_t Saturated(std::uint64_t count) {
  return static_cast<std::uint32_t>(count < 0xffffffffu ? count : 0xffffffffu);
}

// `stack`: of ring::CallStack().
inline void Fill(MpiRecord& record, MpiOp op, std::uint8_t flags, std::uint64_t begin, std::uint64_t end,
                 std::uint64_t request, std::uint32_t comm, std::uint32_t seq, const Shape& shape,
                 std::uint32_t stack) {
  record.head = {RecordKind::kMpi, flags, 2};
  record.op = static_cast<std::uint16_t>(op);
  record.dtype = static_cast<std::uint16_t>(shape.dtype);
  record.begin_ticks = begin;
  record.end_ticks = end;
  record.request = request;
  record.bytes = shape.bytes;
  record.count = Saturated(shape.count);
  record.comm = comm;
  record.peer = shape.peer;
  record.tag = shape.tag;
  record.seq = seq;
  record.start = stack;
}

inline MpiRecord MakeRecord(MpiOp op, std::uint64_t begin, std::uint64_t end, std::uint32_t comm, const Shape& shape,
                            std::uint32_t stack = 0) {
  MpiRecord record;
  Fill(record, op, shape.flags, begin, end, 0, comm, 0, shape, stack);
  return record;
}

// Whether the library found the arguments wrong, before anything was done. Any other failure (a message that was longer
// than the buffer) may have been met by other ranks' operations.
inline bool ArgumentsRefused(int result) {
  if (result == MPI_SUCCESS) [[likely]]
    return false;
  int error = MPI_ERR_UNKNOWN;
  if (LS_PMPI(Error_class, result, &error) != MPI_SUCCESS) return false;
  for (const int of_arguments : {MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_TAG, MPI_ERR_COMM, MPI_ERR_RANK,
                                 MPI_ERR_ROOT, MPI_ERR_GROUP, MPI_ERR_OP, MPI_ERR_TOPOLOGY, MPI_ERR_ARG})
    if (error == of_arguments) return true;
  return false;
}

// Marks the record of a call that failed. Nothing is left of what a refused one asked for: a count may be negative.
inline void Fail(MpiRecord& record, int result) {
  if (result == MPI_SUCCESS) [[likely]]
    return;
  record.head.flags |= kMpiError;
  if (!ArgumentsRefused(result)) return;
  record.head.flags |= kMpiRefused;
  record.bytes = record.count = 0;
}

inline void Write(MpiRecord& record, int result) {
  Fail(record, result);
  ring::Emit(&record, 2);
}

// Writes the record of a collective or a message directly into the ring.
inline void WriteOperation(MpiOp op, int result, std::uint8_t flags, std::uint64_t begin, std::uint64_t end,
                           std::uint64_t request, std::uint32_t comm, std::uint32_t seq, const Shape& shape,
                           std::uint32_t stack = 0) {
  flags = static_cast<std::uint8_t>(flags | shape.flags);
  ring::EmitMade<2>([&](std::byte* memory) {
    MpiRecord& record = *reinterpret_cast<MpiRecord*>(memory);
    Fill(record, op, flags, begin, end, request, comm, seq, shape, stack);
    Fail(record, result);
  });
}

// Writes the record of a call that transfers nothing. Returns `result`, as the call's wrapper does.
inline int WriteCall(MpiOp op, int result, std::uint64_t begin, std::uint64_t end, Comm* comm,
                     std::uint64_t request = 0) {
  if (ring::Recording()) WriteOperation(op, result, 0, begin, end, request, NumberOf(comm), 0, Shape{});
  return result;
}

// A call in which the thread may wait. The call in progress can be read after a kill -9, and the
// thread's CPU time is sampled around it (at most every 200 us, because reading it is a system call of
// 250 ns).
class Blocking {
 public:
  // A call of which nothing but its name is kept.
  explicit Blocking(MpiOp op) : page_(ring::Page()) {
    if (page_ != nullptr) page_->header.open_call.flags = 0;
    Begin(op);
  }
  // A collective, a message, or a call on a communicator.
  Blocking(MpiOp op, std::uint32_t comm, std::uint32_t seq, const Shape& shape, std::uint8_t flags = 0,
           std::uint32_t stack = 0)
      : page_(ring::Page()) {
    if (page_ != nullptr) Describe(comm, seq, shape, flags, stack);
    Begin(op);
  }
  // A message with a receive beside it.
  Blocking(MpiOp op, std::uint32_t comm, const Shape& shape, int source, int source_tag, std::uint32_t stack)
      : page_(ring::Page()) {
    if (page_ != nullptr) {
      Describe(comm, 0, shape, kOpenCallReceives, stack);
      page_->header.open_call.source = PeerOf(source);
      page_->header.open_call.source_tag = TagOf(source_tag);
    }
    Begin(op);
  }
  // A call that waits for `given` requests, those among `handles` that are not 0.
  Blocking(MpiOp op, const std::uint64_t handles[], int count, int given) : page_(ring::Page()) {
    if (page_ != nullptr) {
      Describe(kNoComm, 0, Shape{.bytes = static_cast<std::uint64_t>(given)}, 0, 0);
      OpenCall& open = page_->header.open_call;
      for (int i = 0; i < count && open.handles < kOpenCallHandles; ++i)
        if (handles[i] != 0) open.handle[open.handles++] = handles[i];
    }
    Begin(op);
  }
  std::uint64_t begin() const { return begin_; }
  // The end of the call. Record() is called after it.
  std::uint64_t End() {
    const std::uint64_t end = ring::Ticks();
    if (page_ != nullptr) page_->header.call_op.store(0, std::memory_order_relaxed);
    end_ = end;
    return end;
  }
  ~Blocking() {
    if (page_ != nullptr) Sample(end_);
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  void Describe(std::uint32_t comm, std::uint32_t seq, const Shape& shape, std::uint8_t flags, std::uint32_t stack) {
    OpenCall& open = page_->header.open_call;
    open.flags = static_cast<std::uint8_t>(kOpenCallKnown | (shape.flags & kMpiUneven) | flags);
    open.handles = 0;
    open.dtype = static_cast<std::uint16_t>(shape.dtype);
    open.count = Saturated(shape.count);
    open.bytes = shape.bytes;
    open.comm = comm;
    open.seq = seq;
    open.peer = shape.peer;
    open.tag = shape.tag;
    open.stack = stack;
  }
  void Begin(MpiOp op) {
    begin_ = ring::Ticks();
    if (page_ == nullptr) return;
    Sample(begin_);
    page_->header.call_begin_ticks.store(begin_, std::memory_order_relaxed);
    // After what describes it: who finds the thread inside a call finds all of it.
    page_->header.call_op.store(static_cast<std::uint32_t>(op), std::memory_order_release);
  }
  void Sample(std::uint64_t& ticks) {
    if (ticks - page_->header.last_cpu_ticks < lockstep_probe.sample_ticks.load(std::memory_order_relaxed)) [[likely]]
      return;
    lockstep_sample_cpu(page_, ticks);
    // At entry: the sample is not part of the call.
    ticks = ring::Ticks();
  }

  RingPage* page_;
  std::uint64_t begin_ = 0, end_ = 0;
};

// A collective that was refused has no partner on the other ranks: the next one has its number. Returns `result`.
inline int GiveBackIfRefused(Comm* comm, std::uint32_t seq, int result) {
  if (result != MPI_SUCCESS && comm != nullptr && ArgumentsRefused(result)) [[unlikely]]
    comm->collectives.store(seq, std::memory_order_relaxed);
  return result;
}

// A blocking collective. `find` gives its communicator, or null. `shape` is called before the operation's time begins,
// so that its cost is not part of it.
template <typename Find, typename ShapeOf, typename Call>
requires std::is_invocable_v<Find>
int Collective(MpiOp op, Find&& find, ShapeOf&& shape, Call&& call) {
  if (!Active()) return call();
  Comm* comm = find();
  const std::uint32_t seq = NextSeq(comm);
  if (!ring::Recording()) return GiveBackIfRefused(comm, seq, call());
  const std::uint8_t flags = comm != nullptr && comm->inter() ? kMpiInterComm : 0;
  const std::uint32_t number = NumberOf(comm);
  const Shape transferred = shape(comm);
  const std::uint32_t stack = ring::CallStack();
  Blocking blocking(op, number, seq, transferred, flags, stack);
  const int result = call();
  const std::uint64_t end = blocking.End();
  WriteOperation(op, result, flags, blocking.begin(), end, 0, number, seq, transferred, stack);
  return GiveBackIfRefused(comm, seq, result);
}

template <typename ShapeOf, typename Call>
int Collective(MpiOp op, MPI_Comm handle, ShapeOf&& shape, Call&& call) {
  return Collective(
      op, [=] { return KnownComm(handle); }, shape, call);
}

// A non-blocking collective, or the making of a persistent one: `always` writes the record while recording is off too,
// because its starts refer to it.
template <typename ShapeOf, typename Call>
int CollectivePost(MpiOp op, MPI_Comm handle, MPI_Request* request, bool always, ShapeOf&& shape, Call&& call) {
  if (!Active()) return call();
  Comm* comm = KnownComm(handle);
  const std::uint32_t seq = NextSeq(comm);
  const bool recording = ring::Recording();
  if (!recording && !always) return GiveBackIfRefused(comm, seq, call());
  const std::uint32_t stack = ring::CallStack();
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  const int flags = (comm != nullptr && comm->inter() ? kMpiInterComm : 0) | (recording ? 0 : kMpiUnrecorded);
  WriteOperation(op, result, static_cast<std::uint8_t>(flags), begin, end, request != nullptr ? HandleOf(*request) : 0,
                 NumberOf(comm), seq, shape(comm), stack);
  return GiveBackIfRefused(comm, seq, result);
}

}  // namespace lockstep::pmpi
