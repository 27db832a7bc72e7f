// A step is as long, and holds the same, whether everything was recorded or a window with it: at any lead of the host.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "fixture.h"
#include "merge/timeline/assemble.h"
#include "merge/timeline/step_rows.h"

namespace lockstep::merge {
namespace {

using test::Merged;

struct Work {
  std::int64_t step, launch, begin, end;
  const char* name;
};

struct Job {
  std::vector<std::int64_t> host;  // Where steps begin on the host, and the last one ends.
  std::vector<Work> work;
};

enum class How { kKernels, kGraph, kStreams };

// The host is `lead` steps of its GPU ahead, or waits for it at the end of each step (0).
Job Simulated(double lead, How how, bool synchronised, unsigned seed) {
  constexpr int kSteps = 30, kKernels = 6;
  constexpr std::int64_t kKernelNs = 1000, kStepNs = kKernels * kKernelNs;
  std::mt19937 random(seed);
  Job job;
  std::int64_t now = 1'000'000, gpu = 0, side = 0;
  for (int step = 0; step < kSteps; ++step) {
    job.host.push_back(now);
    std::int64_t launch = now;
    for (int i = 0; i < kKernels; ++i) {
      if (how != How::kGraph || i < 2) launch += 20 + static_cast<std::int64_t>(random() % 20);
      const std::int64_t begin = std::max(gpu, launch + 5) + static_cast<std::int64_t>(random() % 50);
      gpu = begin + kKernelNs + static_cast<std::int64_t>(random() % 300);
      job.work.push_back({step, launch, begin, gpu, "gemm"});
      if (how == How::kStreams && i == 1) {
        const std::int64_t at = std::max(side, gpu);
        side = at + 1500;
        job.work.push_back({step, launch + 1, at, side, "ncclDevKernel_AllReduce"});
      }
    }
    now = launch + 30;
    now = synchronised ? std::max(now, gpu + 40 + static_cast<std::int64_t>(random() % 400))
                       : std::max(now, gpu - static_cast<std::int64_t>(lead * kStepNs));
  }
  job.host.push_back(now);
  return job;
}

// The job as recorded from step `first` on to the begin of step `end`.
void Record(const Job& job, std::size_t first, std::size_t end, Merged& m) {
  const std::int64_t on = job.host[first], off = job.host[end];
  m[0].t.windows.Append({.begin_ns = on,
                         .end_ns = off,
                         .first_step = static_cast<std::int64_t>(first),
                         .end_step = static_cast<std::int64_t>(end)});
  for (std::size_t i = first; i < end; ++i) m[0].Step(static_cast<std::int64_t>(i), job.host[i], job.host[i + 1]);
  const Work* next = nullptr;
  for (const Work& work : job.work) {
    if (work.launch >= on && work.launch < off) m[0].Kernel(work.name, work.begin, work.end, work.launch);
    if (work.launch >= off && (next == nullptr || work.launch < next->launch)) next = &work;
  }
  if (next != nullptr)
    m[0].Meta("window_next_kernel.0", std::to_string(next->launch) + " " + std::to_string(next->begin));
  m.Run();
}

TEST(GpuSteps, AWindowsStepsAreThoseOfTheWholeRun) {
  unsigned seed = 0;
  for (const bool synchronised : {false, true})
    for (const double lead : {0.0, 0.5, 3.0, 10.0})
      for (const How how : {How::kKernels, How::kGraph, How::kStreams}) {
        if (synchronised && lead > 0) continue;
        const Job job = Simulated(lead, how, synchronised, ++seed);
        Merged whole(1), window(1);
        Record(job, 0, 30, whole);
        Record(job, 10, 15, window);
        const auto &all = whole.passed[0].step_ranks, &some = window.passed[0].step_ranks;
        ASSERT_EQ(all.rows(), 30u);
        ASSERT_EQ(some.rows(), 5u);
        for (std::size_t i = 0; i < 5; ++i) {
          SCOPED_TRACE(testing::Message() << "lead " << lead << " way " << static_cast<int>(how) << " synchronised "
                                          << synchronised << " step " << 10 + i);
          const auto a = all.Get(10 + i), b = some.Get(i);
          EXPECT_EQ(a.index, b.index);
          EXPECT_EQ(a.begin_ns, b.begin_ns);
          EXPECT_EQ(a.end_ns, b.end_ns);
          EXPECT_EQ(a.compute_ns, b.compute_ns);
          EXPECT_EQ(a.exposed_unsplit_ns, b.exposed_unsplit_ns);
          EXPECT_EQ(a.overlap_ns, b.overlap_ns);
          EXPECT_EQ(a.idle_ns, b.idle_ns);
        }
      }
}

// Two windows: the first one's last step ends with the first kernel after it, not with the next window's.
TEST(GpuSteps, StepsOfWindowsWithPausesBetween) {
  const Job job = Simulated(3, How::kKernels, false, 99);
  Merged whole(1), windows(1);
  Record(job, 0, 30, whole);
  auto& rank = windows[0];
  for (const std::size_t first : {std::size_t{5}, std::size_t{20}}) {
    const std::int64_t on = job.host[first], off = job.host[first + 3];
    const auto at = std::to_string(rank.t.windows.rows());
    rank.t.windows.Append({.begin_ns = on,
                           .end_ns = off,
                           .first_step = static_cast<std::int64_t>(first),
                           .end_step = static_cast<std::int64_t>(first + 3)});
    for (std::size_t i = first; i < first + 3; ++i)
      rank.Step(static_cast<std::int64_t>(i), job.host[i], job.host[i + 1]);
    bool told = false;
    for (const Work& work : job.work) {
      if (work.launch >= on && work.launch < off) rank.Kernel(work.name, work.begin, work.end, work.launch);
      if (work.launch < off || told) continue;
      told = true;
      rank.Meta("window_next_kernel." + at, std::to_string(work.launch) + " " + std::to_string(work.begin));
    }
  }
  windows.Run();
  const auto& some = windows.passed[0].step_ranks;
  ASSERT_EQ(some.rows(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    const auto a = whole.passed[0].step_ranks.Get(static_cast<std::size_t>(some.index[i])), b = some.Get(i);
    EXPECT_EQ(a.begin_ns, b.begin_ns) << a.index;
    EXPECT_EQ(a.end_ns, b.end_ns) << a.index;
    EXPECT_EQ(a.compute_ns, b.compute_ns) << a.index;
    EXPECT_EQ(a.idle_ns, b.idle_ns) << a.index;
  }
}

struct Edges {
  const char* what;
  std::vector<Interval> kernels;  // By launch, begin and end in launched_ns.
  std::vector<std::int64_t> launched_ns;
  Interval copy{0, 0};  // Launched where it begins.
  bool window = false;
  Interval expected;
};

// One step, marked from 1,000 to 5,000 on the host.
TEST(GpuSteps, TheFirstBeginsAndTheLastEndsWhenHostAndGpuAreReady) {
  for (const Edges& edges : {
           Edges{"idle at both ends", {{3000, 4000}}, {2900}, {}, false, {1000, 5000}},
           Edges{"work of before runs", {{900, 1500}, {3000, 4000}}, {800, 2900}, {}, false, {3000, 5000}},
           Edges{"a copy of before runs", {{3000, 4000}}, {2900}, {900, 1500}, false, {3000, 5000}},
           Edges{"work of before is done", {{500, 1000}, {3000, 4000}}, {400, 2900}, {}, false, {1000, 5000}},
           Edges{"it ends after the host", {{3000, 6000}}, {2900}, {}, false, {1000, 6000}},
           Edges{"a copy ends after the host", {{3000, 4000}}, {2900}, {4900, 5500}, false, {1000, 5500}},
           Edges{"later work is no part", {{3000, 4000}, {7000, 9000}}, {2900, 5100}, {}, false, {1000, 5000}},
           Edges{"its first kernel begins before, by the clocks", {{990, 4000}}, {1100}, {}, false, {990, 5000}},
           Edges{"a capture window", {{3000, 4000}}, {2900}, {}, true, {3000, 4000}},
       }) {
    Merged m(1);
    m[0].Step(0, 1000, 5000);
    for (std::size_t i = 0; i < edges.kernels.size(); ++i)
      m[0].Kernel("gemm", edges.kernels[i].begin, edges.kernels[i].end, edges.launched_ns[i]);
    if (edges.copy.end > 0)
      m[0].t.copies.Append({.begin_ns = edges.copy.begin, .duration_ns = edges.copy.end - edges.copy.begin});
    if (edges.window) m[0].t.windows.Append({.begin_ns = 1000, .end_ns = 5000, .first_step = 0, .end_step = 1});
    m.Run();
    EXPECT_EQ(m.passed[0].steps[0].window, edges.expected)
        << edges.what << ": " << m.passed[0].steps[0].window.begin << " " << m.passed[0].steps[0].window.end;
  }
}

// Steps 0 and 1, a pause, and steps 5 and 6: each pair has ends of its own.
TEST(GpuSteps, APauseIsAnEnd) {
  Merged m(1);
  for (const std::int64_t step : {0, 1, 5, 6}) {
    m[0].Step(step, 1000 * step, 1000 * (step + 1));
    m[0].Kernel("gemm", 1000 * step + 400, 1000 * step + 700, 1000 * step + 100);
  }
  m.Run();
  std::vector<Interval> windows;
  for (const RankStep& step : m.passed[0].steps) windows.push_back(step.window);
  EXPECT_EQ(windows, (std::vector<Interval>{{0, 1400}, {1400, 2000}, {5000, 6400}, {6400, 7000}}));
}

// The last step marked by a profiler that stops at once: nothing was launched in it, and it has no length.
TEST(GpuSteps, OneInWhichNothingWasLaunchedIsNotComplete) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) {
    for (std::int64_t i = 0; i < 3; ++i) {
      m[r].Step(i, 10'000 * i, 10'000 * (i + 1));
      m[r].Kernel("gemm", 10'000 * i + 200, 10'000 * i + 9'000, 10'000 * i + 100);
    }
    m[r].Step(3, 30'000, 30'049);
  }
  m.Run();
  const schema::TlSteps table = JobStepTable(m.passed, m.clocks(), m.steps, merge::StepRankTable(m.passed));
  EXPECT_EQ(table.complete, (std::vector<std::uint8_t>{1, 1, 1, 0}));
  EXPECT_EQ(table.step_ns, (std::vector<std::int64_t>{10'200, 10'000, 9'800, -1}));
}

}  // namespace
}  // namespace lockstep::merge
