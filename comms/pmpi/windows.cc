// One-sided communication. The library may move the data at any time until the call that synchronises, so no transfer
// is reported for Put and Get; the time is spent in fences and locks. A fence is a collective of its window; all else
// is time of class mpi_other.

#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

// A call on a window in which the thread may wait.
template <typename Call>
int Synchronise(MpiOp op, MPI_Win window, int target, Call&& call) {
  if (!Active() || !ring::Recording()) return call();
  Comm* comm = OwnerOf(HandleOf(window));
  Blocking blocking(op);
  const int result = call();
  const std::uint64_t end = blocking.End();
  Shape shape;
  shape.peer = PeerOf(target);
  WriteOperation(op, result, 0, blocking.begin(), end, 0, NumberOf(comm), 0, shape);
  return result;
}

// A call that starts a transfer; `request` null: the window's synchronisation ends it.
template <typename Call>
int Transfer(MpiOp op, MPI_Win window, int target, MPI_Count count, MPI_Datatype type, MPI_Request* request,
             Call&& call) {
  if (!Active() || !ring::Recording()) return call();
  Comm* comm = OwnerOf(HandleOf(window));
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  Shape shape = Elements(static_cast<std::uint64_t>(count > 0 ? count : 0), type);
  shape.peer = PeerOf(target);
  WriteOperation(op, result, 0, begin, end, request != nullptr ? HandleOf(*request) : 0, NumberOf(comm), 0, shape);
  return result;
}

template <typename Call>
int Make(MpiOp op, MPI_Comm comm, MPI_Win* window, Call&& call) {
  if (!Active()) return call();
  const Origin origin = NextCreation(comm);
  Blocking blocking(op);
  const int result = call();
  const std::uint64_t end = blocking.End();
  if (result == MPI_SUCCESS) WindowCreated(*window, origin);
  return WriteCall(op, result, blocking.begin(), end, origin.parent);
}

}  // namespace

LS_EXPORT int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* window) {
  return Make(MpiOp::kWin_create_dynamic, comm, window,
              [&] { return LS_PMPI(Win_create_dynamic, info, comm, window); });
}
LS_EXPORT int MPI_Win_free(MPI_Win* window) {
  if (!Active()) return LS_PMPI(Win_free, window);
  Comm* known = ForgetOwner(HandleOf(*window));
  Blocking blocking(MpiOp::kWin_free);
  const int result = LS_PMPI(Win_free, window);
  const std::uint64_t end = blocking.End();
  WriteCall(MpiOp::kWin_free, result, blocking.begin(), end, known);
  CommFreed(known);
  return result;
}
LS_EXPORT int MPI_Win_fence(int flags, MPI_Win window) {
  return Collective(
      MpiOp::kWin_fence, [&] { return OwnerOf(HandleOf(window)); },
      [](Comm* of) { return Shape{.count = of != nullptr ? kFenceNumbered : 0}; },
      [&] { return LS_PMPI(Win_fence, flags, window); });
}

#define LS_ARGS(...) __VA_ARGS__
// LS_WINDOW(name, target, parameters, arguments): the window comes last.
#define LS_WINDOW(name, target, parameters, arguments)                                 \
  LS_EXPORT int MPI_Win_##name(LS_ARGS parameters MPI_Win window) {                    \
    return Synchronise(MpiOp::kWin_##name, window, target,                             \
                       [&] { return LS_PMPI(Win_##name, LS_ARGS arguments window); }); \
  }

LS_WINDOW(start, MPI_PROC_NULL, (MPI_Group group, int flags, ), (group, flags, ))
LS_WINDOW(post, MPI_PROC_NULL, (MPI_Group group, int flags, ), (group, flags, ))
LS_WINDOW(complete, MPI_PROC_NULL, (), ())
LS_WINDOW(wait, MPI_PROC_NULL, (), ())
LS_WINDOW(lock, rank, (int type, int rank, int flags, ), (type, rank, flags, ))
LS_WINDOW(lock_all, MPI_PROC_NULL, (int flags, ), (flags, ))
LS_WINDOW(unlock, rank, (int rank, ), (rank, ))
LS_WINDOW(unlock_all, MPI_PROC_NULL, (), ())
LS_WINDOW(flush, rank, (int rank, ), (rank, ))
LS_WINDOW(flush_all, MPI_PROC_NULL, (), ())
LS_WINDOW(flush_local, rank, (int rank, ), (rank, ))
LS_WINDOW(flush_local_all, MPI_PROC_NULL, (), ())
LS_WINDOW(sync, MPI_PROC_NULL, (), ())

LS_EXPORT int MPI_Win_set_info(MPI_Win window, MPI_Info info) {
  return Synchronise(MpiOp::kWin_set_info, window, MPI_PROC_NULL, [&] { return LS_PMPI(Win_set_info, window, info); });
}
LS_EXPORT int MPI_Win_attach(MPI_Win window, void* base, MPI_Aint size) {
  return Synchronise(MpiOp::kWin_attach, window, MPI_PROC_NULL,
                     [&] { return LS_PMPI(Win_attach, window, base, size); });
}
LS_EXPORT int MPI_Win_detach(MPI_Win window, const void* base) {
  return Synchronise(MpiOp::kWin_detach, window, MPI_PROC_NULL, [&] { return LS_PMPI(Win_detach, window, base); });
}

// A query: one that found nothing is counted, not written.
LS_EXPORT int MPI_Win_test(MPI_Win window, int* flag) {
  if (!Active() || !ring::Recording()) return LS_PMPI(Win_test, window, flag);
  Comm* comm = OwnerOf(HandleOf(window));
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Win_test, window, flag);
  if (result == MPI_SUCCESS && *flag == 0)
    ring::Poll(static_cast<std::uint64_t>(MpiOp::kWin_test), begin);
  else
    WriteOperation(MpiOp::kWin_test, result, 0, begin, ring::Ticks(), 0, NumberOf(comm), 0, Shape{});
  return result;
}

#define LS_TRANSFER(name, count, type, parameters, arguments)                  \
  LS_EXPORT int LS_WRAPPER(name)(LS_ARGS parameters, MPI_Win window) {         \
    return Transfer(MpiOp::k##name, window, target, count, type, nullptr,      \
                    [&] { return LS_REAL(name, LS_ARGS arguments, window); }); \
  }
#define LS_TRANSFER_POST(name, count, type, parameters, arguments)                            \
  LS_EXPORT int LS_WRAPPER(name)(LS_ARGS parameters, MPI_Win window, MPI_Request * request) { \
    return Transfer(MpiOp::k##name, window, target, count, type, request,                     \
                    [&] { return LS_REAL(name, LS_ARGS arguments, window, request); });       \
  }
// Both forms of one.
#define LS_TRANSFERS(name, rname, count, type, parameters, arguments) \
  LS_TRANSFER(name, count, type, parameters, arguments)               \
  LS_TRANSFER_POST(rname, count, type, parameters, arguments)

#include "comms/pmpi/count_forms.h"
#include "comms/pmpi/window_forms.h"
#if LS_LARGE_COUNTS
#define LS_LARGE 1
#include "comms/pmpi/count_forms.h"
#include "comms/pmpi/window_forms.h"
#undef LS_LARGE
#include "comms/pmpi/count_forms.h"
#endif

LS_TRANSFER(Fetch_and_op, 1, type,
            (const void* origin, void* result, MPI_Datatype type, int target, MPI_Aint offset, MPI_Op op),
            (origin, result, type, target, offset, op))
LS_TRANSFER(Compare_and_swap, 1, type,
            (const void* origin, const void* compare, void* result, MPI_Datatype type, int target, MPI_Aint offset),
            (origin, compare, result, type, target, offset))

}  // namespace lockstep::pmpi
