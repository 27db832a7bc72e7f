// Calls that MPI 4.0 and 4.1 added, counted by the program itself.
//
//   newer MODE PREFIX
//
// isendrecv   one request for a send and a receive, with wildcards and with nobody
// partitioned two partitioned messages of one tag, started in another order than they were made, beside plain ones of
//             that tag; rank 0 gives the last part away late
// sessions    a program that never calls MPI_Init: communicators of groups, inter-communicators, two sessions
// mixed       MPI_Init and MPI_Finalize between a session's begin and end, and a session after all that
// singletons  as sessions, of a process that is alone in its world
// buffers     buffers of communicators, queries of MPI 4.1

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/mpi_rest/book.h"

Book book;

namespace {

constexpr int kLateMs = 60;

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

void Isendrecv(int rank, int size) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (int i = 0; i < 5; ++i) {
    std::vector<int> out(static_cast<std::size_t>(100 + i), rank), in(500, -1);
    MPI_Request requests[2];
    MPI_Status statuses[2];
#ifdef OPEN_MPI
    // Any source and any tag, one at a time: what is sent later must not fit.
    const int source = i % 2 == 0 ? MPI_ANY_SOURCE : left, tag = i % 2 == 0 ? 3 : MPI_ANY_TAG;
#else
    const int source = left, tag = 3;  // The status that others leave does not say who sent.
#endif
    CALL(MPI_Isendrecv, out.data(), 100 + i, MPI_INT, right, 3, in.data(), 100 + i, MPI_INT, source, tag,
         MPI_COMM_WORLD, &requests[0]);
    CALL(MPI_Wait, &requests[0], &statuses[0]);
    if (in[0] != left || in[static_cast<std::size_t>(99 + i)] != left) std::printf("rank %d got %d\n", rank, in[0]);
    CALL(MPI_Isendrecv_replace, out.data(), 50, MPI_INT, left, 4, right, 4, MPI_COMM_WORLD, &requests[0]);
    CALL(MPI_Isendrecv, in.data(), 7, MPI_INT, rank == 0 ? MPI_PROC_NULL : rank - 1, 5, in.data() + 100, 7, MPI_INT,
         rank == size - 1 ? MPI_PROC_NULL : rank + 1, 5, MPI_COMM_WORLD, &requests[1]);
    CALL(MPI_Waitall, 2, requests, statuses);
    if (out[0] != right) std::printf("rank %d has %d of %d\n", rank, out[0], right);
#if MPI_VERSION >= 4
    book.Call("MPI_Isendrecv");
    MPI_Isendrecv_c(out.data(), 9, MPI_INT, right, 6, in.data(), 9, MPI_INT, left, 6, MPI_COMM_WORLD, &requests[0]);
    CALL(MPI_Wait, &requests[0], MPI_STATUS_IGNORE);
    book.Call("MPI_Isendrecv_replace");
    MPI_Isendrecv_replace_c(out.data(), 9, MPI_INT, right, 6, left, 6, MPI_COMM_WORLD, &requests[0]);
    CALL(MPI_Wait, &requests[0], MPI_STATUS_IGNORE);
#endif
  }
}

void Partitioned(int rank) {
  constexpr int kParts = 8, kCount = 1000, kTag = 7;
  std::vector<double> big(kParts * kCount, rank), small(2 * 10, rank);
  double plain = rank;
  MPI_Request requests[2];
  if (rank == 0) {
    CALL(MPI_Psend_init, big.data(), kParts, kCount, MPI_DOUBLE, 1, kTag, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    CALL(MPI_Psend_init, small.data(), 2, 10, MPI_DOUBLE, 1, kTag, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  } else {
    CALL(MPI_Precv_init, big.data(), kParts, kCount, MPI_DOUBLE, 0, kTag, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    CALL(MPI_Precv_init, small.data(), 2, 10, MPI_DOUBLE, 0, kTag, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
  }
  for (int round = 0; round < 3; ++round) {
    CALL(MPI_Barrier, MPI_COMM_WORLD);
    if (rank == 0) {
      CALL(MPI_Start, &requests[1]);
      CALL(MPI_Send, &plain, 1, MPI_DOUBLE, 1, kTag, MPI_COMM_WORLD);
      CALL(MPI_Start, &requests[0]);
      CALL(MPI_Pready_range, 0, 1, requests[1]);
      CALL(MPI_Pready_range, 0, 3, requests[0]);
      const int list[] = {6, 5};
      CALL(MPI_Pready_list, 2, const_cast<int*>(list), requests[0]);  // MPICH 4.0 has no const there.
      CALL(MPI_Pready, 4, requests[0]);
      Sleep(kLateMs);
      CALL(MPI_Pready, 7, requests[0]);
      CALL(MPI_Waitall, 2, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
      CALL(MPI_Startall, 2, requests);
      CALL(MPI_Recv, &plain, 1, MPI_DOUBLE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      int there = 0;
      for (int i = 0; i < 3; ++i) CALL(MPI_Parrived, requests[0], 7, &there);
      CALL(MPI_Wait, &requests[0], MPI_STATUS_IGNORE);
      CALL(MPI_Wait, &requests[1], MPI_STATUS_IGNORE);
      if (big[0] != 0 || big[kParts * kCount - 1] != 0 || small[19] != 0) std::printf("not received\n");
      big.assign(big.size(), -1);
    }
  }
  CALL(MPI_Request_free, &requests[0]);
  CALL(MPI_Request_free, &requests[1]);
}

void Use(MPI_Comm comm) {
  int rank = 0, size = 0, sum = 0, one = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  CALL(MPI_Allreduce, &one, &sum, 1, MPI_INT, MPI_SUM, comm);
  if (sum != size) std::printf("sum %d of %d\n", sum, size);
  int from = -1;
  CALL(MPI_Sendrecv, &rank, 1, MPI_INT, (rank + 1) % size, 1, &from, 1, MPI_INT, (rank + size - 1) % size, 1, comm,
       MPI_STATUS_IGNORE);
  CALL(MPI_Barrier, comm);
}

MPI_Session Open() {
  MPI_Session session;
  CALL(MPI_Session_init, MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
  return session;
}

MPI_Group Everybody(MPI_Session session) {
  MPI_Group group;
  CALL(MPI_Group_from_session_pset, session, "mpi://WORLD", &group);
  return group;
}

MPI_Comm Of(MPI_Group group, const char* tag) {
  MPI_Comm comm;
  CALL(MPI_Comm_create_from_group, group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
  return comm;
}

int Sessions() {
  MPI_Session session = Open();
  int sets = 0, length = 0;
  CALL(MPI_Session_get_num_psets, session, MPI_INFO_NULL, &sets);
  CALL(MPI_Session_get_nth_pset, session, MPI_INFO_NULL, 0, &length, nullptr);
  MPI_Info info;
  CALL(MPI_Session_get_pset_info, session, "mpi://WORLD", &info);
  MPI_Info_free(&info);
  MPI_Group all = Everybody(session);
  int rank = 0, size = 0;
  MPI_Group_rank(all, &rank);
  MPI_Group_size(all, &size);
  MPI_Comm first = Of(all, "all"), dup, half_dup;
  Use(first);
  MPI_Comm second = Of(all, "all");  // The same group and text once more is another communicator.
  Use(second);
  CALL(MPI_Comm_dup, second, &dup);
  Use(dup);
  CALL(MPI_Comm_split, dup, rank % 2, -rank, &half_dup);
  Use(half_dup);

  // Two disjoint groups with one text.
  std::vector<int> members, others;
  for (int i = 0; i < size; ++i) (i % 2 == rank % 2 ? members : others).push_back(i);
  MPI_Group half, other;
  MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &half);
  MPI_Group_incl(all, static_cast<int>(others.size()), others.data(), &other);
  MPI_Comm mine = Of(half, "half");
  Use(mine);
  if (size > 1) {
    MPI_Comm inter;
    CALL(MPI_Intercomm_create_from_groups, half, 0, other, 0, "between", MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter);
    CALL(MPI_Barrier, inter);
    CALL(MPI_Comm_free, &inter);
  }

  // A second session, which outlives the first.
  MPI_Session later = Open();
  for (MPI_Comm* comm : {&first, &second, &dup, &half_dup, &mine}) CALL(MPI_Comm_free, comm);
  for (MPI_Group* group : {&all, &half, &other}) MPI_Group_free(group);
  CALL(MPI_Session_finalize, &session);
  MPI_Group again = Everybody(later);
  MPI_Comm last = Of(again, "later");
  Use(last);
  CALL(MPI_Comm_free, &last);
  MPI_Group_free(&again);
  CALL(MPI_Session_finalize, &later);
  return rank;
}

void InSession(MPI_Session session, const char* tag) {
  MPI_Group all = Everybody(session);
  MPI_Comm comm = Of(all, tag);
  Use(comm);
  CALL(MPI_Comm_free, &comm);
  MPI_Group_free(&all);
}

int Mixed() {
  MPI_Session session = Open();
  InSession(session, "before");
  CALL(MPI_Init, nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Use(MPI_COMM_WORLD);
  InSession(session, "between");
  CALL(MPI_Finalize);
  InSession(session, "after");
  CALL(MPI_Session_finalize, &session);
  session = Open();
  InSession(session, "last");
  CALL(MPI_Session_finalize, &session);
  return rank;
}

#if MPI_VERSION * 10 + MPI_SUBVERSION >= 41
void Buffers(int rank, int size) {
  std::vector<char> memory(1 << 16), more(1 << 16);
  void* back = nullptr;
  int bytes = 0, value = rank, got = 0, flag = 0, index = 0, indices[2];
  CALL(MPI_Comm_attach_buffer, MPI_COMM_WORLD, memory.data(), 1 << 15);
  CALL(MPI_Buffer_attach, more.data(), 1 << 15);
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  CALL(MPI_Irecv, &got, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
  CALL(MPI_Request_get_status_any, 2, requests, &index, &flag, MPI_STATUS_IGNORE);
  CALL(MPI_Request_get_status_all, 2, requests, &flag, MPI_STATUSES_IGNORE);
  CALL(MPI_Request_get_status_some, 2, requests, &index, indices, MPI_STATUSES_IGNORE);
  CALL(MPI_Bsend, &value, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
  CALL(MPI_Comm_flush_buffer, MPI_COMM_WORLD);
  CALL(MPI_Buffer_flush);
  CALL(MPI_Wait, &requests[0], MPI_STATUS_IGNORE);
  CALL(MPI_Comm_iflush_buffer, MPI_COMM_WORLD, &requests[0]);
  CALL(MPI_Buffer_iflush, &requests[1]);
  CALL(MPI_Waitall, 2, requests, MPI_STATUSES_IGNORE);
  CALL(MPI_Comm_detach_buffer, MPI_COMM_WORLD, &back, &bytes);
  CALL(MPI_Buffer_detach, &back, &bytes);
  if (got != (rank + size - 1) % size) std::printf("rank %d got %d\n", rank, got);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string mode = argv[1];
  int rank = 0, size = 0;
  if (mode == "sessions" || mode == "singletons") {
    rank = Sessions();
  } else if (mode == "mixed") {
    rank = Mixed();
  } else {
    CALL(MPI_Init, &argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (mode == "isendrecv") Isendrecv(rank, size);
    if (mode == "partitioned") Partitioned(rank);
#if MPI_VERSION * 10 + MPI_SUBVERSION >= 41
    if (mode == "buffers") Buffers(rank, size);
#endif
    CALL(MPI_Finalize);
  }
  book.Write(std::string(argv[2]) + "-" + std::to_string(rank));
  std::printf("rank %d: done\n", rank);
  return 0;
}
