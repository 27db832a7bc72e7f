#pragma once
// The MPI functions that Lockstep stands in front of or calls, by name. No mpi.h: the entry points
// (entry_points.cc) and the wrappers of each ABI share these lists, and with them the order of the slots.

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
  X(Open_port) X(Close_port) X(Comm_set_info) X(Win_set_info) X(File_get_position_shared)

// Functions that are only called.
#define LS_PMPI_CALLED(X) \
  X(Query_thread) X(Comm_rank) X(Comm_size) X(Comm_test_inter) X(Comm_group) X(Comm_remote_group) X(Group_size) \
  X(Group_translate_ranks) X(Group_free) X(Comm_set_errhandler) X(Type_size) X(Topo_test) X(Cartdim_get) \
  X(Graph_neighbors_count) X(Dist_graph_neighbors_count) X(Test_cancelled) X(Get_elements_x) X(Pcontrol) \
  X(Group_rank) X(Comm_get_errhandler) X(Errhandler_free) X(Error_class)

// Persistent collectives: Open MPI 4 names them MPIX_ (extension pcollreq), MPI 4.0 MPI_.
#define LS_PMPI_PERSISTENT(X) \
  X(Barrier_init) X(Bcast_init) X(Reduce_init) X(Allreduce_init) X(Gather_init) X(Gatherv_init) X(Scatter_init) \
  X(Scatterv_init) X(Allgather_init) X(Allgatherv_init) X(Alltoall_init) X(Alltoallv_init) X(Alltoallw_init) \
  X(Reduce_scatter_init) X(Reduce_scatter_block_init) X(Scan_init) X(Exscan_init) X(Neighbor_allgather_init) \
  X(Neighbor_allgatherv_init) X(Neighbor_alltoall_init) X(Neighbor_alltoallv_init) X(Neighbor_alltoallw_init)

// What MPI 4.0 and 4.1 added (newer.h declares it where mpi.h does not).
#define LS_PMPI_NEWER(X) \
  X(Isendrecv) X(Isendrecv_replace) X(Psend_init) X(Precv_init) X(Pready) X(Pready_range) X(Pready_list) X(Parrived) \
  X(Session_init) X(Session_finalize) X(Session_get_num_psets) X(Session_get_nth_pset) X(Session_get_pset_info) \
  X(Group_from_session_pset) X(Comm_create_from_group) X(Intercomm_create_from_groups) X(Comm_idup_with_info) \
  X(Request_get_status_all) X(Request_get_status_any) X(Request_get_status_some) X(Buffer_flush) X(Buffer_iflush) \
  X(Comm_attach_buffer) X(Comm_attach_buffer_c) X(Comm_detach_buffer) X(Comm_detach_buffer_c) X(Comm_flush_buffer) \
  X(Comm_iflush_buffer) X(Session_attach_buffer) X(Session_attach_buffer_c) X(Session_detach_buffer) \
  X(Session_detach_buffer_c) X(Session_flush_buffer) X(Session_iflush_buffer)

// With large counts (MPI 4.0). Recorded under the name without _c.
#define LS_PMPI_LARGE(X) \
  X(Bcast_c) X(Reduce_c) X(Allreduce_c) X(Gather_c) X(Gatherv_c) X(Scatter_c) X(Scatterv_c) X(Allgather_c) \
  X(Allgatherv_c) X(Alltoall_c) X(Alltoallv_c) X(Alltoallw_c) X(Reduce_scatter_c) X(Reduce_scatter_block_c) \
  X(Scan_c) X(Exscan_c) X(Neighbor_allgather_c) X(Neighbor_allgatherv_c) X(Neighbor_alltoall_c) \
  X(Neighbor_alltoallv_c) X(Neighbor_alltoallw_c) X(Ibcast_c) X(Ireduce_c) X(Iallreduce_c) X(Igather_c) \
  X(Igatherv_c) X(Iscatter_c) X(Iscatterv_c) X(Iallgather_c) X(Iallgatherv_c) X(Ialltoall_c) X(Ialltoallv_c) \
  X(Ialltoallw_c) X(Ireduce_scatter_c) X(Ireduce_scatter_block_c) X(Iscan_c) X(Iexscan_c) X(Ineighbor_allgather_c) \
  X(Ineighbor_allgatherv_c) X(Ineighbor_alltoall_c) X(Ineighbor_alltoallv_c) X(Ineighbor_alltoallw_c) \
  X(Bcast_init_c) X(Reduce_init_c) X(Allreduce_init_c) X(Gather_init_c) X(Gatherv_init_c) X(Scatter_init_c) \
  X(Scatterv_init_c) X(Allgather_init_c) X(Allgatherv_init_c) X(Alltoall_init_c) X(Alltoallv_init_c) \
  X(Alltoallw_init_c) X(Reduce_scatter_init_c) X(Reduce_scatter_block_init_c) X(Scan_init_c) X(Exscan_init_c) \
  X(Neighbor_allgather_init_c) X(Neighbor_allgatherv_init_c) X(Neighbor_alltoall_init_c) \
  X(Neighbor_alltoallv_init_c) X(Neighbor_alltoallw_init_c) X(Send_c) X(Bsend_c) X(Ssend_c) X(Rsend_c) X(Isend_c) \
  X(Ibsend_c) X(Issend_c) X(Irsend_c) X(Send_init_c) X(Bsend_init_c) X(Ssend_init_c) X(Rsend_init_c) X(Recv_c) \
  X(Mrecv_c) X(Irecv_c) X(Imrecv_c) X(Recv_init_c) X(Sendrecv_c) X(Sendrecv_replace_c) X(Isendrecv_c) \
  X(Isendrecv_replace_c) X(File_read_at_c) \
  X(File_read_at_all_c) X(File_write_at_c) X(File_write_at_all_c) X(File_read_c) X(File_read_all_c) \
  X(File_read_shared_c) X(File_read_ordered_c) X(File_write_c) X(File_write_all_c) X(File_write_shared_c) \
  X(File_write_ordered_c) X(File_read_at_all_begin_c) X(File_write_at_all_begin_c) X(File_read_all_begin_c) \
  X(File_write_all_begin_c) X(File_read_ordered_begin_c) X(File_write_ordered_begin_c) X(File_iread_at_c) \
  X(File_iread_at_all_c) X(File_iwrite_at_c) X(File_iwrite_at_all_c) X(File_iread_c) X(File_iread_all_c) \
  X(File_iread_shared_c) X(File_iwrite_c) X(File_iwrite_all_c) X(File_iwrite_shared_c) X(Win_create_c) \
  X(Win_allocate_c) X(Win_allocate_shared_c) X(Put_c) X(Rput_c) X(Get_c) X(Rget_c) X(Accumulate_c) X(Raccumulate_c) \
  X(Get_accumulate_c) X(Rget_accumulate_c) X(Buffer_attach_c) X(Buffer_detach_c)

// Every entry point, in the order of the slots: A(name) is MPI_name and PMPI_name, of every MPI library; B(name) is the
// same where the library has it; C(name) is MPIX_name and PMPIX_name where it has those; D(name) is like B, with
// large counts.
#define LS_MPI_ENTRY_POINTS(A, B, C, D) \
  LS_PMPI_WRAPPED(A) LS_PMPI_OPTIONAL(A) A(Pcontrol) LS_PMPI_PERSISTENT(B) LS_PMPI_NEWER(B) LS_PMPI_PERSISTENT(C) \
  LS_PMPI_LARGE(D)
// clang-format on
