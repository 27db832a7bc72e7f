// merge + analyze on synthetic rank files, without replay (a pass over what there
// is) and with it (some steps played again, many times): events per second and core,
// peak memory, and both beside a floor of the same run: reading and inflating every
// column of the same files.
//
//   merge_bench [--dir DIR] [--quick] [--shape RANKSxEVENTS] [--jobs N]

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "make_run/run_directory.h"
#include "merge/merge.h"
#include "trace/file/table_file.h"

namespace {

using namespace lockstep;

struct Shape {
  int ranks;
  std::uint64_t events;  // Wanted per rank, roughly.
};

// One pass of the body is ten operations of one range, call, collective and two CPU readings each.
constexpr std::uint64_t kRowsPerStep = 51;
std::string Text(const Shape& shape) {
  return fmt::format(
      "ranks {}\nsteps {}\nwarmup 2\nseed 5\njitter 1%\nnetwork alpha=5us bandwidth=8GB/s skew=1us\n"
      "step\n  repeat 10\n    compute 40us name=layer\n    allreduce 64KiB\n  end\nend\n",
      shape.ranks, std::max<std::uint64_t>(shape.events / kRowsPerStep, 3));
}

struct Cost {
  bool ok = false;
  double wall_s = 0, cpu_s = 0;
  double peak_mib = 0;
  std::uint64_t events = 0;
};

// In a process of its own, so that peak memory is this work's alone.
Cost Measure(const std::function<std::uint64_t()>& work) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {};
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t events = work();
    const bool told = write(pipe_ends[1], &events, sizeof(events)) == sizeof(events);
    _exit(told && events > 0 ? 0 : 1);
  }
  Cost cost;
  int status = 0;
  rusage usage{};
  cost.ok = wait4(child, &status, 0, &usage) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
            read(pipe_ends[0], &cost.events, sizeof(cost.events)) == sizeof(cost.events);
  cost.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  cost.cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  cost.peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return cost;
}

std::uint64_t EventRows(const schema::RankTables& t) {
  return t.mpi_calls.rows() + t.collectives.rows() + t.p2p.rows() + t.ranges.rows() + t.kernels.rows() +
         t.copies.rows() + t.sync.rows() + t.api.rows() + t.gpu_memory.rows() + t.steps.rows() + t.cpu_samples.rows();
}

std::uint64_t ReadAll(const std::string& run) {
  std::uint64_t events = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/ranks")) {
    const auto contents = trace::ReadRankFile(entry.path().string());
    if (!contents.ok()) return 0;
    events += EventRows(contents.value().tables);
  }
  return events;
}

enum class Upto { kMerge, kAnalyze, kReplay };

std::uint64_t MergeAndAnalyze(const std::string& run, unsigned jobs, Upto upto) {
  merge::MergeOptions options;
  options.run_dir = run;
  options.jobs = jobs;
  const auto timeline = merge::MergeRun(options);
  if (!timeline.ok()) {
    fmt::print(stderr, "error: {}\n  {}\n", timeline.error().what, timeline.error().where);
    return 0;
  }
  if (upto != Upto::kMerge) {
    analysis::AnalyzeOptions analyze_options;
    analyze_options.jobs = jobs;
    analyze_options.replay = upto == Upto::kReplay;
    const auto analysis = analysis::Analyze(timeline.value(), analyze_options);
    if (!analysis.ok()) {
      fmt::print(stderr, "error: {}\n  {}\n", analysis.error().what, analysis.error().where);
      return 0;
    }
  }
  std::uint64_t events = 0;
  for (const std::uint64_t of_rank : timeline.value().tables.ranks.events) events += of_rank;
  return std::max<std::uint64_t>(events, 1);
}

std::uint64_t Bytes(const std::string& run) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/ranks")) bytes += entry.file_size();
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::string dir;
  unsigned jobs = 0;
  std::vector<Shape> shapes = {{8, 250'000}, {8, 1'000'000}, {64, 50'000}, {64, 200'000}};
  Shape one{};
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--quick"))
      shapes = {{4, 50'000}, {16, 20'000}};
    else if (!std::strcmp(argv[i], "--shape") && i + 1 < argc &&
             std::sscanf(argv[i + 1], "%dx%" SCNu64, &one.ranks, &one.events) == 2) {
      shapes = {one};
      ++i;
    } else if (!std::strcmp(argv[i], "--dir") && i + 1 < argc)
      dir = argv[++i];
    else if (!std::strcmp(argv[i], "--jobs") && i + 1 < argc)
      jobs = static_cast<unsigned>(std::atoi(argv[++i]));
    else {
      fmt::print(stderr, "usage: merge_bench [--dir DIR] [--quick] [--shape RANKSxEVENTS] [--jobs N]\n");
      return 2;
    }
  }
  const bool own_dir = dir.empty();
  if (own_dir)
    dir = (std::filesystem::temp_directory_path() / fmt::format("lockstep-merge-bench-{}", getpid())).string();
  fmt::print(
      "merge + analyze of synthetic rank files; floor: reading and inflating every column, one thread\n"
      "{:>16} {:>9} {:>8}   {:^38}   {:^26}   {:^16}\n"
      "{:>16} {:>9} {:>8}   {:>8} {:>6} {:>6} {:>6} {:>8}   {:>8} {:>8} {:>8}   {:>8} {:>7}\n",
      "", "", "", "without replay (--no-replay)", "with replay", "floor", "ranks x events", "M events", "MiB",
      "M/s core", "x floor", "s", "merge", "peak MiB", "M/s core", "s", "peak MiB", "M/s core", "MiB");
  int failed = 0;
  for (const Shape& shape : shapes) {
    const std::string run = fmt::format("{}/{}x{}", dir, shape.ranks, shape.events);
    const Status made = make_run::MakeRun(Text(shape), "merge_bench", run, {});
    if (!made.ok()) {
      fmt::print(stderr, "error: {}\n  {}\n", made.error().what, made.error().where);
      return 1;
    }
    const Cost floor = Measure([&] { return ReadAll(run); });  // Also brings the files into the page cache.
    const Cost merge = Measure([&] { return MergeAndAnalyze(run, jobs, Upto::kMerge); });
    const Cost pass = Measure([&] { return MergeAndAnalyze(run, jobs, Upto::kAnalyze); });
    const Cost replay = Measure([&] { return MergeAndAnalyze(run, jobs, Upto::kReplay); });
    if (!floor.ok || !merge.ok || !pass.ok || !replay.ok) {
      fmt::print("{:>10} x {:>6}k failed\n", shape.ranks, shape.events / 1000);
      failed = 1;
      continue;
    }
    const double events = static_cast<double>(floor.events) * 1e-6;
    fmt::print(
        "{:>8} x {:>4}k {:>9.1f} {:>8.0f}   {:>8.2f} {:>6.2f} {:>6.2f} {:>6.2f} {:>8.0f}   {:>8.2f} {:>8.2f} {:>8.0f}"
        "   {:>8.2f} {:>7.0f}\n",
        shape.ranks, shape.events / 1000, events, static_cast<double>(Bytes(run)) / 1048576.0, events / pass.cpu_s,
        pass.cpu_s / floor.cpu_s, pass.wall_s, merge.wall_s, pass.peak_mib, events / replay.cpu_s, replay.wall_s,
        replay.peak_mib, events / floor.cpu_s, floor.peak_mib);
    std::fflush(stdout);
    if (own_dir) std::filesystem::remove_all(run);
  }
  if (own_dir) std::filesystem::remove_all(dir);
  return failed;
}
