// A program that makes a seeded mix of MPI calls on several communicators and
// threads, counts each call itself, and writes the counts to FILE-<rank>. The
// trace must hold exactly these.
//
//   counted FILE [rounds] [seed] [threads]

#include <mpi.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

std::mutex g_mutex;
std::map<std::string, long> g_counts;

void Count(const char* name, long n = 1) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_counts[name] += n;
}

#define CALL(function, ...) (Count(#function), function(__VA_ARGS__))

struct Job {
  MPI_Comm comm;
  int rank, size, rounds;
  unsigned seed;  // The same on all members: they must make the same choices.
};

void Exchange(const Job& job, std::mt19937& random) {
  const int right = (job.rank + 1) % job.size, left = (job.rank + job.size - 1) % job.size;
  std::vector<double> out(1 + random() % 2000, job.rank), in(2000);
  const int tag = static_cast<int>(random() % 5);
  MPI_Request requests[2];
  MPI_Status statuses[2];
  switch (random() % 4) {
    case 0:
      CALL(MPI_Irecv, in.data(), 2000, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, job.comm, &requests[0]);
      CALL(MPI_Isend, out.data(), static_cast<int>(out.size()), MPI_DOUBLE, right, tag, job.comm, &requests[1]);
      CALL(MPI_Waitall, 2, requests, statuses);
      break;
    case 1:
      CALL(MPI_Sendrecv, out.data(), static_cast<int>(out.size()), MPI_DOUBLE, right, tag, in.data(), 2000, MPI_DOUBLE,
           left, tag, job.comm, MPI_STATUS_IGNORE);
      break;
    case 2: {
      CALL(MPI_Isend, out.data(), static_cast<int>(out.size()), MPI_DOUBLE, right, tag, job.comm, &requests[0]);
      CALL(MPI_Recv, in.data(), 2000, MPI_DOUBLE, MPI_ANY_SOURCE, tag, job.comm, &statuses[0]);
      int done = 0;
      while (!done) CALL(MPI_Test, &requests[0], &done, MPI_STATUS_IGNORE);
      break;
    }
    default: {
      CALL(MPI_Send_init, out.data(), static_cast<int>(out.size()), MPI_DOUBLE, right, tag, job.comm, &requests[0]);
      CALL(MPI_Recv_init, in.data(), 2000, MPI_DOUBLE, left, tag, job.comm, &requests[1]);
      for (int i = 0; i < 3; ++i) {
        CALL(MPI_Startall, 2, requests);
        int index = 0, done = 0;
        while (!done) CALL(MPI_Testany, 2, requests, &index, &done, MPI_STATUS_IGNORE);
        CALL(MPI_Waitall, 2, requests, MPI_STATUSES_IGNORE);
      }
      CALL(MPI_Request_free, &requests[0]);
      CALL(MPI_Request_free, &requests[1]);
    }
  }
}

void Collect(const Job& job, std::mt19937& random) {
  const int n = 1 + static_cast<int>(random() % 3000),
            root = static_cast<int>(random() % static_cast<unsigned>(job.size));
  std::vector<float> a(static_cast<std::size_t>(n) * static_cast<std::size_t>(job.size), 1), b(a.size());
  MPI_Request request;
  switch (random() % 10) {
    case 0:
      CALL(MPI_Allreduce, a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, job.comm);
      break;
    case 1:
      CALL(MPI_Allreduce, MPI_IN_PLACE, b.data(), n, MPI_FLOAT, MPI_MAX, job.comm);
      break;
    case 2:
      CALL(MPI_Bcast, a.data(), n, MPI_FLOAT, root, job.comm);
      break;
    case 3:
      CALL(MPI_Reduce, a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, root, job.comm);
      break;
    case 4:
      CALL(MPI_Allgather, a.data(), n, MPI_FLOAT, b.data(), n, MPI_FLOAT, job.comm);
      break;
    case 5:
      CALL(MPI_Alltoall, a.data(), n, MPI_FLOAT, b.data(), n, MPI_FLOAT, job.comm);
      break;
    case 6:
      CALL(MPI_Barrier, job.comm);
      break;
    case 7:
      CALL(MPI_Reduce_scatter_block, a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, job.comm);
      break;
    case 8: {
      CALL(MPI_Iallreduce, a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, job.comm, &request);
      int done = 0;
      for (int i = 0; i < 5 && !done; ++i) CALL(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
      if (!done) CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
      break;
    }
    default: {
      std::vector<MPI_Request> many(20);
      for (MPI_Request& each : many) CALL(MPI_Ibarrier, job.comm, &each);
      int left = 20;
      while (left > 0) {
        int count = 0, indices[20];
        CALL(MPI_Waitsome, 20, many.data(), &count, indices, MPI_STATUSES_IGNORE);
        left -= count;
      }
    }
  }
}

void Work(Job job) {
  std::mt19937 random(job.seed);
  for (int i = 0; i < job.rounds; ++i) {
    if (random() % 3 == 0)
      Exchange(job, random);
    else
      Collect(job, random);
  }
}

Job MakeJob(MPI_Comm comm, int rounds, unsigned seed) {
  Job job{comm, 0, 0, rounds, seed};
  MPI_Comm_rank(comm, &job.rank);
  MPI_Comm_size(comm, &job.size);
  return job;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 100;
  const unsigned seed = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1;
  const int threads = argc > 4 ? std::atoi(argv[4]) : 3;
  int provided = 0;
  CALL(MPI_Init_thread, &argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  Work(MakeJob(MPI_COMM_WORLD, rounds, seed));

  MPI_Comm half, reversed, group_comm = MPI_COMM_NULL, inter, dup;
  CALL(MPI_Comm_split, MPI_COMM_WORLD, rank % 2, rank, &half);
  Work(MakeJob(half, rounds, seed + 1));
  CALL(MPI_Comm_split, MPI_COMM_WORLD, 0, -rank, &reversed);
  Work(MakeJob(reversed, rounds, seed + 2));
  MPI_Group world_group, low_group;
  MPI_Comm_group(MPI_COMM_WORLD, &world_group);
  const int low = (size + 1) / 2;
  std::vector<int> members;
  for (int i = 0; i < low; ++i) members.push_back(i);
  MPI_Group_incl(world_group, low, members.data(), &low_group);
  if (rank < low) {
    CALL(MPI_Comm_create_group, MPI_COMM_WORLD, low_group, 7, &group_comm);
    Work(MakeJob(group_comm, rounds, seed + 3));
  }
  if (size >= 2) {
    if (rank < 2) {  // Their lowest ranks and tag are those of the halves below, and not all of these are here.
      MPI_Comm pair;
      CALL(MPI_Intercomm_create, MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 11, &pair);
      CALL(MPI_Barrier, pair);
      CALL(MPI_Comm_free, &pair);
    }
    CALL(MPI_Intercomm_create, half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 11, &inter);
    CALL(MPI_Barrier, inter);
    MPI_Comm merged;
    CALL(MPI_Intercomm_merge, inter, rank % 2, &merged);
    Work(MakeJob(merged, rounds, seed + 4));
    CALL(MPI_Comm_free, &merged);
    CALL(MPI_Comm_free, &inter);
  }
  CALL(MPI_Comm_dup, MPI_COMM_WORLD, &dup);
  CALL(MPI_Comm_free, &dup);

  // One communicator per thread, all at once.
  std::vector<MPI_Comm> own(static_cast<std::size_t>(threads));
  std::vector<std::thread> workers;
  for (MPI_Comm& comm : own) CALL(MPI_Comm_dup, MPI_COMM_WORLD, &comm);
  if (provided == MPI_THREAD_MULTIPLE) {
    for (int t = 0; t < threads; ++t)
      workers.emplace_back(
          [&, t] { Work(MakeJob(own[static_cast<std::size_t>(t)], rounds, seed + 10 + static_cast<unsigned>(t))); });
    for (std::thread& worker : workers) worker.join();
  }
  for (MPI_Comm& comm : own) CALL(MPI_Comm_free, &comm);
  if (group_comm != MPI_COMM_NULL) CALL(MPI_Comm_free, &group_comm);
  CALL(MPI_Comm_free, &reversed);
  CALL(MPI_Comm_free, &half);
  CALL(MPI_Finalize);

  const std::string path = std::string(argv[1]) + "-" + std::to_string(rank);
  FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return 1;
  for (const auto& [name, count] : g_counts) std::fprintf(file, "%s %ld\n", name.c_str(), count);
  std::fclose(file);
  std::printf("rank %d of %d: done\n", rank, size);
  return 0;
}
