// nccl_job [--steps N]: four ranks' NCCL calls of every shape on the tests' libnccl and GPU,
// started by mpirun and without MPI, as PyTorch's are. What each rank does is counted in
// check.py by name; kernels take their time, and none waits for another rank's.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"
#include "tests/fakes/cupti/fake_gpu.h"
#include "tests/fakes/nccl_host/fake_nccl.h"

namespace {

int Number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

cudaStream_t Handle(std::uint32_t stream) { return reinterpret_cast<cudaStream_t>(std::uintptr_t{stream}); }

// The GPU keeps addresses, and its records are fetched at exit.
const char* Kept(const char* kernel) {
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return names.emplace(kernel).first->c_str();
}

void Launch(cudaStream_t stream, const char* kernel, std::size_t) {
  fake_gpu_launch(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(stream)), Kept(kernel), 200'000);
}

std::uint32_t g_graph_stream = 0;
void LaunchGraph(const char* const* kernels, int count) {
  std::vector<fake_gpu_kernel> nodes;
  for (int i = -1; i < count; ++i) {
    fake_gpu_kernel node{};
    node.name = i < 0 ? "_Z8in_graphPf" : Kept(kernels[i]);
    node.duration_ns = 50'000;
    for (int d = 0; d < 3; ++d) node.grid[d] = node.block[d] = 1;
    nodes.push_back(node);
  }
  fake_gpu_graph_launch(g_graph_stream, 3, nodes.data(), static_cast<int>(nodes.size()));
}

ncclComm_t Child(ncclComm_t parent, int color, int size, int rank) {
  ncclComm_t made = nullptr;
  fakeNcclNextShape(size, rank);
  ncclCommSplit(parent, color, rank, &made, nullptr);
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  const int rank = Number("OMPI_COMM_WORLD_RANK", 0), size = Number("OMPI_COMM_WORLD_SIZE", 1);
  const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
  if (fake_gpu_init() != 0) std::printf("injection failed\n");
  fakeNcclOnLaunch(Launch);
  fakeNcclOnReplay(LaunchGraph);
  const std::uint32_t compute = fake_gpu_stream_create(), number = fake_gpu_stream_create(),
                      row_stream = fake_gpu_stream_create();
  const cudaStream_t stream = Handle(number);
  g_graph_stream = number;

  ncclUniqueId id{};
  std::snprintf(id.internal, sizeof id.internal, "job %s", std::getenv("LOCKSTEP_TEST_JOB"));
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = lockstep::nccl::kConfigMagic;
  config.blocking = 1;
  config.comm_name = "world";
  ncclComm_t world = nullptr, alone = nullptr;
  ncclCommInitRankConfig(&world, size, id, rank, &config);
  ncclComm_t row = Child(world, rank / 2, 2, rank % 2), column = Child(world, rank % 2, 2, rank / 2);
  ncclUniqueId own{};
  std::snprintf(own.internal, sizeof own.internal, "alone %d", rank);
  ncclCommInitRank(&alone, 1, own, 0);
  static float in[1 << 16], out[1 << 16];
  long calls = 0;
  const auto call = [&](int result) { calls += result == 0 ? 1 : 1000000; };

  fakeNcclCapture(true);
  call(ncclAllReduce(in, out, 77, ncclFloat32, ncclSum, world, stream));
  call(ncclBroadcast(in, out, 78, ncclFloat32, 0, world, stream));
  call(ncclGroupStart());
  call(ncclSend(in, 79, ncclFloat32, (rank + 1) % size, world, stream));
  call(ncclRecv(out, 79, ncclFloat32, (rank + size - 1) % size, world, stream));
  call(ncclGroupEnd());
  call(ncclAllReduce(in, out, 80, ncclFloat32, ncclMax, world, stream));
  fakeNcclCapture(false);

  for (int step = 0; step < steps; ++step) {
    lockstep_step();
    fake_gpu_launch(compute, "_Z7forwardPf", 300'000);
    for (int bucket = 0; bucket < 4; ++bucket)
      call(ncclAllReduce(in, out, 1000u << bucket, ncclFloat32, ncclAvg, world, stream));
    call(ncclGroupStart());  // One kernel carries both.
    call(ncclAllReduce(in, out, 64, ncclFloat32, ncclSum, world, stream));
    call(ncclAllGather(in, out, 32, ncclFloat32, world, stream));
    call(ncclGroupEnd());
    call(ncclGroupStart());  // A kernel each.
    call(ncclAllReduce(in, out, 16, ncclFloat64, ncclMax, row, Handle(row_stream)));
    call(ncclReduceScatter(in, out, 8, ncclFloat64, ncclMin, column, stream));
    call(ncclGroupEnd());
    call(ncclGroupStart());  // Round the ring.
    call(ncclSend(in, 128, ncclFloat32, (rank + 1) % size, world, stream));
    call(ncclRecv(out, 128, ncclFloat32, (rank + size - 1) % size, world, stream));
    call(ncclGroupEnd());
    call(ncclBroadcast(in, out, 5, ncclFloat32, 1, row, stream));
    call(ncclGroupStart());  // Two roots: a kernel for both.
    for (int root = 0; root < 2; ++root)
      call(ncclBroadcast(in, out, 20u + static_cast<unsigned>(root), ncclFloat32, root, world, stream));
    call(ncclGroupEnd());
    call(ncclGroupStart());  // And one that shares the kernel of an all-reduce.
    call(ncclAllReduce(in, out, 33, ncclFloat32, ncclSum, world, stream));
    call(ncclBroadcast(in, out, 34, ncclFloat32, 0, world, stream));
    call(ncclGroupEnd());
    call(ncclAlltoAll(in, out, 6, ncclFloat32, world, stream));
    call(ncclAllReduce(in, in, 7, ncclFloat32, ncclSum, alone, stream));
    call(ncclAllReduce(in, out, 0, ncclFloat32, ncclSum, world, stream));  // Of nothing: none.
    // Another thread of the process, with a communicator of its own use.
    std::thread([&] { call(ncclReduce(in, out, 9, ncclFloat32, ncclProd, 0, column, Handle(row_stream))); }).join();
    fakeNcclReplay();
    fake_gpu_device_synchronize();
  }
  lockstep_step_end();
  for (ncclComm_t comm : {alone, column, row, world}) call(ncclCommDestroy(comm));
  std::printf("rank %d: %ld calls, violations %llu\n", rank, calls,
              static_cast<unsigned long long>(fake_gpu_violations()));
  return 0;
}
