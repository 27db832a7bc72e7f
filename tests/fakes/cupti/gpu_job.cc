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
#include <stdexcept>
#include <string>
#include <vector>

#include "core/ring_layout.h"
#include "runtime/cupti/abi.h"
#include "tests/fakes/cupti/fake_gpu.h"
#include "tests/fakes/cupti/kineto.h"

using kineto::Profiler;

namespace {

constexpr std::int64_t kForeverNs = 1'000'000'000'000'000;

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

std::int64_t RawNs() { return static_cast<std::int64_t>(kineto::Clock(CLOCK_MONOTONIC_RAW)); }

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

template <typename Condition>
void Await(Condition&& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) usleep(1000);
}

// Until CUPTI is ours again, as the agent sees it.
void AwaitOurs() {
  const auto process = reinterpret_cast<lockstep::ProcessEntry* (*)()>(dlsym(RTLD_DEFAULT, "lockstep_process"));
  if (process != nullptr && process() != nullptr) Await([&] { return process()->cupti_state.load() == 1; });
}

void Profile(int steps, bool finalize) {
  Profiler::Start();
  Steps(steps);
  Profiler::Stop();
  Profiler::Fetch();
  if (finalize) cuptiFinalize();
  Profiler::Print();
}

void Launch(std::uint32_t stream, int count, const char* name, std::int64_t duration_ns) {
  for (int i = 0; i < count; ++i) fake_gpu_launch(stream, name, duration_ns);
}

// A profiler begins while the GPU is busy with what was launched before.
void HandOver(int queued) {
  const std::uint32_t stream = fake_gpu_stream_create();
  Launch(stream, 5, "_Z4donev", 10'000);
  fake_gpu_stream_synchronize(stream);
  std::vector<std::uint32_t> busy(static_cast<std::size_t>(queued));
  for (std::uint32_t& each : busy) {
    each = fake_gpu_stream_create();
    fake_gpu_begin(each, "_Z6queuedv");
  }
  Profiler::Start();
  Launch(stream, 1000, "_Z8profiledv", 20'000);
  fake_gpu_stream_synchronize(stream);
  Profiler::Stop();
  Profiler::Fetch();
  Profiler::Print();
  for (const std::uint32_t each : busy) fake_gpu_end(each, RawNs());
  AwaitOurs();
  Launch(stream, 7, "_Z5afterv", 10'000);
  fake_gpu_stream_synchronize(stream);
}

// Session after session while another stream is never idle. `wait`: CUPTI is taken back between them, until the kernels
// at the head of its turn have ended.
void Sessions(int count, bool wait) {
  static std::atomic<bool> ended{false};
  static const std::uint32_t busy_stream = fake_gpu_stream_create();
  pthread_t busy;
  pthread_create(
      &busy, nullptr,
      [](void*) -> void* {
        for (int i = 0; !ended; ++i) {
          fake_gpu_launch(busy_stream, "_Z4busyv", 2'000'000);
          while (!ended && fake_gpu_stream_end_ns(busy_stream) - RawNs() > 20'000'000) usleep(500);
        }
        return nullptr;
      },
      nullptr);
  const std::uint32_t stream = fake_gpu_stream_create();
  for (int i = 0; i < count; ++i) {
    Profiler::Start();
    Launch(stream, 50, "_Z8profiledv", 10'000);
    fake_gpu_stream_synchronize(stream);
    Profiler::Stop();
    Profiler::Fetch();
    if (!wait) continue;
    AwaitOurs();
    Launch(stream, 20, "_Z4oursv", 10'000);
    fake_gpu_stream_synchronize(stream);
    Await([end = fake_gpu_stream_end_ns(busy_stream)] { return RawNs() > end; });
  }
  ended = true;
  pthread_join(busy, nullptr);
  std::printf("profiled %ld ours %ld strange %ld clock %ld\n", Profiler::names["_Z8profiledv"],
              Profiler::names["_Z4oursv"], Profiler::strange, Profiler::wrong_clock);
  std::printf("registrations %u\n", fake_gpu_clock_registrations());
}

// Long work, a profiler that does not fetch by force, and fetches late: when it has been looked once whether it is
// done.
void LateFetch() {
  const std::uint32_t stream = fake_gpu_stream_create(), long_stream = fake_gpu_stream_create();
  Profiler::Start();
  Launch(stream, 20, "_Z8profiledv", 10'000);
  fake_gpu_stream_synchronize(stream);
  fake_gpu_begin(long_stream, "_Z4longv");
  Profiler::Stop();
  Await([flushes = fake_gpu_flushes()] { return fake_gpu_flushes() != flushes; });
  Launch(stream, 1, "_Z8too_soonv", 10'000);
  fake_gpu_stream_synchronize(stream);
  fake_gpu_end(long_stream, RawNs());
  AwaitOurs();
  Launch(stream, 7, "_Z4oursv", 10'000);
  fake_gpu_stream_synchronize(stream);
  Profiler::Fetch(0);
  Profiler::Print();
}

// A profiler is on before CUDA begins, and later fetches while a kernel of its session runs and while CUPTI is ours.
void EarlyProfiler() {
  Profiler::Start();
  fake_gpu_init();
  const std::uint32_t stream = fake_gpu_stream_create(), long_stream = fake_gpu_stream_create();
  Launch(stream, 10, "_Z8profiledv", 10'000);
  fake_gpu_begin(long_stream, "_Z4longv");
  Profiler::Stop();
  Profiler::Fetch(0);
  Launch(stream, 1, "_Z8too_soonv", 10'000);
  fake_gpu_stream_synchronize(stream);
  fake_gpu_end(long_stream, RawNs());
  AwaitOurs();
  Launch(stream, 7, "_Z4oursv", 10'000);
  fake_gpu_stream_synchronize(stream);
  fake_gpu_begin(long_stream, "_Z4oursv");
  Profiler::Fetch(1, [](std::uint32_t flags) { return cuptiActivityFlush(nullptr, 0, flags); });
  fake_gpu_end(long_stream, RawNs());
  Profiler::Print();
}

// As with TEARDOWN_CUPTI=1: CUPTI is detached a while after each session, when it is ours again.
void Teardown(int count) {
  const std::uint32_t stream = fake_gpu_stream_create();
  for (int i = 0; i < count; ++i) {
    Profiler::Start();
    Launch(stream, 50, "_Z8profiledv", 10'000);
    fake_gpu_stream_synchronize(stream);
    Profiler::Stop();
    Profiler::Fetch();
    AwaitOurs();
    Launch(stream, 20, "_Z4oursv", 10'000);
    fake_gpu_stream_synchronize(stream);
    cuptiFinalize();
    AwaitOurs();
    Launch(stream, 20, "_Z4oursv", 10'000);
    fake_gpu_stream_synchronize(stream);
  }
  Profiler::Print();
}

void PrintAttributes(const char* when) {
  std::printf("%s size %" PRIu64 " limit %" PRIu64 " threads %" PRIu64 " zeroed %" PRIu64 "\n", when,
              fake_gpu_attribute(0), fake_gpu_attribute(2), fake_gpu_attribute(9), fake_gpu_attribute(5));
}

void Attributes() {
  PrintAttributes("ours");
  std::size_t limit = 77, bytes = sizeof limit;
  cuptiActivitySetAttribute(2, &bytes, &limit);
  limit = 0;
  cuptiActivityGetAttribute(2, &bytes, &limit);
  std::printf("told %zu\n", limit);
  PrintAttributes("ours");
  Profiler::Start();
  PrintAttributes("theirs");
  limit = 99;
  cuptiActivitySetAttribute(2, &bytes, &limit);
  fake_gpu_launch(FAKE_GPU_DEFAULT_STREAM, "_Z8profiledv", 1'000);
  fake_gpu_device_synchronize();
  Profiler::Stop();
  Profiler::Fetch();
  PrintAttributes("theirs");
  AwaitOurs();
  PrintAttributes("ours");
  Profiler::Start();
  PrintAttributes("theirs");
}

// Ends while the GPU has work in its queue, `after_ms` into it. How "kill": as soon as two flushes have given kernels.
void Tail(int kernels, const std::string& how, int after_ms) {
  const std::uint32_t stream = fake_gpu_stream_create();
  const auto begin = static_cast<std::int64_t>(kineto::Clock(CLOCK_MONOTONIC_RAW));
  Launch(stream, kernels, "_Z4tailv", 1'000'000);
  std::printf("launched %d\n", kernels);
  std::fflush(stdout);
  while (static_cast<std::int64_t>(kineto::Clock(CLOCK_MONOTONIC_RAW)) - begin < std::int64_t{after_ms} * 1'000'000)
    usleep(1000);
  std::printf("executed %d\n",
              static_cast<int>((static_cast<std::int64_t>(kineto::Clock(CLOCK_MONOTONIC_RAW)) - begin) / 1'000'000));
  std::fflush(stdout);
  if (how == "exit") std::exit(0);
  if (how == "_exit") _exit(0);
  if (how == "throw") throw std::runtime_error("thrown");
  if (how == "abort") std::abort();
  if (how == "kill") {
    for (int flush = 0; flush < 2; ++flush)
      Await([before = fake_gpu_delivered(10)] { return fake_gpu_delivered(10) != before; });
    raise(SIGKILL);
  }
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "steps";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 3;
  if (const char* driver = std::getenv("FAKE_CUDA"); driver != nullptr && dlopen(driver, RTLD_NOW) == nullptr) return 9;
  if (scenario == "early") {
    EarlyProfiler();
    std::printf("violations %" PRIu64 "\n", fake_gpu_violations());
    return 0;
  }
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
  } else if (scenario == "graph_profiler") {  // Graphs of two nodes, without and with a profiler, as PyTorch's.
    fake_gpu_kernel nodes[2]{};
    nodes[0].name = nodes[1].name = "_Z4nodev";
    nodes[0].duration_ns = nodes[1].duration_ns = 20'000;
    const std::uint32_t stream = fake_gpu_stream_create();
    const auto graphs = [&] {
      for (int i = 0; i < steps; ++i) fake_gpu_graph_launch(stream, 5, nodes, 2);
      fake_gpu_stream_synchronize(stream);
    };
    graphs();
    Profiler::Start();
    graphs();
    Profiler::Stop();
    Profiler::Fetch();
    Profiler::Print();
    AwaitOurs();
    graphs();
  } else if (scenario == "memory") {
    const std::uint64_t at = fake_gpu_malloc(1 << 20);
    fake_gpu_free(at, 1 << 20);
  } else if (scenario == "profiler") {  // Ours, theirs, ours again, theirs again.
    Steps(steps);
    Profile(steps, false);
    AwaitOurs();
    Steps(steps);
    Profile(steps, true);
    AwaitOurs();
    Steps(steps);
  } else if (scenario == "handover") {
    HandOver(steps);
  } else if (scenario == "sessions") {  // N WAIT [tsc|boottime]
    const std::string clock = argc > 4 ? argv[4] : "";
    if (clock == "tsc") Profiler::clock = kineto::Tsc;
    if (clock == "boottime") Profiler::clock = kineto::Boottime;
    Sessions(steps, std::atoi(argv[3]) != 0);
  } else if (scenario == "late_fetch") {
    LateFetch();
  } else if (scenario == "teardown") {
    Profiler::clock = kineto::Tsc;
    Teardown(steps);
  } else if (scenario == "attributes") {
    Attributes();
  } else if (scenario == "tail") {  // KERNELS HOW AFTER_MS
    Tail(steps, argv[3], std::atoi(argv[4]));
  } else if (scenario == "orphan") {  // Its agent dies; then a profiler comes.
    const std::uint32_t stream = fake_gpu_stream_create();
    Launch(stream, 100, "_Z6queuedv", 10'000'000);
    std::printf("ready\n");
    std::fflush(stdout);
    Await([] { return fake_gpu_kind_enabled(10) == 0; });
    Profiler::Start();
    Launch(stream, 50, "_Z8profiledv", 10'000);
    fake_gpu_stream_synchronize(stream);
    Profiler::Stop();
    Profiler::Fetch();
    Profiler::Print();
  } else if (scenario == "subscriber") {
    const auto subscribe = reinterpret_cast<int (*)(void**, void*, void*, lockstep::cupti::SubscriberParams*)>(
        dlsym(RTLD_DEFAULT, "cuptiSubscribe_v2"));
    lockstep::cupti::SubscriberParams several{};
    several.struct_bytes = sizeof several;
    several.allow_multiple_subscribers = 1;
    void* subscriber = nullptr;
    several.name = "monitor";
    std::printf("subscribed %d\n", subscribe(&subscriber, nullptr, nullptr, &several));
    const auto enable_v2 =
        reinterpret_cast<int (*)(void*, std::uint32_t, void*)>(dlsym(RTLD_DEFAULT, "cuptiActivityEnable_v2"));
    std::printf("enabled %d\n", enable_v2(subscriber, 10, nullptr));
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
    const auto go_on = [] { Await([before = launched.load()] { return launched > before + 100; }); };
    for (int i = 0; i < steps; ++i) {
      Profiler::Start();
      go_on();
      Profiler::Stop();
      Profiler::Fetch();
      usleep(static_cast<useconds_t>(i % 3) * 60'000);
    }
    AwaitOurs();
    go_on();
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
    static const auto next = reinterpret_cast<int (*)(std::uint8_t*, std::size_t, lockstep::cupti::AnyRecord**)>(
        find("cuptiActivityGetNextRecord"));
    static std::atomic<long> kernels{0}, ns{0};
    callbacks(
        [](std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
          *bytes = 4 << 20;
          *buffer = static_cast<std::uint8_t*>(std::calloc(1, *bytes));
          *most = 0;
        },
        // Triton's Proton and JAX take times for nanoseconds, as cupti_activity.h says that they are.
        [](void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
          lockstep::cupti::AnyRecord* record = nullptr;
          while (next(buffer, valid, &record) == 0) {
            if (record->kind != 10) continue;
            const auto& kernel = *reinterpret_cast<const lockstep::cupti::KernelRecord*>(record);
            if (std::string(kernel.name) != "_Z7profiledv") continue;
            kernels += 1;
            ns += static_cast<long>(kernel.end - kernel.start);
          }
          std::free(buffer);
        });
    enable(10);
    const std::uint32_t stream = fake_gpu_stream_create();
    Launch(stream, 20, "_Z7profiledv", 200'000);
    fake_gpu_stream_synchronize(stream);
    if (argc > 3) usleep(static_cast<useconds_t>(std::atoi(argv[3])) * 1000);  // It goes on for so long.
    disable(10);
    flush(1);
    std::printf("stranger kernels %ld of %ld us\n", kernels.load(),
                (ns.load() / std::max(1L, kernels.load()) + 500) / 1000);
    Steps(steps);
  } else if (scenario == "unfinished") {  // Leaves while the GPU is at work.
    fake_gpu_launch(FAKE_GPU_DEFAULT_STREAM, "_Z4donev", 10'000);
    usleep(1000);
    fake_gpu_launch(FAKE_GPU_DEFAULT_STREAM, "_Z7foreverv", kForeverNs);
  } else if (scenario == "endless") {  // CUPTI's record of the device stands in a buffer with unfinished work.
    fake_gpu_launch(FAKE_GPU_DEFAULT_STREAM, "_Z7foreverv", kForeverNs);
    std::printf("launched\n");
    std::fflush(stdout);
    sleep(120);
  } else if (scenario == "slow_exit") {  // What is fetched by then is all that a kill leaves.
    Steps(steps);
    std::printf("done\n");
    std::fflush(stdout);
    sleep(120);
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
