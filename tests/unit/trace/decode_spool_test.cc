// Spools and segments: damage, leftovers, clocks, steps, processes.

#include <random>

#include "decode_fixture.h"
#include "trace/decode/open_call.h"

namespace lockstep::trace {
namespace {

using schema::kNoTime;
class DecodeSpoolFile : public DecodeTest {};

ThreadRecords Barriers(std::uint32_t first, std::uint32_t count) {
  ThreadRecords r;
  for (std::uint32_t i = first; i < first + count; ++i)
    r.Mpi({.op = MpiOp::kBarrier, .begin = 100 + i * 10, .end = 105 + i * 10, .seq = i});
  return r;
}

TEST_F(DecodeSpoolFile, AbsentOrForeignFilesAreErrors) {
  EXPECT_EQ(DecodeSpool({Path("none.spool"), ""}).error().code, ErrorCode::kNotFound);
  std::ofstream(Path("empty.spool"));
  EXPECT_EQ(DecodeSpool({Path("empty.spool"), ""}).error().code, ErrorCode::kMalformed);
  std::ofstream(Path("text.spool")) << std::string(5000, 'x');
  EXPECT_EQ(DecodeSpool({Path("text.spool"), ""}).error().code, ErrorCode::kMalformed);
}

TEST_F(DecodeSpoolFile, MetaEndAndProcess) {
  const auto decoded = Decode(SpoolBuilder()
                                  .Meta("clock_mode\traw\nrank\t3\nrank_source\tenv\nhost\told\n")
                                  .Meta("host\tnew\n")
                                  .Process(0, 100, 5)
                                  .Thread()
                                  .Records(Barriers(0, 1))
                                  .End(5000, 0, 11));
  ASSERT_EQ(decoded.processes.size(), 1u);
  EXPECT_TRUE(decoded.ended);
  const auto& t = decoded.processes[0].tables;
  EXPECT_EQ(MetaOf(t, "host"), "new");
  EXPECT_EQ(MetaOf(t, "rank"), "5");  // MPI knows better than the launcher's variable.
  EXPECT_EQ(MetaOf(t, "rank_source"), "mpi");
  EXPECT_EQ(MetaOf(t, "exit_signal"), "11");
  EXPECT_EQ(MetaOf(t, "app_cpu_ns"), "7");
  ASSERT_EQ(t.processes.rows(), 1u);
  EXPECT_EQ(t.processes.ended[0], 2);
  EXPECT_EQ(t.processes.end_code[0], 11);
  EXPECT_EQ(t.processes.end_ns[0], 5000);
  EXPECT_EQ(TextOf(t, t.processes.exe[0]), "/bin/app");
  EXPECT_EQ(t.threads.training[0], 1);
}

TEST_F(DecodeSpoolFile, BadBlockIsSkippedAndCounted) {
  SpoolBuilder spool;
  spool.Meta().Process().Thread().Records(Barriers(0, 5)).Records(Barriers(5, 5)).Records(Barriers(10, 5)).End(9000);
  spool.bytes()[spool.block_offsets()[4] + 60] ^= 1;
  const auto decoded = Decode(spool);
  const auto& t = decoded.processes[0].tables;
  EXPECT_EQ(t.collectives.rows(), 10u);
  EXPECT_EQ(decoded.bad_blocks, 1u);
  EXPECT_EQ(LossCount(t, "SpoolBlock"), 1u);
  EXPECT_EQ(t.collectives.seq.back(), 14u);
  EXPECT_TRUE(decoded.ended);
}

TEST_F(DecodeSpoolFile, CutAnywhereKeepsWholeBlocks) {
  SpoolBuilder spool;
  spool.Meta().Process().Thread();
  for (std::uint32_t i = 0; i < 20; ++i) spool.Records(Barriers(i * 5, 5));
  const std::vector<char> whole = spool.bytes();
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const std::size_t size = spool.block_offsets()[3] + random() % (whole.size() - spool.block_offsets()[3]);
    SpoolBuilder cut = spool;
    cut.bytes().resize(size);
    std::size_t blocks = 0;
    bool at_boundary = false;
    for (std::size_t b = 4; b <= spool.block_offsets().size(); ++b) {
      const std::size_t end = b < spool.block_offsets().size() ? spool.block_offsets()[b] : whole.size();
      if (end <= size) ++blocks;
      at_boundary = at_boundary || end == size || size == spool.block_offsets()[3];
    }
    const auto t = Tables(cut);
    EXPECT_EQ(t.collectives.rows(), blocks * 5);
    EXPECT_EQ(LossCount(t, "SpoolTail") + LossCount(t, "SpoolBlock"), at_boundary ? 0u : 1u) << size;
  }
}

TEST_F(DecodeSpoolFile, UnknownAndBrokenRecordsAreCounted) {
  struct Odd {
    RecordHead head;
    char rest[28];
  };
  ThreadRecords r = Barriers(0, 1);
  r.Add(Odd{{static_cast<RecordKind>(99), 0, 1}, {}});
  r.Mpi({.op = MpiOp::kBarrier, .begin = 500, .end = 510, .seq = 1});
  r.Add(Odd{{RecordKind::kMpi, 0, 0}, {}});  // Where the next begins is unknown: the block ends here.
  r.Mpi({.op = MpiOp::kBarrier, .begin = 600, .end = 610, .seq = 2});
  const auto t = Tables(SpoolBuilder().Meta().Process().Thread().Records(r).Records(Barriers(90, 1)));
  EXPECT_EQ(t.collectives.seq, (std::vector<std::uint64_t>{0, 1, 90}));
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 2u);
}

TEST_F(DecodeSpoolFile, TicksAreInterpolatedBetweenSnapshots) {
  // 2 ticks per ns, then 4; the interval in which an event lies decides.
  ThreadRecords r;
  r.Mpi({.op = MpiOp::kBarrier, .begin = 1'000'000, .end = 1'000'500, .seq = 0});
  r.Mpi({.op = MpiOp::kBarrier, .begin = 3'000'000, .end = 3'000'400, .seq = 1});
  r.Mpi({.op = MpiOp::kBarrier, .begin = 7'000'000, .end = 7'000'400, .seq = 2});
  const auto t = Tables(SpoolBuilder()
                            .Meta("clock_mode\ttsc\n")
                            .Process()
                            .Thread()
                            .Snapshot(1'000'000, 5'000'000)
                            .Snapshot(6'000'000, 6'500'000)
                            .Snapshot(2'000'000, 5'500'000)  // Any order.
                            .Records(r));
  EXPECT_EQ(t.mpi_calls.begin_ns, (std::vector<std::int64_t>{5'000'000, 5'750'000, 6'800'000}));
  EXPECT_EQ(t.mpi_calls.duration_ns, (std::vector<std::int64_t>{250, 100, 120}));
  EXPECT_EQ(LossCount(t, "ClockExtrapolated"), 2u);  // Begin and end of the last call, at the mean rate.
}

TEST_F(DecodeSpoolFile, DamagedSnapshotsDoNotCount) {
  ThreadRecords r;
  r.Mpi({.op = MpiOp::kBarrier, .begin = 3'000'000, .end = 3'000'400, .seq = 0});
  const auto t = Tables(SpoolBuilder()
                            .Meta("clock_mode\ttsc\n")
                            .Process()
                            .Thread()
                            .Snapshot(900'000, -9'223'353'679'640'480'141)
                            .Snapshot(2'000'000, 5'500'000)
                            .Snapshot(6'000'000, 6'500'000)
                            .Snapshot(0x7fffffffffffffff, 7'000'000)
                            .Records(r));
  EXPECT_EQ(t.mpi_calls.begin_ns, std::vector<std::int64_t>{5'750'000});
}

TEST_F(DecodeSpoolFile, InterpolationIsExactAtTheSizesOfRealCounters) {
  // A TSC of 2.1 GHz that has run for a year, one snapshot a second.
  SpoolBuilder spool;
  spool.Meta("clock_mode\ttsc\n").Process().Thread();
  constexpr std::uint64_t kTicks0 = 66'000'000'000'000'000, kHz = 2'100'000'003;
  constexpr std::int64_t kNs0 = 31'000'000'000'000'000;
  for (std::uint64_t s = 0; s < 5; ++s)
    spool.Snapshot(kTicks0 + s * kHz, kNs0 + static_cast<std::int64_t>(s) * 1'000'000'007);
  ThreadRecords r;
  __extension__ using Int128 = __int128;
  std::vector<std::int64_t> expected;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::uint64_t at = i * 10'000'019;
    r.Mpi({.op = MpiOp::kBarrier, .begin = kTicks0 + at, .end = kTicks0 + at, .seq = 0});
    const Int128 doubled =
        (2 * Int128{static_cast<std::int64_t>(at)} * 1'000'000'007 + static_cast<std::int64_t>(kHz)) /
        static_cast<std::int64_t>(kHz);
    expected.push_back(kNs0 + static_cast<std::int64_t>(doubled / 2));
  }
  EXPECT_EQ(Tables(spool.Records(r)).mpi_calls.begin_ns, expected);
}

TEST_F(DecodeSpoolFile, StepsEndWhereTheNextBegins) {
  ThreadRecords r;
  for (int i = 0; i < 6; ++i) r.Step(10 + i, 1000 + static_cast<std::uint64_t>(i) * 100, 50 + i * 30);
  const auto t = TablesOf(r);
  ASSERT_EQ(t.steps.rows(), 6u);
  EXPECT_EQ(t.steps.index, (std::vector<std::int64_t>{10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(t.steps.warmup, (std::vector<std::uint8_t>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(t.steps.complete, (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(t.steps.end_ns[4], 1500);
  EXPECT_EQ(t.steps.end_ns[5], 1'000'000);  // The application's end.
  EXPECT_EQ(t.steps.cpu_ns, (std::vector<std::int64_t>{30, 30, 30, 30, 30, -1}));
  EXPECT_EQ(LossCount(t, "StepIncomplete"), 1u);
}

TEST_F(DecodeSpoolFile, OtherThreadsCpuTimeOfSteps) {
  ThreadRecords r;
  const std::uint32_t read_us[] = {UINT32_MAX - 5, 14, 12, 0, 20, 27};  // Over the end, a tick back, not read.
  for (std::uint32_t i = 0; i < 6; ++i) r.Step(i, 1000 + i * 100, 50 + i * 30, 0, read_us[i]);
  EXPECT_EQ(TablesOf(r).steps.others_cpu_ns, (std::vector<std::int64_t>{20'000, 0, -1, -1, 7'000, -1}));
}

TEST_F(DecodeSpoolFile, StepSourcesAreNotMixed) {
  ThreadRecords r;
  r.Step(0, 100, -1, 2).Step(0, 110, -1, 0).Step(1, 200, -1, 2).Step(1, 210, -1, 0).Step(2, 310, -1, 0x80);
  const auto t = TablesOf(r);
  EXPECT_EQ(t.steps.begin_ns, (std::vector<std::int64_t>{110, 210}));
  EXPECT_EQ(t.steps.end_ns, (std::vector<std::int64_t>{210, 310}));
  EXPECT_EQ(t.steps.complete, (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(t.steps.warmup, (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(t.steps.cpu_ns[0], -1);
}

TEST_F(DecodeSpoolFile, RangesOuterFirst) {
  const auto t = TablesOf(ThreadRecords()
                              .String(1, "forward")
                              .String(2, "layer")
                              .Range(2, 100, 120, 1)
                              .Range(2, 120, 180, 1)
                              .Range(1, 100, 200, 0)
                              .Range(7, 300, 301, 0));  // A name that was never told.
  EXPECT_EQ(t.ranges.begin_ns, (std::vector<std::int64_t>{100, 100, 120, 300}));
  EXPECT_EQ(t.ranges.depth, (std::vector<std::uint16_t>{0, 1, 1, 0}));
  EXPECT_EQ(TextOf(t, t.ranges.name[0]), "forward");
  EXPECT_EQ(TextOf(t, t.ranges.name[1]), "layer");
  EXPECT_EQ(t.ranges.name[3], schema::kNone);
}

TEST_F(DecodeSpoolFile, CpuSamplesOfProbeAndAgentInOneOrder) {
  const SpoolCpu agent[2] = {{150, 40, 5, 0, 1}, {350, 90, 9, 0, 1}};
  ThreadRecords r;
  r.Add(CpuRecord{{RecordKind::kCpu, 0, 1}, 0, 100, 10, -1}).Add(CpuRecord{{RecordKind::kCpu, 0, 1}, 0, 300, 80, -1});
  const auto t =
      Tables(SpoolBuilder().Meta().Process().Thread().Records(r).Block(SpoolKind::kCpu, agent, sizeof agent));
  EXPECT_EQ(t.cpu_samples.time_ns, (std::vector<std::int64_t>{100, 150, 300, 350}));
  EXPECT_EQ(t.cpu_samples.run_delay_ns, (std::vector<std::int64_t>{-1, 5, -1, 9}));
}

TEST_F(DecodeSpoolFile, FurtherProcessesGetTheirOwnTables) {
  SpoolBuilder spool;
  spool.Meta().Process(0, 100, -1).Process(1, 101, 0).Process(2, 102, -1);
  spool.Thread(0, 100, 0).Thread(1, 101, 1).Records(Barriers(0, 1), 0).Records(Barriers(0, 3), 1);
  spool.Thread(2, 102, 2).Records(Barriers(0, 2), 2);
  const auto decoded = Decode(spool);
  ASSERT_EQ(decoded.processes.size(), 3u);
  EXPECT_EQ(decoded.processes[0].tables.collectives.rows(), 3u);  // The one with a world rank.
  EXPECT_EQ(decoded.processes[1].tables.collectives.rows(), 1u);
  EXPECT_EQ(decoded.processes[2].tables.collectives.rows(), 2u);
  EXPECT_EQ(decoded.processes[0].tables.processes.pid, (std::vector<std::int64_t>{101, 100, 102}));
  EXPECT_EQ(decoded.processes[1].tables.processes.pid, (std::vector<std::int64_t>{100}));
}

TEST_F(DecodeSpoolFile, LossLinesOfTheAgent) {
  const auto t = Tables(SpoolBuilder().Meta().Process().Text(
      SpoolKind::kLoss, "SpoolWrite\t12\t100\t200\tNo space left on device\nFromTheFuture\t3\t0\t0\t\n"));
  ASSERT_EQ(LossCount(t, "SpoolWrite"), 12u);
  EXPECT_EQ(t.losses.first_ns[0], 100);
  EXPECT_EQ(TextOf(t, t.losses.detail[0]), "No space left on device");
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 3u);
}

// A segment as an agent leaves it when it dies: one ring, head before the agent's tail.
class Segment {
 public:
  static constexpr std::uint32_t kCapacity = 64;
  Segment() : bytes_(kArenaOffset + kRingHeaderBytes + kCapacity * kSlotBytes) {
    header().magic = kSegmentMagic;
    header().version = kSegmentVersion;
    header().agent_pid = 55;
    header().clock_mode = ClockMode::kRaw;
    header().processes_used = 1;
    header().rings_used = 1;
    view().processes()[0].state = SlotState::kActive;
    view().processes()[0].generation = 1;
    view().processes()[0].pid = 100;
    view().processes()[0].world_rank = 2;
    view().processes()[0].rank_source = 1;
    RingEntry& entry = view().rings()[0];
    entry.state = SlotState::kActive;
    entry.generation = 1;
    entry.capacity_slots = kCapacity;
    entry.offset = kArenaOffset;
    entry.tid = 100;
  }
  SegmentView view() { return {bytes_.data(), bytes_.size()}; }
  SegmentHeader& header() { return view().header(); }
  RingHeader& ring() { return view().ring(kArenaOffset); }
  void Put(std::uint64_t slot, const ThreadRecords& records) {
    for (std::uint64_t i = 0; i < records.slots(); ++i)
      std::memcpy(view().slots(kArenaOffset) + (slot + i) % kCapacity * kSlotBytes,
                  records.bytes().data() + i * kSlotBytes, kSlotBytes);
  }
  void Write(const std::string& path) const {
    std::remove(path.c_str());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST_F(DecodeSpoolFile, LeftoverRingContinuesTheSpool) {
  Segment segment;
  // 50 records were made, 30 are in the spool, the ring's tail says 25: nothing twice, nothing lost. Wraps.
  segment.Put(50, Barriers(25, 25));
  segment.ring().tail = 50;
  segment.ring().head = 100;
  segment.ring().call_op = static_cast<std::uint32_t>(MpiOp::kAllreduce);
  segment.ring().call_begin_ticks = 700;
  segment.ring().range_depth = 2;
  segment.ring().ranges[0] = {650, 1, static_cast<std::uint32_t>(RecordKind::kRange) | 0x30u << 8 | 1u << 16};
  segment.ring().ranges[1] = {0, 1, 0};  // Pushed while recording was off.
  OpenPolls& polls = segment.ring().polls;
  polls = {.calls = 10,
           .first_ticks = 660,
           .last_ticks = 690,
           .rows = 2,
           .handles = 0,
           .at = 0,
           .reserved = 0,
           .row = {},
           .handle = {}};
  polls.row[0] = {static_cast<std::uint64_t>(MpiOp::kTest), 4, 690, 20, 0, 0};
  polls.row[1] = {static_cast<std::uint64_t>(MpiOp::kIprobe), 6, 689, 10, 0, 0};
  segment.ring().dropped_records = 3;
  segment.ring().dropped_first_ticks = 695;
  segment.ring().dropped_last_ticks = 696;
  segment.Write(Path("segment"));
  SpoolBuilder spool;
  spool.Meta("agent_pid\t55\n").Process().Thread().Records(Barriers(0, 30));
  const auto decoded = Decode(spool, Path("segment"));
  const auto& t = decoded.processes[0].tables;
  EXPECT_FALSE(decoded.ended);
  EXPECT_EQ(decoded.recovered_from_rings, 20u);
  ASSERT_EQ(t.collectives.rows(), 50u);
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(t.collectives.seq[i], i);
  ASSERT_EQ(t.ranges.rows(), 1u);
  EXPECT_EQ(t.ranges.open[0], 1);
  EXPECT_EQ(t.ranges.begin_ns[0], 650);
  EXPECT_EQ(t.ranges.duration_ns[0], 50);  // To the last sign of life, the entry of the call.
  EXPECT_EQ(t.ranges.category[0], 3);
  ASSERT_EQ(t.mpi_calls.rows(), 53u);
  EXPECT_EQ(t.mpi_calls.op[50], static_cast<std::uint16_t>(MpiOp::kTest));
  EXPECT_EQ(t.mpi_calls.count[50], 4u);
  EXPECT_EQ(t.mpi_calls.duration_ns[50], 20);  // Two thirds of the time inside the calls.
  EXPECT_EQ(t.mpi_calls.op[51], static_cast<std::uint16_t>(MpiOp::kIprobe));
  EXPECT_EQ(t.mpi_calls.count[51], 6u);
  EXPECT_EQ(t.mpi_calls.op[52], static_cast<std::uint16_t>(MpiOp::kAllreduce));
  EXPECT_EQ(t.mpi_calls.outcome[52], 3);
  EXPECT_EQ(LossCount(t, "RingFull"), 3u);
  EXPECT_EQ(LossCount(t, "RangeOpen"), 1u);
  EXPECT_EQ(MetaOf(t, "rank"), "2");
}

TEST_F(DecodeSpoolFile, SegmentAloneSuppliesThreadsThatTheSpoolNeverNamed) {
  Segment segment;
  segment.Put(0, Barriers(0, 10));
  segment.ring().head = 20;
  segment.Write(Path("segment"));
  const auto t = Tables(SpoolBuilder().Meta("agent_pid\t55\n"), Path("segment"));
  EXPECT_EQ(t.collectives.rows(), 10u);
  EXPECT_EQ(t.threads.tid[0], 100);
}

TEST_F(DecodeSpoolFile, ForeignSegmentIsLeftAlone) {
  Segment segment;
  segment.Put(0, Barriers(0, 10));
  segment.ring().head = 20;
  segment.Write(Path("segment"));
  EXPECT_EQ(Tables(SpoolBuilder().Meta("agent_pid\t56\n").Process(), Path("segment")).collectives.rows(), 0u);
  EXPECT_EQ(Tables(SpoolBuilder().Meta().Process(), Path("absent")).collectives.rows(), 0u);
}

// Spools of older versions have shorter headers, and runs of one request.
TEST_F(DecodeSpoolFile, RingBlockOfAnOlderVersion) {
  std::vector<std::byte> bytes(kOldRingHeaderBytes, std::byte{0xff});
  std::memset(bytes.data(), 0, offsetof(RingHeader, polls));
  auto* header = reinterpret_cast<RingHeader*>(bytes.data());
  header->old_poll_calls = 7;
  header->old_poll_key = static_cast<std::uint64_t>(MpiOp::kTest) | 0xaull << kPollOpBits;
  header->old_poll_first_ticks = 660;
  header->old_poll_last_ticks = 690;
  const RingState state = ParseRingHeader(bytes.data(), bytes.size());
  EXPECT_EQ(state.polls.calls, 7u);
  ASSERT_EQ(state.polls.rows, 1u);
  EXPECT_EQ(state.polls.row[0].op_and_request, header->old_poll_key);
}

TEST_F(DecodeSpoolFile, RingBlockOfAnEndedThread) {
  std::vector<std::byte> bytes(kRingHeaderBytes);
  auto* ring = reinterpret_cast<RingHeader*>(bytes.data());
  ring->call_op = static_cast<std::uint32_t>(MpiOp::kRecv);
  ring->call_begin_ticks = 400;
  ring->dropped_records = 9;  // In a kLoss line already.
  const auto t = Tables(SpoolBuilder()
                            .Meta()
                            .Process()
                            .Thread()
                            .Records(Barriers(0, 2))
                            .Block(SpoolKind::kRing, bytes.data(), bytes.size())
                            .End(1000, 0, 9));
  ASSERT_EQ(t.mpi_calls.rows(), 3u);
  EXPECT_EQ(t.mpi_calls.outcome[2], 3);
  EXPECT_EQ(t.mpi_calls.duration_ns[2], 600);
  EXPECT_EQ(LossCount(t, "RingFull"), 0u);
  // The probe left nothing but the call's name.
  const std::vector<OpenCallFact> open = OpenCallsOf(t);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].op, static_cast<std::uint16_t>(MpiOp::kRecv));
  EXPECT_EQ(open[0].awaits, Awaits::kNothing);
  EXPECT_EQ(open[0].begin_ns, 400);
}

// What was written while the thread went on counts until it has recorded more.
TEST_F(DecodeSpoolFile, RingBlockOfAThreadThatGoesOn) {
  std::vector<std::byte> bytes(kRingHeaderBytes);
  auto* ring = reinterpret_cast<RingHeader*>(bytes.data());
  ring->call_op = static_cast<std::uint32_t>(MpiOp::kRecv);
  ring->call_begin_ticks = 400;
  const auto rows = [&](bool more, bool end) {
    const auto records = Barriers(0, 2);
    const std::uint64_t slots = records.bytes().size() / kSlotBytes;
    SpoolBuilder spool;
    spool.Meta().Process().Thread().Records(records).Block(SpoolKind::kRing, bytes.data(), bytes.size(), 0, 1, slots);
    if (more) spool.Records(Barriers(2, 1));
    const std::vector<std::byte> nothing(kRingHeaderBytes);
    if (end) spool.Block(SpoolKind::kRing, nothing.data(), nothing.size());
    return OpenCallsOf(Tables(spool)).size();
  };
  EXPECT_EQ(rows(false, false), 1u);
  EXPECT_EQ(rows(true, false), 0u);
  EXPECT_EQ(rows(false, true), 0u);
}

// Random damage of spool and segment: whatever it says, the decoder returns.
TEST_F(DecodeSpoolFile, RandomDamageNeverCrashes) {
  ThreadRecords r;
  r.World(0, 77, 4, 1)
      .String(1, "a rather long name of a range, longer than one slot")
      .Text(RecordKind::kThreadName, 0, "main");
  for (std::uint64_t i = 0; i < 20; ++i) {
    r.Step(static_cast<std::int64_t>(i), 1000 + i * 100, static_cast<std::int64_t>(i) * 50);
    r.Mpi({.op = MpiOp::kIallreduce, .begin = 1010 + i * 100, .end = 1012 + i * 100, .request = 5 + i % 3, .seq = 1});
    r.Poll(MpiOp::kTest, 5 + i % 3, 1020 + i * 100, 1030 + i * 100, 2);
    r.Mpi({.op = MpiOp::kIrecv, .begin = 1031 + i * 100, .end = 1032 + i * 100, .request = 9, .peer = -2, .tag = -2});
    r.Wait(1040 + i * 100, 1050 + i * 100, {5 + i % 3})
        .Completion(9, kCompletionStatus, 2, 3, 4)
        .Range(1, 1000, 1090, 0);
    r.Gap(1060 + i * 100, 1061 + i * 100, i % 2);
  }
  Segment segment;
  segment.Put(0, Barriers(0, 32));
  segment.ring().head = 64;
  segment.ring().range_depth = 3;
  SpoolBuilder spool;
  spool.Meta("clock_mode\ttsc\nagent_pid\t55\n")
      .Process()
      .Thread()
      .Snapshot(1000, 5000)
      .Snapshot(3000, 9000)
      .Records(r);
  spool.Text(SpoolKind::kLoss, "RingFull\t12\t100\t200\tx\n").End(4000);
  std::mt19937 random(17);
  int decoded = 0;
  for (int i = 0; i < 1500; ++i) {
    // Damage beneath a valid checksum, so that it gets past the first line of defence.
    ThreadRecords bad = r;
    auto& bytes = const_cast<std::vector<std::byte>&>(bad.bytes());
    for (int flips = static_cast<int>(random() % 12); flips >= 0; --flips)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    SpoolBuilder file;
    file.Meta("clock_mode\ttsc\nagent_pid\t55\n")
        .Process()
        .Thread()
        .Snapshot(random(), static_cast<std::int64_t>(random()));
    file.Snapshot(3000, 9000).Records(bad);
    if (random() % 2 == 0) file.SkipSlots(random() % 100).Records(r).End(random());
    if (random() % 4 == 0)
      for (int flips = 0; flips < 4; ++flips)
        file.bytes()[random() % file.bytes().size()] = static_cast<char>(random());
    file.Write(Path("bad.spool"));
    std::string segment_path;
    if (i % 10 == 0) {
      Segment damaged = segment;
      auto* at = reinterpret_cast<unsigned char*>(damaged.view().base);
      for (int flips = 0; flips < 6; ++flips) {
        const std::uint64_t area[] = {0, kProcessTableOffset, kRingTableOffset, kArenaOffset};
        at[area[random() % 4] + random() % 200] = static_cast<unsigned char>(random());
      }
      segment_path = Path("bad.segment");
      damaged.Write(segment_path);
      if (random() % 3 == 0) std::filesystem::resize_file(segment_path, random() % (kArenaOffset + 5000));
    }
    if (DecodeSpool({Path("bad.spool"), segment_path}).ok()) ++decoded;
  }
  EXPECT_GT(decoded, 1000);
}

}  // namespace
}  // namespace lockstep::trace
