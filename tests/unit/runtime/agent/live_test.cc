// The live figures: what is made of records, what of all ranks' steps.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/gpu_records.h"
#include "core/mpi_ops.h"
#include "core/schema_enums.h"
#include "core/torch_records.h"
#include "runtime/agent/live/clock_line.h"
#include "runtime/agent/live/live_figures.h"
#include "runtime/agent/live/live_file.h"
#include "runtime/agent/live/live_steps.h"
#include "runtime/agent/live/live_text.h"
#include "temp_dir.h"

namespace lockstep::agent {
namespace {

constexpr std::uint32_t kWorld = 0;
constexpr std::uint64_t kWorldId = 77;

// Records as the probe writes them, ticks = ns.
class Records {
 public:
  template <typename T>
  Records& Add(RecordKind kind, T record, const std::string& text = {}) {
    const std::size_t slots = (sizeof record + text.size() + kSlotBytes - 1) / kSlotBytes;
    record.head = {kind, record.head.flags, static_cast<std::uint16_t>(slots)};
    const std::size_t at = bytes_.size();
    bytes_.resize(at + slots * kSlotBytes);
    std::memcpy(bytes_.data() + at, &record, sizeof record);
    std::memcpy(bytes_.data() + at + sizeof record, text.data(), text.size());
    return *this;
  }
  Records& World(std::uint32_t size = 2) {
    CommRecord comm{};
    comm.comm = kWorld;
    comm.global_id = kWorldId;
    comm.size = size;
    return Add(RecordKind::kComm, comm);
  }
  Records& Step(std::int64_t index, std::uint64_t ticks, bool ends = false, std::int64_t cpu_ns = -1) {
    StepRecord step{};
    step.head.flags = ends ? 0x80 : 0;
    step.index = index;
    step.ticks = ticks;
    step.cpu_ns = cpu_ns;
    return Add(RecordKind::kStep, step);
  }
  Records& Mpi(MpiOp op, std::uint64_t begin, std::uint64_t end, std::uint32_t seq = 0, std::uint64_t request = 0,
               std::uint64_t bytes = 8) {
    MpiRecord call{};
    call.op = static_cast<std::uint16_t>(op);
    call.begin_ticks = begin;
    call.end_ticks = end;
    call.comm = kWorld;
    call.seq = seq;
    call.request = request;
    call.bytes = bytes;
    return Add(RecordKind::kMpi, call);
  }
  Records& Poll(MpiOp op, std::uint32_t calls, std::uint64_t first, std::uint64_t last) {
    PollRecord run{};
    run.calls = calls;
    run.first_ticks = first;
    run.last_ticks = last;
    run.op_and_request = static_cast<std::uint64_t>(op);
    return Add(RecordKind::kPoll, run);
  }
  Records& Completion(std::uint64_t request, std::uint8_t flags = 0, std::uint64_t bytes = 0) {
    CompletionRecord one{};
    one.head.flags = flags;
    one.request = request;
    one.bytes = bytes;
    return Add(RecordKind::kCompletion, one);
  }
  Records& Kernel(std::uint32_t name, std::uint64_t begin, std::uint64_t end) {
    GpuKernelRecord kernel{};
    kernel.name = name;
    kernel.begin_ticks = begin;
    kernel.end_ticks = end;
    return Add(RecordKind::kGpuKernel, kernel);
  }
  Records& Name(std::uint32_t id, const std::string& text) {
    StringRecord name{};
    name.id = id;
    name.bytes = static_cast<std::uint32_t>(text.size());
    return Add(RecordKind::kString, name, text);
  }
  Records& Range(std::uint32_t name, std::uint64_t begin, std::uint64_t end, std::uint8_t category = 0) {
    RangeRecord range{};
    range.head.flags = static_cast<std::uint8_t>(schema::RangeSource::kTorch | category << 4);
    range.name = name;
    range.begin_ticks = begin;
    range.end_ticks = end;
    return Add(RecordKind::kRange, range);
  }
  Records& Work(std::uint64_t work, CollectiveKind kind, std::uint64_t queued, std::uint64_t begin, std::uint64_t end,
                std::uint64_t seq = 0, std::uint64_t count = 10) {
    TorchBeginRecord record{};
    record.head.flags = static_cast<std::uint8_t>(kind);
    record.comm = kWorld;
    record.ticks = begin;
    record.work = work;
    record.queued_ticks = queued;
    record.seq = seq;
    record.count = count;
    record.dtype = static_cast<std::uint16_t>(DataType::kFloat32);
    Add(RecordKind::kTorchBegin, record);
    return end == 0 ? *this : WorkEnd(work, end);
  }
  Records& Blocked(std::uint64_t begin, std::uint64_t end, std::uint32_t waker, std::uint64_t woken,
                   std::uint8_t kind = schema::BlockedKind::kCondition) {
    BlockedRecord record{};
    record.head.flags = kind;
    record.begin_ticks = begin;
    record.end_ticks = end;
    record.woken_ticks = woken;
    record.waker_tid = waker;
    return Add(RecordKind::kBlocked, record);
  }
  Records& WorkEnd(std::uint64_t work, std::uint64_t end) {
    TorchEndRecord record{};
    record.ticks = end;
    record.work = work;
    return Add(RecordKind::kTorchEnd, record);
  }
  // In two parts, cut behind the `cut`-th slot.
  void Into(LiveSteps& steps, std::uint32_t ring = 0, std::size_t cut = 0, std::uint32_t process = 0) {
    RingEntry entry{};
    entry.generation = 1;
    entry.process = process;
    entry.tid = 100 + ring;
    const std::size_t first = std::min(bytes_.size(), cut * kSlotBytes);
    const iovec parts[2] = {{bytes_.data(), first}, {bytes_.data() + first, bytes_.size() - first}};
    steps.Take(ring, entry, std::span<const iovec>(parts, 2));
  }

 private:
  std::string bytes_;
};

std::int64_t Same(std::uint64_t ticks) { return static_cast<std::int64_t>(ticks); }

std::vector<LiveStep> SampleAll(LiveSteps& steps, std::uint64_t until = UINT64_MAX, std::size_t most = 16) {
  return steps.Sample(until, most, 4096, Same);
}

TEST(LiveSteps, BlockingCallsWhereverARecordIsCut) {
  for (std::size_t cut = 0; cut < 12; ++cut) {
    LiveSteps steps;
    Records()
        .World()
        .Step(0, 100)
        .Mpi(MpiOp::kAllreduce, 150, 180, 0)
        .Mpi(MpiOp::kBarrier, 190, 195, 1, 0, 0)
        .Step(1, 200)
        .Into(steps, 0, cut);
    const auto sampled = SampleAll(steps);
    ASSERT_EQ(sampled.size(), 1u);
    EXPECT_EQ(sampled[0].window, (Interval{100, 200}));
    EXPECT_EQ(sampled[0].in_comm, (IntervalSet{{150, 180}, {190, 195}}));
    ASSERT_EQ(sampled[0].operations.size(), 2u);
    EXPECT_EQ(sampled[0].operations[0].begin_ns, 150);
    EXPECT_EQ(sampled[0].operations[0].end_ns, 180);
    EXPECT_EQ(sampled[0].operations[0].members, 2u);
    EXPECT_EQ(sampled[0].operations[0].splits, 1u);
    EXPECT_NE(sampled[0].operations[0].key, sampled[0].operations[1].key);
    EXPECT_EQ(steps.open().index, 1);
    EXPECT_EQ(steps.steps(), 1);
  }
}

TEST(LiveSteps, AnOperationEndsWithTheCallThatCompletedIt) {
  LiveSteps steps;
  Records()
      .World()
      .Step(0, 100)
      .Mpi(MpiOp::kIallreduce, 110, 112, 0, 5)
      .Mpi(MpiOp::kIallreduce, 120, 122, 1, 5)  // Handles are not unique.
      .Mpi(MpiOp::kWaitall, 150, 170, 0, 0, 2)
      .Completion(5)
      .Completion(5)
      .Step(1, 200)
      .Into(steps);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  ASSERT_EQ(sampled[0].operations.size(), 2u);
  for (const LiveOperation& one : sampled[0].operations) EXPECT_EQ(one.end_ns, 170);
  EXPECT_EQ(sampled[0].operations[1].begin_ns, 120);
}

// As in the trace: one may last, and the probe makes a run only of those that follow each other within 20 us.
TEST(LiveSteps, QueriesThatFoundNothing) {
  LiveSteps steps;
  Records().World().Into(steps);
  steps.MpiShare(100'000);
  Records()
      .Step(0, 100'000)
      .Mpi(MpiOp::kIallreduce, 110'000, 115'000, 0, 9)
      .Poll(MpiOp::kTest, 1, 120'000, 150'000)
      .Poll(MpiOp::kTest, 4, 200'000, 280'000)
      .Poll(MpiOp::kTest, 4, 300'000, 381'000)
      .Mpi(MpiOp::kWait, 390'000, 395'000, 0, 9)
      .Step(1, 400'000)
      .Into(steps);
  EXPECT_DOUBLE_EQ(steps.MpiShare(400'000), 201.0 / 300);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  EXPECT_EQ(sampled[0].in_comm,
            (IntervalSet{
                {110'000, 115'000}, {120'000, 150'000}, {200'000, 280'000}, {300'000, 381'000}, {390'000, 395'000}}));
}

TEST(LiveSteps, StepsOfVeryManyQueriesAreShownWithoutTheirTime) {
  LiveSteps steps;
  Records records;
  records.World().Step(0, 0).Mpi(MpiOp::kBarrier, 10, 20, 0, 0, 0);
  for (std::uint64_t at = 100; at < 100 + 5000 * 10; at += 10) records.Poll(MpiOp::kTest, 1, at, at + 1);
  records.Step(1, 100'000).Mpi(MpiOp::kBarrier, 100'010, 100'020, 1, 0, 0).Step(2, 200'000).Into(steps);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 2u);
  EXPECT_EQ(sampled[0].in_comm, (IntervalSet{{10, 20}}));
  EXPECT_EQ(sampled[0].operations.size(), 1u);
  EXPECT_EQ(sampled[1].index, 1);
}

TEST(LiveSteps, AnotherThreadMayCompleteAndBeReadFirst) {
  LiveSteps steps;
  Records().World().Step(0, 100).Into(steps, 1);
  Records().Mpi(MpiOp::kWait, 150, 170, 0, 9).Into(steps, 0);
  Records().Mpi(MpiOp::kIallreduce, 110, 112, 0, 9).Step(1, 200).Into(steps, 1);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  ASSERT_EQ(sampled[0].operations.size(), 1u);
  EXPECT_EQ(sampled[0].operations[0].end_ns, 170);
  EXPECT_EQ(sampled[0].in_comm, (IntervalSet{{110, 112}})) << "the other thread's calls are not the training thread's";
}

TEST(LiveSteps, PersistentOperationsHaveAKeyPerStart) {
  LiveSteps steps;
  Records records;
  records.World().Mpi(MpiOp::kAllreduce_init, 10, 12, 3, 6).Step(0, 100);
  records.Mpi(MpiOp::kStart, 110, 111, 0, 0, 1).Completion(6, kCompletionStarted, 1);
  records.Mpi(MpiOp::kWait, 120, 130, 0, 6, 1);
  records.Mpi(MpiOp::kStart, 140, 141, 0, 0, 1).Completion(6, kCompletionStarted, 2);
  records.Mpi(MpiOp::kWait, 150, 160, 0, 6, 1).Step(1, 200).Into(steps);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  ASSERT_EQ(sampled[0].operations.size(), 2u);
  EXPECT_NE(sampled[0].operations[0].key, sampled[0].operations[1].key);
  EXPECT_EQ(sampled[0].operations[0].end_low_ns, 120) << "the entry of its wait";
  EXPECT_EQ(sampled[0].operations[0].end_ns, 130);
  EXPECT_EQ(sampled[0].operations[1].end_ns, 160);
}

TEST(LiveSteps, RanksThatSampleForThemselvesSampleTheSameSteps) {
  for (const std::int64_t first : {0, 1, 7}) {
    LiveSteps steps;
    Records records;
    records.World();
    for (std::int64_t i = first; i <= 100; ++i) records.Step(i, 1000 + static_cast<std::uint64_t>(i) * 10);
    records.Into(steps);
    const auto sampled = SampleAll(steps);
    ASSERT_GE(sampled.size(), 8u);
    ASSERT_LE(sampled.size(), 16u);
    for (const LiveStep& step : sampled) EXPECT_EQ(step.index % 8, 0);
    EXPECT_TRUE(SampleAll(steps).empty()) << "nothing twice";
  }
}

TEST(LiveSteps, StepsThatAreNotWholeAreNotShown) {
  LiveSteps steps;
  Records records;
  records.World().Step(0, 100).Step(1, 200).Step(5, 300);               // Records were dropped between 1 and 5.
  records.Step(6, 400).Step(7, 500, true).Step(9, 900).Step(10, 1000);  // Recording was off in between.
  records.Into(steps);
  std::vector<std::int64_t> indices;
  for (const LiveStep& step : SampleAll(steps, 950)) indices.push_back(step.index);
  EXPECT_EQ(indices, (std::vector<std::int64_t>{0, 5, 6}));
}

TEST(LiveSteps, GpuRanksShowWhatNoOtherKernelHides) {
  LiveSteps steps;
  Records().World().Step(0, 100).Mpi(MpiOp::kBarrier, 110, 120, 0, 0, 0).Step(1, 200).Step(2, 300).Into(steps);
  Records()
      .Name(1, "_ZN7cutlass6KernelI4GemmEEvv")
      .Name(2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
      .Kernel(1, 110, 150)
      .Kernel(2, 140, 180)
      .Kernel(1, 210, 260)
      .Into(steps, 3);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u) << "the last step's kernels may still be on their way";
  EXPECT_EQ(sampled[0].gpu_exposed_ns, 30);
  EXPECT_TRUE(sampled[0].in_comm.empty());
}

// As in the trace (core/awaited_operation.h): what lies outside their time is blocked.
TEST(LiveSteps, WaitingForWorksOfAnotherThread) {
  LiveSteps steps;
  Records().World().Step(0, 0).Into(steps);
  Records()
      .Work(1, CollectiveKind::kAllReduce, 250'000, 300'000, 400'000, 0)
      .Work(2, CollectiveKind::kAllReduce, 450'000, 500'000, 980'000, 1)
      .Into(steps, 1);
  Records()
      .Blocked(200'000, 290'000, 101, 289'000)  // Nothing had begun.
      .Blocked(350'000, 395'000, 103, 394'000)  // Another thread signalled.
      .Blocked(420'000, 985'000, 101, 984'000)
      .Blocked(990'000, 999'000, 101, 998'000)  // All had ended.
      .Step(1, 1'000'000)
      .Into(steps);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  EXPECT_EQ(sampled[0].in_comm, (IntervalSet{{500'000, 980'000}}));
  ASSERT_EQ(sampled[0].operations.size(), 2u);
  const LiveOperation& last = sampled[0].operations[1];
  EXPECT_EQ(last.begin_ns, 500'000);
  EXPECT_EQ(last.end_low_ns, 980'000);
  EXPECT_EQ(last.end_ns, 980'000);
  EXPECT_EQ(last.members, 2u);
  EXPECT_EQ(last.splits, 1u);
  EXPECT_NE(last.key, sampled[0].operations[0].key);
}

TEST(LiveSteps, InputBesideAWorkIsExposedAndASleepIsNot) {
  LiveSteps steps;
  Records().World().Step(0, 0).Into(steps);
  Records().Work(1, CollectiveKind::kAllReduce, 0, 300'000, 980'000).Into(steps, 1);
  Records()
      .Range(0, 10'000, 410'000, schema::Category::kInput)
      .Blocked(500'000, 900'000, 0, 0, schema::BlockedKind::kSleep)
      .Step(1, 1'000'000)
      .Into(steps);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  EXPECT_EQ(sampled[0].in_comm, (IntervalSet{{300'000, 410'000}}));
}

TEST(LiveSteps, CallsOfTorchDistributedAndWorksThatEndInAnotherRing) {
  LiveSteps steps;
  Records().World().Name(7, "c10d::broadcast").Step(0, 0, false, 0).Into(steps);
  Records().WorkEnd(1, 190).WorkEnd(9, 195).Into(steps, 1);
  Records()
      .Work(1, CollectiveKind::kBroadcast, 110, 120, 0)
      .Work(2, CollectiveKind::kScan, 200, 210, 0, 1)
      .Into(steps, 2);
  Records().WorkEnd(2, 290).Into(steps, 1);
  Records().Range(7, 100, 200).Range(7, 201, 300).Step(1, 1'000, false, 1'000).Into(steps);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  EXPECT_EQ(sampled[0].in_comm, (IntervalSet{{100, 200}, {201, 300}}));
  ASSERT_EQ(sampled[0].operations.size(), 2u);
  EXPECT_EQ(sampled[0].operations[0].end_ns, 190);
  EXPECT_EQ(sampled[0].operations[0].splits, 1u);  // Of two members, each waits for the other.
  EXPECT_EQ(sampled[0].operations[1].end_ns, 290);
  EXPECT_EQ(sampled[0].operations[1].splits, 0u);
}

TEST(LiveSteps, OfFewElementsOfAReduceOverGlooNotAllWaitForAll) {
  LiveSteps steps;
  Records()
      .World(4)
      .Step(0, 0)
      .Work(1, CollectiveKind::kReduce, 100, 110, 120, 0, 1)
      .Work(2, CollectiveKind::kReduce, 200, 210, 220, 1, 1000)
      .Step(1, 1'000)
      .Into(steps);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  ASSERT_EQ(sampled[0].operations.size(), 2u);
  EXPECT_EQ(sampled[0].operations[0].splits, 0u);
  EXPECT_EQ(sampled[0].operations[1].splits, 1u);
}

TEST(LiveSteps, OfSeveralProcessesTheOneThatAnnouncesSteps) {
  LiveSteps steps;
  Records().World().Mpi(MpiOp::kBarrier, 10, 20, 0, 0, 0).Into(steps, 0, 0, 0);
  Records().World().Step(0, 100).Mpi(MpiOp::kBarrier, 110, 120, 0, 0, 0).Step(1, 200).Into(steps, 1, 0, 1);
  Records().Mpi(MpiOp::kBarrier, 150, 190, 1, 0, 0).Into(steps, 0, 0, 0);
  const auto sampled = SampleAll(steps);
  ASSERT_EQ(sampled.size(), 1u);
  EXPECT_EQ(sampled[0].in_comm, (IntervalSet{{110, 120}}));
}

TEST(LiveSteps, RubbishIsNoReasonToFall) {
  for (unsigned seed = 1; seed < 200; ++seed) {
    std::string bytes(64 * kSlotBytes, '\0');
    unsigned state = seed;
    for (char& byte : bytes) byte = static_cast<char>((state = state * 1103515245u + 12345u) >> 16);
    for (std::size_t at = 0; at < bytes.size(); at += kSlotBytes) {  // Plausible heads.
      bytes[at] = static_cast<char>(bytes[at] & 63);
      bytes[at + 2] = static_cast<char>(bytes[at + 2] & 3);
      bytes[at + 3] = 0;
    }
    LiveSteps steps;
    RingEntry entry{};
    const iovec part{bytes.data(), bytes.size()};
    steps.Take(seed % 3, entry, {&part, 1});
    steps.Take(seed % 2, entry, {&part, 1});
    SampleAll(steps);
    steps.MpiShare(1000);
  }
}

LiveOperation Operation(std::uint64_t key, std::int64_t begin, std::int64_t end, std::uint32_t members = 2) {
  return {key, begin, end, end, members, 1};
}

LiveRank Rank(std::int32_t rank, std::vector<LiveStep> steps, std::uint64_t domain = 1) {
  LiveRank one;
  one.rank = rank;
  one.epoch = 100;
  one.domain = domain;
  one.steps_ended = static_cast<std::int64_t>(steps.size());
  one.steps = std::move(steps);
  return one;
}

TEST(LiveClock, GoesOnFromTheLastTwoAndDoubtsWhatIsFarFromThem) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  ClockLine line;
  EXPECT_EQ(line.Over(0, 0).error_ns, -1);
  // 50 ppm, measured to 1 us.
  const auto truth = [](std::int64_t at_ns) { return 7 * kSecond + at_ns / 20'000; };
  line.Add(10 * kSecond, {truth(10 * kSecond), 1'000});
  EXPECT_EQ(line.Over(10 * kSecond, 10 * kSecond).error_ns, 1'000);
  EXPECT_EQ(line.Over(12 * kSecond, 12 * kSecond).error_ns, 201'000) << "two crystals may drift 100 ppm";
  line.Add(11 * kSecond, {truth(11 * kSecond) + 900, 1'000});
  for (const std::int64_t begin_ns : {5 * kSecond, 11 * kSecond, 30 * kSecond}) {
    const std::int64_t end_ns = begin_ns + kSecond;
    const ClockOffset over = line.Over(begin_ns, end_ns);
    for (const std::int64_t at_ns : {begin_ns, end_ns})
      EXPECT_LE(std::abs(over.offset_ns - truth(at_ns)), over.error_ns) << at_ns;
    EXPECT_LT(over.error_ns, 1'000 + (std::abs(begin_ns - 11 * kSecond) + kSecond) / 10'000);
  }
  line.Add(11 * kSecond + 1'000, {truth(11 * kSecond) - 900, 1'000});
  EXPECT_EQ(line.Over(12 * kSecond + 1'000, 12 * kSecond + 1'000).error_ns, 101'000) << "too close for a rate";
}

TEST(LiveFigures, WaitingUntilTheLastThenTransfer) {
  const std::vector<LiveRank> ranks = {
      Rank(0, {{4, {0, 1000}, {{500, 900}}, {Operation(1, 500, 900)}, -1}}),
      Rank(1, {{4, {0, 1010}, {{800, 890}}, {Operation(1, 800, 890)}, -1}}),
  };
  const LiveFigures figures = ComputeLiveFigures(ranks, 2, 100);
  EXPECT_EQ(figures.steps, 1);
  EXPECT_EQ(figures.step_ns, 1005) << "the mean of the ranks' own";
  EXPECT_EQ(figures.exposed_wait_ns, 150);  // 300 on rank 0.
  EXPECT_EQ(figures.exposed_transfer_ns, (100 + 90) / 2);
  EXPECT_EQ(figures.exposed_unsplit_ns, 0);
  EXPECT_EQ(figures.last_rank, 1);
  EXPECT_EQ(figures.last_count, 1);
  EXPECT_EQ(figures.last_late_ns, 300);
  EXPECT_TRUE(figures.silent.empty());
}

// Posted at 100 and waited for from 500 on, while the other rank comes at 600: until then it is wait, and what moved
// when afterwards is not known, as in the trace.
TEST(LiveFigures, WhatMayHaveMovedBesideComputeIsUnsplit) {
  const auto posted = [](std::int64_t post, std::int64_t wait, std::int64_t end) {
    return LiveOperation{1, post, wait, end, 2, 1};
  };
  const std::vector<LiveRank> ranks = {
      Rank(0, {{4, {0, 1000}, {{100, 101}, {500, 900}}, {posted(100, 500, 900)}, -1}}),
      Rank(1, {{4, {0, 1000}, {{600, 601}, {700, 900}}, {posted(600, 700, 900)}, -1}}),
  };
  const LiveFigures figures = ComputeLiveFigures(ranks, 2, 100);
  EXPECT_EQ(figures.exposed_wait_ns, (1 + 100) / 2);
  EXPECT_EQ(figures.exposed_transfer_ns, -1);
  EXPECT_EQ(figures.exposed_unsplit_ns, (300 + 201) / 2);
  const std::string line = LiveLine(figures, 2, 1'000'000'000);
  EXPECT_NE(line.find("exposed wait 50 ns, unsplit 250 ns"), std::string::npos) << line;
  EXPECT_EQ(LiveMetrics(figures, 2, 1).find("transfer"), std::string::npos);
}

// As in the trace: it is of the step in which the last rank came.
TEST(LiveFigures, ACollectiveAcrossABoundaryCountsOnce) {
  LiveRank first, second;
  first.steps = {{0, {0, 100}, {}, {{7, 90, 120, 120, 2, 1}}, -1}, {1, {100, 200}, {}, {{7, 90, 120, 120, 2, 1}}, -1}};
  second.steps = {{0, {0, 100}, {}, {}, -1}, {1, {100, 200}, {}, {{7, 110, 120, 120, 2, 1}}, -1}};
  for (LiveRank* rank : {&first, &second}) rank->error_ns = 0;
  second.rank = 1;
  LiveFigures figures = ComputeLiveFigures(std::vector{first, second}, 2, 0);
  EXPECT_EQ(figures.collectives, 1);
  EXPECT_EQ(figures.last_count, 1);
  EXPECT_EQ(figures.last_rank, 1);
  // Both are there before the boundary.
  second.steps = {{0, {0, 100}, {}, {{7, 95, 120, 120, 2, 1}}, -1}, {1, {100, 200}, {}, {{7, 95, 120, 120, 2, 1}}, -1}};
  figures = ComputeLiveFigures(std::vector{first, second}, 2, 0);
  EXPECT_EQ(figures.steps, 2);
  EXPECT_EQ(figures.collectives, 1);
  EXPECT_EQ(figures.last_count, 1);
}

TEST(LiveFigures, WithoutCommunicationThereIsNone) {
  const std::vector<LiveRank> ranks = {Rank(0, {{4, {0, 1000}, {}, {}, -1}}), Rank(1, {{4, {0, 1000}, {}, {}, -1}})};
  const LiveFigures figures = ComputeLiveFigures(ranks, 2, 100);
  EXPECT_EQ(figures.exposed_wait_ns, 0);
  EXPECT_EQ(figures.exposed_transfer_ns, 0);
  EXPECT_EQ(LiveMetrics(ComputeLiveFigures({}, 2, 100), 2, 1).find("_total"), std::string::npos) << "nobody reported";
}

TEST(LiveHearing, ARankIsSilentWhenItsNumberStandsStillWhateverItIs) {
  LiveHearing hearing;
  // A period of 2 s; rank 1's wall clock is 5 s behind, rank 2's an hour ahead, rank 3 says nothing from period 102 on.
  for (std::int64_t epoch = 100; epoch < 106; ++epoch) {
    std::vector<LiveRank> ranks = {Rank(0, {}), Rank(1, {}), Rank(2, {}), Rank(3, {})};
    ranks[0].epoch = epoch;
    ranks[1].epoch = epoch - 3;
    ranks[2].epoch = epoch + 1800;
    ranks[3].epoch = std::min<std::int64_t>(epoch, 102);
    hearing.Update(ranks, epoch);
    const std::vector<std::int32_t> silent = epoch < 104 ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{3};
    EXPECT_EQ(ComputeLiveFigures(ranks, 4, epoch).silent, silent) << epoch;
  }
}

TEST(LiveFigures, OtherClocksAreMappedAndBoundWhatIsLast) {
  const std::int64_t offset = 5'000'000'000;
  std::vector<LiveRank> ranks = {
      Rank(0, {{4, {0, 1000}, {{500, 900}}, {Operation(1, 500, 900)}, -1}}),
      Rank(1,
           {{4,
             {offset, offset + 1010},
             {{offset + 800, offset + 890}},
             {Operation(1, offset + 800, offset + 890)},
             -1}},
           2),
  };
  EXPECT_EQ(ComputeLiveFigures(ranks, 2, 100).clock_error_ns, -1);
  const LiveFigures before = ComputeLiveFigures(ranks, 2, 100);
  EXPECT_EQ(before.exposed_wait_ns, -1) << "not compared yet: nothing is split";
  EXPECT_EQ(before.exposed_transfer_ns, -1);
  EXPECT_GT(before.exposed_unsplit_ns, 0);
  EXPECT_EQ(before.step_ns, 1005) << "no clock is needed for it";
  const std::string line = LiveLine(before, 2, 1'000'000'000), metrics = LiveMetrics(before, 2, 1);
  EXPECT_NE(line.find("exposed communication 245 ns"), std::string::npos) << line;
  EXPECT_EQ(line.find("wait"), std::string::npos) << line;
  for (const char* unknown : {"exposed_wait", "exposed_transfer", "clock_error"})
    EXPECT_EQ(metrics.find(unknown), std::string::npos) << metrics;
  ranks[1].offset_ns = -offset;
  ranks[1].error_ns = 100;
  const LiveFigures figures = ComputeLiveFigures(ranks, 2, 100);
  EXPECT_EQ(figures.step_ns, 1005);
  EXPECT_EQ(figures.exposed_wait_ns, 150);
  EXPECT_EQ(figures.clock_error_ns, 100);
  EXPECT_EQ(figures.last_rank, 1);
  ranks[1].error_ns = 200;  // 2 (200 + 0) > 300.
  EXPECT_EQ(ComputeLiveFigures(ranks, 2, 100).last_rank, -1);
  EXPECT_EQ(ComputeLiveFigures(ranks, 2, 100).ties, 1);
}

TEST(LiveFigures, OffsetsAreToRankZerosClockEvenIfItIsNotSeen) {
  std::vector<LiveRank> ranks = {
      Rank(1, {{4, {0, 1000}, {{500, 900}}, {Operation(1, 500, 900)}, -1}}, 1),
      Rank(2, {{4, {0, 1000}, {{800, 900}}, {Operation(1, 800, 900)}, -1}}, 2),
  };
  ranks[0].offset_ns = 400;
  ranks[0].error_ns = ranks[1].error_ns = 1;
  ranks[1].offset_ns = 0;
  const LiveFigures figures = ComputeLiveFigures(ranks, 3, 100);
  EXPECT_EQ(figures.last_rank, 1) << "500 + 400 is after 800";
  EXPECT_EQ(figures.last_late_ns, 100);
}

TEST(LiveFigures, WhatSomebodyUnseenTookPartInIsNotSplit) {
  std::vector<LiveRank> ranks = {
      Rank(0, {{4, {0, 1000}, {{500, 900}}, {Operation(1, 500, 900, 3)}, -1}}),
      Rank(1, {{4, {0, 1000}, {{800, 900}}, {Operation(1, 800, 900, 3)}, -1}}),
      Rank(2, {{4, {0, 1000}, {{800, 900}}, {Operation(1, 850, 900, 3)}, -1}}),
  };
  ranks[2].epoch = 97;
  const LiveFigures figures = ComputeLiveFigures(ranks, 4, 100);
  EXPECT_EQ(figures.silent, (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(figures.exposed_unsplit_ns, 250);
  EXPECT_EQ(figures.exposed_wait_ns, -1);
  EXPECT_EQ(figures.collectives, 0);
  const std::string line = LiveLine(figures, 4, 10'000'000'000);
  EXPECT_NE(line.find("2 of 4 ranks, nothing from 2, 3"), std::string::npos) << line;
}

TEST(LiveFigures, NoStepSaysWhatRuns) {
  LiveRank rank = Rank(0, {});
  rank.steps_ended = 17;
  rank.open_step = 17;
  rank.open_ns = 23'000'000'000;
  const std::string line = LiveLine(ComputeLiveFigures(std::vector{rank}, 1, 100), 1, 10'000'000'000);
  EXPECT_EQ(line, "live: no step ended · step 17 runs for 23 s on rank 0");
}

TEST(LiveFigures, WithoutStepsTheRanksInMpiMostAndLeastAreNamed) {
  std::vector<LiveRank> ranks = {Rank(0, {}), Rank(1, {}), Rank(2, {})};
  for (LiveRank& rank : ranks) rank.steps_ended = 0, rank.recording = true;
  ranks[0].mpi_share = 0.03, ranks[1].mpi_share = 0.57, ranks[2].mpi_share = 0.3;
  const auto line = [&] { return LiveLine(ComputeLiveFigures(ranks, 3, 100), 3, 10'000'000'000); };
  EXPECT_EQ(line(),
            "live: no step yet (mark steps with lockstep_step() or --step-range) · in MPI 30 % of the time: rank 1 57 "
            "%, rank 0 3.0 %");
  ranks[0].mpi_share = 0.52;
  ranks[2].mpi_share = 0.53;
  EXPECT_TRUE(line().ends_with("in MPI 54 % of the time")) << line();
}

TEST(LiveFile, ComesBackAndDamageIsSeen) {
  const TempDir directory;
  const std::string where = directory.path();
  LiveRank rank =
      Rank(3, {{4, {0, 1000}, {{500, 900}, {950, 960}}, {Operation(1, 500, 900)}, -1}, {5, {1000, 2000}, {}, {}, 7}});
  rank.mpi_share = 0.25;
  ASSERT_TRUE(WriteLiveFile(where, rank));
  const auto read = ReadLiveFile(where, 3);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->steps.size(), 2u);
  EXPECT_EQ(read->steps[0].in_comm, rank.steps[0].in_comm);
  EXPECT_EQ(read->steps[1].gpu_exposed_ns, 7);
  EXPECT_EQ(read->mpi_share, 0.25);
  EXPECT_FALSE(ReadLiveFile(where, 2).has_value());
  EXPECT_FALSE(WriteLiveFile(where + "/none", rank));

  std::ifstream in(LiveFileName(where, 3), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    std::ofstream(LiveFileName(where, 3), std::ios::binary) << damaged;
    EXPECT_FALSE(ReadLiveFile(where, 3).has_value()) << at;
    std::ofstream(LiveFileName(where, 3), std::ios::binary) << whole.substr(0, at);
    EXPECT_FALSE(ReadLiveFile(where, 3).has_value()) << at;
  }
}

}  // namespace
}  // namespace lockstep::agent
