// Other profilers in the process, CUPTI handed over to them and taken back.

#include <cstdio>
#include <filesystem>

#include "tests/unit/runtime/cupti/source_fixture.h"

namespace lockstep::cupti {
namespace {

class CuptiTakeover : public CuptiSource {};

struct Sessions {
  long profiled = -1, ours = -1, strange = -1, clock = -1, registrations = -1;
  explicit Sessions(const Outcome& run) {
    for (const std::string& line : run.lines) {
      std::sscanf(line.c_str(), "profiled %ld ours %ld strange %ld clock %ld", &profiled, &ours, &strange, &clock);
      std::sscanf(line.c_str(), "registrations %ld", &registrations);
    }
  }
};

// Threads launch while a profiler comes and goes, sometimes before CUPTI is ours again.
TEST_F(CuptiTakeover, AProfilerThatComesAndGoes) {
  const Outcome run = Start({"contest", "12"});
  ASSERT_EQ(run.status, 0) << run.errors;
  ASSERT_EQ(run.lines.size(), 2u);
  long launched = 0;
  ASSERT_EQ(std::sscanf(run.lines[0].c_str(), "launched %ld seen 1 strange 0", &launched), 1) << run.lines[0];
  EXPECT_EQ(run.lines[1], "violations 0");
  const std::size_t ours = run.Count(RecordKind::kGpuKernel);
  EXPECT_GT(ours, 0u);
  EXPECT_LT(ours, static_cast<std::size_t>(launched));
  const auto losses = run.Losses();
  EXPECT_GE(losses.at("GpuCaptureTaken"), 1u);
  EXPECT_LE(losses.at("GpuCaptureTaken"), 12u);
  EXPECT_EQ(Process().cupti_state.load(), 1u);
}

// Another profiler (torch.profiler) comes twice, once detaching CUPTI at its end.
TEST_F(CuptiTakeover, AnotherProfilerGetsAllOfItAndWeTheRest) {
  const Outcome run = Start({"profiler", "3"});
  ASSERT_EQ(run.status, 0) << run.errors;
  // Its kernels are all its own, on CLOCK_REALTIME and with pthread's thread ids, and no buffer of ours came to it.
  EXPECT_EQ(run.lines,
            (std::vector<std::string>{"profiler kernels 6 strange 0 clock 0 thread 0 untimed 0",
                                      "profiler kernels 12 strange 0 clock 0 thread 0 untimed 0", "violations 0"}));
  // Before, between and after: 3 steps each.
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 18u);
  EXPECT_EQ(run.Losses(), (std::map<std::string, std::uint64_t>{{"GpuCaptureTaken", 2}}));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;
  for (const probe::TestRecord& record : run.records)
    if (record.kind == RecordKind::kLoss)
      gaps.emplace_back(record.As<LossRecord>().first_ticks, record.As<LossRecord>().last_ticks);
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_LT(gaps[0].first, gaps[0].second);
  EXPECT_LT(gaps[0].second, gaps[1].first);
  for (const probe::TestRecord& record : run.records)
    if (record.kind == RecordKind::kGpuKernel)
      for (const auto& [begin, end] : gaps) {
        const std::uint64_t at = record.As<GpuKernelRecord>().begin_ticks;
        EXPECT_FALSE(at > begin && at < end);
      }
  EXPECT_EQ(Process().cupti_state.load(), 1u);
}

// What is unfinished when CUPTI is handed over is lost to us and counted; the profiler has what it would have had
// without us, though CUPTI keeps buffers with unfinished work through any flush that is not forced.
TEST_F(CuptiTakeover, AProfilerThatComesWhileTheGpuIsBusy) {
  const Outcome run = Start({"handover", "10"});
  ASSERT_EQ(run.status, 0) << run.errors;
  EXPECT_EQ(run.lines,
            (std::vector<std::string>{"profiler kernels 1000 strange 0 clock 0 thread 0 untimed 0", "violations 0"}));
  auto losses = run.Losses();
  EXPECT_EQ(losses["GpuTimesMissing"], 10u);
  EXPECT_EQ(losses["GpuCaptureTaken"], 1u);
  EXPECT_EQ(losses.size(), 2u);
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 5u + 7);
  EXPECT_EQ(run.Count(RecordKind::kGpuApi, 1), 5u + 10 + 7);
}

// Session upon session on a GPU that is never idle, while the flusher does its work: each of the profiler's kernels
// reaches it once, with its times.
TEST_F(CuptiTakeover, SessionsInQuickSuccession) {
  const Outcome run = Start({"sessions", "20", "0"});
  ASSERT_EQ(run.status, 0) << run.errors;
  const Sessions seen(run);
  EXPECT_EQ(seen.profiled, 20 * 50);
  EXPECT_EQ(seen.strange, 0);
  EXPECT_EQ(run.lines.back(), "violations 0");
}

// Each registration of a timestamp callback after the first has CUPTI misplace kernels of every session.
TEST_F(CuptiTakeover, NoClockIsRegisteredButTheirs) {
  for (const char* clock : {"tsc", "", "boottime"}) {
    segment_.reset();
    SetUp();
    const Outcome run = Start({"sessions", "5", "1", clock});
    ASSERT_EQ(run.status, 0) << run.errors;
    const Sessions seen(run);
    EXPECT_EQ(seen.profiled, 5 * 50) << clock;
    EXPECT_EQ(seen.ours, 0) << clock;
    const std::string name = clock;
    // Theirs alone, if they have one: never ours.
    EXPECT_EQ(seen.registrations, name.empty() ? 0 : 1) << clock;
    // CUPTI's own clock is where it misplaces kernels to.
    EXPECT_EQ(seen.clock, 0) << clock;
    auto losses = run.Losses();
    // Between the sessions all are ours, and on our clock whatever CUPTI's is.
    std::map<std::string, std::size_t> names;
    std::uint64_t low = ~std::uint64_t{0}, high = 0;
    for (const probe::TestRecord& record : run.records) {
      if (record.kind != RecordKind::kGpuKernel) continue;
      names[run.Name(record, record.As<GpuKernelRecord>().name)] += 1;
      low = std::min(low, record.As<GpuKernelRecord>().begin_ticks);
      high = std::max(high, record.As<GpuKernelRecord>().end_ticks);
    }
    EXPECT_EQ(losses["GpuClockTaken"], 0u) << clock;
    EXPECT_LE(names["_Z4oursv"], 5u * 20) << clock;
    EXPECT_GE(names["_Z4oursv"] + losses["GpuClockTaken"], 5u * 20) << clock;
    EXPECT_EQ(names["_Z8profiledv"], 0u) << clock;
    EXPECT_GT(low, Process().begin_ticks) << clock;
    EXPECT_LT(high, Process().end_ticks.load()) << clock;
  }
}

// CUPTI is not taken back while it holds unfinished work of theirs, and what comes back unasked waits for them.
TEST_F(CuptiTakeover, AProfilerThatFetchesLate) {
  const Outcome run = Start({"late_fetch"});
  ASSERT_EQ(run.status, 0) << run.errors;
  EXPECT_EQ(run.lines,
            (std::vector<std::string>{"profiler kernels 21 strange 0 clock 0 thread 0 untimed 0", "violations 0"}));
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 7u);
  EXPECT_EQ(run.Losses(), (std::map<std::string, std::uint64_t>{{"GpuCaptureTaken", 1}}));
}

// A forced flush of theirs while CUPTI is ours, in its old form, tears nothing of ours out.
TEST_F(CuptiTakeover, AProfilerThatWasThereBeforeCuda) {
  const Outcome run = Start({"early"});
  ASSERT_EQ(run.status, 0) << run.errors;
  EXPECT_EQ(run.lines,
            (std::vector<std::string>{"profiler kernels 11 strange 0 clock 0 thread 0 untimed 0", "violations 0"}));
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 8u);
  EXPECT_EQ(run.Losses(), (std::map<std::string, std::uint64_t>{{"GpuCaptureTaken", 1}}));
}

// TEARDOWN_CUPTI=1 of Kineto: what CUPTI does not give back before cuptiFinalize is gone.
TEST_F(CuptiTakeover, CuptiIsDetachedBetweenSessions) {
  const Outcome run = Start({"teardown", "3"});
  ASSERT_EQ(run.status, 0) << run.errors;
  EXPECT_EQ(run.lines.back(), "violations 0");
  long kernels = 0, strange = -1;
  std::sscanf(run.lines[0].c_str(), "profiler kernels %ld strange %ld", &kernels, &strange);
  EXPECT_EQ(kernels, 3 * 50);
  EXPECT_EQ(strange, 0);
  auto losses = run.Losses();
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel) + losses["GpuClockTaken"], 3u * 40);
  EXPECT_GE(run.Count(RecordKind::kGpuKernel), 3u * 40 - 12);
  EXPECT_EQ(losses["GpuCaptureTaken"], 6u);
  EXPECT_EQ(losses.count("GpuTimesMissing"), 0u);
}

TEST_F(CuptiTakeover, AttributesAreOursAndTheirsInTurn) {
  const Outcome run = Start({"attributes"});
  ASSERT_EQ(run.status, 0) << run.errors;
  const std::string ours = "ours size 8388608 limit 32 threads 1 zeroed 1";
  const std::vector<std::string> expected = {
      ours,
      "told 77",
      ours,
      "theirs size 3200000 limit 77 threads " +
          std::string(run.lines[3].find("threads 1") != std::string::npos ? "1" : "0") + " zeroed 0",
      "theirs size 3200000 limit 99 threads 0 zeroed 0",
      ours,
      "theirs size 3200000 limit 99 threads 0 zeroed 0",
      "violations 0"};
  EXPECT_EQ(run.lines, expected);
}

// The agent is gone, so nothing is recorded any more; a profiler that comes then finds CUPTI as without us.
TEST_F(CuptiTakeover, AProfilerAfterTheAgentsDeath) {
  Outcome run;
  {
    probe::ProbeChild child(segment_->path(), {"orphan"}, Environment(), kJob);
    EXPECT_EQ(child.Line(), "ready");
    segment_->header().agent_gone.store(1);
    EXPECT_EQ(child.Line(), "profiler kernels 50 strange 0 clock 0 thread 0 untimed 0");
    EXPECT_EQ(child.Line(), "violations 0");
    EXPECT_EQ(child.Wait(), 0);
  }
}

TEST_F(CuptiTakeover, SubscribersBesideUsAreSaid) {
  const Outcome run = Start({"subscriber", "2"}, {"FAKE_CUPTI_VERSION=130200"});
  EXPECT_EQ(run.lines, (std::vector<std::string>{"subscribed 0", "enabled 0", "violations 0"}));
  EXPECT_EQ(std::count(run.errors.begin(), run.errors.end(), '\n'), 1) << run.errors;
  EXPECT_NE(run.errors.find("several subscribers"), std::string::npos) << run.errors;
  EXPECT_EQ(run.Losses().at("GpuCaptureShared"), 1u);
}

// From 13.3 on CUPTI refuses whoever comes second with the other interface: that one is named.
TEST_F(CuptiTakeover, ASubscriberThatCuptiRefusesIsNamed) {
  const Outcome run = Start({"subscriber", "2"}, {"FAKE_CUPTI_VERSION=130500"});
  EXPECT_EQ(run.lines, (std::vector<std::string>{"subscribed 0", "enabled 14", "violations 0"}));
  EXPECT_EQ(std::count(run.errors.begin(), run.errors.end(), '\n'), 1) << run.errors;
  EXPECT_NE(run.errors.find("\"monitor\" gets no GPU activity"), std::string::npos) << run.errors;
  EXPECT_TRUE(run.Losses().empty());
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 4u) << "ours go on";
}

// One that finds CUPTI by dlsym (Triton's Proton, JAX) gets what it would get without us: nanoseconds. Nothing tells us
// that it has the records, but that none of ours comes.
TEST_F(CuptiTakeover, AProfilerThatFindsCuptiItself) {
  const std::string driver = std::string("FAKE_CUDA=") + LOCKSTEP_BUILD_DIR "/tests/fakes/libcuda.so.1";
  const Outcome bare = Start({"stranger", "30", "0"}, {driver}, kJob, false);
  ASSERT_EQ(bare.lines, (std::vector<std::string>{"stranger kernels 20 of 200 us", "violations 0"}));
  segment_.reset();
  SetUp();
  const Outcome brief = Start({"stranger", "30", "0"}, {driver});
  EXPECT_EQ(brief.status, 0) << brief.errors;
  EXPECT_EQ(brief.lines, bare.lines);
  segment_.reset();
  SetUp();
  const Outcome run = Start({"stranger", "3000", "3500"}, {driver});
  EXPECT_EQ(run.lines, bare.lines);
  EXPECT_EQ(run.Losses()["GpuCaptureTaken"], 1u);
  EXPECT_NE(run.errors.find("another profiler has taken CUPTI's records"), std::string::npos) << run.errors;
  EXPECT_EQ(Process().cupti_state.load(), 3u);
}

// CUPTI records no nodes of graphs after it has recorded whole ones, and torch.profiler would miss them.
TEST_F(CuptiTakeover, WholeGraphsAreNotUsedWherePyTorchIs) {
  const std::string torch = testing::TempDir() + "/libtorch_cpu.so";
  std::filesystem::copy_file(LOCKSTEP_BUILD_DIR "/tests/fakes/libcuda.so.1", torch,
                             std::filesystem::copy_options::overwrite_existing);
  for (const bool with_torch : {false, true}) {
    segment_.reset();
    SetUp();
    segment_->header().gpu_options = kGpuGraphsWhole;
    const Outcome run = Start({"graph_profiler", "4"}, {with_torch ? "FAKE_CUDA=" + torch : "NONE=1"});
    EXPECT_EQ(run.lines[0].rfind(with_torch ? "profiler kernels 8 " : "profiler kernels 0 ", 0), 0u) << run.lines[0];
    EXPECT_EQ(run.errors.find("recorded node by node") != std::string::npos, with_torch) << run.errors;
    EXPECT_EQ(run.Count(RecordKind::kGpuKernel, kGpuWholeGraph), with_torch ? 0u : 8u);
  }
}

// Before 13.1 Update 1 graphs' kernels name wrong launches after another profiler's session.
TEST_F(CuptiTakeover, LaunchesOfGraphsThatCuptiGetsWrongAreNotUsed) {
  for (const bool mended : {false, true}) {
    segment_.reset();
    SetUp();
    const Outcome run =
        Start({"graph_profiler", "4"}, {mended ? "FAKE_CUPTI_VERSION=130101" : "FAKE_CUPTI_VERSION=130001"});
    EXPECT_EQ(run.lines[0].rfind("profiler kernels 8 ", 0), 0u) << run.lines[0];
    std::size_t linked = 0, kernels = 0;
    for (const probe::TestRecord& record : run.records) {
      if (record.kind != RecordKind::kGpuKernel) continue;
      kernels += 1;
      linked += record.As<GpuKernelRecord>().correlation != 0;
    }
    EXPECT_EQ(kernels, 16u);
    EXPECT_EQ(linked, mended ? 16u : 8u);
    EXPECT_EQ(run.Losses()["GpuLaunchUnknown"], mended ? 0u : 8u);
  }
}

// CUDA 13.0 itself: no flush but the last, no kind disabled, and one line says so.
TEST_F(CuptiTakeover, WhatCanCrashIn13_0IsNotCalled) {
  const Outcome run = Start({"steps", "3000"}, {"FAKE_CUPTI_VERSION=130000"});
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_EQ(run.lines.back(), "violations 0");
  EXPECT_EQ(std::count(run.errors.begin(), run.errors.end(), '\n'), 1) << run.errors;
  EXPECT_NE(run.errors.find("CUDA 13.0 Update 1"), std::string::npos) << run.errors;
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 6000u);
}

}  // namespace
}  // namespace lockstep::cupti
