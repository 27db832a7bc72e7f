// Partitioned messages (MPI 4.0): a persistent send whose parts are given away one by one. A message is there as a
// whole when its last part was, so the decoder takes the last MPI_Pready as the post of the send
// (trace/decode/decode_mpi.cc).

#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

// Written while recording is off, too: its starts refer to it.
template <typename Call>
int InitPartitions(MpiOp op, int partitions, MPI_Count count, MPI_Datatype type, int peer, int tag, MPI_Comm handle,
                   MPI_Request* request, Call&& call) {
  if (!Active()) return call();
  Comm* comm = KnownComm(handle);
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  const auto all =
      static_cast<std::uint64_t>(partitions > 0 ? partitions : 0) * static_cast<std::uint64_t>(count > 0 ? count : 0);
  Shape shape = Elements(all, type);
  shape.peer = PeerOf(peer);
  shape.tag = TagOf(tag);
  WriteOperation(op, result, ring::Recording() ? 0 : kMpiUnrecorded, begin, end,
                 request != nullptr && result == MPI_SUCCESS ? HandleOf(*request) : 0, NumberOf(comm), 0, shape);
  return result;
}

template <typename Call>
int GiveAway(MpiOp op, MPI_Request request, Call&& call) {
  if (!Active() || !ring::Recording()) return call();
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  WriteOperation(op, result, 0, begin, end, HandleOf(request), kNoComm, 0, Shape{});
  return result;
}

// MPICH 4.0 declares the list of partitions without const.
template <typename Function>
struct SecondArgument;
template <typename First, typename Second, typename Third>
struct SecondArgument<int (*)(First, Second, Third)> {
  using Type = Second;
};
using PartitionList = SecondArgument<decltype(&::MPI_Pready_list)>::Type;

}  // namespace

LS_EXPORT int MPI_Psend_init(const void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int dest, int tag,
                             MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return InitPartitions(MpiOp::kPsend_init, partitions, count, type, dest, tag, comm, request, [&] {
    return LS_PMPI(Psend_init, buffer, partitions, count, type, dest, tag, comm, info, request);
  });
}
LS_EXPORT int MPI_Precv_init(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int source, int tag,
                             MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return InitPartitions(MpiOp::kPrecv_init, partitions, count, type, source, tag, comm, request, [&] {
    return LS_PMPI(Precv_init, buffer, partitions, count, type, source, tag, comm, info, request);
  });
}

LS_EXPORT int MPI_Pready(int partition, MPI_Request request) {
  return GiveAway(MpiOp::kPready, request, [&] { return LS_PMPI(Pready, partition, request); });
}
LS_EXPORT int MPI_Pready_range(int first, int last, MPI_Request request) {
  return GiveAway(MpiOp::kPready_range, request, [&] { return LS_PMPI(Pready_range, first, last, request); });
}
LS_EXPORT int MPI_Pready_list(int length, PartitionList partitions, MPI_Request request) {
  return GiveAway(MpiOp::kPready_list, request, [&] { return LS_PMPI(Pready_list, length, partitions, request); });
}

// A query about one part: while it is not there, the message is not either.
LS_EXPORT int MPI_Parrived(MPI_Request request, int partition, int* flag) {
  if (!Active() || !ring::Recording()) return LS_PMPI(Parrived, request, partition, flag);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Parrived, request, partition, flag);
  if (result == MPI_SUCCESS && *flag == 0)
    ring::Poll(static_cast<std::uint64_t>(MpiOp::kParrived) | HandleOf(request) << 12, begin);
  else
    WriteOperation(MpiOp::kParrived, result, 0, begin, ring::Ticks(), 0, kNoComm, 0, Shape{});
  return result;
}

}  // namespace lockstep::pmpi
