// What the probe writes, seen from outside: each test makes a segment as the agent
// would, runs a scenario (scenarios.cc) with the probe preloaded, and reads the rings.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/blocked_calls.h"
#include "core/schema_enums.h"
#include "tests/unit/eventually.h"
#include "tests/unit/runtime/probe/probe_child.h"
#include "tests/unit/runtime/probe/test_segment.h"

namespace lockstep::probe {
namespace {

using Child = ProbeChild;

TEST(Probe, StepsCountAndCarryCpuTime) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"steps"}), 0);
  const auto steps = segment.ReadKind(RecordKind::kStep);
  ASSERT_EQ(steps.size(), 6u);
  const std::int64_t expected[] = {0, 1, 2, 10, 11, 12};
  std::int64_t cpu = 0;
  std::uint64_t ticks = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto step = steps[i].As<StepRecord>();
    EXPECT_EQ(step.index, expected[i]);
    EXPECT_EQ(steps[i].flags, i == 5 ? 0x80 : 0);
    EXPECT_GT(step.cpu_ns, cpu);
    EXPECT_GT(step.ticks, ticks);
    EXPECT_EQ(step.others_cpu_us >= 30'000, i >= 3) << step.others_cpu_us;
    EXPECT_NE(step.others_cpu_us, 0u);
    cpu = step.cpu_ns;
    ticks = step.ticks;
  }
  const ProcessEntry& process = segment.view().processes()[0];
  EXPECT_EQ(segment.header().processes_used, 1u);
  EXPECT_EQ(process.state.load(), SlotState::kActive);
  EXPECT_STREQ(process.exe, kScenarios);
  EXPECT_EQ(process.lockstep_used, 1u);
  EXPECT_EQ(process.mpi_thread_level, 255);
  EXPECT_EQ(process.world_rank, -1);
  EXPECT_GT(process.end_ticks.load(), process.begin_ticks);
}

TEST(Probe, AProcessThatUsesNothingLeavesNoTrace) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"nothing"}), 0);
  EXPECT_EQ(segment.header().processes_used, 0u);
  EXPECT_EQ(segment.header().rings_used, 0u);
  EXPECT_EQ(segment.header().next_free, kArenaOffset);
}

TEST(Probe, NamesAreInternedAndVerified) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"names"}), 0);
  const auto ranges = RangesOf(segment);
  ASSERT_EQ(ranges.size(), 8u);
  const char* expected[] = {"input", "input", "dynamic 0", "dynamic 1", "dynamic 0", "outer", "outer"};
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(ranges[i].name, expected[i]) << i;
  EXPECT_EQ(ranges[0].flags >> 4, 1);
  EXPECT_EQ(ranges[1].flags >> 4, 3);
  EXPECT_EQ(ranges[0].range.depth, 1u);
  EXPECT_EQ(ranges[6].range.depth, 0u);
  EXPECT_LE(ranges[6].range.begin_ticks, ranges[0].range.begin_ticks);
  EXPECT_GE(ranges[6].range.end_ticks, ranges[5].range.end_ticks);
  EXPECT_EQ(ranges[5].range.name, ranges[6].range.name);
  EXPECT_EQ(ranges[7].name, std::string(4095, 'x'));
  std::set<std::string> texts;
  for (const TestRecord& record : segment.ReadKind(RecordKind::kString)) {
    EXPECT_TRUE(texts.insert(record.Text()).second) << record.Text() << " was written twice";
    EXPECT_EQ(record.flags, record.Text().size() > 4000 ? 1 : 0);
  }
  const auto marks = RangesOf(segment, RecordKind::kMark);
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0].name, "mark");
  EXPECT_EQ(marks[0].range.begin_ticks, marks[0].range.end_ticks);
  const auto names = segment.ReadKind(RecordKind::kThreadName);
  ASSERT_EQ(names.size(), 1u);
  EXPECT_EQ(names[0].Text(), "probe_scenarios");
}

TEST(Probe, MoreNamesThanTheCacheHolds) {
  TestSegmentOptions options;
  options.main_ring_slots = 1 << 17;
  TestSegment segment(options);
  ASSERT_EQ(RunScenario(segment, {"many-names"}), 0);
  const auto ranges = RangesOf(segment);
  ASSERT_EQ(ranges.size(), 6000u);
  for (int i = 0; i < 6000; ++i) {
    const int n = i % 3000;
    ASSERT_EQ(ranges[static_cast<std::size_t>(i)].name,
              "name " + std::to_string(n) + std::string(static_cast<std::size_t>(n % 200), '.'));
  }
}

TEST(Probe, DepthIsBoundedAndUnbalancedPopsAreCounted) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"deep"}), 0);
  const auto ranges = RangesOf(segment);
  ASSERT_EQ(ranges.size(), kMaxRangeDepth + 1u);
  for (std::uint32_t i = 0; i < kMaxRangeDepth; ++i) EXPECT_EQ(ranges[i].range.depth, kMaxRangeDepth - 1 - i);
  EXPECT_EQ(ranges.back().name, "work");
  EXPECT_EQ(segment.view().processes()[0].range_too_deep, 6u);
  EXPECT_EQ(segment.view().processes()[0].range_unbalanced, 1u);
}

TEST(Probe, AFullRingDropsCountsAndSaysWhere) {
  TestSegmentOptions options;
  options.main_ring_slots = 256;
  TestSegment segment(options);
  Child child(segment.path(), {"full", "1000"});
  ASSERT_EQ(child.Line(), "full");
  auto before = segment.Read(0, true);
  RingHeader& ring = segment.view().ring(segment.view().rings()[0].offset);
  EXPECT_EQ(ring.head.load(), 256u);
  std::uint64_t ranges = 0;
  for (const TestRecord& record : before) ranges += record.kind == RecordKind::kRange ? 1 : 0;
  EXPECT_EQ(ring.total_dropped, 1000 - ranges);
  EXPECT_EQ(ring.records, before.size());
  child.Go();
  ASSERT_EQ(child.Wait(), 0);
  const auto after = segment.Read(0);
  ASSERT_EQ(after.size(), 6u);
  ASSERT_EQ(after[0].kind, RecordKind::kGap);
  const auto gap = after[0].As<GapRecord>();
  EXPECT_EQ(gap.records, 1000 - ranges);
  EXPECT_GE(gap.first_ticks, before.back().As<RangeRecord>().end_ticks);
  EXPECT_GE(gap.last_ticks, gap.first_ticks);
  EXPECT_LE(gap.last_ticks, after[1].As<RangeRecord>().begin_ticks);
  for (std::size_t i = 1; i < 6; ++i) EXPECT_EQ(after[i].kind, RecordKind::kRange);
}

TEST(Probe, RecordsStayWholeRoundAndRoundTheRing) {
  TestSegmentOptions options;
  options.main_ring_slots = 256;
  TestSegment segment(options);
  Child child(segment.path(), {"laps", "40"});
  std::uint64_t ranges = 0, texts = 0, last = 0, slots = 0, records = 0;
  while (child.Line() == "lap") {
    for (const TestRecord& record : segment.Read(0, true)) {
      slots += record.bytes.size() / kSlotBytes;
      ++records;
      ASSERT_NE(record.kind, RecordKind::kGap);
      if (record.kind == RecordKind::kString && record.Text() != "work") {
        EXPECT_EQ(record.Text(), "lap " + std::to_string(texts++) + " of the ring, a name of more than one slot");
      }
      if (record.kind != RecordKind::kRange) continue;
      const auto range = record.As<RangeRecord>();
      ASSERT_GE(range.begin_ticks, last);
      ASSERT_GE(range.end_ticks, range.begin_ticks);
      ASSERT_EQ(range.depth, 0u);
      last = range.end_ticks;
      ++ranges;
    }
    child.Go();
  }
  EXPECT_EQ(child.Wait(), 0);
  const RingHeader& ring = segment.view().ring(segment.view().rings()[0].offset);
  EXPECT_EQ(slots, ring.head.load());
  EXPECT_EQ(records, ring.records);
  EXPECT_EQ(ranges, 40u * 127);
  EXPECT_EQ(texts, 40u * 30);
  EXPECT_EQ(ring.total_dropped, 0u);
}

TEST(Probe, SixtyFourThreadsEachInItsRing) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"threads", "64", "2000"}), 0);
  std::map<std::uint32_t, int> ranges;
  for (const TestRecord& record : segment.ReadAll()) {
    if (record.kind == RecordKind::kRange) ++ranges[record.ring];
    if (record.kind == RecordKind::kThreadName) {
      EXPECT_EQ(record.Text(), "worker");
    }
  }
  ASSERT_EQ(ranges.size(), 64u);
  std::set<std::int64_t> tids;
  for (const auto& [ring, count] : ranges) {
    EXPECT_EQ(count, 2000);
    const RingEntry& entry = segment.view().rings()[ring];
    EXPECT_EQ(entry.state.load(), SlotState::kClosed);
    tids.insert(entry.tid);
  }
  EXPECT_EQ(tids.size(), 64u);
  EXPECT_EQ(segment.header().processes_used, 1u);
  EXPECT_EQ(segment.view().processes()[0].dropped_no_ring, 0u);
}

TEST(Probe, AThreadsRingIsRecycledWhenTheAgentFreedIt) {
  TestSegment segment;
  Child child(segment.path(), {"recycle"});
  ASSERT_EQ(child.Line(), "ended");
  RingEntry& entry = segment.view().rings()[0];
  ASSERT_EQ(entry.state.load(), SlotState::kClosed);
  // The second ring of a process has the other capacity; make them equal.
  EXPECT_EQ(segment.Read(0, true).size(), 5u);
  segment.header().other_ring_slots = entry.capacity_slots;
  const std::uint64_t used = segment.header().next_free;
  entry.state.store(SlotState::kFree);
  child.Go();
  ASSERT_EQ(child.Wait(), 0);
  EXPECT_EQ(entry.generation, 2u);
  EXPECT_EQ(segment.header().next_free, used);
  EXPECT_EQ(segment.header().rings_used, 1u);
  EXPECT_EQ(segment.Read(0).size(), 4u);
}

TEST(Probe, AForkedChildIsInertUntilItUsesASource) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"fork"}), 0);
  ASSERT_EQ(segment.header().processes_used, 2u);
  const ProcessEntry* processes = segment.view().processes();
  EXPECT_EQ(processes[1].parent_pid, processes[0].pid);
  int ranges[2] = {}, steps[2] = {};
  for (const TestRecord& record : segment.ReadAll()) {
    ranges[record.process] += record.kind == RecordKind::kRange ? 1 : 0;
    if (record.kind == RecordKind::kStep) {
      ++steps[record.process];
      EXPECT_EQ(record.As<StepRecord>().index, 0);
    }
  }
  EXPECT_EQ(ranges[0], 3);
  EXPECT_EQ(ranges[1], 3);
  EXPECT_EQ(steps[0], 0);
  EXPECT_EQ(steps[1], 1);
}

TEST(Probe, KillMinusNineLosesNoCommittedRecord) {
  TestSegmentOptions options;
  options.main_ring_slots = 1 << 18;
  for (int attempt = 0; attempt < 3; ++attempt) {
    TestSegment segment(options);
    const std::string count_file = segment.path() + "-count";
    Child child(segment.path(), {"kill", count_file});
    long committed = 0;
    int fd = -1;
    EXPECT_TRUE(test::Eventually([&] {
      if (fd < 0) fd = open(count_file.c_str(), O_RDONLY);
      if (fd >= 0 && pread(fd, &committed, sizeof committed, 0) != ssize_t{sizeof committed}) committed = 0;
      return committed > 5000 * attempt;
    }));
    child.Kill();
    EXPECT_EQ(child.Wait(), SIGKILL);
    ASSERT_EQ(pread(fd, &committed, sizeof committed, 0), ssize_t{sizeof committed});
    close(fd);
    unlink(count_file.c_str());
    const auto found = static_cast<long>(segment.ReadKind(RecordKind::kRange).size());
    const auto dropped = static_cast<long>(segment.view().ring(segment.view().rings()[0].offset).total_dropped);
    EXPECT_GT(committed, 0);
    EXPECT_GE(found + dropped, committed);
    EXPECT_LE(found + dropped, committed + 1);
  }
}

// Runs a scenario whose signal handler records a range "handler..." and a mark on top of ranges "main..." and
// "name...", down to depth `deepest`; nothing may be mixed up, and all is counted.
void CheckHandlersRecords(const std::vector<std::string>& scenario, unsigned deepest) {
  TestSegmentOptions options;
  options.main_ring_slots = 1 << 21;
  options.bytes = std::uint64_t{80} << 20;
  TestSegment segment(options);
  Child child(segment.path(), scenario);
  const std::string line = child.Line();
  ASSERT_EQ(child.Wait(), 0);
  long made = 0, handled = 0;
  ASSERT_EQ(std::sscanf(line.c_str(), "%ld %ld", &made, &handled), 2);
  ASSERT_GT(handled, 10);
  // Read() checks the chain of records.
  std::uint64_t gaps = 0;
  long main_ranges = 0, handler = 0;
  for (const NamedRange& each : RangesOf(segment)) {
    EXPECT_LE(each.range.begin_ticks, each.range.end_ticks);
    EXPECT_EQ(each.range.payload, 0);
    EXPECT_LE(each.range.depth, deepest);
    const bool handlers = each.name == "handler" || each.name.starts_with("handler ");
    handlers ? ++handler : ++main_ranges;
    if (!handlers) {
      EXPECT_TRUE(each.name.starts_with("main") || each.name.starts_with("name")) << '"' << each.name << '"';
    }
  }
  for (const TestRecord& record : segment.ReadKind(RecordKind::kGap)) gaps += record.As<GapRecord>().records;
  long marks = 0;
  for (const NamedRange& each : RangesOf(segment, RecordKind::kMark)) marks += each.name == "handler mark";
  EXPECT_EQ(main_ranges, made);  // Only a handler's own records are ever dropped.
  EXPECT_LE(handler, handled);
  const RingHeader& ring = segment.view().ring(segment.view().rings()[0].offset);
  EXPECT_EQ(ring.total_dropped, gaps + ring.dropped_records);
  const auto lost = static_cast<long>(ring.total_dropped + segment.view().processes()[0].dropped_no_ring +
                                      segment.header().dropped_no_ring);
  EXPECT_EQ(handler + marks + lost, 2 * handled);
}

TEST(Probe, SignalHandlersMayRecordInTheMiddleOfARecord) { CheckHandlersRecords({"signals", "2000"}, 1); }

#if defined(__x86_64__)
TEST(Probe, SignalHandlersMayRecordAfterAnyInstruction) { CheckHandlersRecords({"stepped", "32"}, 2); }
#endif

TEST(Probe, TheRecordingWindowClosesAndOpens) {
  TestSegment segment;
  Child child(segment.path(), {"window"});
  EXPECT_EQ(child.Line(), "101");
  ASSERT_EQ(child.Wait(), 0);
  EXPECT_EQ(RangesOf(segment).size(), 4u);  // None that began or ended while off.
  const auto steps = segment.ReadKind(RecordKind::kStep);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].As<StepRecord>().index, 0);
  EXPECT_EQ(steps[1].As<StepRecord>().index, 2);  // Counted while off.
  const auto gaps = segment.ReadKind(RecordKind::kGap);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(gaps[0].As<GapRecord>().records, 0u);
}

TEST(Probe, NothingIsWrittenWhileRecordingIsOff) {
  TestSegmentOptions options;
  options.recording = false;
  TestSegment segment(options);
  ASSERT_EQ(RunScenario(segment, {"names"}), 0);
  ASSERT_EQ(RunScenario(segment, {"steps"}), 0);
  EXPECT_TRUE(segment.ReadAll().empty());
  EXPECT_EQ(segment.header().processes_used, 2u);
}

TEST(Probe, RawClockIsTheDistortedOne) {
  TestSegmentOptions options;
  options.mode = ClockMode::kRaw;
  options.distortion.offset_ns = 1'000'000'000'000;
  options.distortion.origin_raw_ns = RawNs();
  TestSegment segment(options);
  const std::int64_t before = RawNs();
  ASSERT_EQ(RunScenario(segment, {"ranges", "100"}), 0);
  const std::int64_t after = RawNs();
  const auto ranges = RangesOf(segment);
  ASSERT_EQ(ranges.size(), 100u);
  for (const NamedRange& each : ranges) {
    EXPECT_GE(static_cast<std::int64_t>(each.range.begin_ticks) - options.distortion.offset_ns, before);
    EXPECT_LE(static_cast<std::int64_t>(each.range.end_ticks) - options.distortion.offset_ns, after);
    EXPECT_LE(each.range.begin_ticks, each.range.end_ticks);
  }
}

TEST(Probe, MemoryBeyondWhatIsReadyIsAllocatedFirst) {
  TestSegmentOptions options;
  options.ready_bytes = kArenaOffset;
  TestSegment segment(options);
  struct stat before {
  }, after{};
  stat(segment.path().c_str(), &before);
  ASSERT_EQ(RunScenario(segment, {"ranges", "10"}), 0);
  stat(segment.path().c_str(), &after);
  EXPECT_EQ(RangesOf(segment).size(), 10u);
  EXPECT_GE((after.st_blocks - before.st_blocks) * 512, std::int64_t{options.main_ring_slots} * kSlotBytes);
}

TEST(Probe, NoRoomForARingIsCounted) {
  TestSegmentOptions options;
  options.bytes = kArenaOffset + 8192;
  TestSegment segment(options);
  ASSERT_EQ(RunScenario(segment, {"ranges", "100"}), 0);
  EXPECT_TRUE(segment.ReadAll().empty());
  EXPECT_EQ(segment.view().processes()[0].dropped_no_ring, 100u);
}

TEST(Probe, ARunOfPollsEndsWhereTheThreadDidSomethingElse) {
  TestSegment segment;
  Child child(segment.path(), {}, {}, LOCKSTEP_BUILD_DIR "/tests/probe_polls");
  ASSERT_EQ(child.Wait(), 0);
  std::vector<std::uint32_t> calls;
  std::vector<std::uint32_t> pending;  // Of each record.
  std::vector<PollRecord> polls;
  for (const TestRecord& record : segment.ReadAll()) {
    if (record.kind == RecordKind::kCompletion) ++pending.back();
    if (record.kind != RecordKind::kPoll) continue;
    polls.push_back(record.As<PollRecord>());
    EXPECT_LE(polls.back().last_ticks - polls.back().first_ticks, polls.back().calls * 45'000u);
    calls.push_back(polls.back().calls);
    pending.push_back(0);
  }
  EXPECT_EQ(calls, (std::vector<std::uint32_t>{150, 20, 1, 1, 1, 2, 1, 700, 700, 2100, 700, 700, 28'000, 10'100, 10'001,
                                               10'002}));
  EXPECT_EQ(pending, (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 2, 2, 0, 2, 3, 0, 2, 22, 0, 0, 0}));
  ASSERT_EQ(polls.size(), 16u);
  // By turns: one after the other, as long as the calls took.
  for (const std::size_t run : {7u, 10u}) {
    EXPECT_EQ(polls[run].last_ticks, polls[run + 1].first_ticks);
    EXPECT_EQ(polls[run + 1].last_ticks, polls[run + 2].first_ticks);
  }
  EXPECT_NEAR(static_cast<double>(polls[7].last_ticks - polls[7].first_ticks) /
                  static_cast<double>(polls[9].last_ticks - polls[7].first_ticks),
              200.0 / 600, 0.001);
  EXPECT_EQ(polls[9].head.flags, 0);
  EXPECT_EQ(polls[12].head.flags, kPollUntold);
}

TEST(Probe, ErrnoIsKept) {
  TestSegment segment;
  EXPECT_EQ(RunScenario(segment, {"errno"}), 0);
  TestSegmentOptions full;
  full.bytes = kArenaOffset + 8192;
  TestSegment without_room(full);
  EXPECT_EQ(RunScenario(without_room, {"errno"}), 0);
}

TEST(Probe, BeforeMainAndAfterIt) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"nothing"}, {"LOCKSTEP_TEST_EARLY=1"}), 0);
  std::set<std::string> names;
  for (const NamedRange& each : RangesOf(segment, RecordKind::kMark)) names.insert(each.name);
  EXPECT_EQ(names, (std::set<std::string>{"before main", "after main", "thread after main"}));
}

TEST(Probe, AStrangeSegmentIsRefusedInOneLine) {
  TestSegment segment;
  segment.header().version = 99;
  Child child(segment.path(), {"steps"});
  EXPECT_EQ(child.Wait(), 0);
  const std::string errors = child.Errors();
  EXPECT_NE(errors.find("another Lockstep version"), std::string::npos) << errors;
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1);
  EXPECT_EQ(segment.header().processes_used, 0u);

  Child gone("/dev/shm/lockstep-no-such-file", {"steps"});
  EXPECT_EQ(gone.Wait(), 0);
  EXPECT_EQ(gone.Errors(), "");
}

TEST(Probe, RankFromTheEnvironment) {
  TestSegment segment;
  ASSERT_EQ(RunScenario(segment, {"steps"}, {"RANK=3", "WORLD_SIZE=8"}), 0);
  ASSERT_EQ(RunScenario(segment, {"steps"}, {"RANK=three", "WORLD_SIZE=8"}), 0);
  EXPECT_EQ(segment.view().processes()[0].world_rank, 3);
  EXPECT_EQ(segment.view().processes()[0].rank_source, 2);
  EXPECT_EQ(segment.view().processes()[1].world_rank, -1);
}

TEST(Probe, HeaderInC89AndNotPositionIndependent) {
  TestSegment segment;
  Child child(segment.path(), {}, {}, LOCKSTEP_BUILD_DIR "/tests/probe_plain_c");
  EXPECT_EQ(child.Line(), "1");
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(segment.ReadKind(RecordKind::kStep).size(), 2u);
  EXPECT_EQ(RangesOf(segment).size(), 1u);
  if (std::string(LOCKSTEP_SANITIZERS) != "") return;  // Linked then, so never alone.
  Child alone(segment.path(), {}, {"LD_PRELOAD="}, LOCKSTEP_BUILD_DIR "/tests/probe_plain_c");
  EXPECT_EQ(alone.Line(), "0");
  EXPECT_EQ(alone.Wait(), 0);
}

// Mostly for ThreadSanitizer, which sees races within one process only.
TEST(Probe, ApplicationAndAgentInOneProcess) {
  TestSegmentOptions options;
  options.bytes = std::uint64_t{64} << 20;
  TestSegment segment(options);
  const std::string spool = segment.path() + "-spool";
  Child child(segment.path(), {spool}, {std::string("NVTX_INJECTION64_PATH=") + kProbe},
              LOCKSTEP_BUILD_DIR "/tests/probe_both_sides");
  const std::string line = child.Line(), errors = child.Errors();
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(line, "0 records lost");
  EXPECT_EQ(errors, "");
  struct stat info {};
  EXPECT_EQ(stat(spool.c_str(), &info), 0);
  EXPECT_GT(info.st_size, 1 << 20);
  unlink(spool.c_str());
}

std::string Output(const std::string& command) {
  std::string all;
  FILE* pipe = popen(command.c_str(), "r");
  for (int c; (c = std::fgetc(pipe)) != EOF;) all += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return all;
}

// Whose kind and function these are, of the process's first ring.
std::vector<BlockedRecord> WaitsOf(TestSegment& segment, BlockedCall call) {
  std::vector<BlockedRecord> waits;
  for (const TestRecord& record : segment.ReadKind(RecordKind::kBlocked))
    if (record.As<BlockedRecord>().function == static_cast<std::uint16_t>(call))
      waits.push_back(record.As<BlockedRecord>());
  return waits;
}

TEST(ProbeBlocked, WaitsOfTheFirstThreadAreRecorded) {
  if (std::string(LOCKSTEP_SANITIZERS) != "") GTEST_SKIP() << "a sanitizer's calls go straight through";
  TestSegmentOptions options;
  options.blocked = true;
  TestSegment segment(options);
  ASSERT_EQ(RunScenario(segment, {"blocked", "1"}), 0);
  const auto sleeps = WaitsOf(segment, BlockedCall::nanosleep);
  ASSERT_EQ(sleeps.size(), 3u);
  std::uint64_t last = 0;
  for (const BlockedRecord& sleep : sleeps) {
    EXPECT_EQ(sleep.head.flags, schema::BlockedKind::kSleep | kBlockedTimedOut);
    EXPECT_GE(sleep.begin_ticks, last);
    EXPECT_GT(sleep.end_ticks, sleep.begin_ticks);
    EXPECT_NE(sleep.module, 0u);
    EXPECT_EQ(sleep.waker_tid, 0u);
    last = sleep.end_ticks;
  }
  EXPECT_TRUE(WaitsOf(segment, BlockedCall::pthread_mutex_lock).empty());
  const auto joins = WaitsOf(segment, BlockedCall::pthread_join);
  ASSERT_EQ(joins.size(), 1u);
  EXPECT_EQ(joins[0].head.flags, schema::BlockedKind::kJoin);
  for (const TestRecord& record : segment.ReadKind(RecordKind::kBlocked)) EXPECT_EQ(record.ring, 0u);
}

TEST(ProbeBlocked, NothingIsWrittenWithoutARingOrWhileOff) {
  TestSegmentOptions options;
  options.blocked = true;
  TestSegment segment(options);
  ASSERT_EQ(RunScenario(segment, {"blocked", "0"}), 0);
  for (const TestRecord& record : segment.ReadKind(RecordKind::kBlocked)) ADD_FAILURE() << record.ring;
  TestSegment off;
  ASSERT_EQ(RunScenario(off, {"blocked", "1"}), 0);
  EXPECT_TRUE(off.ReadKind(RecordKind::kBlocked).empty());
  options.recording = false;
  TestSegment stopped(options);
  ASSERT_EQ(RunScenario(stopped, {"blocked", "1"}), 0);
  EXPECT_TRUE(stopped.ReadAll().empty());
}

TEST(ProbeLibrary, NeedsAndExportsNothingElse) {
  if (std::string(LOCKSTEP_SANITIZERS) != "") GTEST_SKIP() << "sanitizers add libraries and symbols";
  std::set<std::string> in_place_of_libc{"pthread_cond_signal", "pthread_cond_broadcast", "sem_post"};
  for (std::uint16_t call = 0; call < 200; ++call) in_place_of_libc.emplace(NameOf(static_cast<BlockedCall>(call)));
  for (const char* library :
       {"/liblockstep.so", "/liblockstep-mpi.so", "/liblockstep-mpi-ompi40.so", "/liblockstep-mpi-mpich12.so"}) {
    const std::string path = std::string(LOCKSTEP_BUILD_DIR) + library;
    if (access(path.c_str(), R_OK) != 0) continue;
    std::string needed = Output("readelf -d " + path + " | sed -n 's/.*(NEEDED).*\\[\\(.*\\)\\]/\\1/p'");
    std::set<std::string> allowed{"libc.so.6",  "libm.so.6",      "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
                                  "libdl.so.2", "libpthread.so.0"};
    if (std::string(library) != "/liblockstep.so") allowed.insert("liblockstep.so");
    for (std::size_t at = 0; at < needed.size(); at = needed.find('\n', at) + 1)
      EXPECT_TRUE(allowed.count(needed.substr(at, needed.find('\n', at) - at)))
          << path << " needs " << needed.substr(at, needed.find('\n', at) - at);
    const std::string symbols = Output("nm -D --defined-only " + path + " | awk '{print $3}'");
    for (std::size_t at = 0; at < symbols.size(); at = symbols.find('\n', at) + 1) {
      const std::string symbol = symbols.substr(at, symbols.find('\n', at) - at);
      const bool own = symbol.rfind("lockstep_", 0) == 0 || symbol.rfind("LOCKSTEP_", 0) == 0 ||
                       symbol.rfind("InitializeInjectionNvtx", 0) == 0 ||
                       // In libtorch's place (comms/c10d/gloo_queue.h, waits.cc).
                       symbol.rfind("_ZN4c10d16ProcessGroupGloo", 0) == 0 ||
                       symbol.rfind("_ZN4c10d4Work4waitE", 0) == 0 ||
                       // In libc's place.
                       (std::string(library) == "/liblockstep.so" && in_place_of_libc.count(symbol) != 0);
      // Fortran bindings call PMPI functions, so those are wrapped as well (comms/pmpi/attach.cc).
      const std::string c = symbol.substr(symbol[0] == 'P' ? 1 : 0);
      const bool mpi = c.rfind("MPI_", 0) == 0 || c.rfind("MPIX_", 0) == 0;
      EXPECT_TRUE(std::string(library) == "/liblockstep-mpi.so" ? mpi : own) << path << " exports " << symbol;
    }
    // A few words of static TLS: dlopen'ed libraries share 1.6 KiB.
    const std::string tls = Output("readelf -lW " + path + " | awk '$1==\"TLS\" {print $6}'");
    if (!tls.empty()) {
      EXPECT_LE(std::strtoul(tls.c_str(), nullptr, 16), std::string(library) == "/liblockstep.so" ? 80u : 32u) << path;
    }
  }
}

}  // namespace
}  // namespace lockstep::probe
