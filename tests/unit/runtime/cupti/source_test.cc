// The CUPTI source in a process of its own: a program on the tests' GPU (tests/fakes/cupti), and programs on a machine
// without a driver.

#include <dirent.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "tests/unit/runtime/cupti/source_fixture.h"

namespace lockstep::cupti {
namespace {

void ExpectSteps(const Outcome& run, std::size_t steps) {
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel, 0), 2 * steps);
  EXPECT_EQ(run.Count(RecordKind::kGpuCopy), 2 * steps);
  EXPECT_EQ(run.Count(RecordKind::kGpuSync, 5), steps);
  EXPECT_EQ(run.Count(RecordKind::kGpuSync, 2), steps);
  EXPECT_EQ(run.Count(RecordKind::kGpuSync, 3), steps);
  EXPECT_EQ(run.Count(RecordKind::kGpuApi, 1), 2 * steps);
  EXPECT_EQ(run.Count(RecordKind::kGpuApi, 2), 2 * steps);
}

TEST_F(CuptiSource, EverythingOfAJobIsRecorded) {
  const Outcome run = Start({"steps", "5"});
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_EQ(run.errors, "");
  EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"});
  ExpectSteps(run, 5);
  EXPECT_EQ(run.Count(RecordKind::kGpuSync, 4), 1u);
  EXPECT_TRUE(run.Losses().empty());
  EXPECT_EQ(run.Count(RecordKind::kGpuDevice), 1u);
  EXPECT_EQ(Process().cupti_state.load(), 1u);
  EXPECT_EQ(Process().cupti_used.load(), 1u);
  EXPECT_EQ(Process().gpu_count.load(), 1u);
  EXPECT_EQ(Process().gpu_uuids[0][0], 0xa0);
  EXPECT_GT(Process().gpu_flushed_ticks.load(), Process().begin_ticks);
  EXPECT_NE(run.Fact().find("cupti\tstate=recording"), std::string::npos);

  // Each kernel has its launch, which began before it did, on the clock of everything else.
  std::map<std::uint32_t, GpuApiRecord> calls;
  std::int64_t tid = 0;
  for (const probe::TestRecord& record : run.records)
    if (record.kind == RecordKind::kGpuApi) calls[record.As<GpuApiRecord>().correlation] = record.As<GpuApiRecord>();
  std::map<std::uint32_t, std::uint64_t> stream_end;
  for (const probe::TestRecord& record : run.records) {
    if (record.kind != RecordKind::kGpuKernel) continue;
    const auto kernel = record.As<GpuKernelRecord>();
    ASSERT_TRUE(calls.contains(kernel.correlation));
    EXPECT_LT(calls[kernel.correlation].begin_ticks, kernel.begin_ticks);
    EXPECT_EQ(run.Name(record, calls[kernel.correlation].name), "cudaLaunchKernel");
    EXPECT_GT(kernel.begin_ticks, Process().begin_ticks);
    EXPECT_LT(kernel.end_ticks, Process().end_ticks.load());
    EXPECT_GE(kernel.begin_ticks, stream_end[kernel.stream]);
    stream_end[kernel.stream] = kernel.end_ticks;
    tid = calls[kernel.correlation].tid;
  }
  EXPECT_EQ(stream_end.size(), 2u);
  EXPECT_EQ(tid, Process().pid);  // The main thread, by the kernel's number.
}

TEST_F(CuptiSource, OlderVersions) {
  for (const char* version : {"13", "16", "18", "22", "24", "28"}) {
    segment_.reset();
    SetUp();
    const Outcome run = Start({"steps", "3"}, {std::string("FAKE_CUPTI_VERSION=") + version});
    EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"}) << version;
    EXPECT_EQ(run.status, 0) << version;
    ExpectSteps(run, 3);
    EXPECT_TRUE(run.Losses().empty()) << version;
    // Before CUDA 11.6 CUPTI has its own clock: converted.
    for (const probe::TestRecord& record : run.records)
      if (record.kind == RecordKind::kGpuKernel) {
        EXPECT_GT(record.As<GpuKernelRecord>().begin_ticks, Process().begin_ticks) << version;
        EXPECT_LT(record.As<GpuKernelRecord>().end_ticks, Process().end_ticks.load()) << version;
      }
  }
}

TEST_F(CuptiSource, ManyBuffersAndThreads) {
  segment_->header().gpu_options = 8u << kGpuBuffersShift;
  const Outcome run = Start({"threads", "16"});
  EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"});
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 3200u);
  EXPECT_EQ(run.Count(RecordKind::kGpuApi, 1), 3200u);
  EXPECT_EQ(run.Count(RecordKind::kGpuSync, 3), 16u);
}

// 1 MiB in all while 120,000 records come at once: every one is recorded or counted. With 4 MiB a busy machine, whose
// application is slow, dropped none.
TEST_F(CuptiSource, BuffersThatRunOutAreCounted) {
  segment_->header().gpu_options = 1u << kGpuBuffersShift;
  Outcome run;
  {
    probe::ProbeChild child(segment_->path(), {"many", "60000"}, Environment(), kJob);
    std::atomic<bool> ended{false};
    std::thread reader([&] {
      for (bool last = false; !last;) {
        last = ended.load();
        for (std::uint32_t i = 0; i < segment_->header().rings_used; ++i)
          for (probe::TestRecord& record : segment_->Read(i, true)) run.records.push_back(std::move(record));
      }
    });
    EXPECT_EQ(child.Line(), "violations 0");
    EXPECT_EQ(child.Wait(), 0);
    ended = true;
    reader.join();
  }
  for (const probe::TestRecord& record : run.records)
    if (record.kind == RecordKind::kString) run.strings[{record.ring, record.As<StringRecord>().id}] = record.Text();
  const std::uint64_t dropped = run.Losses()["GpuRecordsDropped"];
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(
      run.Count(RecordKind::kGpuKernel) + run.Count(RecordKind::kGpuApi) + run.Count(RecordKind::kGpuSync) + dropped,
      120'002u)
      << dropped << " dropped by CUPTI, " << run.Count(RecordKind::kGpuKernel) << " kernels, "
      << run.Count(RecordKind::kGpuApi) << " calls, " << run.Count(RecordKind::kGpuSync) << " synchronisations, "
      << segment_->view().ring(segment_->view().rings()[1].offset).total_dropped << " dropped by the ring";
  EXPECT_EQ(run.Losses().size(), 1u);
}

// Past what CUPTI's memory on the GPU holds no record has times: counted apart, with a remedy that raises its limit.
TEST_F(CuptiSource, TimesThatFoundNoRoomOnTheGpuAreCounted) {
  const Outcome run = Start({"many", "3000"}, {"FAKE_CUPTI_DEVICE_RECORDS=50"});
  EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"});
  auto losses = run.Losses();
  EXPECT_GT(losses["GpuMemoryFull"], 0u);
  EXPECT_EQ(losses["GpuTimesMissing"] + losses["GpuMemoryFull"] + run.Count(RecordKind::kGpuKernel), 3000u);
  segment_.reset();
  SetUp();
  segment_->header().gpu_options = 1024u << kGpuBuffersShift;
  EXPECT_EQ(Start({"attributes"}).lines[0].rfind("ours size 8388608 limit 128 ", 0), 0u);
}

// Records of graphs that a graph launched are switched on before CUDA begins; their kind cannot be enabled.
TEST_F(CuptiSource, GraphsThatTheGpuLaunchesAreSwitchedOn) {
  const std::string log = testing::TempDir() + "/cupti_log";
  std::filesystem::remove(log);
  segment_->header().gpu_options = kGpuGraphsWhole;
  Start({"steps", "1"}, {"FAKE_CUPTI_LOG=" + log});
  std::ifstream in(log);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  const auto at = [&](const char* line) { return std::find(lines.begin(), lines.end(), line) - lines.begin(); };
  EXPECT_LT(at("cuptiActivityEnableDeviceGraph 1 0"), at("cuptiActivityEnable 10 0"));
  EXPECT_LT(at("cuptiActivityEnable 51 0"), static_cast<std::ptrdiff_t>(lines.size()));
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.rfind("cuptiActivityEnable 53 ", 0) == 0; }),
            0);
}

// Nobody drains the ring: what finds no room is counted by it, and the end is not held up.
TEST_F(CuptiSource, RingsThatNobodyReads) {
  segment_.reset();
  probe::TestSegmentOptions options;
  segment_ = std::make_unique<probe::TestSegment>(options);
  const Outcome run = Start({"many", "20000"});
  EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"});
  std::uint64_t dropped = 0;
  for (std::uint32_t i = 0; i < segment_->header().rings_used; ++i)
    dropped += segment_->view().ring(segment_->view().rings()[i].offset).total_dropped;
  EXPECT_GE(
      run.Count(RecordKind::kGpuKernel) + run.Count(RecordKind::kGpuApi) + run.Count(RecordKind::kGpuSync) + dropped,
      40'002u);
}

TEST_F(CuptiSource, Options) {
  segment_->header().gpu_options = kGpuGraphsWhole | kGpuMemoryRecords;
  Outcome run = Start({"graph", "4"});
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel, kGpuWholeGraph), 4u);
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 4u);
  segment_.reset();
  SetUp();
  run = Start({"graph", "4"});
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel, 0), 8u);
  EXPECT_EQ(run.Count(RecordKind::kGpuApi, 4), 4u);
  for (const probe::TestRecord& record : run.records)
    if (record.kind == RecordKind::kGpuKernel) {
      EXPECT_EQ(record.As<GpuKernelRecord>().graph, 5u);
    }
  segment_.reset();
  SetUp();
  segment_->header().gpu_options = kGpuMemoryRecords;
  run = Start({"memory"});
  EXPECT_EQ(run.Count(RecordKind::kGpuMemory, 1), 1u);
  EXPECT_EQ(run.Count(RecordKind::kGpuMemory, 2), 1u);
  segment_.reset();
  SetUp();
  segment_->header().gpu_options = kGpuOff;
  run = Start({"steps", "2"});
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 0u);
  EXPECT_EQ(run.errors, "");
  EXPECT_EQ(Process().cupti_state.load(), 0u);
}

TEST_F(CuptiSource, OutsideWindowsNothingIsWritten) {
  probe::Record(segment_->view(), false);
  const Outcome run = Start({"steps", "3"});
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 0u);
  EXPECT_EQ(run.Count(RecordKind::kGpuApi), 0u);
  EXPECT_EQ(run.Count(RecordKind::kGpuDevice), 1u);
  EXPECT_EQ(run.Losses().at("GpuOutOfWindow"), 3u * 14 + 2);
}

// The switch is turned long before the records of that time arrive.
TEST_F(CuptiSource, WhatWasLaunchedInAWindowIsInIt) {
  const Outcome run = Start({"window", "3"});
  EXPECT_EQ(run.status, 0) << run.errors;
  ExpectSteps(run, 6);
  EXPECT_EQ(run.Losses(), (std::map<std::string, std::uint64_t>{{"GpuOutOfWindow", 4u * 14 + 2}}));
  // And where the first kernel after it starts, which is no kernel of the window's.
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel, kGpuAfterWindow), 1u);
}

// In the middle of 20 seconds of queued work. CUPTI gives back what stands in buffers without unfinished work only, so
// buffers are small.
TEST_F(CuptiSource, KilledWhileTheGpuIsBusy) {
  const Outcome run = Start({"tail", "20000", "kill", "0"});
  EXPECT_EQ(WTERMSIG(run.status), SIGKILL);
  EXPECT_GT(run.Count(RecordKind::kGpuKernel), 0u);
  EXPECT_LT(run.Count(RecordKind::kGpuKernel), 20000u);
}

TEST_F(CuptiSource, LeavesWhileTheGpuIsBusy) {
  const Outcome run = Start({"tail", "4000", "exit", "500"});
  EXPECT_EQ(run.status, 0);
  EXPECT_GE(run.Count(RecordKind::kGpuKernel), 400u);
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel) + run.Losses()["GpuTimesMissing"], 4000u);
}

TEST_F(CuptiSource, RefusalsAreOneLineAndAFact) {
  const struct {
    const char* fail;
    const char* says;
  } kCases[] = {{"cuptiActivityEnable=35", "NVreg_RestrictProfilingToAdminUsers"},
                {"cuptiActivityEnable=39", "another profiler"},
                {"cuptiActivityEnable=999", "driver"},
                {"cuptiActivityRegisterCallbacks=1", "returned 1"}};
  for (const auto& [fail, says] : kCases) {
    segment_.reset();
    SetUp();
    const Outcome run = Start({"steps", "2"}, {std::string("FAKE_CUPTI_FAIL=") + fail});
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"});
    EXPECT_EQ(std::count(run.errors.begin(), run.errors.end(), '\n'), 1) << run.errors;
    EXPECT_NE(run.errors.find(says), std::string::npos) << run.errors;
    EXPECT_NE(run.Fact().find("state=refused"), std::string::npos);
    EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 0u);
    EXPECT_EQ(Process().cupti_state.load(), 2u);
  }
}

// Of a kernel that takes 11 days.
TEST_F(CuptiSource, UnfinishedWorkIsCounted) {
  const Outcome run = Start({"unfinished"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 1u);
  EXPECT_EQ(run.Losses().at("GpuTimesMissing"), 1u);
}

// CUPTI's own record of the device does not come before the GPU is idle.
TEST_F(CuptiSource, TheDeviceIsKnownWhileTheGpuIsBusy) {
  std::vector<std::string> environment = Environment();
  environment.push_back(std::string("FAKE_CUDA=") + LOCKSTEP_BUILD_DIR "/tests/fakes/libcuda.so.1");
  probe::ProbeChild child(segment_->path(), {"endless"}, environment, kJob);
  ASSERT_EQ(child.Line(), "launched");
  test::Eventually([&] { return Process().gpu_count.load() != 0; });
  EXPECT_EQ(Process().gpu_count.load(), 1u);
  EXPECT_EQ(Process().gpu_uuids[0][0], 0xa0);
  child.Kill();
  Outcome run;
  Collect(run);
  EXPECT_EQ(run.Count(RecordKind::kGpuDevice), 0u);
}

TEST_F(CuptiSource, AStuckLibraryDoesNotHoldUpTheEnd) {
  const Outcome run = Start({"steps", "2"}, {"FAKE_CUPTI_STUCK=1"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"});
  EXPECT_EQ(Process().gpu_flushed_ticks.load(), 0u);
  EXPECT_EQ(run.Losses(), (std::map<std::string, std::uint64_t>{{"GpuTailLost", 1}}));
}

TEST_F(CuptiSource, ForksAndExecs) {
  Outcome run = Start({"fork", "2"});
  EXPECT_EQ(run.lines, (std::vector<std::string>{"child 0", "violations 0"}));
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 8u);
  segment_.reset();
  SetUp();
  run = Start({"exec", "2"});
  EXPECT_EQ(run.lines, std::vector<std::string>{"replaced"});
  EXPECT_EQ(run.status, 0);
}

TEST_F(CuptiSource, FlushesWhenAsked) {
  probe::ProbeChild child(segment_->path(), {"slow_exit", "2"}, Environment(), kJob);
  ASSERT_EQ(child.Line(), "done");
  ProcessEntry& process = Process();
  process.gpu_flush_wanted.fetch_add(1);
  test::Eventually([&] { return process.gpu_flush_done.load() == 1; });
  EXPECT_EQ(process.gpu_flush_done.load(), 1u);
  EXPECT_GT(process.gpu_flushed_ticks.load(), process.begin_ticks);
  child.Kill();
  Outcome run;
  Collect(run);
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 4u);
}

TEST_F(CuptiSource, FlushesByTheClock) {
  probe::ProbeChild child(segment_->path(), {"slow_exit", "2"}, Environment(), kJob);
  ASSERT_EQ(child.Line(), "done");
  for (int flush = 0; flush < 2; ++flush)  // The first may have begun before the kernels ended.
    test::Eventually(
        [&, before = Process().gpu_flushed_ticks.load()] { return Process().gpu_flushed_ticks.load() != before; });
  child.Kill();
  Outcome run;
  Collect(run);
  EXPECT_EQ(run.Count(RecordKind::kGpuKernel), 4u);
}

TEST_F(CuptiSource, RecordedBuffersReplayToTheSame) {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("raw-" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  const Outcome first = Start({"steps", "4"}, {"LOCKSTEP_GPU_RAW_DIR=" + directory.string()});
  ExpectSteps(first, 4);
  std::string file;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) file = entry.path();
  ASSERT_NE(file, "");
  segment_.reset();
  SetUp();
  const Outcome second = Start({file}, {}, kReplay);
  EXPECT_EQ(second.status, 0) << second.errors;
  const auto describe = [](const Outcome& run) {
    std::vector<std::string> all;
    std::uint64_t origin = 0;
    for (const probe::TestRecord& record : run.records) {
      if (record.kind == RecordKind::kGpuKernel) {
        const auto kernel = record.As<GpuKernelRecord>();
        if (origin == 0) origin = kernel.begin_ticks;
        all.push_back("kernel " + run.Name(record, kernel.name) + " " + std::to_string(kernel.correlation) + " " +
                      std::to_string(kernel.stream));
      }
      if (record.kind == RecordKind::kGpuApi) {
        const auto call = record.As<GpuApiRecord>();
        all.push_back("call " + run.Name(record, call.name) + " " + std::to_string(call.correlation) + " " +
                      std::to_string(call.head.flags));
      }
      if (record.kind == RecordKind::kGpuDevice)
        all.push_back("device " + run.Name(record, record.As<GpuDeviceRecord>().name));
      if (record.kind == RecordKind::kGpuCopy)
        all.push_back("copy " + std::to_string(record.As<GpuCopyRecord>().bytes));
      if (record.kind == RecordKind::kGpuSync)
        all.push_back("sync " + std::to_string(record.flags) + " " +
                      std::to_string(record.As<GpuSyncRecord>().correlation));
    }
    return all;
  };
  EXPECT_EQ(describe(first), describe(second));
  // Durations too, within a tenth: the length of a tick is measured anew.
  const auto durations = [](const Outcome& run) {
    std::vector<double> all;
    for (const probe::TestRecord& record : run.records)
      if (record.kind == RecordKind::kGpuKernel)
        all.push_back(
            static_cast<double>(record.As<GpuKernelRecord>().end_ticks - record.As<GpuKernelRecord>().begin_ticks));
    return all;
  };
  const auto before = durations(first), after = durations(second);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i] / before[i], 1, 0.1);
  EXPECT_TRUE(second.Losses().empty());

  // Damaged files: a line or fewer records, never a crash.
  std::ifstream in(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{20}, std::size_t{70}, whole.size() / 2, whole.size() - 3}) {
    const std::string cut = (directory / "cut.raw").string();
    std::ofstream(cut, std::ios::binary) << whole.substr(0, bytes);
    segment_.reset();
    SetUp();
    const Outcome damaged = Start({cut}, {}, kReplay);
    EXPECT_TRUE(WIFEXITED(damaged.status)) << bytes;
    EXPECT_LT(damaged.records.size(), second.records.size()) << bytes;
  }
  std::filesystem::remove_all(directory);
}

TEST_F(CuptiSource, WithoutDriverTheProgramIsUnharmed) {
#ifdef LOCKSTEP_REAL_CUPTI
  const char* cupti = LOCKSTEP_REAL_CUPTI;
#else
  const char* cupti = "/nonexistent/libcupti.so.13";
#endif
  for (const bool preload : {true, false}) {
    segment_.reset();
    SetUp();
    const Outcome run = Start({}, {std::string("LOCKSTEP_CUPTI=") + cupti}, kDriverless, preload);
    EXPECT_EQ(run.lines, (std::vector<std::string>{"before", "after 77"}));
    EXPECT_TRUE(WIFEXITED(run.status));
    EXPECT_EQ(WEXITSTATUS(run.status), 3);
    EXPECT_EQ(std::count(run.errors.begin(), run.errors.end(), '\n'), 1) << run.errors;
    EXPECT_NE(run.errors.find("lockstep: GPU activity of this process is not recorded"), std::string::npos)
        << run.errors;
    EXPECT_NE(run.Fact().find("cupti\tstate=refused"), std::string::npos);
  }
}

TEST_F(CuptiSource, WithoutASegmentNothingHappens) {
  const Outcome run = Start({"steps", "2"}, {"LOCKSTEP_SEGMENT=/nonexistent"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.errors, "");
  EXPECT_EQ(run.lines, std::vector<std::string>{"violations 0"});
}

}  // namespace
}  // namespace lockstep::cupti
