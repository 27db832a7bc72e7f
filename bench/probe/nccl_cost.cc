// What the NCCL source costs the application, beside the floor of the same run.
//
//   nccl_cost [SECONDS_PER_ROW]
//
// The program starts itself with the libraries preloaded and drains the child's rings, as
// probe_cost does. In the child a plugin host calls the profiler's begin and end of each
// kind of event; the floor is two TSC reads and a 32-byte store. Target: 100 ns per
// callback. Interposition is measured between ncclAllReduce, which is ours, and
// pncclAllReduce, which is not, of a libnccl that returns at once.

#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/event_clock.h"
#include "tests/fakes/nccl_host/fake_nccl.h"
#include "tests/fakes/nccl_host/plugin_host.h"
#include "tests/unit/runtime/probe/test_segment.h"

extern "C" int pncclAllReduce(const void*, void*, size_t, int type, int op, ncclComm_t, cudaStream_t);

namespace {

using namespace lockstep;

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// ns per round; the median over short stretches.
template <typename Body>
double Measure(double seconds, Body&& body) {
  std::vector<double> samples;
  const double until = Now() + seconds * 1e9;
  do {
    const double begin = Now();
    for (int i = 0; i < 1000; ++i) body();
    samples.push_back((Now() - begin) / 1000);
  } while (Now() < until);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

struct alignas(32) FloorRecord {
  std::uint64_t begin, end, name, depth;
};

fake::prof::Descriptor EventOf(std::uint64_t type) {
  fake::prof::Descriptor event{};
  event.type = type;
  if (type == fake::prof::kCollApi) {
    event.coll_api.function = "AllReduce";
    event.coll_api.datatype = "ncclFloat32";
    event.coll_api.count = 1 << 20;
  } else if (type == fake::prof::kColl) {
    event.coll.function = "AllReduce";
    event.coll.datatype = "ncclFloat32";
    event.coll.count = 1 << 20;
    event.coll.algorithm = "RING";
    event.coll.protocol = "SIMPLE";
  }
  return event;
}

int Child(double seconds) {
  fake::PluginHost host(5);
  void* context = host.Init(1, "bench", 1, 8, 0);
  if (context == nullptr) return 1;
  std::vector<FloorRecord> ring(1 << 15);
  std::size_t at = 0;
  const auto floor = [&] {
    FloorRecord& record = ring[at++ & (ring.size() - 1)];
    record.begin = ReadTsc();
    asm volatile("" : : : "memory");
    record.name = 1;
    record.end = ReadTsc();
    asm volatile("" : : : "memory");
  };
  const auto pair = [&](std::uint64_t type) {
    auto event = EventOf(type);
    return [&host, context, event]() mutable {
      void* handle = nullptr;
      host.Start(context, &handle, event);
      host.Stop(handle);
    };
  };
  auto api = pair(fake::prof::kCollApi), coll = pair(fake::prof::kColl), launch = pair(fake::prof::kKernelLaunch);
  ncclComm_t comm = nullptr;
  ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0);
  float data[4] = {};
  const auto ours = [&] { ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, comm, nullptr); };
  const auto bare = [&] { pncclAllReduce(data, data, 4, ncclFloat32, ncclSum, comm, nullptr); };
  std::vector<double> rows[6];
  for (int i = 0; i < 10; ++i) {  // In turns, so that all see the same machine.
    rows[0].push_back(Measure(seconds / 10, floor));
    rows[1].push_back(Measure(seconds / 10, api));
    rows[2].push_back(Measure(seconds / 10, coll));
    rows[3].push_back(Measure(seconds / 10, launch));
    rows[4].push_back(Measure(seconds / 10, ours));
    rows[5].push_back(Measure(seconds / 10, bare));
  }
  for (std::vector<double>& row : rows) {
    std::sort(row.begin(), row.end());
    std::printf("%.2f ", row[5]);
  }
  std::printf("\n");
  return 0;
}

std::string Directory() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

// The child's six figures: floor; begin and end of CollApi, Coll, KernelLaunch; the call interposed and not.
bool Run(const std::string& seconds, probe::TestSegment& segment, double (&rows)[6]) {
  int out[2];
  if (pipe(out) != 0) return false;
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    const std::string gpu = Directory() + "/liblockstep-gpu.so", self = Directory() + "/nccl_cost";
    setenv("LOCKSTEP_SEGMENT", segment.path().c_str(), 1);
    setenv("LD_PRELOAD", (Directory() + "/liblockstep.so " + gpu).c_str(), 1);
    setenv("NCCL_PROFILER_PLUGIN", gpu.c_str(), 1);
    execl(self.c_str(), self.c_str(), "--child", seconds.c_str(), nullptr);
    _exit(127);
  }
  close(out[1]);
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  std::string text;
  for (bool open = true; open; usleep(1000)) {
    char buffer[512];
    for (ssize_t n; (n = read(out[0], buffer, sizeof buffer)) >= 0;) {
      if (n == 0) {
        open = false;
        break;
      }
      text.append(buffer, static_cast<std::size_t>(n));
    }
    for (std::uint32_t i = 0; i < segment.header().rings_used; ++i) {
      const std::uint64_t offset = segment.view().rings()[i].offset;
      if (offset == 0) continue;
      RingHeader& ring = segment.view().ring(offset);
      ring.tail.store(ring.head.load(std::memory_order_acquire), std::memory_order_release);
    }
  }
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return status == 0 && std::sscanf(text.c_str(), "%lf %lf %lf %lf %lf %lf", &rows[0], &rows[1], &rows[2], &rows[3],
                                    &rows[4], &rows[5]) == 6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--child") == 0) return Child(std::atof(argv[2]));
  const std::string seconds = argc > 1 ? argv[1] : "2";
  probe::TestSegmentOptions options;
  options.main_ring_slots = 1 << 18;
  probe::TestSegment segment(options);
  double rows[6] = {};
  if (!Run(seconds, segment, rows)) {
    std::fprintf(stderr, "nccl_cost: the measured program failed\n");
    return 1;
  }
  std::printf("floor: 2 TSC reads + 32-byte store             %8.2f ns\n", rows[0]);
  const char* names[] = {"NCCL collective API event, begin and end", "NCCL collective event, begin and end",
                         "NCCL kernel launch event, begin and end"};
  for (int i = 0; i < 3; ++i)
    std::printf("%-46s %8.2f ns   %.2f per callback (target 100)\n", names[i], rows[i + 1], rows[i + 1] / 2);
  std::printf("ncclAllReduce interposed                       %8.2f ns   adds %.2f\n", rows[4], rows[4] - rows[5]);
  probe::TestSegmentOptions off = options;
  off.recording = false;
  probe::TestSegment stopped(off);
  if (Run(seconds, stopped, rows))
    std::printf("recording off: event, begin and end            %8.2f ns   the call adds %.2f\n", rows[2],
                rows[4] - rows[5]);
  return 0;
}
