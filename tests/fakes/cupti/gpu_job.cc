// gpu_job SCENARIO: programs on the fake GPU. Prints what the test compares.

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/cupti/abi.h"
#include "tests/fakes/cupti/fake_gpu.h"

extern "C" {
int cuptiActivityRegisterCallbacks(lockstep::cupti::BufferRequested, lockstep::cupti::BufferCompleted);
int cuptiActivityRegisterTimestampCallback(lockstep::cupti::TimestampCallback);
int cuptiActivityEnable(std::uint32_t);
int cuptiActivityDisable(std::uint32_t);
int cuptiActivityFlushAll(std::uint32_t);
int cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, lockstep::cupti::AnyRecord**);
int cuptiFinalize(void);
}

namespace {

// Two streams, an event edge between them, every kind of record once per step.
void Steps(int steps, int kernel_us = 200) {
  const std::uint32_t compute = fake_gpu_stream_create(), side = fake_gpu_stream_create();
  const std::uint32_t ready = fake_gpu_event_create();
  for (int step = 0; step < steps; ++step) {
    fake_gpu_copy(compute, 1, 1 << 20, 50'000);
    fake_gpu_launch(compute, "_Z7forwardPf", kernel_us * 1000);
    fake_gpu_event_record(compute, ready);
    fake_gpu_stream_wait(side, ready);
    fake_gpu_launch(side, "_Z4sidePf", kernel_us * 500);
    fake_gpu_memset(compute, 4096, 5'000);
    fake_gpu_query(ready);
    fake_gpu_stream_synchronize(compute);
  }
  fake_gpu_device_synchronize();
}

std::int64_t RawNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Steps of 8 ms whose host is `lead` steps ahead of the GPU, or waits for it at the end of each. How: "kernels",
// "graph" (of three kernels, after one on its own), "streams" (two, with an edge between them).
void Lead(int steps, double lead, const std::string& how, bool synchronised) {
  constexpr std::int64_t kKernelNs = 2'000'000, kStepNs = 4 * kKernelNs;
  const auto mark = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "lockstep_step"));
  const std::uint32_t compute = fake_gpu_stream_create(), side = fake_gpu_stream_create();
  const std::uint32_t ready = fake_gpu_event_create();
  fake_gpu_kernel nodes[3]{};
  for (fake_gpu_kernel& node : nodes) {
    node.name = "_Z4nodev";
    node.duration_ns = kKernelNs;
  }
  for (int step = 0; step <= steps; ++step) {
    if (mark != nullptr) mark();
    if (step == steps) break;
    fake_gpu_launch(compute, "_Z5firstv", kKernelNs);
    if (how == "graph") {
      fake_gpu_graph_launch(compute, 5, nodes, 3);
    } else if (how == "streams") {
      fake_gpu_event_record(compute, ready);
      fake_gpu_stream_wait(side, ready);
      fake_gpu_launch(side, "_Z4sidev", kKernelNs);
      for (int i = 1; i < 4; ++i) fake_gpu_launch(compute, "_Z6kernelv", kKernelNs);
    } else {
      for (int i = 1; i < 4; ++i) fake_gpu_launch(compute, "_Z6kernelv", kKernelNs);
    }
    if (synchronised)
      fake_gpu_stream_synchronize(compute);
    else
      while (static_cast<double>(fake_gpu_stream_end_ns(compute) - RawNs()) > lead * kStepNs) usleep(100);
  }
  fake_gpu_device_synchronize();
}

// A profiler as Kineto is: mallocs buffers, frees them, knows only its own.
struct Profiler {
  static inline std::vector<std::uint8_t*> buffers;
  static inline long kernels = 0, strange = 0, wrong_clock = 0, wrong_thread = 0;
  static void Requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
    *bytes = 1 << 20;
    *buffer = static_cast<std::uint8_t*>(std::malloc(*bytes));
    std::memset(*buffer, 0xee, *bytes);  // Nothing promises it zeroed.
    *most = 0;
    buffers.push_back(*buffer);
  }
  static void Completed(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    bool known = false;
    for (auto& mine : buffers)
      if (mine == buffer) known = true, mine = nullptr;
    if (!known) {
      strange += 1;
      return;
    }
    lockstep::cupti::AnyRecord* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == 0) {
      if (record->kind == 10) {
        kernels += 1;
        const auto& kernel = *reinterpret_cast<const lockstep::cupti::KernelRecord*>(record);
        timespec now{};
        clock_gettime(CLOCK_REALTIME, &now);
        const std::int64_t ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
        if (std::llabs(ns - static_cast<std::int64_t>(kernel.start)) > 10'000'000'000) wrong_clock += 1;
      }
      if (record->kind == 5 && reinterpret_cast<const lockstep::cupti::ApiRecord*>(record)->thread !=
                                   static_cast<std::uint32_t>(pthread_self()))
        wrong_thread += 1;
    }
    std::free(buffer);
  }
};

void Profile(int steps, bool finalize) {
  cuptiActivityRegisterCallbacks(Profiler::Requested, Profiler::Completed);
  for (const std::uint32_t kind : {10u, 1u, 2u, 5u}) cuptiActivityEnable(kind);
  Steps(steps);
  for (const std::uint32_t kind : {10u, 1u, 2u, 5u}) cuptiActivityDisable(kind);
  cuptiActivityFlushAll(1);
  if (finalize) cuptiFinalize();
  std::printf("profiler kernels %ld strange %ld clock %ld thread %ld\n", Profiler::kernels, Profiler::strange,
              Profiler::wrong_clock, Profiler::wrong_thread);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "steps";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 3;
  if (fake_gpu_init() != 0) std::printf("injection failed\n");
  if (scenario == "steps") {
    Steps(steps);
  } else if (scenario == "idle") {
  } else if (scenario == "many") {  // steps: kernels
    const std::uint32_t stream = fake_gpu_stream_create();
    for (int i = 0; i < steps; ++i) fake_gpu_launch(stream, i % 2 != 0 ? "_Z3oddv" : "_Z4evenv", 1'000);
    fake_gpu_stream_synchronize(stream);
  } else if (scenario == "graph") {
    fake_gpu_kernel nodes[2]{};
    nodes[0].name = "_Z5node0v";
    nodes[1].name = "_Z5node1v";
    nodes[0].duration_ns = nodes[1].duration_ns = 20'000;
    const std::uint32_t stream = fake_gpu_stream_create();
    for (int i = 0; i < steps; ++i) fake_gpu_graph_launch(stream, 5, nodes, 2);
    fake_gpu_stream_synchronize(stream);
  } else if (scenario == "memory") {
    const std::uint64_t at = fake_gpu_malloc(1 << 20);
    fake_gpu_free(at, 1 << 20);
  } else if (scenario == "profiler") {  // Ours, theirs, ours again, theirs again.
    Steps(steps);
    Profile(steps, false);
    usleep(700'000);
    Steps(steps);
    usleep(100'000);
    Profile(steps, true);
    usleep(1'200'000);
    Steps(steps);
  } else if (scenario == "values") {  // One of each, with numbers to find again.
    const std::uint32_t first = fake_gpu_stream_create(), second = fake_gpu_stream_create();
    fake_gpu_kernel kernel{};
    kernel.name = "_Z9values_ofPfi";
    kernel.duration_ns = 4'000'000;
    for (int i = 0; i < 3; ++i) {
      kernel.grid[i] = 11 + i;
      kernel.block[i] = 2 + i;
    }
    kernel.registers_per_thread = 77;
    kernel.static_shared_bytes = 1234;
    kernel.dynamic_shared_bytes = 56789;
    kernel.cluster[0] = 2;
    kernel.cluster[1] = 3;
    kernel.cluster[2] = 1;
    fake_gpu_launch_kernel(first, &kernel);
    kernel.driver = 1;
    kernel.duration_ns = 2'000'000;
    fake_gpu_launch_kernel(second, &kernel);
    kernel.driver = 0;
    fake_gpu_graph_launch(first, 21, &kernel, 1);
    const int kinds[] = {1, 2, 8, 10};
    for (int i = 0; i < 4; ++i)
      fake_gpu_copy(first, kinds[i], static_cast<std::uint64_t>(1000 + i), 1'000'000 * (i + 1));
    fake_gpu_memset(second, 1004, 5'000'000);
    const std::uint32_t event = fake_gpu_event_create();
    fake_gpu_event_record(first, event);
    fake_gpu_stream_wait(second, event);
    fake_gpu_event_synchronize(event);
    fake_gpu_stream_synchronize(second);
    fake_gpu_device_synchronize();
  } else if (scenario == "window") {  // Recorded, not recorded, recorded.
    const auto start = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "lockstep_start"));
    const auto stop = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "lockstep_stop"));
    Steps(steps);
    stop();
    Steps(steps + 1);
    start();
    Steps(steps);
  } else if (scenario == "lead") {  // STEPS LEAD HOW [synchronised]
    Lead(steps, argc > 3 ? std::atof(argv[3]) : 0, argc > 4 ? argv[4] : "kernels", argc > 5);
  } else if (scenario == "contest") {  // Threads launch while a profiler comes and goes.
    static std::atomic<bool> ended{false};
    static std::atomic<long> launched{0};
    std::vector<pthread_t> threads(4);
    for (pthread_t& thread : threads)
      pthread_create(
          &thread, nullptr,
          [](void*) -> void* {
            const std::uint32_t stream = fake_gpu_stream_create();
            while (!ended) {
              fake_gpu_launch(stream, "_Z7contestv", 1'000);
              launched += 1;
              usleep(200);
            }
            fake_gpu_stream_synchronize(stream);
            return nullptr;
          },
          nullptr);
    cuptiActivityRegisterCallbacks(Profiler::Requested, Profiler::Completed);
    for (int i = 0; i < steps; ++i) {
      for (const std::uint32_t kind : {10u, 5u}) cuptiActivityEnable(kind);
      usleep(20'000);
      for (const std::uint32_t kind : {10u, 5u}) cuptiActivityDisable(kind);
      cuptiActivityFlushAll(1);
      usleep(static_cast<useconds_t>(i % 3) * 60'000);
    }
    usleep(200'000);
    ended = true;
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    std::printf("launched %ld seen %d strange %ld\n", launched.load(), Profiler::kernels > 0, Profiler::strange);
  } else if (scenario == "stranger") {  // A profiler that finds CUPTI by dlsym, and frees what it is given.
    void* cupti = dlopen("libcupti.so.13", RTLD_NOW);
    const auto find = [&](const char* name) { return dlsym(cupti, name); };
    const auto enable = reinterpret_cast<int (*)(std::uint32_t)>(find("cuptiActivityEnable"));
    const auto disable = reinterpret_cast<int (*)(std::uint32_t)>(find("cuptiActivityDisable"));
    const auto flush = reinterpret_cast<int (*)(std::uint32_t)>(find("cuptiActivityFlushAll"));
    const auto callbacks =
        reinterpret_cast<int (*)(lockstep::cupti::BufferRequested, lockstep::cupti::BufferCompleted)>(
            find("cuptiActivityRegisterCallbacks"));
    Steps(steps);
    callbacks(
        [](std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
          *bytes = 4 << 20;
          *buffer = static_cast<std::uint8_t*>(std::calloc(1, *bytes));
          *most = 0;
        },
        [](void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) { std::free(buffer); });
    enable(10);
    Steps(steps);
    usleep(700'000);
    disable(10);
    flush(1);
    Steps(steps);
  } else if (scenario == "unfinished") {  // Leaves while the GPU is at work.
    fake_gpu_launch(FAKE_GPU_DEFAULT_STREAM, "_Z4donev", 10'000);
    usleep(1000);
    fake_gpu_launch(FAKE_GPU_DEFAULT_STREAM, "_Z7foreverv", 60'000'000'000);
  } else if (scenario == "slow_exit") {  // What is fetched by then is all that a kill leaves.
    Steps(steps);
    std::printf("done\n");
    std::fflush(stdout);
    sleep(30);
  } else if (scenario == "fork") {
    Steps(steps);
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("child %d\n", status);
    Steps(steps);
  } else if (scenario == "exec") {
    Steps(steps);
    execl("/bin/echo", "echo", "replaced", nullptr);
  } else if (scenario == "threads") {
    std::vector<pthread_t> threads(static_cast<std::size_t>(steps));
    for (pthread_t& thread : threads)
      pthread_create(
          &thread, nullptr,
          [](void*) -> void* {
            const std::uint32_t stream = fake_gpu_stream_create();
            for (int i = 0; i < 200; ++i) fake_gpu_launch(stream, "_Z6threadv", 1'000);
            fake_gpu_stream_synchronize(stream);
            return nullptr;
          },
          nullptr);
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  }
  std::printf("violations %" PRIu64 "\n", fake_gpu_violations());
  return 0;
}
