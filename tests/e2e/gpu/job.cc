// A training job on the tests' NCCL and GPU: job SHARED_FILE [--steps N] [--slow RANK:FACTOR] [--end HOW] ...
//
// --claim N: alone, but NCCL believes in N ranks (of one it tells nothing and launches nothing).
// Each rank is a process; what NCCL's ranks would tell each other goes through SHARED_FILE: when each of
// them arrives at a collective, so that its kernels end together, TRANSFER after the last has come.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <stdexcept>
#include <string>

#include "runtime/lockstep.h"
#include "tests/fakes/cupti/fake_gpu.h"
#include "tests/fakes/nccl_host/fake_nccl.h"
#ifdef JOB_WITH_MPI
#include <mpi.h>
#endif

namespace {

constexpr int kMostRanks = 8, kMostOperations = 1 << 14, kLayers = 4;
constexpr std::int64_t kKernelNs = 1'000'000, kTransferNs = 400'000;

struct Shared {
  std::atomic<int> have_id, joined;
  ncclUniqueId id;
  std::atomic<std::int64_t> arrivals[kMostOperations][kMostRanks];
};

int g_rank = 0, g_size = 1, g_operation = 0;
Shared* g_shared = nullptr;

int Number(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr) return std::atoi(value);
  return otherwise;
}

std::int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Launch(cudaStream_t stream, const char* kernel, std::size_t) {
  static auto& names = *new std::set<std::string>;  // The GPU keeps addresses, beyond the end of main.
  const auto number = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(stream));
  const int operation = g_operation++;
  if (operation >= kMostOperations) throw std::runtime_error("too many operations");
  const std::int64_t arrival = fake_gpu_begin(number, names.emplace(kernel).first->c_str());
  std::atomic<std::int64_t>* const arrivals = g_shared->arrivals[operation];
  arrivals[g_rank].store(arrival);
  std::int64_t last = arrival;
  for (int rank = 0; rank < g_size; ++rank) {
    std::int64_t theirs = 0;
    // A rank that died is not waited for for ever.
    for (const std::int64_t begin = NowNs(); (theirs = arrivals[rank].load()) == 0 && NowNs() - begin < 3'000'000'000;)
      usleep(50);
    last = std::max(last, theirs);
  }
  fake_gpu_end(number, last + kTransferNs);
}

// What NCCL 2.28 logs of a call with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL, into NCCL_DEBUG_FILE (%p: process).
void Log(const char* function, std::size_t count, int operation) {
  const char* file = std::getenv("NCCL_DEBUG_FILE");
  if (file == nullptr) return;
  std::string path = file;
  if (const std::size_t at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  if (std::FILE* log = std::fopen(path.c_str(), "a"); log != nullptr) {
    std::fprintf(log,
                 "vm:%d:%d [0] NCCL INFO %s: opCount 0 sendbuff 0x1 recvbuff 0x1 count %zu datatype 7 op %d root 0 "
                 "comm 0x1 [nranks=%d] stream 0x1\n",
                 getpid(), getpid(), function, count, operation, g_size);
    std::fclose(log);
  }
}

void Reduce(float* memory, std::size_t count, int operation, ncclComm_t comm, cudaStream_t stream) {
  Log("AllReduce", count, operation);
  ncclAllReduce(memory, memory, count, ncclFloat32, operation, comm, stream);
}

struct Job {
  int steps = 30, slow_rank = -1, claim = 0;
  double slow_factor = 1;
  std::string end = "return";

  ncclComm_t comm = nullptr;
  std::uint32_t compute = 0, reduce = 0, ready[kLayers] = {}, done = 0;
  float* memory = nullptr;

  void Start() {
    if (fake_gpu_init() != 0) std::printf("injection failed\n");
    if (g_rank == 0) {
      ncclGetUniqueId(&g_shared->id);
      g_shared->have_id.store(1);
    }
    while (g_shared->have_id.load() == 0) usleep(1000);
    ncclCommInitRank(&comm, std::max(g_size, claim), g_shared->id, g_rank);
    fakeNcclOnLaunch(Launch);
    compute = fake_gpu_stream_create();
    reduce = fake_gpu_stream_create();
    for (std::uint32_t& event : ready) event = fake_gpu_event_create();
    done = fake_gpu_event_create();
    memory = static_cast<float*>(std::calloc(1 << 16, sizeof(float)));
    g_shared->joined.fetch_add(1);
    while (g_shared->joined.load() < g_size) usleep(1000);
  }

  cudaStream_t Stream() const { return reinterpret_cast<cudaStream_t>(std::uintptr_t{reduce}); }
  std::int64_t Scaled(std::int64_t ns) const {
    return g_rank == slow_rank ? static_cast<std::int64_t>(static_cast<double>(ns) * slow_factor) : ns;
  }

  void Step() {
    lockstep_step();
    fake_gpu_copy(compute, 1, 1 << 20, 50'000);
    for (int layer = 0; layer < kLayers; ++layer) fake_gpu_launch(compute, "_Z7forwardPKfPf", Scaled(kKernelNs / 2));
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      fake_gpu_launch(compute, "_Z8backwardPKfPf", Scaled(kKernelNs));
      fake_gpu_event_record(compute, ready[layer]);
      fake_gpu_stream_wait(reduce, ready[layer]);
      Reduce(memory, 4096u << layer, ncclAvg, comm, Stream());
    }
    ncclGroupStart();  // One kernel for both.
    Reduce(memory, 64, ncclSum, comm, Stream());
    Reduce(memory + 64, 32, ncclMax, comm, Stream());
    ncclGroupEnd();
    fake_gpu_event_record(reduce, done);
    fake_gpu_stream_wait(compute, done);
    fake_gpu_launch(compute, "_Z9optimizerPf", 300'000);
    fake_gpu_stream_synchronize(compute);
#ifdef JOB_WITH_MPI
    int sum = 0;
    MPI_Allreduce(&g_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
#endif
  }

  int Finish() {
    std::printf("rank %d of %d: %d steps, %d launches of NCCL, violations %llu\n", g_rank, g_size, steps, g_operation,
                static_cast<unsigned long long>(fake_gpu_violations()));
    std::fflush(stdout);
    if (end == "_exit") _exit(0);
    if (end == "throw") throw std::runtime_error("thrown at the end");
    if (end == "kill") {
      // What Lockstep's second flush from now on finds was written by the first one.
      const std::uint64_t flushes = fake_gpu_flushes();
      while (std::getenv("CUDA_INJECTION64_PATH") != nullptr && fake_gpu_flushes() < flushes + 2) usleep(1000);
      raise(SIGKILL);
    }
    if (end == "wait") {
      Step();  // What a signal's flush has to save.
      std::printf("waiting\n");
      std::fflush(stdout);
      for (;;) pause();
    }
    if (end == "fork") {
      const pid_t child = fork();
      if (child == 0) std::exit(5);
      int status = 0;
      waitpid(child, &status, 0);
      std::printf("child %d\n", WEXITSTATUS(status));
      Step();
    }
    if (end == "exec") {
      std::fflush(stdout);
      execl("/bin/echo", "echo", "replaced", nullptr);
    }
    ncclCommDestroy(comm);
    return end == "code" ? 3 : 0;
  }
};

int Main(int argc, char** argv) {
  Job job;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--steps") job.steps = std::stoi(value);
    if (name == "--end") job.end = value;
    if (name == "--claim") job.claim = std::stoi(value);
    if (name == "--slow") {
      job.slow_rank = std::stoi(value);
      job.slow_factor = std::stod(value.substr(value.find(':') + 1));
    }
  }
#ifdef JOB_WITH_MPI
  MPI_Init(&argc, &argv);
#endif
  g_rank = Number({"RANK", "OMPI_COMM_WORLD_RANK"}, 0);
  g_size = Number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}, 1);
  const int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return 9;
  g_shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  close(fd);
  job.Start();
  const std::int64_t begin = NowNs();
  for (int step = 0; step < job.steps; ++step) job.Step();
  if (std::getenv("JOB_TIMES") != nullptr && g_rank == 0)
    std::printf("%.3f ms each\n", static_cast<double>(NowNs() - begin) * 1e-6 / job.steps);
  const int code = job.Finish();
#ifdef JOB_WITH_MPI
  MPI_Finalize();
#endif
  return code;
}

}  // namespace

int main(int argc, char** argv) { return argc > 1 ? Main(argc, argv) : 2; }
