// The counted program with the large counts of MPI 4.0, which are recorded under the names without _c.

#include <mpi.h>

#define MPI_Irecv MPI_Irecv_c
#define MPI_Isend MPI_Isend_c
#define MPI_Sendrecv MPI_Sendrecv_c
#define MPI_Recv MPI_Recv_c
#define MPI_Send_init MPI_Send_init_c
#define MPI_Recv_init MPI_Recv_init_c
#define MPI_Allreduce MPI_Allreduce_c
#define MPI_Bcast MPI_Bcast_c
#define MPI_Reduce MPI_Reduce_c
#define MPI_Allgather MPI_Allgather_c
#define MPI_Alltoall MPI_Alltoall_c
#define MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c
#define MPI_Iallreduce MPI_Iallreduce_c

#include "tests/e2e/counted/counted.cc"
