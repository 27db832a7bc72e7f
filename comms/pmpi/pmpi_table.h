#pragma once
// Open MPI's own functions and handles, found in the process at run time. The
// wrappers have no DT_NEEDED on libmpi: in a process without MPI they cost
// nothing, and under mpi4py libmpi is RTLD_LOCAL, so that its PMPI_ symbols are
// invisible to the dynamic linker although it is loaded (Open MPI 4.1.4).
// Everything in the shim calls MPI through this table, never by name.

#include <mpi.h>
// After mpi.h.
#include <mpi-ext.h>

namespace lockstep::pmpi {

// Every function the wrappers, anchors and self-test call. Add a name to use one more. (Kept by hand:
// clang-format 14 never settles on a layout for lists like these.)
// clang-format off

// Functions that have a wrapper.
#define LS_PMPI_WRAPPED(X) \
  X(Barrier) X(Bcast) X(Reduce) X(Allreduce) X(Gather) X(Gatherv) X(Scatter) X(Scatterv) X(Allgather) \
  X(Allgatherv) X(Alltoall) X(Alltoallv) X(Alltoallw) X(Reduce_scatter) X(Reduce_scatter_block) X(Scan) \
  X(Exscan) X(Neighbor_allgather) X(Neighbor_allgatherv) X(Neighbor_alltoall) X(Neighbor_alltoallv) \
  X(Neighbor_alltoallw) X(Ibarrier) X(Ibcast) X(Ireduce) X(Iallreduce) X(Igather) X(Igatherv) X(Iscatter) \
  X(Iscatterv) X(Iallgather) X(Iallgatherv) X(Ialltoall) X(Ialltoallv) X(Ialltoallw) X(Ireduce_scatter) \
  X(Ireduce_scatter_block) X(Iscan) X(Iexscan) X(Ineighbor_allgather) X(Ineighbor_allgatherv) \
  X(Ineighbor_alltoall) X(Ineighbor_alltoallv) X(Ineighbor_alltoallw) X(Send) X(Bsend) X(Ssend) X(Rsend) \
  X(Isend) X(Ibsend) X(Issend) X(Irsend) X(Send_init) X(Bsend_init) X(Ssend_init) X(Rsend_init) X(Recv) \
  X(Mrecv) X(Irecv) X(Imrecv) X(Recv_init) X(Sendrecv) X(Sendrecv_replace) X(Probe) X(Mprobe) X(Iprobe) \
  X(Improbe) X(Start) X(Startall) X(Wait) X(Waitall) X(Waitany) X(Waitsome) X(Test) X(Testall) X(Testany) \
  X(Testsome) X(Request_free) X(Cancel) X(Request_get_status) X(Comm_dup) X(Comm_idup) X(Comm_dup_with_info) \
  X(Comm_split) X(Comm_split_type) X(Comm_create) X(Comm_create_group) X(Comm_free) X(Comm_disconnect) \
  X(Cart_create) X(Cart_sub) X(Graph_create) X(Dist_graph_create) X(Dist_graph_create_adjacent) \
  X(Intercomm_create) X(Intercomm_merge) X(Comm_set_name) X(Comm_spawn) X(Comm_spawn_multiple) X(Comm_accept) \
  X(Comm_connect) X(Comm_join) X(Comm_get_parent) X(Init) X(Init_thread) X(Finalize) X(Abort) X(Initialized) \
  X(Finalized)

// Further functions with a wrapper. If a library was built without one of them, the wrapper cannot pass the call on.
#define LS_PMPI_OPTIONAL(X) \
  X(File_open) X(File_close) X(File_delete) X(File_set_size) X(File_preallocate) X(File_get_size) X(File_set_info) \
  X(File_set_view) X(File_sync) X(File_set_atomicity) X(File_seek) X(File_seek_shared) X(File_read_at) \
  X(File_read_at_all) X(File_write_at) X(File_write_at_all) X(File_read) X(File_read_all) X(File_write) \
  X(File_write_all) X(File_read_shared) X(File_write_shared) X(File_read_ordered) X(File_write_ordered) \
  X(File_read_at_all_begin) X(File_read_at_all_end) X(File_write_at_all_begin) X(File_write_at_all_end) \
  X(File_read_all_begin) X(File_read_all_end) X(File_write_all_begin) X(File_write_all_end) \
  X(File_read_ordered_begin) X(File_read_ordered_end) X(File_write_ordered_begin) X(File_write_ordered_end) \
  X(File_iread_at) X(File_iwrite_at) X(File_iread_at_all) X(File_iwrite_at_all) X(File_iread) X(File_iwrite) \
  X(File_iread_all) X(File_iwrite_all) X(File_iread_shared) X(File_iwrite_shared) X(Win_create) X(Win_allocate) \
  X(Win_allocate_shared) X(Win_create_dynamic) X(Win_free) X(Win_attach) X(Win_detach) X(Win_fence) X(Win_start) \
  X(Win_complete) X(Win_post) X(Win_wait) X(Win_test) X(Win_lock) X(Win_lock_all) X(Win_unlock) X(Win_unlock_all) \
  X(Win_flush) X(Win_flush_all) X(Win_flush_local) X(Win_flush_local_all) X(Win_sync) X(Put) X(Get) X(Accumulate) \
  X(Get_accumulate) X(Fetch_and_op) X(Compare_and_swap) X(Rput) X(Rget) X(Raccumulate) X(Rget_accumulate) \
  X(Buffer_attach) X(Buffer_detach) X(Alloc_mem) X(Free_mem) X(Publish_name) X(Unpublish_name) X(Lookup_name) \
  X(Open_port) X(Close_port)

// Functions that are only called.
#define LS_PMPI_CALLED(X) \
  X(Query_thread) X(Comm_rank) X(Comm_size) X(Comm_remote_size) X(Comm_test_inter) X(Comm_group) \
  X(Comm_remote_group) X(Group_size) X(Group_translate_ranks) X(Group_free) X(Comm_set_errhandler) \
  X(Comm_get_name) X(Type_size) X(Topo_test) X(Cartdim_get) X(Graph_neighbors_count) \
  X(Dist_graph_neighbors_count) X(Get_library_version) X(Comm_get_info) X(Info_free) X(Status_set_cancelled) \
  X(Test_cancelled) X(Get_elements_x) X(Pcontrol)

// Persistent collectives: Open MPI 4 names them MPIX_ (extension pcollreq), MPI 4.0 MPI_.
#define LS_PMPI_PERSISTENT(X) \
  X(Barrier_init) X(Bcast_init) X(Reduce_init) X(Allreduce_init) X(Gather_init) X(Gatherv_init) X(Scatter_init) \
  X(Scatterv_init) X(Allgather_init) X(Allgatherv_init) X(Alltoall_init) X(Alltoallv_init) X(Alltoallw_init) \
  X(Reduce_scatter_init) X(Reduce_scatter_block_init) X(Scan_init) X(Exscan_init) X(Neighbor_allgather_init) \
  X(Neighbor_allgatherv_init) X(Neighbor_alltoall_init) X(Neighbor_alltoallv_init) X(Neighbor_alltoallw_init)
// clang-format on

// X(member, C type, symbol)
#define LS_PMPI_HANDLES(X)                           \
  X(comm_world, MPI_Comm, ompi_mpi_comm_world)       \
  X(comm_self, MPI_Comm, ompi_mpi_comm_self)         \
  X(comm_null, MPI_Comm, ompi_mpi_comm_null)         \
  X(group_null, MPI_Group, ompi_mpi_group_null)      \
  X(request_null, MPI_Request, ompi_request_null)    \
  X(info_null, MPI_Info, ompi_mpi_info_null)         \
  X(type_null, MPI_Datatype, ompi_mpi_datatype_null) \
  X(type_byte, MPI_Datatype, ompi_mpi_byte)          \
  X(type_int, MPI_Datatype, ompi_mpi_int)            \
  X(type_int64, MPI_Datatype, ompi_mpi_int64_t)      \
  X(type_uint64, MPI_Datatype, ompi_mpi_uint64_t)    \
  X(type_double, MPI_Datatype, ompi_mpi_double)      \
  X(op_sum, MPI_Op, ompi_mpi_op_sum)                 \
  X(op_min, MPI_Op, ompi_mpi_op_min)                 \
  X(op_max, MPI_Op, ompi_mpi_op_max)                 \
  X(errors_return, MPI_Errhandler, ompi_mpi_errors_return)

struct PmpiTable {
#define LS_PMPI_MEMBER(name) decltype(&::PMPI_##name) name = nullptr;
  LS_PMPI_WRAPPED(LS_PMPI_MEMBER)
  LS_PMPI_OPTIONAL(LS_PMPI_MEMBER)
  LS_PMPI_CALLED(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
  // PMPIX_name and PMPI_name; null where the library lacks them.
#define LS_PMPI_MEMBER(name) decltype(&::PMPIX_##name) X_##name = nullptr, name = nullptr;
  LS_PMPI_PERSISTENT(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
#define LS_PMPI_MEMBER(member, type, symbol) type member = nullptr;
  LS_PMPI_HANDLES(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
  bool found = false;     // libmpi is in the process and every PMPI_ function was found.
  bool open_mpi = false;  // It is Open MPI: handles and statuses have the layout of this mpi.h.
};

// The table, filled in on first use after libmpi has been loaded; before that and
// in a process without MPI `found` is false and the functions are null.
// Thread: any. Costs one load and one branch once found.
const PmpiTable& Pmpi();

// Open MPI's spelling of constants that mpi.h gives as addresses of data in libmpi
// must not be used in the shim (MPI_COMM_WORLD, MPI_INT, MPI_REQUEST_NULL, ...):
// they would be undefined symbols where libmpi is absent. Use the members above.

}  // namespace lockstep::pmpi
