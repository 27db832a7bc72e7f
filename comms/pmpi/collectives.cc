// Collectives: blocking, non-blocking, persistent. The three forms of a collective
// have the same leading arguments and the same shape, so each is written once:
// LS_COLLECTIVE(name, leading parameters, leading arguments, shape).
//
// Persistent ones exist as MPIX_ (Open MPI 4, extension pcollreq) and MPI_ (MPI 4.0).
// Fortran's calls arrive through fortran.cc.

#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

// MPI_IN_PLACE is a constant in Open MPI, no address of data.
bool InPlace(const void* buffer) { return buffer == MPI_IN_PLACE; }

std::uint64_t Sum(const int counts[], std::uint32_t n) {
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
bool AnyOther(const Comm* comm, const int counts[]) {
  if (comm == nullptr || counts == nullptr || comm->inter()) return true;
  for (int i = 0; i < comm->size; ++i)
    if (counts[i] != 0 && i != comm->rank) return true;
  return false;
}
bool Own(const Comm* comm, const int counts[]) {
  return comm == nullptr || counts == nullptr || comm->inter() || counts[comm->rank] != 0;
}

// Inter-communicators: the root of the sending or receiving group passes MPI_ROOT.
bool IsRoot(const Comm* comm, int root) {
  if (comm == nullptr) return false;
  return comm->inter() ? root == MPI_ROOT : root == comm->rank;
}

Shape Gather(const Comm* comm, int sendcount, MPI_Datatype sendtype, int recvcount, MPI_Datatype recvtype, int root) {
  const bool receives = IsRoot(comm, root);
  return Rooted(
      receives ? Elements(static_cast<std::uint64_t>(recvcount) * N(comm), recvtype)
               : Elements(static_cast<std::uint64_t>(sendcount) * (comm != nullptr && !comm->inter() ? N(comm) : 1),
                          sendtype),
      root);
}

// Only the root knows all counts; the others know their own part.
Shape Varying(const Comm* comm, int own_count, MPI_Datatype own_type, const int counts[], MPI_Datatype type, int root) {
  return Rooted(IsRoot(comm, root) ? Elements(Sum(counts, static_cast<std::uint32_t>(N(comm))), type)
                                   : Elements(static_cast<std::uint64_t>(own_count), own_type),
                root);
}

Shape Gatherv(const Comm* comm, int sendcount, MPI_Datatype sendtype, const int recvcounts[], MPI_Datatype recvtype,
              int root) {
  return Uneven(Varying(comm, sendcount, sendtype, recvcounts, recvtype, root), IsRoot(comm, root) || sendcount != 0);
}

Shape Scatter(const Comm* comm, int sendcount, MPI_Datatype sendtype, int recvcount, MPI_Datatype recvtype, int root) {
  return Gather(comm, recvcount, recvtype, sendcount, sendtype, root);
}

Shape Scatterv(const Comm* comm, const int sendcounts[], MPI_Datatype sendtype, int recvcount, MPI_Datatype recvtype,
               int root) {
  return Uneven(Varying(comm, recvcount, recvtype, sendcounts, sendtype, root), true,
                IsRoot(comm, root) || recvcount != 0);
}

Shape Alltoallw(const Comm* comm, const void* sendbuf, const int sendcounts[], const MPI_Datatype sendtypes[],
                const int recvcounts[], const MPI_Datatype recvtypes[]) {
  const int* counts = InPlace(sendbuf) ? recvcounts : sendcounts;
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

Shape NeighborAlltoallw(std::uint32_t degree, const int counts[], const MPI_Datatype types[]) {
  Shape shape;
  for (std::uint32_t i = 0; i < degree; ++i)
    shape.bytes += Elements(static_cast<std::uint64_t>(counts[i]), types[i]).bytes;
  shape.dtype = DataType::kDerived;
  return Uneven(shape);
}

std::uint64_t U(int count) { return static_cast<std::uint64_t>(count); }
std::uint32_t N32(const Comm* comm) { return static_cast<std::uint32_t>(N(comm)); }

}  // namespace

#define LS_ARGS(...) __VA_ARGS__
#define LS_SHAPE(...) [&]([[maybe_unused]] Comm* c) -> Shape { return __VA_ARGS__; }

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

LS_COLLECTIVE(Bcast, Ibcast, (void* buffer, int count, MPI_Datatype type, int root), (buffer, count, type, root),
              Rooted(Elements(U(count), type), root))
LS_COLLECTIVE(Reduce, Ireduce, (const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op, int root),
              (send, recv, count, type, op, root), Rooted(Elements(U(count), type), root))
LS_COLLECTIVE(Allreduce, Iallreduce, (const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op),
              (send, recv, count, type, op), Elements(U(count), type))
LS_COLLECTIVE(Scan, Iscan, (const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op),
              (send, recv, count, type, op), Elements(U(count), type))
LS_COLLECTIVE(Exscan, Iexscan, (const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op),
              (send, recv, count, type, op), Elements(U(count), type))
LS_COLLECTIVE(Gather, Igather,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, int recvcount, MPI_Datatype recvtype,
               int root),
              (send, sendcount, sendtype, recv, recvcount, recvtype, root),
              Gather(c, sendcount, sendtype, recvcount, recvtype, root))
LS_COLLECTIVE(Gatherv, Igatherv,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, const int recvcounts[],
               const int displs[], MPI_Datatype recvtype, int root),
              (send, sendcount, sendtype, recv, recvcounts, displs, recvtype, root),
              Gatherv(c, sendcount, sendtype, recvcounts, recvtype, root))
LS_COLLECTIVE(Scatter, Iscatter,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, int recvcount, MPI_Datatype recvtype,
               int root),
              (send, sendcount, sendtype, recv, recvcount, recvtype, root),
              Scatter(c, sendcount, sendtype, recvcount, recvtype, root))
LS_COLLECTIVE(Scatterv, Iscatterv,
              (const void* send, const int sendcounts[], const int displs[], MPI_Datatype sendtype, void* recv,
               int recvcount, MPI_Datatype recvtype, int root),
              (send, sendcounts, displs, sendtype, recv, recvcount, recvtype, root),
              Scatterv(c, sendcounts, sendtype, recvcount, recvtype, root))
LS_COLLECTIVE(Allgather, Iallgather,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, int recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype), Elements(U(recvcount) * N(c), recvtype))
LS_COLLECTIVE(Allgatherv, Iallgatherv,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, const int recvcounts[],
               const int displs[], MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcounts, displs, recvtype),
              Uneven(Elements(Sum(recvcounts, N32(c)), recvtype), InPlace(send) ? Own(c, recvcounts) : sendcount != 0,
                     AnyOther(c, recvcounts)))
LS_COLLECTIVE(Alltoall, Ialltoall,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, int recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype),
              InPlace(send) ? Elements(U(recvcount) * N(c), recvtype) : Elements(U(sendcount) * N(c), sendtype))
LS_COLLECTIVE(Alltoallv, Ialltoallv,
              (const void* send, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype, void* recv,
               const int recvcounts[], const int rdispls[], MPI_Datatype recvtype),
              (send, sendcounts, sdispls, sendtype, recv, recvcounts, rdispls, recvtype),
              Uneven(InPlace(send) ? Elements(Sum(recvcounts, N32(c)), recvtype)
                                   : Elements(Sum(sendcounts, N32(c)), sendtype),
                     AnyOther(c, InPlace(send) ? recvcounts : sendcounts), AnyOther(c, recvcounts)))
LS_COLLECTIVE(Alltoallw, Ialltoallw,
              (const void* send, const int sendcounts[], const int sdispls[], const MPI_Datatype sendtypes[],
               void* recv, const int recvcounts[], const int rdispls[], const MPI_Datatype recvtypes[]),
              (send, sendcounts, sdispls, sendtypes, recv, recvcounts, rdispls, recvtypes),
              Alltoallw(c, send, sendcounts, sendtypes, recvcounts, recvtypes))
LS_COLLECTIVE(Reduce_scatter, Ireduce_scatter,
              (const void* send, void* recv, const int recvcounts[], MPI_Datatype type, MPI_Op op),
              (send, recv, recvcounts, type, op),
              Uneven(Elements(Sum(recvcounts, c != nullptr ? static_cast<std::uint32_t>(c->size) : 0), type),
                     AnyOther(c, recvcounts), Own(c, recvcounts)))
LS_COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block,
              (const void* send, void* recv, int recvcount, MPI_Datatype type, MPI_Op op),
              (send, recv, recvcount, type, op),
              Elements(U(recvcount) * (c != nullptr ? static_cast<std::uint64_t>(c->size) : 0), type))
LS_COLLECTIVE(Neighbor_allgather, Ineighbor_allgather,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, int recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype),
              Elements(U(recvcount) * InDegree(comm, c), recvtype))
LS_COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, const int recvcounts[],
               const int displs[], MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcounts, displs, recvtype),
              Uneven(Elements(Sum(recvcounts, InDegree(comm, c)), recvtype)))
LS_COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall,
              (const void* send, int sendcount, MPI_Datatype sendtype, void* recv, int recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype),
              Elements(U(sendcount) * OutDegree(comm, c), sendtype))
LS_COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv,
              (const void* send, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype, void* recv,
               const int recvcounts[], const int rdispls[], MPI_Datatype recvtype),
              (send, sendcounts, sdispls, sendtype, recv, recvcounts, rdispls, recvtype),
              Uneven(Elements(Sum(sendcounts, OutDegree(comm, c)), sendtype)))
LS_COLLECTIVE(Neighbor_alltoallw, Ineighbor_alltoallw,
              (const void* send, const int sendcounts[], const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
               void* recv, const int recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[]),
              (send, sendcounts, sdispls, sendtypes, recv, recvcounts, rdispls, recvtypes),
              NeighborAlltoallw(OutDegree(comm, c), sendcounts, sendtypes))

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
