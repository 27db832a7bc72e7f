// One call of each sort whose record has something to get right: sizes, roots,
// MPI_IN_PLACE, topologies, matched probes, persistence, cancelling, reused handles.
// For check_kinds.py; 4 ranks.

#include <mpi.h>
// After mpi.h.
#include <mpi-ext.h>

#include <vector>

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int dims[] = {size}, periods[] = {1};
  MPI_Comm ring;
  MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
  MPI_Comm_set_name(ring, "the ring");

  std::vector<int> a(8, rank), b(4 * static_cast<std::size_t>(size)), counts(static_cast<std::size_t>(size), 1),
      places(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) places[static_cast<std::size_t>(i)] = i;
  MPI_Neighbor_allgather(a.data(), 4, MPI_INT, b.data(), 4, MPI_INT, ring);
  MPI_Allgatherv(a.data(), 1, MPI_INT, b.data(), counts.data(), places.data(), MPI_INT, MPI_COMM_WORLD);
  MPI_Gather(rank == 0 ? MPI_IN_PLACE : a.data(), 2, MPI_INT, b.data(), 2, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Scatterv(b.data(), counts.data(), places.data(), MPI_INT, a.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b.data(), 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Reduce_scatter(b.data(), a.data(), counts.data(), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Datatype strided;
  MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &strided);
  MPI_Type_commit(&strided);
  std::vector<double> d(100);
  MPI_Bcast(d.data(), 2, strided, 1, MPI_COMM_WORLD);
  MPI_Type_free(&strided);

  MPI_Request request;
  MPIX_Allreduce_init(d.data(), d.data() + 50, 10, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int i = 0; i < 2; ++i) {
    MPI_Wait(&request, MPI_STATUS_IGNORE);  // Inactive: nothing completes.
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Request_free(&request);

  if (rank == 0) {
    MPI_Send(a.data(), 3, MPI_INT, 1, 9, ring);
    MPI_Send(a.data(), 2, MPI_INT, 1, 8, ring);
  }
  if (rank == 1) {
    MPI_Message message;
    MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ring, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(a.data(), 4, MPI_INT, &message, MPI_STATUS_IGNORE);
    for (int found = 0; found == 0;) MPI_Improbe(0, 8, ring, &found, &message, MPI_STATUS_IGNORE);
    MPI_Imrecv(a.data(), 4, MPI_INT, &message, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Recv(a.data(), 4, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);

  // More requests than fit into the wrapper's own block.
  std::vector<MPI_Request> many(100);
  for (int i = 0; i < 100; ++i)
    MPI_Irecv(a.data(), 1, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_SELF, &many[static_cast<std::size_t>(i)]);
  for (int i = 0; i < 99; ++i) MPI_Send(b.data(), 1, MPI_INT, 0, i, MPI_COMM_SELF);
  MPI_Waitall(99, many.data(), MPI_STATUSES_IGNORE);
  MPI_Cancel(&many[99]);
  MPI_Wait(&many[99], MPI_STATUS_IGNORE);

  // The handle of a freed communicator comes back for another one.
  for (int i = 0; i < 3; ++i) {
    MPI_Comm half;
    MPI_Comm_split(ring, rank % 2 == 0 ? i : MPI_UNDEFINED, -rank, &half);
    if (half == MPI_COMM_NULL) continue;
    MPI_Barrier(half);
    MPI_Comm_free(&half);
  }
  MPI_Comm copy;
  MPI_Comm_idup(ring, &copy, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(copy);
  MPI_Comm_free(&copy);
  MPI_Comm_free(&ring);
  MPI_Finalize();
  return 0;
}
