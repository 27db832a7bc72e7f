// Calls MPI from known lines. Lines that tests ask for carry a mark in a comment.

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace lockstep_demo {

__attribute__((noinline)) void Sum(double* mine, double* sums) {
  MPI_Allreduce(mine, sums, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);  // mark: sum
  mine[0] += 1;
}

__attribute__((noinline)) void Agree(int* word) {
  MPI_Request request;
  MPI_Ibcast(word, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);  // mark: agree
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

__attribute__((noinline)) void Pass(int rank, int size) {
  int token = rank, got = 0;
  MPI_Request request;
  MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &request);  // mark: receive
  MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD);                  // mark: send
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

}  // namespace lockstep_demo

using namespace lockstep_demo;

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool hangs = count > 1 && std::strcmp(words[1], "hangs") == 0;
  for (int step = 0; step < 20; ++step) {
    double mine[4] = {1, 2, 3, 4}, sums[4];
    int word = step;
    if (hangs && step == 9) ::sleep(3);  // Names of the callers are there by then.
    Sum(mine, sums);
    Agree(&word);
    Pass(rank, size);
    // One of them forgets this one.
    if (!hangs || step < 10 || rank != 1) MPI_Barrier(MPI_COMM_WORLD);  // mark: barrier
  }
  MPI_Finalize();
  return 0;
}
