// A training job on the tests' NCCL and GPU: job SHARED_FILE [--steps N] [--slow RANK:FACTOR] [--end HOW] ...
//
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
  static std::set<std::string> names;  // The GPU keeps addresses.
  const auto number = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(stream));
  const std::int64_t arrival = std::max(NowNs() + 20'000, fake_gpu_stream_end_ns(number));
  const int operation = g_operation++;
  if (operation >= kMostOperations) throw std::runtime_error("too many operations");
  auto& arrivals = g_shared->arrivals[operation];
  arrivals[g_rank].store(arrival);
  std::int64_t last = arrival;
  const std::int64_t begin = NowNs();
  for (int rank = 0; rank < g_size; ++rank) {
    std::int64_t theirs = 0;
    // A rank that died is not waited for for ever.
    while ((theirs = arrivals[rank].load()) == 0 && NowNs() - begin < 3'000'000'000) usleep(50);
    last = std::max(last, theirs);
  }
  fake_gpu_launch(number, names.emplace(kernel).first->c_str(), last + kTransferNs - arrival);
}

struct Job {
  int steps = 30, slow_rank = -1;
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
    ncclCommInitRank(&comm, g_size, g_shared->id, g_rank);
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
      ncclAllReduce(memory, memory, 4096u << layer, ncclFloat32, ncclAvg, comm, Stream());
    }
    ncclGroupStart();  // One kernel for both.
    ncclAllReduce(memory, memory, 64, ncclFloat32, ncclSum, comm, Stream());
    ncclAllReduce(memory + 64, memory + 64, 32, ncclFloat32, ncclMax, comm, Stream());
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
      usleep(800'000);  // Longer than records stay with CUPTI.
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
  for (int step = 0; step < job.steps; ++step) job.Step();
  const int code = job.Finish();
#ifdef JOB_WITH_MPI
  MPI_Finalize();
#endif
  return code;
}

}  // namespace

int main(int argc, char** argv) { return argc > 1 ? Main(argc, argv) : 2; }
