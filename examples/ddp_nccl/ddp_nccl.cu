// Data-parallel training on NCCL, one GPU per rank: see Usage() in options.h.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "kernels.cuh"
#include "options.h"
#include "reference.h"
#include "rendezvous.h"
#include "runtime/lockstep.h"

namespace example {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
void Check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result));
}
#define CHECK(call) Check(call, #call)

struct Bucket {
  std::size_t begin = 0, count = 0;  // Elements of the gradients, which lie in order of the layers.
  int first_layer = 0;               // Its gradient is ready last.
  cudaEvent_t ready = nullptr;
};

class Trainer {
 public:
  Trainer(const Options& options, const Place& place) : o_(options), place_(place) {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(place.local_rank % std::max(devices, 1)));
    ncclUniqueId id{};
    if (place.rank == 0) CHECK(ncclGetUniqueId(&id));
    BroadcastOverTcp(place, &id, sizeof id);
    CHECK(ncclCommInitRank(&comm_, place.size, id, place.rank));
    int least = 0, greatest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&reduce_, cudaStreamNonBlocking, greatest));
    CHECK(cudaEventCreateWithFlags(&reduced_, cudaEventDisableTiming));
    Allocate();
    MakeBuckets();
  }

  // One after another, as a framework would call them; asynchronous.
  void Step(int step) {
    lockstep_range_push_category("forward", LOCKSTEP_FORWARD);
    const float* input = inputs_[step % kBatches];
    const float* x = input;
    for (int l = 0; l < o_.layers; ++l) {
      Product<false, false>(x, W(l), X(l), o_.batch, o_.width, o_.width);
      if (l + 1 < o_.layers) Tanh<<<Blocks(cells_), 256, 0, compute_>>>(X(l), static_cast<int>(cells_));
      x = X(l);
    }
    CHECK(cudaMemsetAsync(loss_, 0, sizeof(float), compute_));
    SquaredError<<<Blocks(cells_), 256, 0, compute_>>>(x, targets_[step % kBatches], error_[0], loss_,
                                                       static_cast<int>(cells_));
    lockstep_range_pop();
    lockstep_range_push_category("backward", LOCKSTEP_BACKWARD);
    std::size_t bucket = 0;
    for (int l = o_.layers - 1; l >= 0; --l) {
      float *d = error_[(o_.layers - 1 - l) % 2], *before = error_[(o_.layers - l) % 2];
      if (l + 1 < o_.layers) TanhBackward<<<Blocks(cells_), 256, 0, compute_>>>(X(l), d, static_cast<int>(cells_));
      Product<true, false>(l > 0 ? X(l - 1) : input, d, G(l), o_.width, o_.width, o_.batch);
      if (l > 0) Product<false, true>(d, W(l), before, o_.batch, o_.width, o_.width);
      // Launched strictly in order, each when its last gradient is there.
      if (o_.overlap)
        while (bucket < buckets_.size() && buckets_[bucket].first_layer == l) Reduce(buckets_[bucket++]);
    }
    while (bucket < buckets_.size()) Reduce(buckets_[bucket++]);
    if (o_.mix) Mix();
    CHECK(cudaEventRecord(reduced_, reduce_));
    CHECK(cudaStreamWaitEvent(compute_, reduced_, 0));
    lockstep_range_pop();
    lockstep_range_push_category("optimizer", LOCKSTEP_OPTIMIZER);
    GradientStep<<<Blocks(parameters_), 256, 0, compute_>>>(w_, g_, static_cast<float>(o_.learning_rate),
                                                            1.f / static_cast<float>(place_.size), parameters_);
    CHECK(cudaGetLastError());
    lockstep_range_pop();
  }

  void Train() {
    cudaGraphExec_t replay[kBatches] = {};
    if (o_.graph) Capture(replay);
    // NCCL connects in its first calls, and the GPU's clock rises: not what a step costs.
    const int warm_up = o_.steps >= 40 ? 20 : 0;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < o_.steps; ++step) {
      if (step == warm_up) {
        CHECK(cudaDeviceSynchronize());
        begin = std::chrono::steady_clock::now();
      }
      lockstep_step();
      if (o_.graph && step >= 3)
        CHECK(cudaGraphLaunch(replay[step % kBatches], compute_));
      else
        Step(step);
      float loss = 0;
      if (step % o_.sync_every == 0 || step + 1 == o_.steps) {
        CHECK(cudaMemcpyAsync(&loss, loss_, sizeof loss, cudaMemcpyDeviceToHost, compute_));
        CHECK(cudaStreamSynchronize(compute_));
        if (place_.rank == 0 && (step % 10 == 0 || step + 1 == o_.steps))
          std::printf("step %4d  loss %.5f\n", step, static_cast<double>(loss));
      }
      if (o_.pause_ms > 0) ::usleep(static_cast<useconds_t>(o_.pause_ms) * 1000);
    }
    CHECK(cudaDeviceSynchronize());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (place_.rank == 0) {
      std::printf("%d steps of %d ranks in %zu buckets, %.3f ms each\n", o_.steps, place_.size, buckets_.size(),
                  1e3 * seconds / (o_.steps - warm_up));
      std::fflush(stdout);
    }
    // ncclCommDestroy waits for ever while a graph holds operations that were captured from the communicator
    // (commDestroySync, src/init.cc of NCCL 2.28: localPersistentRefs).
    for (cudaGraphExec_t graph : replay)
      if (graph != nullptr) CHECK(cudaGraphExecDestroy(graph));
  }

  // 0: right. Every rank's parameters must be the same, and near those of the CPU.
  int Verify() {
    std::vector<float> mine(parameters_);
    float* scratch = g_;
    double worst = 0;
    int bad = 0;
    CHECK(cudaMemcpy(mine.data(), w_, parameters_ * sizeof(float), cudaMemcpyDeviceToHost));
    for (const ncclRedOp_t operation : {ncclMax, ncclMin}) {
      CHECK(ncclAllReduce(w_, scratch, parameters_, ncclFloat, operation, comm_, reduce_));
      CHECK(cudaStreamSynchronize(reduce_));
      std::vector<float> all(parameters_);
      CHECK(cudaMemcpy(all.data(), scratch, parameters_ * sizeof(float), cudaMemcpyDeviceToHost));
      for (std::size_t i = 0; i < parameters_; ++i) bad += all[i] != mine[i];
    }
    if (place_.rank == 0) {
      const std::vector<double> expected =
          TrainOnCpu(o_.steps, o_.layers, o_.width, o_.batch, place_.size, o_.learning_rate, o_.seed);
      for (std::size_t i = 0; i < parameters_; ++i)
        worst = std::max(worst, std::abs(expected[i] - static_cast<double>(mine[i])));
      std::printf("check: %d elements differ between ranks, at most %.2g from the CPU's: %s\n", bad, worst,
                  bad == 0 && worst < 1e-4 ? "right" : "WRONG");
      std::fflush(stdout);
    }
    return bad == 0 && worst < 1e-4 ? 0 : 1;
  }

  void Close() {
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(comm_));
  }

 private:
  static unsigned Blocks(std::size_t count) { return static_cast<unsigned>((count + 255) / 256); }
  float* W(int layer) { return w_ + static_cast<std::size_t>(layer) * o_.width * o_.width; }
  float* G(int layer) { return g_ + static_cast<std::size_t>(layer) * o_.width * o_.width; }
  float* X(int layer) { return x_ + static_cast<std::size_t>(layer) * cells_; }

  template <bool kTransposeA, bool kTransposeB>
  void Product(const float* a, const float* b, float* c, int m, int n, int k) {
    const dim3 blocks(static_cast<unsigned>((n + kTile - 1) / kTile), static_cast<unsigned>((m + kTile - 1) / kTile));
    // The slowed rank does some of its products again: the same result, later.
    double times = place_.rank == o_.slow_rank ? o_.slow_factor + owed_ : 1;
    for (; times >= 1; times -= 1)
      MatrixProduct<kTransposeA, kTransposeB><<<blocks, dim3(kThreads, kThreads), 0, compute_>>>(a, b, c, m, n, k);
    owed_ = times;
  }

  void Reduce(Bucket& bucket) {
    CHECK(cudaEventRecord(bucket.ready, compute_));
    CHECK(cudaStreamWaitEvent(reduce_, bucket.ready, 0));
    CHECK(ncclAllReduce(g_ + bucket.begin, g_ + bucket.begin, bucket.count, ncclFloat, ncclSum, comm_, reduce_));
  }

  // A call of every other kind, on memory of its own.
  void Mix() {
    constexpr std::size_t kCount = 4096;
    const int size = place_.size, right = (place_.rank + 1) % size, left = (place_.rank + size - 1) % size;
    float* out = mix_ + kCount * static_cast<std::size_t>(size);
    CHECK(ncclAllGather(mix_, out, kCount, ncclFloat, comm_, reduce_));
    CHECK(ncclReduceScatter(mix_, out, kCount, ncclFloat, ncclMax, comm_, reduce_));
    CHECK(ncclBroadcast(mix_, out, kCount, ncclFloat, 0, comm_, reduce_));
    CHECK(ncclReduce(mix_, out, kCount, ncclFloat, ncclMin, size - 1, comm_, reduce_));
    CHECK(ncclGroupStart());
    CHECK(ncclAllReduce(mix_, out, kCount, ncclFloat, ncclSum, comm_, reduce_));
    CHECK(ncclAllReduce(mix_, out + kCount, kCount / 2, ncclFloat, ncclSum, comm_, reduce_));
    CHECK(ncclGroupEnd());
    if (size == 1) return;
    CHECK(ncclGroupStart());
    CHECK(ncclSend(mix_, kCount, ncclFloat, right, comm_, reduce_));
    CHECK(ncclRecv(out, kCount, ncclFloat, left, comm_, reduce_));
    CHECK(ncclGroupEnd());
  }

  void Capture(cudaGraphExec_t (&replay)[kBatches]) {
    // NCCL sets its connections up in the first call, which cannot be captured.
    CHECK(ncclAllReduce(g_, g_, parameters_, ncclFloat, ncclSum, comm_, reduce_));
    CHECK(cudaDeviceSynchronize());
    for (int batch = 0; batch < kBatches; ++batch) {
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamBeginCapture(compute_, cudaStreamCaptureModeThreadLocal));
      Step(batch);
      CHECK(cudaStreamEndCapture(compute_, &graph));
      CHECK(cudaGraphInstantiateWithFlags(&replay[batch], graph, 0));
      CHECK(cudaGraphDestroy(graph));
    }
  }

  void Allocate() {
    cells_ = static_cast<std::size_t>(o_.batch) * o_.width;
    parameters_ = static_cast<std::size_t>(o_.layers) * o_.width * o_.width;
    const auto make = [](float*& memory, std::size_t count) {
      CHECK(cudaMalloc(&memory, count * sizeof(float)));
      CHECK(cudaMemset(memory, 0, count * sizeof(float)));
    };
    make(w_, parameters_);
    make(g_, parameters_);
    make(x_, cells_ * static_cast<std::size_t>(o_.layers));
    make(error_[0], cells_);
    make(error_[1], cells_);
    make(loss_, 1);
    make(mix_, std::size_t{4096} * (2 * static_cast<std::size_t>(place_.size) + 2));
    const std::vector<float> start = InitialParameters(o_.layers, o_.width, o_.seed);
    CHECK(cudaMemcpy(w_, start.data(), parameters_ * sizeof(float), cudaMemcpyHostToDevice));
    for (int which = 0; which < kBatches; ++which)
      for (const bool target : {false, true}) {
        float*& memory = target ? targets_[which] : inputs_[which];
        make(memory, cells_);
        const std::vector<float> values = Batch(o_.batch, o_.width, o_.seed, place_.rank, which, target);
        CHECK(cudaMemcpy(memory, values.data(), cells_ * sizeof(float), cudaMemcpyHostToDevice));
      }
  }

  // DDP's rule: from the last layer on, closed at 1 MiB, then at the cap; layers are never split.
  void MakeBuckets() {
    const std::size_t layer = static_cast<std::size_t>(o_.width) * o_.width;
    double limit = std::min(o_.bucket_cap_mb, 1.0) * (1 << 20);
    Bucket open{};
    for (int l = o_.layers - 1; l >= 0; --l) {
      open.begin = static_cast<std::size_t>(l) * layer;
      open.count += layer;
      open.first_layer = l;
      if (static_cast<double>(open.count * sizeof(float)) < limit && l > 0) continue;
      CHECK(cudaEventCreateWithFlags(&open.ready, cudaEventDisableTiming));
      buckets_.push_back(open);
      open = {};
      limit = o_.bucket_cap_mb * (1 << 20);
    }
  }

  const Options& o_;
  const Place& place_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t compute_ = nullptr, reduce_ = nullptr;
  cudaEvent_t reduced_ = nullptr;
  std::size_t cells_ = 0, parameters_ = 0;
  float *w_ = nullptr, *g_ = nullptr, *x_ = nullptr, *error_[2] = {}, *loss_ = nullptr, *mix_ = nullptr;
  float *inputs_[kBatches] = {}, *targets_[kBatches] = {};
  std::vector<Bucket> buckets_;
  double owed_ = 0;
};

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  const Place place = FindPlace();
  Trainer trainer(options, place);
  trainer.Train();
  const int code = options.check ? trainer.Verify() : 0;
  if (options.end == "throw") throw std::runtime_error("ended by --end throw");
  if (options.end == "_exit") ::_exit(0);
  if (options.end == "abort") ::abort();
  if (options.end == "wait") {
    std::puts("waiting");
    std::fflush(stdout);
    for (;;) ::pause();
  }
  trainer.Close();
  return code;
}

}  // namespace
}  // namespace example

int main(int argc, char** argv) {
  try {
    return example::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_nccl: %s\n", error.what());
    const char* end = nullptr;
    for (int i = 1; i + 1 < argc; ++i)
      if (std::strcmp(argv[i], "--end") == 0) end = argv[i + 1];
    if (end != nullptr && std::strcmp(end, "throw") == 0) throw;  // As a program without a handler dies.
    return 1;
  }
}
