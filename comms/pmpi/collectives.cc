// Collectives: blocking, non-blocking, persistent. The three forms of a collective
// have the same leading arguments and the same shape, so each is written once:
// LS_COLLECTIVE(name, leading parameters, leading arguments, shape).
//
// Persistent ones exist as MPIX_ (Open MPI 4, extension pcollreq) and MPI_ (MPI 4.0).
// Fortran's calls arrive through fortran.cc.

#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

// MPI_IN_PLACE is a constant in all ABIs, no address of data.
bool InPlace(const void* buffer) { return buffer == MPI_IN_PLACE; }

template <typename Count>
std::uint64_t Sum(const Count counts[], std::uint32_t n) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; counts != nullptr && i < n; ++i) sum += static_cast<std::uint64_t>(counts[i]);
  return sum;
}

std::uint64_t N(const Comm* comm) { return comm != nullptr ? comm->peers() : 0; }

Shape Rooted(Shape shape, int root) {
  shape.peer = PeerOf(root);
  return shape;
}
// `gives`, `takes`: the rank sends something to, or receives something from, other members.
Shape Uneven(Shape shape, bool gives = true, bool takes = true) {
  shape.flags = static_cast<std::uint8_t>(kMpiUneven | (gives ? 0 : kMpiGivesNothing) | (takes ? 0 : kMpiTakesNothing));
  return shape;
}
// Whether the count of any member other than the caller is not 0.
template <typename Count>
bool AnyOther(const Comm* comm, const Count counts[]) {
  if (comm == nullptr || counts == nullptr || comm->inter()) return true;
  for (int i = 0; i < comm->size; ++i)
    if (counts[i] != 0 && i != comm->rank) return true;
  return false;
}
template <typename Count>
bool Own(const Comm* comm, const Count counts[]) {
  return comm == nullptr || counts == nullptr || comm->inter() || counts[comm->rank] != 0;
}

// Inter-communicators: the root of the sending or receiving group passes MPI_ROOT.
bool IsRoot(const Comm* comm, int root) {
  if (comm == nullptr) return false;
  return comm->inter() ? root == MPI_ROOT : root == comm->rank;
}

Shape Gather(const Comm* comm, MPI_Count sendcount, MPI_Datatype sendtype, MPI_Count recvcount, MPI_Datatype recvtype,
             int root) {
  const bool receives = IsRoot(comm, root);
  return Rooted(
      receives ? Elements(static_cast<std::uint64_t>(recvcount) * N(comm), recvtype)
               : Elements(static_cast<std::uint64_t>(sendcount) * (comm != nullptr && !comm->inter() ? N(comm) : 1),
                          sendtype),
      root);
}

// Only the root knows all counts; the others know their own part.
template <typename Count>
Shape Varying(const Comm* comm, Count own_count, MPI_Datatype own_type, const Count counts[], MPI_Datatype type,
              int root) {
  return Rooted(IsRoot(comm, root) ? Elements(Sum(counts, static_cast<std::uint32_t>(N(comm))), type)
                                   : Elements(static_cast<std::uint64_t>(own_count), own_type),
                root);
}

template <typename Count>
Shape Gatherv(const Comm* comm, Count sendcount, MPI_Datatype sendtype, const Count recvcounts[], MPI_Datatype recvtype,
              int root) {
  return Uneven(Varying(comm, sendcount, sendtype, recvcounts, recvtype, root), IsRoot(comm, root) || sendcount != 0);
}

Shape Scatter(const Comm* comm, MPI_Count sendcount, MPI_Datatype sendtype, MPI_Count recvcount, MPI_Datatype recvtype,
              int root) {
  return Gather(comm, recvcount, recvtype, sendcount, sendtype, root);
}

template <typename Count>
Shape Scatterv(const Comm* comm, const Count sendcounts[], MPI_Datatype sendtype, Count recvcount,
               MPI_Datatype recvtype, int root) {
  return Uneven(Varying(comm, recvcount, recvtype, sendcounts, sendtype, root), true,
                IsRoot(comm, root) || recvcount != 0);
}

template <typename Count>
Shape Alltoallw(const Comm* comm, const void* sendbuf, const Count sendcounts[], const MPI_Datatype sendtypes[],
                const Count recvcounts[], const MPI_Datatype recvtypes[]) {
  const Count* counts = InPlace(sendbuf) ? recvcounts : sendcounts;
  const MPI_Datatype* types = InPlace(sendbuf) ? recvtypes : sendtypes;
  Shape shape;
  for (std::uint64_t i = 0; i < N(comm); ++i) {
    const Shape part = Elements(static_cast<std::uint64_t>(counts[i]), types[i]);
    shape.bytes += part.bytes;
    shape.count += part.count;
  }
  shape.dtype = DataType::kDerived;
  return Uneven(shape, AnyOther(comm, counts), AnyOther(comm, recvcounts));
}

template <typename Count>
Shape NeighborAlltoallw(std::uint32_t degree, const Count counts[], const MPI_Datatype types[]) {
  Shape shape;
  for (std::uint32_t i = 0; i < degree; ++i)
    shape.bytes += Elements(static_cast<std::uint64_t>(counts[i]), types[i]).bytes;
  shape.dtype = DataType::kDerived;
  return Uneven(shape);
}

std::uint64_t U(MPI_Count count) { return static_cast<std::uint64_t>(count); }
std::uint32_t N32(const Comm* comm) { return static_cast<std::uint32_t>(N(comm)); }

}  // namespace

#define LS_ARGS(...) __VA_ARGS__
#define LS_SHAPE(...) [&]([[maybe_unused]] Comm* c) -> Shape { return __VA_ARGS__; }

#include "comms/pmpi/count_forms.h"

// Blocking, non-blocking, and both names of the persistent form.
#define LS_COLLECTIVE(name, iname, parameters, arguments, ...)                                               \
  LS_EXPORT int MPI_##name(LS_ARGS parameters, MPI_Comm comm) {                                              \
    return Collective(MpiOp::k##name, comm, LS_SHAPE(__VA_ARGS__),                                           \
                      [&] { return LS_PMPI(name, LS_ARGS arguments, comm); });                               \
  }                                                                                                          \
  LS_EXPORT int MPI_##iname(LS_ARGS parameters, MPI_Comm comm, MPI_Request* request) {                       \
    return CollectivePost(MpiOp::k##iname, comm, request, false, LS_SHAPE(__VA_ARGS__),                      \
                          [&] { return LS_PMPI(iname, LS_ARGS arguments, comm, request); });                 \
  }                                                                                                          \
  LS_EXPORT int MPIX_##name##_init(LS_ARGS parameters, MPI_Comm comm, MPI_Info info, MPI_Request* request) { \
    return CollectivePost(MpiOp::k##name##_init, comm, request, true, LS_SHAPE(__VA_ARGS__),                 \
                          [&] { return LS_PMPI(X_##name##_init, LS_ARGS arguments, comm, info, request); }); \
  }                                                                                                          \
  LS_EXPORT int MPI_##name##_init(LS_ARGS parameters, MPI_Comm comm, MPI_Info info, MPI_Request* request) {  \
    return CollectivePost(MpiOp::k##name##_init, comm, request, true, LS_SHAPE(__VA_ARGS__),                 \
                          [&] { return LS_PMPI(name##_init, LS_ARGS arguments, comm, info, request); });     \
  }

#include "comms/pmpi/collective_forms.h"
#if LS_LARGE_COUNTS
#define LS_LARGE 1
#include "comms/pmpi/count_forms.h"
#undef LS_COLLECTIVE
#define LS_COLLECTIVE(name, iname, parameters, arguments, ...)                                                \
  LS_EXPORT int MPI_##name##_c(LS_ARGS parameters, MPI_Comm comm) {                                           \
    return Collective(MpiOp::k##name, comm, LS_SHAPE(__VA_ARGS__),                                            \
                      [&] { return LS_PMPI(name##_c, LS_ARGS arguments, comm); });                            \
  }                                                                                                           \
  LS_EXPORT int MPI_##iname##_c(LS_ARGS parameters, MPI_Comm comm, MPI_Request* request) {                    \
    return CollectivePost(MpiOp::k##iname, comm, request, false, LS_SHAPE(__VA_ARGS__),                       \
                          [&] { return LS_PMPI(iname##_c, LS_ARGS arguments, comm, request); });              \
  }                                                                                                           \
  LS_EXPORT int MPI_##name##_init_c(LS_ARGS parameters, MPI_Comm comm, MPI_Info info, MPI_Request* request) { \
    return CollectivePost(MpiOp::k##name##_init, comm, request, true, LS_SHAPE(__VA_ARGS__),                  \
                          [&] { return LS_PMPI(name##_init_c, LS_ARGS arguments, comm, info, request); });    \
  }
#include "comms/pmpi/collective_forms.h"
#endif

// No leading arguments.
LS_EXPORT int MPI_Barrier(MPI_Comm comm) {
  return Collective(MpiOp::kBarrier, comm, LS_SHAPE(Shape{}), [&] { return LS_PMPI(Barrier, comm); });
}
LS_EXPORT int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return CollectivePost(MpiOp::kIbarrier, comm, request, false, LS_SHAPE(Shape{}),
                        [&] { return LS_PMPI(Ibarrier, comm, request); });
}
LS_EXPORT int MPIX_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return CollectivePost(MpiOp::kBarrier_init, comm, request, true, LS_SHAPE(Shape{}),
                        [&] { return LS_PMPI(X_Barrier_init, comm, info, request); });
}
LS_EXPORT int MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return CollectivePost(MpiOp::kBarrier_init, comm, request, true, LS_SHAPE(Shape{}),
                        [&] { return LS_PMPI(Barrier_init, comm, info, request); });
}

}  // namespace lockstep::pmpi
