// A job in which one thing goes wrong in step 5, on rank 2 if not said otherwise, after which nothing moves ("pause":
// for two seconds). usage: stops FAULT

#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

int g_rank = 0, g_size = 0;
std::vector<double> g_send(1000, 1), g_recv(1000);

void Reduce(MPI_Comm comm) {
  MPI_Allreduce(g_send.data(), g_recv.data(), static_cast<int>(g_send.size()), MPI_DOUBLE, MPI_SUM, comm);
}
int Other(int by) { return (g_rank + by + g_size) % g_size; }

[[noreturn]] void Loop() {
  volatile unsigned long count = 0;
  for (;;) count = count + 1;
}
[[noreturn]] void Sleep() {
  for (;;) pause();
}

void Receive(int from) {
  double value;
  MPI_Recv(&value, 1, MPI_DOUBLE, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Each rank sends to its neighbours and receives from them.
void Exchange() {
  double values[4] = {};
  MPI_Request requests[4];
  MPI_Irecv(&values[0], 1, MPI_DOUBLE, Other(-1), 1, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(&values[1], 1, MPI_DOUBLE, Other(1), 2, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(&values[2], 1, MPI_DOUBLE, Other(1), 1, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(&values[3], 1, MPI_DOUBLE, Other(-1), 2, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

void Step(const std::string& fault, bool now) {
  const bool me = now && g_rank == 2;
  if (now) {
    std::printf("here %d %d %d\n", g_rank, static_cast<int>(getpid()), static_cast<int>(getppid()));
    std::fflush(stdout);
  }
  MPI_Request request;
  Exchange();
  if (me && fault == "loop") Loop();
  if (me && fault == "sleep") Sleep();
  if (me && fault == "pause") sleep(2);
  if (me && fault == "stop") raise(SIGSTOP);
  if (me && fault == "order") {
    MPI_Barrier(MPI_COMM_WORLD);
    Reduce(MPI_COMM_WORLD);
  }
  if (me && fault == "extra") Reduce(MPI_COMM_WORLD);
  if (me && fault == "receive") Receive(3);
  if (now && fault == "circle") Receive(Other(1));
  if (now && fault == "synchronous") MPI_Ssend(g_send.data(), 1, MPI_DOUBLE, Other(1), 7, MPI_COMM_WORLD);
  if (now && fault == "root") {
    // So large that a sender waits for its receiver.
    std::vector<double> mine(1 << 18), all(mine.size() * static_cast<std::size_t>(g_size));
    MPI_Gather(mine.data(), 1 << 18, MPI_DOUBLE, all.data(), 1 << 18, MPI_DOUBLE, me ? 2 : 0, MPI_COMM_WORLD);
  }
  if (now && (fault == "begun" || fault == "asking")) {
    MPI_Iallreduce(g_send.data(), g_recv.data(), 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    if (me) Loop();
    int done = 0;
    while (fault == "asking" && done == 0) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (now && fault == "probing" && g_rank != 2) {
    int there = 0;
    while (there == 0) MPI_Iprobe(2, 7, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  }
  if (me && fault == "probing") Loop();
  if (me && fault == "turns") Sleep();
  if (now && fault == "turns" && g_rank == 3) {
    // One operation after the other: no two calls in a row are alike.
    double values[2];
    MPI_Request requests[2];
    for (int i = 0; i < 2; ++i) MPI_Irecv(&values[i], 1, MPI_DOUBLE, 2, 7 + i, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0, done = 0; done == 0; i = 1 - i) MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
  }
  if (now && fault == "neighbours") {
    if (me) Loop();
    Exchange();
  }
  if (now && fault == "making") {
    if (me) Loop();
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, 0, &made);
  }
  if (now && fault == "rows") {
    MPI_Comm row;
    MPI_Comm_split(MPI_COMM_WORLD, g_rank / 2, g_rank, &row);
    MPI_Comm_set_name(row, "row");
    Reduce(row);
    if (g_rank == 3) Loop();
    Reduce(row);
  }
  if (!(me && fault == "skipped")) Reduce(MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "healthy";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  for (int step = 0; step < 10; ++step) {
    if (step == 5 && fault == "early" && g_rank == 2) {
      std::printf("here 2 %d %d\n", static_cast<int>(getpid()), static_cast<int>(getppid()));
      break;
    }
    Step(fault, step == 5);
  }
  if (fault == "last" && g_rank == 2) Loop();
  MPI_Finalize();
  return 0;
}
