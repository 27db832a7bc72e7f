// What the probe costs the application, beside the floor of the same run.
//
//   probe_cost [SECONDS_PER_ROW]
//
// The program starts itself as a child of its own, with and without the probe
// preloaded, and drains the child's rings as an agent would (every 1 ms). The floor
// is two TSC reads and a 32-byte store into a ring: what no recorder of ranges can
// go below. Instructions per pair are counted by valgrind's callgrind where it is
// installed: they do not depend on the load of the machine.

#include <fcntl.h>
#include <mpi.h>
#include <spawn.h>
#include <sys/mman.h>
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

#include "core/ring_layout.h"
#include "runtime/lockstep.h"
#include "tests/fakes/nvtx_host.h"
#include "tests/unit/runtime/probe/test_segment.h"

namespace {

using namespace lockstep;

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct alignas(32) FloorRecord {
  std::uint64_t begin, end, name, depth;
};

// ns per round: the median over many short stretches, so that a stretch in which
// the machine did something else does not count.
template <typename Body>
double Measure(double seconds, int rounds, Body&& body) {
  std::vector<double> samples;
  const double until = Now() + seconds * 1e9;
  do {
    const double begin = Now();
    for (int i = 0; i < rounds; ++i) body();
    samples.push_back((Now() - begin) / rounds);
  } while (Now() < until);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

// Interleaved stretches, so that floor and range see the same machine.
template <typename Pair>
void AgainstFloor(double seconds, Pair&& pair) {
  std::vector<FloorRecord> ring(1 << 15);
  std::size_t at = 0;
  const auto floor = [&] {
    FloorRecord& record = ring[at++ & (ring.size() - 1)];
    record.begin = ReadTsc();
    asm volatile("" : : : "memory");
    record.name = 1;
    record.depth = 0;
    record.end = ReadTsc();
    asm volatile("" : : : "memory");
  };
  std::vector<double> floors, pairs;
  for (int i = 0; i < 10; ++i) {
    floors.push_back(Measure(seconds / 10, 1000, floor));
    pairs.push_back(Measure(seconds / 10, 1000, pair));
  }
  std::sort(floors.begin(), floors.end());
  std::sort(pairs.begin(), pairs.end());
  std::printf("%.2f %.2f\n", floors[5], pairs[5]);
}

void Ranges(double seconds) {
  AgainstFloor(seconds, [] {
    lockstep_range_push("forward");
    lockstep_range_pop();
  });
}

// The three ways to name an NVTX range.
void NvtxLiteral(double seconds) {
  AgainstFloor(seconds, [] {
    nvtxRangePushA("forward");
    nvtxRangePop();
  });
}
void NvtxRegistered(double seconds) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("bench");
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtxDomainRegisterStringA(domain, "forward");
  AgainstFloor(seconds, [&] {
    nvtxDomainRangePushEx(domain, &event);
    nvtxDomainRangePop(domain);
  });
}
void NvtxDynamic(double seconds) {
  const std::string name = "a name of 36 characters, on the heap";
  AgainstFloor(seconds, [&] {
    nvtxRangePushA(name.c_str());
    nvtxRangePop();
  });
}

void Allreduce(double seconds) {
  double in = 1, out = 0;
  std::printf("%.2f\n",
              Measure(seconds, 1000, [&] { MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF); }));
}

void Iprobe(double seconds) {
  int flag = 0;
  std::printf("%.2f\n", Measure(seconds, 1000, [&] {
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
              }));
}

int Child(const std::string& what, double seconds) {
  if (what == "ranges") {
    Ranges(seconds);
  } else if (what == "nvtx-literal") {
    NvtxLiteral(seconds);
  } else if (what == "nvtx-registered") {
    NvtxRegistered(seconds);
  } else if (what == "nvtx-dynamic") {
    NvtxDynamic(seconds);
  } else if (what == "loop") {  // For callgrind.
    const int n = static_cast<int>(seconds);
    lockstep_range_push("forward");
    lockstep_range_pop();
    for (int i = 0; i < n; ++i) {
      lockstep_range_push("forward");
      lockstep_range_pop();
    }
  } else {
    MPI_Init(nullptr, nullptr);
    if (what == "allreduce") Allreduce(seconds);
    if (what == "iprobe") Iprobe(seconds);
    MPI_Finalize();
  }
  return 0;
}

std::string Directory() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

// Output of the child that measures `what`; `segment` null: without the probe.
std::string RunChild(const std::string& what, const std::string& argument, probe::TestSegment* segment,
                     const std::vector<std::string>& prefix = {}) {
  int out[2];
  if (pipe(out) != 0) return "";
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    close(out[0]);
    close(out[1]);
    if (segment != nullptr) {
      setenv("LOCKSTEP_SEGMENT", segment->path().c_str(), 1);
      setenv("LD_PRELOAD", (Directory() + "/liblockstep.so " + Directory() + "/liblockstep-mpi.so").c_str(), 1);
      setenv("NVTX_INJECTION64_PATH", (Directory() + "/liblockstep.so").c_str(), 1);
    }
    const std::string self = Directory() + "/probe_cost";
    std::vector<std::string> words = prefix;
    words.insert(words.end(), {self, "--child", what, argument});
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(strdup(word.c_str()));
    argv.push_back(nullptr);
    if (!prefix.empty()) {
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, 2);
    }
    execvp(argv[0], argv.data());
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
    if (segment == nullptr) continue;
    for (std::uint32_t i = 0; i < segment->header().rings_used; ++i) {
      const std::uint64_t offset = segment->view().rings()[i].offset;
      if (offset == 0) continue;
      RingHeader& ring = segment->view().ring(offset);
      ring.tail.store(ring.head.load(std::memory_order_acquire), std::memory_order_release);
    }
  }
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return status == 0 ? text : "";
}

std::uint64_t Dropped(probe::TestSegment& segment) {
  std::uint64_t dropped = 0;
  for (std::uint32_t i = 0; i < segment.header().rings_used; ++i)
    if (const std::uint64_t offset = segment.view().rings()[i].offset; offset != 0)
      dropped += segment.view().ring(offset).total_dropped;
  return dropped;
}

probe::TestSegmentOptions Options(bool recording = true) {
  probe::TestSegmentOptions options;
  options.recording = recording;
  options.main_ring_slots = 1 << 17;
  return options;
}

// Pages are there before they are needed, as the agent sees to.
void Populate(probe::TestSegment& segment) {
  madvise(segment.view().base, segment.view().bytes, 23);  // MADV_POPULATE_WRITE, Linux 5.14.
}

// Instructions of `pairs` push+pop, library and call included; 0 without valgrind.
double CountInstructions(probe::TestSegment* segment, int pairs) {
  const std::string file = "/tmp/lockstep-callgrind-" + std::to_string(getpid());
  RunChild("loop", std::to_string(pairs), segment, {"valgrind", "--tool=callgrind", "--callgrind-out-file=" + file});
  double instructions = 0;
  if (FILE* in = std::fopen(file.c_str(), "r"); in != nullptr) {
    char line[4096];
    while (std::fgets(line, sizeof line, in) != nullptr)
      if (std::strncmp(line, "totals: ", 8) == 0 || std::strncmp(line, "summary: ", 9) == 0)
        instructions = std::strtod(std::strchr(line, ' '), nullptr);
    std::fclose(in);
    unlink(file.c_str());
  }
  return instructions;
}

double InstructionsPerPair(bool with_probe) {
  constexpr int kPairs = 20000;
  probe::TestSegment one(Options()), many(Options());
  const double few = CountInstructions(with_probe ? &one : nullptr, 0);
  const double all = CountInstructions(with_probe ? &many : nullptr, kPairs);
  return few > 0 && all > few ? (all - few) / kPairs : 0;
}

// us from spawning /bin/true to having its end, with these libraries preloaded.
double StartUp(const std::string& preload, const std::string& segment) {
  std::vector<std::string> words{"PATH=/usr/bin:/bin"};
  if (!preload.empty()) words.push_back("LD_PRELOAD=" + preload);
  if (!segment.empty()) words.push_back("LOCKSTEP_SEGMENT=" + segment);
  std::vector<char*> environment;
  for (std::string& word : words) environment.push_back(word.data());
  environment.push_back(nullptr);
  char program[] = "/bin/true";
  char* arguments[] = {program, nullptr};
  pid_t pid = 0;
  const double begin = Now();
  if (posix_spawn(&pid, program, nullptr, nullptr, arguments, environment.data()) != 0) return 0;
  waitpid(pid, nullptr, 0);
  return (Now() - begin) / 1000;
}

// What each process of a job pays, whether it is of interest or not (shells, helpers). The
// variants take turns; medians, and medians of the differences to the process without any.
void StartUpRows(double seconds) {
  probe::TestSegment segment(Options());
  const std::string probe = Directory() + "/liblockstep.so", both = probe + ":" + Directory() + "/liblockstep-mpi.so",
                    all = both + ":" + Directory() + "/liblockstep-gpu.so";
  struct Variant {
    const char* name;
    std::string preload, segment;
    std::vector<double> us, more;
  };
  std::vector<Variant> variants{{"a process without any of it", "", "", {}, {}},
                                {"  with liblockstep.so, no run", probe, "", {}, {}},
                                {"  with liblockstep.so in a run", probe, segment.path(), {}, {}},
                                {"  and the MPI wrappers, no run", both, "", {}, {}},
                                {"  and the MPI wrappers in a run", both, segment.path(), {}, {}},
                                {"  and the GPU sources in a run", all, segment.path(), {}, {}}};
  const double until = Now() + seconds * 1e9;
  for (int round = 0; round < 20 || Now() < until; ++round)
    for (Variant& variant : variants) {
      variant.us.push_back(StartUp(variant.preload, variant.segment));
      variant.more.push_back(variant.us.back() - variants[0].us.back());
    }
  const auto median = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  for (Variant& variant : variants) {
    std::printf("%-46s %8.0f us", variant.name, median(variant.us));
    if (&variant != &variants[0]) std::printf("   adds %.0f us", median(variant.more));
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--child") == 0) return Child(argv[2], std::atof(argv[3]));
  const std::string seconds = argc > 1 ? argv[1] : "2";

  double floor = 0, pair = 0, idle_floor = 0, idle = 0, off = 0;
  probe::TestSegment recording(Options()), stopped(Options(false));
  Populate(recording);
  std::sscanf(RunChild("ranges", seconds, &recording).c_str(), "%lf %lf", &floor, &pair);
  std::sscanf(RunChild("ranges", seconds, nullptr).c_str(), "%lf %lf", &idle_floor, &idle);
  std::sscanf(RunChild("ranges", seconds, &stopped).c_str(), "%*f %lf", &off);
  std::printf("floor: 2 TSC reads + 32-byte store             %8.2f ns\n", floor);
  std::printf("range push+pop recorded                        %8.2f ns   %.2f x floor (target 1.3), %llu dropped\n",
              pair, pair / floor, static_cast<unsigned long long>(Dropped(recording)));
  std::printf("range push+pop, recording off                  %8.2f ns   %.2f per call (target 2)\n", off, off / 2);
  std::printf("range push+pop, not under Lockstep             %8.2f ns   %.2f per call (target 2)\n", idle, idle / 2);
  const double bare = InstructionsPerPair(false), traced = InstructionsPerPair(true);
  if (traced > 0) {
    std::printf(
        "instructions per push+pop                      %8.1f      %.1f of them the caller's loop without the probe"
        " (target 45)\n",
        traced, bare);
  } else {
    std::printf("instructions per push+pop                      not measured: valgrind is not installed\n");
  }

  for (const auto& [what, name] : {std::pair{"nvtx-literal", "NVTX push+pop, literal name"},
                                   std::pair{"nvtx-registered", "NVTX push+pop, registered name, own domain"},
                                   std::pair{"nvtx-dynamic", "NVTX push+pop, name of 36 characters"}}) {
    probe::TestSegment segment(Options());
    Populate(segment);
    double nvtx_floor = 0, nvtx = 0;
    std::sscanf(RunChild(what, seconds, &segment).c_str(), "%lf %lf", &nvtx_floor, &nvtx);
    std::printf("%-46s %8.2f ns   %.2f x floor (target 1.8), %llu dropped\n", name, nvtx, nvtx / nvtx_floor,
                static_cast<unsigned long long>(Dropped(segment)));
  }

  struct Row {
    const char *what, *name;
  };
  for (const Row& row :
       {Row{"allreduce", "8-byte MPI_Allreduce on MPI_COMM_SELF"}, Row{"iprobe", "MPI_Iprobe, nothing there"}}) {
    // Bare and wrapped take turns; the median of the differences.
    std::vector<double> bares, deltas;
    std::uint64_t dropped = 0;
    for (int i = 0; i < 5; ++i) {
      probe::TestSegment segment(Options());
      Populate(segment);
      const double without =
          std::atof(RunChild(row.what, std::to_string(std::atof(seconds.c_str()) / 5), nullptr).c_str());
      const double with =
          std::atof(RunChild(row.what, std::to_string(std::atof(seconds.c_str()) / 5), &segment).c_str());
      bares.push_back(without);
      deltas.push_back(with - without);
      dropped += Dropped(segment);
    }
    std::sort(bares.begin(), bares.end());
    std::sort(deltas.begin(), deltas.end());
    std::printf("%-46s %8.2f ns   wrapper adds %.2f ns (target 35), %llu dropped\n", row.name, bares[2], deltas[2],
                static_cast<unsigned long long>(dropped));
  }
  StartUpRows(std::atof(seconds.c_str()));
  return 0;
}
