// MPI beyond collectives and plain messages, with its own account of what it did:
//
//   mpi_rest MODE PREFIX [FILE]
//
// Prints results that must not depend on being traced.

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "book.h"
#include "runtime/lockstep.h"

Book book;

namespace {

int rank, size;

void Say(const char* what, long value) { std::printf("%d %s %ld\n", rank, what, value); }

// ---------------------------------------------------------------- files
// `collective`: ROMIO of Open MPI 4.1.4 has no MPI_File_iwrite_at_all and calls a null pointer.
void Files(const char* path, bool collective) {
  constexpr int kInts = 1000, kBytes = kInts * 4;
  std::vector<int> out(kInts, rank + 1), in(kInts, 0);
  MPI_File file;
  CALL(MPI_File_open, MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  const MPI_Offset own = static_cast<MPI_Offset>(rank) * kBytes;
  MPI_Status status;
  MPI_Request requests[2];
  CALL(MPI_File_set_size, file, static_cast<MPI_Offset>(size) * kBytes);
  CALL(MPI_File_preallocate, file, static_cast<MPI_Offset>(size) * kBytes);
  MOVE(kBytes, MPI_File_write_at, file, own, out.data(), kInts, MPI_INT, &status);
  MOVE(kBytes, MPI_File_write_at_all, file, own, out.data(), kInts, MPI_INT, &status);
  CALL(MPI_File_sync, file);
  CALL(MPI_Barrier, MPI_COMM_WORLD);
  MOVE(kBytes, MPI_File_read_at, file, own, in.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
  MOVE(kBytes, MPI_File_read_at_all, file, own, in.data(), kInts, MPI_INT, MPI_STATUS_IGNORE);
  Say("read", std::accumulate(in.begin(), in.end(), 0L));
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  CALL(MPI_File_seek, file, own, MPI_SEEK_SET);
  MOVE(kBytes, MPI_File_write, file, out.data(), kInts / 2, pair, &status);
  CALL(MPI_File_seek, file, own, MPI_SEEK_SET);
  MOVE(kBytes, MPI_File_read, file, in.data(), kInts / 2, pair, &status);
  MPI_Type_free(&pair);
  CALL(MPI_File_set_view, file, own, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  MOVE(kBytes, MPI_File_write_all, file, out.data(), kInts, MPI_INT, &status);
  CALL(MPI_File_seek, file, 0, MPI_SEEK_SET);
  MOVE(kBytes, MPI_File_read_all, file, in.data(), kInts, MPI_INT, &status);
  // Split collective.
  CALL(MPI_File_seek, file, 0, MPI_SEEK_SET);
  MOVE(kBytes, MPI_File_write_all_begin, file, out.data(), kInts, MPI_INT);
  CALL(MPI_File_write_all_end, file, out.data(), &status);
  MOVE(kBytes, MPI_File_read_at_all_begin, file, 0, in.data(), kInts, MPI_INT);
  CALL(MPI_File_read_at_all_end, file, in.data(), &status);
  Say("split", std::accumulate(in.begin(), in.end(), 0L));
  // Non-blocking, completed by every kind of completion.
  MOVE(kBytes, MPI_File_iwrite_at, file, 0, out.data(), kInts, MPI_INT, &requests[0]);
  CALL(MPI_Wait, &requests[0], &status);
  MOVE(kBytes, MPI_File_iread_at, file, 0, in.data(), kInts, MPI_INT, &requests[0]);
  MOVE(kBytes / 2, MPI_File_iread_at, file, 0, in.data(), kInts / 2, MPI_INT, &requests[1]);
  CALL(MPI_Waitall, 2, requests, MPI_STATUSES_IGNORE);
  CALL(MPI_File_seek, file, 0, MPI_SEEK_SET);
  MOVE(kBytes, MPI_File_iwrite, file, out.data(), kInts, MPI_INT, &requests[0]);
  int done = 0;
  while (!done) CALL(MPI_Test, &requests[0], &done, MPI_STATUS_IGNORE);
  if (collective)
    MOVE(kBytes, MPI_File_iwrite_at_all, file, 0, out.data(), kInts, MPI_INT, &requests[0]);
  else
    MOVE(kBytes, MPI_File_iwrite_at, file, 0, out.data(), kInts, MPI_INT, &requests[0]);
  int index = -1;
  CALL(MPI_Waitany, 1, requests, &index, MPI_STATUS_IGNORE);
  Say("iread", std::accumulate(in.begin(), in.end(), 0L));
  MPI_Offset end = 0;
  CALL(MPI_File_get_size, file, &end);
  Say("size", end);
  CALL(MPI_File_close, &file);
  // Shared file pointer, on a communicator of its own.
  MPI_Comm half;
  CALL(MPI_Comm_split, MPI_COMM_WORLD, rank % 2, rank, &half);
  const std::string mine = std::string(path) + (rank % 2 ? "-odd" : "-even");
  CALL(MPI_File_open, half, mine.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
       &file);
  MOVE(40, MPI_File_write_ordered, file, out.data(), 10, MPI_INT, &status);
  MOVE(40, MPI_File_write_shared, file, out.data(), 10, MPI_INT, &status);
  CALL(MPI_File_seek_shared, file, 0, MPI_SEEK_SET);
  MOVE(40, MPI_File_read_shared, file, in.data(), 10, MPI_INT, &status);
  CALL(MPI_File_close, &file);
  CALL(MPI_Comm_free, &half);
  CALL(MPI_Barrier, MPI_COMM_WORLD);
  if (rank == 0) CALL(MPI_File_delete, path, MPI_INFO_NULL);
}

// ---------------------------------------------------------------- windows
#define RMA(bytes, target, function, ...) (book.targets[target]++, MOVE(bytes, function, __VA_ARGS__))

void Windows() {
  constexpr int kInts = 64, kBytes = kInts * 4;
  std::vector<int> memory(kInts, rank), other(kInts, 0);
  const int right = (rank + 1) % size;
  MPI_Win window;
  CALL(MPI_Win_create, memory.data(), kBytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  CALL(MPI_Win_fence, 0, window);
  RMA(kBytes / 2, right, MPI_Put, other.data(), kInts / 2, MPI_INT, right, 0, kInts / 2, MPI_INT, window);
  CALL(MPI_Win_fence, 0, window);
  RMA(kBytes, right, MPI_Get, other.data(), kInts, MPI_INT, right, 0, kInts, MPI_INT, window);
  RMA(0, -1, MPI_Put, other.data(), 0, MPI_INT, MPI_PROC_NULL, 0, 0, MPI_INT, window);
  CALL(MPI_Win_fence, 0, window);
  Say("got", std::accumulate(other.begin(), other.end(), 0L));
  RMA(8, right, MPI_Accumulate, other.data(), 2, MPI_INT, right, 0, 2, MPI_INT, MPI_SUM, window);
  CALL(MPI_Win_fence, 0, window);
  // Post, start, complete, wait among neighbours.
  MPI_Group world, group;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  const int left = (rank + size - 1) % size;
  MPI_Group_incl(world, 1, &left, &group);
  CALL(MPI_Win_post, group, 0, window);
  MPI_Group_free(&group);
  MPI_Group_incl(world, 1, &right, &group);
  CALL(MPI_Win_start, group, 0, window);
  RMA(4, right, MPI_Put, other.data(), 1, MPI_INT, right, 3, 1, MPI_INT, window);
  CALL(MPI_Win_complete, window);
  if (rank == 0) {
    int flag = 0;
    while (!flag) CALL(MPI_Win_test, window, &flag);
  } else {
    CALL(MPI_Win_wait, window);
  }
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  CALL(MPI_Win_free, &window);
  CALL(MPI_Barrier, MPI_COMM_WORLD);

  // Passive target, on a communicator of its own.
  MPI_Comm dup;
  CALL(MPI_Comm_dup, MPI_COMM_WORLD, &dup);
  long* base = nullptr;
  CALL(MPI_Win_allocate, 8 * sizeof(long), sizeof(long), MPI_INFO_NULL, dup, &base, &window);
  std::memset(base, 0, 8 * sizeof(long));
  CALL(MPI_Barrier, dup);
  long one = 1, was = 0, zero = 0;
  MPI_Request request;
  CALL(MPI_Win_lock, MPI_LOCK_SHARED, 0, 0, window);
  book.targets[0]++;
  RMA(8, 0, MPI_Fetch_and_op, &one, &was, MPI_LONG, 0, 0, MPI_SUM, window);
  CALL(MPI_Win_flush, 0, window);
  book.targets[0]++;
  CALL(MPI_Win_flush_local, 0, window);
  book.targets[0]++;
  CALL(MPI_Win_unlock, 0, window);
  book.targets[0]++;
  CALL(MPI_Win_lock_all, 0, window);
  RMA(8, 0, MPI_Compare_and_swap, &zero, &zero, &was, MPI_LONG, 0, 1, window);
  RMA(8, 0, MPI_Get_accumulate, &one, 1, MPI_LONG, &was, 1, MPI_LONG, 0, 2, 1, MPI_LONG, MPI_SUM, window);
  CALL(MPI_Win_flush_all, window);
  CALL(MPI_Win_flush_local_all, window);
  RMA(8, 0, MPI_Raccumulate, &one, 1, MPI_LONG, 0, 3, 1, MPI_LONG, MPI_SUM, window, &request);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  RMA(8, right, MPI_Rput, &one, 1, MPI_LONG, right, 4, 1, MPI_LONG, window, &request);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  RMA(8, right, MPI_Rget, &was, 1, MPI_LONG, right, 4, 1, MPI_LONG, window, &request);
  int done = 0;
  while (!done) CALL(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
  RMA(8, 0, MPI_Rget_accumulate, &one, 1, MPI_LONG, &was, 1, MPI_LONG, 0, 5, 1, MPI_LONG, MPI_SUM, window, &request);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  CALL(MPI_Win_sync, window);
  CALL(MPI_Win_unlock_all, window);
  CALL(MPI_Barrier, dup);
  if (rank == 0) Say("sums", base[0] * 1000000 + base[2] * 10000 + base[3] * 100 + base[5]);
  CALL(MPI_Win_free, &window);
  CALL(MPI_Win_create_dynamic, MPI_INFO_NULL, dup, &window);
  CALL(MPI_Win_attach, window, memory.data(), kBytes);
  CALL(MPI_Win_detach, window, memory.data());
  CALL(MPI_Win_free, &window);
  CALL(MPI_Win_allocate_shared, 64, 8, MPI_INFO_NULL, dup, &base, &window);
  CALL(MPI_Win_free, &window);
  CALL(MPI_Comm_free, &dup);
  void* memory_of_mpi = nullptr;
  CALL(MPI_Alloc_mem, 4096, MPI_INFO_NULL, &memory_of_mpi);
  int bytes = 0;
  CALL(MPI_Buffer_attach, memory_of_mpi, 4096);
  CALL(MPI_Buffer_detach, &memory_of_mpi, &bytes);
  CALL(MPI_Free_mem, memory_of_mpi);
}

// ---------------------------------------------------------------- neighbourhoods
// Every form on every topology; `in` and `out` are this rank's degrees, counted by hand.
void Neighbourhood(MPI_Comm comm, int in, int out) {
  const int most = std::max({in, out, 1});
  std::vector<int> send(static_cast<std::size_t>(most) * 4, rank + 1), recv(static_cast<std::size_t>(most) * 8, 0);
  std::vector<int> counts(static_cast<std::size_t>(most), 2), places(static_cast<std::size_t>(most), 0);
  for (int i = 0; i < most; ++i) places[static_cast<std::size_t>(i)] = 2 * i;
  std::vector<MPI_Datatype> types(static_cast<std::size_t>(most), MPI_INT);
  std::vector<MPI_Aint> offsets(static_cast<std::size_t>(most), 0);
  for (int i = 0; i < most; ++i) offsets[static_cast<std::size_t>(i)] = 8 * i;
  MPI_Request request;
  int *s = send.data(), *r = recv.data(), *c = counts.data(), *p = places.data();
  MPI_Datatype* t = types.data();
  MPI_Aint* o = offsets.data();
  const auto wait = [&] { CALL(MPI_Wait, &request, MPI_STATUS_IGNORE); };
  MOVE(8L * in, MPI_Neighbor_allgather, s, 2, MPI_INT, r, 2, MPI_INT, comm);
  Say("neighbours", std::accumulate(recv.begin(), recv.end(), 0L));
  MOVE(8L * in, MPI_Neighbor_allgatherv, s, 2, MPI_INT, r, c, p, MPI_INT, comm);
  MOVE(8L * out, MPI_Neighbor_alltoall, s, 2, MPI_INT, r, 2, MPI_INT, comm);
  MOVE(8L * out, MPI_Neighbor_alltoallv, s, c, p, MPI_INT, r, c, p, MPI_INT, comm);
  MOVE(8L * out, MPI_Neighbor_alltoallw, s, c, o, t, r, c, o, t, comm);
  MOVE(8L * in, MPI_Ineighbor_allgather, s, 2, MPI_INT, r, 2, MPI_INT, comm, &request), wait();
  MOVE(8L * in, MPI_Ineighbor_allgatherv, s, 2, MPI_INT, r, c, p, MPI_INT, comm, &request), wait();
  MOVE(8L * out, MPI_Ineighbor_alltoall, s, 2, MPI_INT, r, 2, MPI_INT, comm, &request), wait();
  MOVE(8L * out, MPI_Ineighbor_alltoallv, s, c, p, MPI_INT, r, c, p, MPI_INT, comm, &request), wait();
  MOVE(8L * out, MPI_Ineighbor_alltoallw, s, c, o, t, r, c, o, t, comm, &request), wait();
  Say("neighbours", std::accumulate(recv.begin(), recv.end(), 0L));
}

void Neighbourhoods() {
  MPI_Comm comm;
  const int dims[] = {size}, periodic[] = {1}, open[] = {0};
  CALL(MPI_Cart_create, MPI_COMM_WORLD, 1, dims, periodic, 0, &comm);
  Neighbourhood(comm, 2, 2);
  CALL(MPI_Comm_free, &comm);
  // At the ends of an open line the neighbours are MPI_PROC_NULL, and still counted by the calls' arguments.
  CALL(MPI_Cart_create, MPI_COMM_WORLD, 1, dims, open, 0, &comm);
  Neighbourhood(comm, 2, 2);
  CALL(MPI_Comm_free, &comm);
  // Graph: a star around rank 0.
  std::vector<int> index, edges;
  for (int i = 1; i < size; ++i) edges.push_back(i);
  index.push_back(static_cast<int>(edges.size()));
  for (int i = 1; i < size; ++i) edges.push_back(0), index.push_back(static_cast<int>(edges.size()));
  CALL(MPI_Graph_create, MPI_COMM_WORLD, size, index.data(), edges.data(), 0, &comm);
  Neighbourhood(comm, rank == 0 ? size - 1 : 1, rank == 0 ? size - 1 : 1);
  CALL(MPI_Comm_free, &comm);
  // Distributed graph, directed: every rank sends to all higher ones.
  std::vector<int> from, to;
  from.reserve(1), to.reserve(1);  // Open MPI 4.1.4 takes no null pointer, not even for no neighbours.
  for (int i = 0; i < rank; ++i) from.push_back(i);
  for (int i = rank + 1; i < size; ++i) to.push_back(i);
  CALL(MPI_Dist_graph_create_adjacent, MPI_COMM_WORLD, static_cast<int>(from.size()), from.data(), MPI_UNWEIGHTED,
       static_cast<int>(to.size()), to.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  Neighbourhood(comm, rank, size - 1 - rank);
  CALL(MPI_Comm_free, &comm);
  const int self[] = {rank}, degree[] = {static_cast<int>(to.size())};
  CALL(MPI_Dist_graph_create, MPI_COMM_WORLD, 1, self, degree, to.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  Neighbourhood(comm, rank, size - 1 - rank);
  CALL(MPI_Comm_free, &comm);
}

// ---------------------------------------------------------------- waiting for messages
struct Waiting {
  MPI_Comm comm = MPI_COMM_WORLD;
  int id = 0;  // Of the next message; all ranks count alike.
  std::vector<char> data = std::vector<char>(200'000, 1);

  void Sent(int to, long bytes) {
    book.sent[to].count += 1;
    book.sent[to].bytes += bytes;
  }
  void Note(char kind, int number, int peer, long post, long begin, long end) {
    book.messages.push_back({kind, number, peer, begin, end, post});
  }
  void Send(int number, int to, int bytes, bool synchronous) {
    const long begin = Book::Now();
    if (synchronous)
      MPI_Ssend(data.data(), bytes, MPI_BYTE, to, number, comm);
    else
      MPI_Send(data.data(), bytes, MPI_BYTE, to, number, comm);
    Note('S', number, to, begin, begin, Book::Now());
    Sent(to, bytes);
  }
  void Receive(int number, int from, int bytes, int source) {
    const long begin = Book::Now();
    MPI_Recv(data.data(), bytes, MPI_BYTE, source, number, comm, MPI_STATUS_IGNORE);
    Note('R', number, from, begin, begin, Book::Now());
  }
};

void Sleep(int milliseconds) { usleep(static_cast<useconds_t>(milliseconds) * 1000); }

void Waits() {
  Waiting w;
  lockstep_step();  // One step: no others are guessed from the pattern of collectives.
  for (int round = 0; round < 4; ++round) {
    const int base = round * 100;
    // Late sender.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) Sleep(20), w.Send(base + 1, 0, 1000, false);
    if (rank == 0) w.Receive(base + 1, 1, 1000, 1);
    // Late sender, wildcard.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) Sleep(6), w.Send(base + 2, 0, 1000, false);
    if (rank == 0) w.Receive(base + 2, 2, 1000, MPI_ANY_SOURCE);
    // Late receiver: a synchronous send, and one that is too large to be buffered.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) w.Send(base + 3, 1, 100, true);
    if (rank == 1) Sleep(15), w.Receive(base + 3, 0, 100, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) w.Send(base + 4, 1, 200'000, false);
    if (rank == 1) Sleep(11), w.Receive(base + 4, 2, 200'000, 2);
    // Buffered: nobody waits.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) w.Send(base + 5, 2, 8, false);
    if (rank == 2) Sleep(10), w.Receive(base + 5, 0, 8, 0);
    // One wait for two late senders counts once, for the later one.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) Sleep(7), w.Send(base + 6, 0, 500, false);
    if (rank == 2) Sleep(18), w.Send(base + 7, 0, 500, false);
    if (rank == 0) {
      MPI_Request requests[2];
      const long post = Book::Now();
      std::vector<char> a(500), b(500);
      MPI_Irecv(a.data(), 500, MPI_BYTE, 1, base + 6, MPI_COMM_WORLD, &requests[0]);
      MPI_Irecv(b.data(), 500, MPI_BYTE, 2, base + 7, MPI_COMM_WORLD, &requests[1]);
      const long begin = Book::Now();
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      const long end = Book::Now();
      w.Note('R', base + 6, 1, post, begin, end);
      w.Note('R', base + 7, 2, post, begin, end);
    }
    // Wrong order: what is received second came first.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) w.Send(base + 8, 0, 64, false);
    if (rank == 2) Sleep(12), w.Send(base + 9, 0, 64, false);
    if (rank == 0) w.Receive(base + 9, 2, 64, 2), w.Receive(base + 8, 1, 64, 1);
    // Both directions at once.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank < 2) {
      if (rank == 1) Sleep(8);
      char in[32];
      const long begin = Book::Now();
      MPI_Sendrecv(w.data.data(), 32, MPI_BYTE, 1 - rank, base + 10, in, 32, MPI_BYTE, 1 - rank, base + 10,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const long end = Book::Now();
      w.Note('S', base + 10 + 1000 * rank, 1 - rank, begin, begin, end);
      w.Note('R', base + 10 + 1000 * (1 - rank), 1 - rank, begin, begin, end);
      w.Sent(1 - rank, 32);
    }
    // Persistent, and a matched probe.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      MPI_Request request;
      MPI_Send_init(w.data.data(), 16, MPI_BYTE, 2, base + 11, MPI_COMM_WORLD, &request);
      Sleep(9);
      const long begin = Book::Now();
      MPI_Start(&request);
      const long wait = Book::Now();
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      w.Note('S', base + 11, 2, begin, wait, Book::Now());
      MPI_Request_free(&request);
      w.Sent(2, 16);
      w.Send(base + 12, 2, 24, false);
    }
    if (rank == 2) {
      MPI_Request request;
      char in[16];
      MPI_Recv_init(in, 16, MPI_BYTE, 1, base + 11, MPI_COMM_WORLD, &request);
      const long post = Book::Now();
      MPI_Start(&request);
      const long begin = Book::Now();
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      w.Note('R', base + 11, 1, post, begin, Book::Now());
      MPI_Request_free(&request);
      MPI_Message message;
      MPI_Status status;
      char probed[24];
      MPI_Mprobe(1, base + 12, MPI_COMM_WORLD, &message, &status);
      const long at = Book::Now();
      MPI_Mrecv(probed, 24, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      w.Note('R', base + 12, 1, at, at, Book::Now());
    }
    // Nobody, and oneself.
    MPI_Send(w.data.data(), 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    char self[8];
    MPI_Sendrecv(w.data.data(), 8, MPI_BYTE, rank, 77, self, 8, MPI_BYTE, rank, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    w.Sent(rank, 8);
  }
  // Two matched probes of one channel, received in the other order: 5 bytes were sent first.
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) w.Send(900, 1, 5, false), w.Send(900, 1, 7, false);
  if (rank == 1) {
    MPI_Message messages[2];
    MPI_Status status;
    char in[8];
    for (MPI_Message& message : messages) MPI_Mprobe(0, 900, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(in, 8, MPI_BYTE, &messages[1], &status);
    MPI_Mrecv(in, 8, MPI_BYTE, &messages[0], &status);
  }
  // An inter-communicator: rank 0 alone, the others opposite.
  MPI_Comm local, inter;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &local);
  MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &inter);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 2) {
    Sleep(14);
    const long begin = Book::Now();
    MPI_Send(w.data.data(), 40, MPI_BYTE, 0, 3, inter);
    w.Note('S', 5000, 0, begin, begin, Book::Now());
    w.Sent(0, 40);
  }
  if (rank == 0) {
    const long begin = Book::Now();
    MPI_Recv(w.data.data(), 40, MPI_BYTE, 1, 3, inter, MPI_STATUS_IGNORE);  // Member 1 of the others is rank 2.
    w.Note('R', 5000, 2, begin, begin, Book::Now());
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&local);
  lockstep_step_end();
}

// ---------------------------------------------------------------- errors
void SayClass(const char* what, int code) {
  int name = 0;
  MPI_Error_class(code, &name);
  Say(what, name);
}

void Errors() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  char byte[4] = {};
  int in[1];
  MPI_Request request = MPI_REQUEST_NULL;
  SayClass("send", MPI_Send(byte, 1, MPI_BYTE, size + 3, 0, MPI_COMM_WORLD));
  SayClass("isend", MPI_Isend(byte, 1, MPI_BYTE, size + 3, 0, MPI_COMM_WORLD, &request));
  SayClass("recv", MPI_Recv(byte, -1, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  SayClass("bcast", MPI_Bcast(byte, 1, MPI_BYTE, size + 1, MPI_COMM_WORLD));
  if (rank == 0) Sleep(20);  // The others are gone before this root comes: none of them waits for it.
  SayClass("no count", MPI_Bcast(byte, -1, MPI_BYTE, 0, MPI_COMM_WORLD));
  SayClass("allreduce", MPI_Allreduce(byte, in, 1, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD));
  SayClass("split", MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_NULL, nullptr));
  if (rank == 0) MPI_Send(byte, 4, MPI_BYTE, 1, 9, MPI_COMM_WORLD);
  if (rank == 1) {
    MPI_Status status;
    SayClass("truncated", MPI_Recv(byte, 1, MPI_BYTE, 0, 9, MPI_COMM_WORLD, &status));
  }
  if (rank == 0) MPI_Send(byte, 4, MPI_BYTE, 1, 10, MPI_COMM_WORLD);
  if (rank == 1) {
    MPI_Status status[1];
    MPI_Irecv(byte, 1, MPI_BYTE, 0, 10, MPI_COMM_WORLD, &request);
    const int result = MPI_Waitall(1, &request, status);
    SayClass("waitall", result);
    SayClass("its status", status[0].MPI_ERROR);
  }
  MPI_File file;
  SayClass("open", MPI_File_open(MPI_COMM_SELF, "/nonexistent/file", MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
  SayClass("delete", MPI_File_delete("/nonexistent/file", MPI_INFO_NULL));
  MPI_Barrier(MPI_COMM_WORLD);
}

// ---------------------------------------------------------------- further processes
void Exchange(MPI_Comm inter, bool parent, int peers) {
  for (int i = 0; i < peers; ++i) {
    int value = (parent ? 1000 : 2000) + rank, got = 0;
    MPI_Sendrecv(&value, 1, MPI_INT, i, 1, &got, 1, MPI_INT, i, 1, inter, MPI_STATUS_IGNORE);
    Say(parent ? "from child" : "from parent", got);
  }
  MPI_Comm all;
  MPI_Intercomm_merge(inter, parent ? 0 : 1, &all);
  int sum = 0;
  const int one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
  Say("together", sum);
  MPI_Comm_free(&all);
}

void Spawn(const char* program) {
  MPI_Comm parent;
  MPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL) {
    int parents = 0;
    MPI_Comm_remote_size(parent, &parents);
    MPI_Barrier(MPI_COMM_WORLD);
    Exchange(parent, false, parents);
    MPI_Comm_disconnect(&parent);
    return;
  }
  char mode[] = "spawn", none[] = "-";
  char* arguments[] = {mode, none, nullptr};
  MPI_Comm children;
  CALL(MPI_Comm_spawn, program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
  Exchange(children, true, 2);
  CALL(MPI_Comm_disconnect, &children);
}

void Connect() {
  char port[MPI_MAX_PORT_NAME] = {};
  MPI_Comm half, other;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  if (rank == 0) {
    CALL(MPI_Open_port, MPI_INFO_NULL, port);
    MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
  }
  if (rank == 1) MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank % 2 == 0)
    CALL(MPI_Comm_accept, port, MPI_INFO_NULL, 0, half, &other);
  else
    CALL(MPI_Comm_connect, port, MPI_INFO_NULL, 0, half, &other);
  int peers = 0;
  MPI_Comm_remote_size(other, &peers);
  Exchange(other, rank % 2 == 0, peers);
  CALL(MPI_Comm_disconnect, &other);
  if (rank == 0) CALL(MPI_Close_port, port);
  MPI_Comm_free(&half);
}

void Switch() {
  // Off for the second half, on again for the last call.
  for (int i = 0; i < 5; ++i) CALL(MPI_Barrier, MPI_COMM_WORLD);
  MPI_Pcontrol(0);
  for (int i = 0; i < 7; ++i) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Pcontrol(1);
  CALL(MPI_Barrier, MPI_COMM_WORLD);
  MPI_Pcontrol(2, "flush");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string mode = argv[1];
  CALL(MPI_Init, &argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (mode == "files") Files(argv[3], true);
  if (mode == "files_romio") Files(argv[3], false);
  if (mode == "windows") Windows();
  if (mode == "neighbours") Neighbourhoods();
  if (mode == "waits") Waits();
  if (mode == "errors") Errors();
  if (mode == "spawn") Spawn(argv[0]);
  if (mode == "connect") Connect();
  if (mode == "switch") Switch();
  if (mode == "abort" && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
  if (mode == "abort") Sleep(20'000);
  // MPICH 4.0.2 over UCX 1.13 loses what a rank sent last before MPI_Finalize to ranks that are late: without this, and
  // without Lockstep, 4 of 6 jobs hung over TCP and 1 of 5 over shared memory.
  PMPI_Barrier(MPI_COMM_WORLD);
  CALL(MPI_Finalize);
  if (std::strcmp(argv[2], "-") != 0) book.Write(std::string(argv[2]) + "-" + std::to_string(rank));
  return 0;
}
