// A job whose every result is printed as a hash: blocking, non-blocking and
// persistent collectives, messages, one-sided calls, new communicators, spawned
// processes, in an order that a seed decides, the same on all ranks. Whatever
// Lockstep does or does not do on some of its ranks, the hashes stay.
//
//   sacred_job SEED OPERATIONS [RANK:WHAT@OPERATION] [spawn] [thread] [end=RANK:HOW]
//
// WHAT happens on one rank before that operation: off (recording), unlink (its
// shared segment), stop (its parent, for 300 ms), kill (its parent), fork (a child
// that execs). HOW it ends: exit (without MPI_Finalize), pmpi (PMPI_Finalize).
// "thread": another thread waits for MPI_Initialized and calls a collective at once.

#include <mpi.h>
// After mpi.h.
#include <mpi-ext.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

int g_rank, g_size;
std::uint64_t g_hash = 14695981039346656037ull;

void Add(const std::vector<std::int64_t>& values) {
  for (const std::int64_t value : values) {
    g_hash ^= static_cast<std::uint64_t>(value);
    g_hash *= 1099511628211ull;
    g_hash ^= g_hash >> 29;
  }
}

std::vector<std::int64_t> Data(std::uint64_t salt, int count) {
  std::vector<std::int64_t> data(static_cast<std::size_t>(count));
  std::mt19937_64 random(salt * 1000003 + static_cast<std::uint64_t>(g_rank));
  for (std::int64_t& value : data) value = static_cast<std::int64_t>(random() >> 20);
  return data;
}

void Blocking(MPI_Comm comm, std::uint64_t salt) {
  int size, rank;
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(comm, &rank);
  auto data = Data(salt, 64);
  std::vector<std::int64_t> got(64 * static_cast<std::size_t>(size));
  switch (salt % 6) {
    case 0:
      MPI_Allreduce(data.data(), got.data(), 64, MPI_INT64_T, MPI_SUM, comm);
      break;
    case 1:
      MPI_Bcast(data.data(), 64, MPI_INT64_T, static_cast<int>(salt / 6 % static_cast<unsigned>(size)), comm),
          got = data;
      break;
    case 2:
      MPI_Allgather(data.data(), 64, MPI_INT64_T, got.data(), 64, MPI_INT64_T, comm);
      break;
    case 3:
      MPI_Alltoall(Data(salt, 64 * size).data(), 64, MPI_INT64_T, got.data(), 64, MPI_INT64_T, comm);
      break;
    case 4:
      MPI_Reduce(data.data(), got.data(), 64, MPI_INT64_T, MPI_MAX, 0, comm);
      break;
    default:
      MPI_Barrier(comm);
      MPI_Exscan(data.data(), got.data(), 64, MPI_INT64_T, MPI_SUM, comm);
  }
  Add(got);
}

void NonBlocking(MPI_Comm comm, std::uint64_t salt) {
  int size;
  MPI_Comm_size(comm, &size);
  const auto data = Data(salt, 48);
  std::vector<std::int64_t> sum(48), all(48 * static_cast<std::size_t>(size)), one = Data(salt + 1, 48);
  MPI_Request requests[4];
  MPI_Iallreduce(data.data(), sum.data(), 48, MPI_INT64_T, MPI_SUM, comm, &requests[0]);
  MPI_Iallgather(data.data(), 48, MPI_INT64_T, all.data(), 48, MPI_INT64_T, comm, &requests[1]);
  MPI_Ibcast(one.data(), 48, MPI_INT64_T, 0, comm, &requests[2]);
  MPI_Ibarrier(comm, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  Add(sum), Add(all), Add(one);
}

void Persistent(MPI_Comm comm, std::uint64_t salt) {
  std::vector<std::int64_t> in(16), out(16);
  MPI_Request request;
  MPIX_Allreduce_init(in.data(), out.data(), 16, MPI_INT64_T, MPI_SUM, comm, MPI_INFO_NULL, &request);
  for (std::uint64_t n = 0; n < 3; ++n) {
    const auto data = Data(salt + n, 16);
    std::copy(data.begin(), data.end(), in.begin());  // The request knows its address.
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    Add(out);
  }
  MPI_Request_free(&request);
}

void Messages(MPI_Comm comm, std::uint64_t salt) {
  int size, rank;
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(comm, &rank);
  const int count = salt % 2 == 0 ? 32 : 20000;  // Eager and not.
  const auto data = Data(salt, count);
  std::vector<std::int64_t> got(static_cast<std::size_t>(count));
  MPI_Request requests[2];
  // Whatever else may be under way, nothing of it may be received here.
  MPI_Irecv(got.data(), count, MPI_INT64_T, size == 1 ? 0 : MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[0]);
  MPI_Isend(data.data(), count, MPI_INT64_T, (rank + 1) % size, static_cast<int>(salt % 100), comm, &requests[1]);
  MPI_Status statuses[2];
  MPI_Waitall(2, requests, statuses);
  Add(got), Add({statuses[0].MPI_SOURCE, statuses[0].MPI_TAG});
  MPI_Barrier(comm);
}

void OneSided(MPI_Comm comm, std::uint64_t salt) {
  int size, rank;
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(comm, &rank);
  std::vector<std::int64_t> memory(64), data = Data(salt, 8);
  MPI_Win window;
  MPI_Win_create(memory.data(), 64 * 8, 8, MPI_INFO_NULL, comm, &window);
  MPI_Win_fence(0, window);
  MPI_Put(data.data(), 8, MPI_INT64_T, (rank + 1) % size, 0, 8, MPI_INT64_T, window);
  MPI_Accumulate(data.data(), 8, MPI_INT64_T, 0, 16, 8, MPI_INT64_T, MPI_SUM, window);
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);
  Add(memory);
}

void Communicators(MPI_Comm comm, std::uint64_t salt) {
  MPI_Comm part, copy;
  MPI_Comm_split(comm, g_rank % 2, -g_rank, &part);
  NonBlocking(part, salt);
  MPI_Request request;
  MPI_Comm_idup(comm, &copy, &request);
  Blocking(part, salt + 2);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  NonBlocking(copy, salt + 3);
  MPI_Comm_free(&part);
  MPI_Comm_free(&copy);
}

void Spawn(const char* self) {
  MPI_Comm children, all;
  char worker[] = "worker";
  char* arguments[] = {worker, nullptr};
  MPI_Comm_spawn(self, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
  MPI_Intercomm_merge(children, 0, &all);
  NonBlocking(all, 77);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&children);
}

int Worker() {
  MPI_Comm parent, all;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL) return 3;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  g_rank = 100 + rank;
  MPI_Intercomm_merge(parent, 1, &all);
  NonBlocking(all, 77);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&parent);
  MPI_Finalize();
  return 0;
}

void Happen(const std::string& what) {
  if (what == "off") {
    MPI_Pcontrol(0);
  } else if (what == "unlink") {
    if (const char* segment = getenv("LOCKSTEP_SEGMENT")) unlink(segment);
  } else if (what == "stop" && getenv("LOCKSTEP_SEGMENT") != nullptr) {
    const pid_t parent = getppid();
    kill(parent, SIGSTOP);
    usleep(300000);
    kill(parent, SIGCONT);
  } else if (what == "kill" && getenv("LOCKSTEP_SEGMENT") != nullptr) {
    kill(getppid(), SIGKILL);
  } else if (what == "fork") {
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/true", "true", nullptr);
      _exit(1);
    }
    waitpid(child, nullptr, 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool spawn = false, thread = false;
  int happens_on = -1, happens_at = -1, ends_on = -1;
  std::string what, how;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "worker") {
      MPI_Init(&argc, &argv);
      return Worker();
    }
    spawn = spawn || word == "spawn";
    thread = thread || word == "thread";
    const std::size_t colon = word.find(':'), at = word.find('@');
    if (word.rfind("end=", 0) == 0) {
      ends_on = atoi(word.c_str() + 4);
      how = word.substr(colon + 1);
    } else if (colon != std::string::npos && at != std::string::npos) {
      happens_on = atoi(word.c_str());
      happens_at = atoi(word.c_str() + at + 1);
      what = word.substr(colon + 1, at - colon - 1);
    }
  }
  const std::uint64_t seed = strtoull(argv[1], nullptr, 10);
  const int operations = atoi(argv[2]);
  std::int64_t early = 0;
  std::thread other;
  if (thread)
    other = std::thread([&] {
      for (int ready = 0; ready == 0;) MPI_Initialized(&ready);
      // On one rank at once, on another a little later: the order on the communicator must be the program's.
      std::int64_t mine = 5;
      MPI_Request request;
      int rank;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      usleep(static_cast<useconds_t>(rank * 3000));
      mine += rank;
      MPI_Iallreduce(&mine, &early, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
  int level;
  MPI_Init_thread(&argc, &argv, thread ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  if (thread) other.join(), Add({early});
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  std::mt19937_64 random(seed);
  for (int n = 0; n < operations; ++n) {
    if (g_rank == happens_on && n == happens_at) Happen(what);
    const std::uint64_t salt = random() >> 8;
    switch (random() % 6) {
      case 0:
        Blocking(MPI_COMM_WORLD, salt);
        break;
      case 1:
        NonBlocking(MPI_COMM_WORLD, salt);
        break;
      case 2:
        Persistent(MPI_COMM_WORLD, salt);
        break;
      case 3:
        Messages(MPI_COMM_WORLD, salt);
        break;
      case 4:
        OneSided(MPI_COMM_WORLD, salt);
        break;
      default:
        Communicators(MPI_COMM_WORLD, salt);
    }
  }
  if (spawn) Spawn(argv[0]);
  printf("rank %d of %d: %016llx\n", g_rank, g_size, static_cast<unsigned long long>(g_hash));
  fflush(stdout);
  if (g_rank == ends_on && how == "exit") _exit(0);
  if (g_rank == ends_on && how == "pmpi") {
    PMPI_Finalize();
    return 0;
  }
  MPI_Finalize();
  return 0;
}
