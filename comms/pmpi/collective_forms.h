// The collectives that have counts: LS_COLLECTIVE(name, name of the non-blocking form, leading parameters, leading
// arguments, shape). Included by collectives.cc once for each width of counts (count_forms.h); no include guard.

LS_COLLECTIVE(Bcast, Ibcast, (void* buffer, LS_COUNT count, MPI_Datatype type, int root), (buffer, count, type, root),
              Rooted(Elements(U(count), type), root))
LS_COLLECTIVE(Reduce, Ireduce, (const void* send, void* recv, LS_COUNT count, MPI_Datatype type, MPI_Op op, int root),
              (send, recv, count, type, op, root), Rooted(Elements(U(count), type), root))
LS_COLLECTIVE(Allreduce, Iallreduce, (const void* send, void* recv, LS_COUNT count, MPI_Datatype type, MPI_Op op),
              (send, recv, count, type, op), Elements(U(count), type))
LS_COLLECTIVE(Scan, Iscan, (const void* send, void* recv, LS_COUNT count, MPI_Datatype type, MPI_Op op),
              (send, recv, count, type, op), Elements(U(count), type))
LS_COLLECTIVE(Exscan, Iexscan, (const void* send, void* recv, LS_COUNT count, MPI_Datatype type, MPI_Op op),
              (send, recv, count, type, op), Elements(U(count), type))
LS_COLLECTIVE(Gather, Igather,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, LS_COUNT recvcount,
               MPI_Datatype recvtype, int root),
              (send, sendcount, sendtype, recv, recvcount, recvtype, root),
              Gather(c, sendcount, sendtype, recvcount, recvtype, root))
LS_COLLECTIVE(Gatherv, Igatherv,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, const LS_COUNT recvcounts[],
               const LS_DISPLACEMENT displs[], MPI_Datatype recvtype, int root),
              (send, sendcount, sendtype, recv, recvcounts, displs, recvtype, root),
              Gatherv(c, sendcount, sendtype, recvcounts, recvtype, root))
LS_COLLECTIVE(Scatter, Iscatter,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, LS_COUNT recvcount,
               MPI_Datatype recvtype, int root),
              (send, sendcount, sendtype, recv, recvcount, recvtype, root),
              Scatter(c, sendcount, sendtype, recvcount, recvtype, root))
LS_COLLECTIVE(Scatterv, Iscatterv,
              (const void* send, const LS_COUNT sendcounts[], const LS_DISPLACEMENT displs[], MPI_Datatype sendtype,
               void* recv, LS_COUNT recvcount, MPI_Datatype recvtype, int root),
              (send, sendcounts, displs, sendtype, recv, recvcount, recvtype, root),
              Scatterv(c, sendcounts, sendtype, recvcount, recvtype, root))
LS_COLLECTIVE(Allgather, Iallgather,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, LS_COUNT recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype), Elements(U(recvcount) * N(c), recvtype))
LS_COLLECTIVE(Allgatherv, Iallgatherv,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, const LS_COUNT recvcounts[],
               const LS_DISPLACEMENT displs[], MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcounts, displs, recvtype),
              Uneven(Elements(Sum(recvcounts, N32(c)), recvtype), InPlace(send) ? Own(c, recvcounts) : sendcount != 0,
                     AnyOther(c, recvcounts)))
LS_COLLECTIVE(Alltoall, Ialltoall,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, LS_COUNT recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype),
              InPlace(send) ? Elements(U(recvcount) * N(c), recvtype) : Elements(U(sendcount) * N(c), sendtype))
LS_COLLECTIVE(Alltoallv, Ialltoallv,
              (const void* send, const LS_COUNT sendcounts[], const LS_DISPLACEMENT sdispls[], MPI_Datatype sendtype,
               void* recv, const LS_COUNT recvcounts[], const LS_DISPLACEMENT rdispls[], MPI_Datatype recvtype),
              (send, sendcounts, sdispls, sendtype, recv, recvcounts, rdispls, recvtype),
              Uneven(InPlace(send) ? Elements(Sum(recvcounts, N32(c)), recvtype)
                                   : Elements(Sum(sendcounts, N32(c)), sendtype),
                     AnyOther(c, InPlace(send) ? recvcounts : sendcounts), AnyOther(c, recvcounts)))
LS_COLLECTIVE(Alltoallw, Ialltoallw,
              (const void* send, const LS_COUNT sendcounts[], const LS_DISPLACEMENT sdispls[],
               const MPI_Datatype sendtypes[], void* recv, const LS_COUNT recvcounts[], const LS_DISPLACEMENT rdispls[],
               const MPI_Datatype recvtypes[]),
              (send, sendcounts, sdispls, sendtypes, recv, recvcounts, rdispls, recvtypes),
              Alltoallw(c, send, sendcounts, sendtypes, recvcounts, recvtypes))
LS_COLLECTIVE(Reduce_scatter, Ireduce_scatter,
              (const void* send, void* recv, const LS_COUNT recvcounts[], MPI_Datatype type, MPI_Op op),
              (send, recv, recvcounts, type, op),
              Uneven(Elements(Sum(recvcounts, c != nullptr ? static_cast<std::uint32_t>(c->size) : 0), type),
                     AnyOther(c, recvcounts), Own(c, recvcounts)))
LS_COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block,
              (const void* send, void* recv, LS_COUNT recvcount, MPI_Datatype type, MPI_Op op),
              (send, recv, recvcount, type, op),
              Elements(U(recvcount) * (c != nullptr ? static_cast<std::uint64_t>(c->size) : 0), type))
LS_COLLECTIVE(Neighbor_allgather, Ineighbor_allgather,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, LS_COUNT recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype),
              Elements(U(recvcount) * InDegree(comm, c), recvtype))
LS_COLLECTIVE(Neighbor_allgatherv, Ineighbor_allgatherv,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, const LS_COUNT recvcounts[],
               const LS_DISPLACEMENT displs[], MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcounts, displs, recvtype),
              Uneven(Elements(Sum(recvcounts, InDegree(comm, c)), recvtype)))
LS_COLLECTIVE(Neighbor_alltoall, Ineighbor_alltoall,
              (const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, void* recv, LS_COUNT recvcount,
               MPI_Datatype recvtype),
              (send, sendcount, sendtype, recv, recvcount, recvtype),
              Elements(U(sendcount) * OutDegree(comm, c), sendtype))
LS_COLLECTIVE(Neighbor_alltoallv, Ineighbor_alltoallv,
              (const void* send, const LS_COUNT sendcounts[], const LS_DISPLACEMENT sdispls[], MPI_Datatype sendtype,
               void* recv, const LS_COUNT recvcounts[], const LS_DISPLACEMENT rdispls[], MPI_Datatype recvtype),
              (send, sendcounts, sdispls, sendtype, recv, recvcounts, rdispls, recvtype),
              Uneven(Elements(Sum(sendcounts, OutDegree(comm, c)), sendtype)))
LS_COLLECTIVE(Neighbor_alltoallw, Ineighbor_alltoallw,
              (const void* send, const LS_COUNT sendcounts[], const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
               void* recv, const LS_COUNT recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[]),
              (send, sendcounts, sdispls, sendtypes, recv, recvcounts, rdispls, recvtypes),
              NeighborAlltoallw(OutDegree(comm, c), sendcounts, sendtypes))
