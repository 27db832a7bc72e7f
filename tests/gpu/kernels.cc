// Kernels of known length for the checks of GPU capture. Prints one line of JSON.
//
// gpu_kernels durations                            kernels of 2 and 10 ms without a gap, each series between two events
// gpu_kernels graph --nodes N --count N --seconds S    a graph of short kernels, launched N times or for S seconds
// gpu_kernels steps --nodes N --count N            N steps, each marked, of three launches of a graph
// gpu_kernels short --count N [--cupti LIBRARY --kinds N,... [--flush-ms N] [--stopped]]
//     Five series of N kernels of 2 us, as fast as the host can. CUPTI alone records these kinds; --stopped: it did
//     before the series, and no longer.
// --fake LIBRARY: on the tests' GPU.

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "runtime/lockstep.h"
#include "tests/gpu/cupti_alone.h"
#include "tests/gpu/kernel_gpu.h"

namespace gpu_kernels {
namespace {

struct Options {
  std::string what, fake, cupti, kinds = "10";
  int nodes = 20, count = 12, flush_ms = 0;
  double seconds = 1e9;
  bool stopped = false;
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The most memory that this process has had in use.
std::uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

void Durations(Gpu& gpu) {
  struct Series {
    Kernel kernel;
    int count;
    double us;
  };
  std::printf("{");
  for (const Series& series : {Series{kTwoMs, 250, 2000}, Series{kTenMs, 50, 10'000}}) {
    // The host is ahead while this one runs: no kernel of the series waits for it.
    gpu.Launch(kPlug, 50'000);
    const int begin = gpu.Mark();
    for (int i = 0; i < series.count; ++i) gpu.Launch(series.kernel, series.us);
    const int end = gpu.Mark();
    gpu.Wait();
    std::printf("%s\"%s\": {\"count\": %d, \"event_ms\": %.6f}", series.kernel == kTwoMs ? "" : ", ",
                kNames[series.kernel], series.count, gpu.MsBetween(begin, end));
  }
  std::printf("}\n");
}

void Graph(Gpu& gpu, const Options& options) {
  gpu.MakeGraph(kNode, options.nodes, 0);
  gpu.Replay();
  gpu.Wait();
  const std::uint64_t used = gpu.UsedBytes(), peak = PeakBytes();
  const double begin = Now();
  int launches = 1;
  // In groups, so that the time is looked at while the queue is short.
  while (launches < options.count && Now() - begin < options.seconds) {
    for (int i = 0; i < 20 && launches < options.count; ++i, ++launches) gpu.Replay();
    gpu.Wait();
  }
  std::printf("{\"warm_ups\": %d, \"nodes\": %d, \"launches\": %d, \"seconds\": %.3f, \"gpu_bytes_more\": %" PRId64
              ", \"host_peak_bytes_more\": %" PRIu64 "}\n",
              gpu.warm_ups, options.nodes, launches, Now() - begin, static_cast<std::int64_t>(gpu.UsedBytes() - used),
              PeakBytes() - peak);
}

void Steps(Gpu& gpu, const Options& options) {
  gpu.MakeGraph(kNode, options.nodes, 50);
  for (int step = 0; step < options.count; ++step) {
    lockstep_step();
    for (int i = 0; i < 3; ++i) gpu.Replay();
  }
  lockstep_step_end();
  gpu.Wait();
  std::printf("{\"nodes\": %d, \"launches_per_step\": 3}\n", options.nodes);
}

void Short(Gpu& gpu, CuptiAlone* cupti, const Options& options) {
  constexpr int kWarmUp = 1000, kSeries = 5;
  const auto series = [&](int count) {
    lockstep_step();
    const double begin = Now();
    for (int i = 0; i < count; ++i) gpu.Launch(kShort, 2);
    gpu.Wait();
    return 1e3 * (Now() - begin);
  };
  series(kWarmUp);
  series(kWarmUp);  // Step 1: a window of its own, if there is one.
  if (cupti != nullptr && options.stopped) cupti->Stop();
  std::array<double, kSeries> ms{};
  for (double& each : ms) each = series(options.count);
  lockstep_step_end();
  if (cupti != nullptr) cupti->Stop();
  std::sort(ms.begin(), ms.end());
  std::printf(
      "{\"launches\": %d, \"of_step_1\": %d, \"ms\": %.4f, \"us_per_kernel\": %.4f, \"host_peak_bytes\": %" PRIu64
      ", \"gpu_used_bytes\": %" PRIu64 ", \"cupti_bytes\": %" PRIu64 "}\n",
      gpu.warm_ups + 2 * kWarmUp + kSeries * options.count, kWarmUp, ms[kSeries / 2],
      1e3 * ms[kSeries / 2] / options.count, PeakBytes(), gpu.UsedBytes(), CuptiAlone::bytes());
}

int Main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.what = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--stopped") {
      options.stopped = true;
      continue;
    }
    if (i + 1 == argc) return 2;
    const std::string value = argv[++i];
    if (name == "--fake")
      options.fake = value;
    else if (name == "--cupti")
      options.cupti = value;
    else if (name == "--kinds")
      options.kinds = value;
    else if (name == "--flush-ms")
      options.flush_ms = std::stoi(value);
    else if (name == "--nodes")
      options.nodes = std::stoi(value);
    else if (name == "--count")
      options.count = std::stoi(value);
    else if (name == "--seconds")
      options.seconds = std::stod(value);
    else
      return 2;
  }
  std::optional<CuptiAlone> cupti;
  const auto before_context = [&] {
    if (!options.cupti.empty()) cupti.emplace(options.cupti, options.kinds, options.flush_ms);
  };
  std::unique_ptr<Gpu> gpu;
  if (options.fake.empty())
    gpu = std::make_unique<NvidiaGpu>(before_context);
  else
    gpu = std::make_unique<TestGpu>(options.fake, before_context);
  if (options.what == "durations")
    Durations(*gpu);
  else if (options.what == "graph")
    Graph(*gpu, options);
  else if (options.what == "steps")
    Steps(*gpu, options);
  else if (options.what == "short")
    Short(*gpu, cupti ? &*cupti : nullptr, options);
  else
    return 2;
  return 0;
}

}  // namespace
}  // namespace gpu_kernels

int main(int argc, char** argv) { return gpu_kernels::Main(argc, argv); }
