#include "runtime/agent/rings/drain.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/poll_records.h"
#include "runtime/agent/rings/segment.h"
#include "temp_dir.h"

namespace lockstep::agent {
namespace {

struct Block {
  SpoolBlockHeader header;
  std::string payload;
};

// Every block, checked; stops at the first that is not whole.
std::vector<Block> ReadSpool(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < bytes.size();) {
    Block block;
    EXPECT_LE(at + sizeof block.header, bytes.size());
    std::memcpy(&block.header, bytes.data() + at, sizeof block.header);
    EXPECT_EQ(block.header.magic, kSpoolMagic);
    at += sizeof block.header;
    EXPECT_LE(at + block.header.bytes, bytes.size());
    block.payload = bytes.substr(at, block.header.bytes);
    at += block.header.bytes;
    SpoolBlockHeader unsigned_header = block.header;
    unsigned_header.crc = 0;
    const std::uint32_t crc =
        Crc32c(Crc32c(0, &unsigned_header, sizeof unsigned_header), block.payload.data(), block.payload.size());
    EXPECT_EQ(crc, block.header.crc);
    blocks.push_back(std::move(block));
  }
  return blocks;
}

// A stand-in for the probe: claims one ring and writes range records whose payload counts up.
class Writer {
 public:
  explicit Writer(const SegmentView& view, std::uint32_t capacity) : view_(view), capacity_(capacity) {
    SegmentHeader& header = view.header();
    ProcessEntry& process = view.processes()[0];
    process.generation = 1;
    process.pid = ::getpid();
    process.state.store(SlotState::kActive);
    header.processes_used.store(1);
    index_ = header.rings_used.fetch_add(1);
    entry().offset = header.next_free.fetch_add(kRingHeaderBytes + std::uint64_t{capacity} * kSlotBytes);
    entry().capacity_slots = capacity;
    Claim();
  }
  void Claim() {
    new (&ring()) RingHeader{};
    ring().mask = capacity_ - 1;
    entry().generation += 1;
    entry().process = 0;
    entry().tid = 4711;
    entry().state.store(SlotState::kActive);
  }
  // False: no room, counted as the probe does.
  bool Write(std::uint16_t slots = 1) {
    const std::uint64_t head = ring().head.load();
    if (head - ring().tail.load() + slots > capacity_) {
      ring().dropped_records += 1;
      ring().dropped_first_ticks = 7;
      ring().dropped_last_ticks = 9;
      return false;
    }
    for (std::uint16_t i = 0; i < slots; ++i) {
      RangeRecord record{};
      record.head = {RecordKind::kRange, 0, slots};
      record.payload = static_cast<std::int32_t>(i == 0 ? count_ : -1);
      std::memcpy(view_.slots(entry().offset) + ((head + i) & (capacity_ - 1)) * kSlotBytes, &record, sizeof record);
    }
    ++count_;
    ring().head.store(head + slots);
    return true;
  }
  // What the probe writes with the first record that finds room again.
  void WriteGap() {
    const GapRecord gap{{RecordKind::kGap, 0, 1},
                        0,
                        ring().dropped_first_ticks,
                        ring().dropped_last_ticks,
                        std::exchange(ring().dropped_records, 0)};
    Put(&gap, 1);
  }
  void WritePolls(const OpenPolls& polls) {
    lockstep::WritePolls(polls, [&](const void* records, std::uint32_t slots) { Put(records, slots); });
  }
  void WriteCompletion() {
    const CompletionRecord record{{RecordKind::kCompletion, 0, 1}, 0, 7, 0, 0, 0};
    Put(&record, 1);
  }
  void WriteText(const char* text, std::uint32_t id) {
    struct {
      StringRecord head;
      char text[kSlotBytes];
    } record{{{RecordKind::kString, 0, 2}, id, static_cast<std::uint32_t>(std::strlen(text)), {}}, {}};
    std::strncpy(record.text, text, sizeof record.text);
    Put(&record, 2);
  }
  void WriteLoss(std::uint32_t name, std::uint64_t count) {
    LossRecord record{};
    record.head = {RecordKind::kLoss, 0, 2};
    record.name = name;
    record.count = count;
    Put(&record, 2);
  }
  RingEntry& entry() { return view_.rings()[index_]; }
  RingHeader& ring() { return view_.ring(entry().offset); }
  std::uint32_t count() const { return count_; }

 private:
  void Put(const void* record, std::uint64_t slots) {
    const std::uint64_t head = ring().head.load();
    for (std::uint64_t i = 0; i < slots; ++i)
      std::memcpy(view_.slots(entry().offset) + ((head + i) & (capacity_ - 1)) * kSlotBytes,
                  static_cast<const std::byte*>(record) + i * kSlotBytes, kSlotBytes);
    ring().head.store(head + slots);
  }

  SegmentView view_;
  std::uint32_t capacity_, index_ = 0, count_ = 0;
};

// The file size limit stands for a full disk: fallocate and write fail beyond it.
class FullBeyond {
 public:
  explicit FullBeyond(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullBeyond() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }
  FullBeyond(const FullBeyond&) = delete;
  FullBeyond& operator=(const FullBeyond&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int) = ::signal(SIGXFSZ, SIG_IGN);
};

class DrainTest : public testing::Test {
 protected:
  DrainTest()
      : segment_(Segment::Create({.tmpfs_dir = dir_.path(),
                                  .disk_path = "",
                                  .run_hash = 1,
                                  .slot = 0,
                                  .total_bytes = 8 << 20,
                                  .main_ring_bytes = 64 * 1024,
                                  .other_ring_bytes = 64 * 1024})
                     .value()),
        spool_(SpoolWriter::Create(dir_.path() + "/spool").value()),
        drain_(segment_.view(), spool_, clock_) {}

  std::vector<Block> Blocks() {
    spool_.Close();
    return ReadSpool(dir_.path() + "/spool");
  }
  // First payload of every record in the record blocks, in order; checks that slots follow each other.
  static std::vector<std::int32_t> Payloads(const std::vector<Block>& blocks, std::uint32_t generation) {
    std::vector<std::int32_t> payloads;
    std::uint64_t next = 0;
    for (const Block& block : blocks) {
      if (block.header.kind != SpoolKind::kRecords || block.header.generation != generation) continue;
      EXPECT_LE(block.header.bytes, kSpoolBlockBytes);
      EXPECT_EQ(block.header.first_slot, next);
      for (std::size_t at = 0; at < block.payload.size();) {
        RangeRecord record;
        std::memcpy(&record, block.payload.data() + at, sizeof record);
        payloads.push_back(record.payload);
        at += record.head.slots * kSlotBytes;
        EXPECT_LE(at, block.payload.size()) << "a block holds whole records";
      }
      next = block.header.first_slot + block.header.bytes / kSlotBytes;
    }
    return payloads;
  }
  static std::string Losses(const std::vector<Block>& blocks) {
    std::string text;
    for (const Block& block : blocks)
      if (block.header.kind == SpoolKind::kLoss) text += block.payload;
    return text;
  }

  TempDir dir_;
  EventClock clock_;
  Segment segment_;
  SpoolWriter spool_;
  Drain drain_;
};

TEST_F(DrainTest, KeepsEveryRecordInOrderAcrossTheRingsEnd) {
  Writer writer(segment_.view(), 2048);
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(writer.Write(static_cast<std::uint16_t>(1 + i % 5)));
    drain_.Run();
    EXPECT_EQ(writer.ring().tail.load(), writer.ring().head.load());
  }
  drain_.RunLast();
  const auto payloads = Payloads(Blocks(), 1);
  ASSERT_EQ(payloads.size(), writer.count());
  for (std::size_t i = 0; i < payloads.size(); ++i) ASSERT_EQ(payloads[i], static_cast<std::int32_t>(i));
}

TEST_F(DrainTest, BlocksHoldAtMostSixtyFourKiB) {
  Writer writer(segment_.view(), 16384);
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(writer.Write(3));
  const Drain::Pass pass = drain_.Run();
  EXPECT_NEAR(pass.fill, 15000.0 / 16384, 1e-9);
  EXPECT_EQ(Payloads(Blocks(), 1).size(), 5000u);
}

TEST_F(DrainTest, CountsTheRequestsOfPollsAsPolls) {
  Writer writer(segment_.view(), 2048);
  OpenPolls polls{};
  polls.rows = 2;
  for (std::uint64_t i = 0; i < 2; ++i) polls.row[i] = {(7 + i) << kPollOpBits | 1, 10, 900, 400, 0, 0};
  for (int i = 0; i < 3; ++i) writer.WritePolls(polls);
  drain_.Run();
  EXPECT_EQ(drain_.records(), 9u);
  EXPECT_EQ(drain_.polls(), 9u);  // Nothing that shows that the thread goes on.
  writer.Write();
  writer.WriteCompletion();  // Of the call that it follows.
  drain_.Run();
  EXPECT_EQ(drain_.records(), 11u);
  EXPECT_EQ(drain_.polls(), 9u);
}

TEST_F(DrainTest, ClosedRingsAreDrainedThenFreeForTheNextThread) {
  Writer writer(segment_.view(), 2048);
  writer.Write();
  writer.entry().state.store(SlotState::kClosed);
  drain_.Run();
  EXPECT_EQ(writer.entry().state.load(), SlotState::kFree);
  writer.Claim();
  writer.Write();
  drain_.RunLast();
  const auto blocks = Blocks();
  EXPECT_EQ(Payloads(blocks, 1), std::vector<std::int32_t>{0});
  EXPECT_EQ(Payloads(blocks, 2), std::vector<std::int32_t>{1});
  int threads = 0;
  for (const Block& block : blocks) threads += block.header.kind == SpoolKind::kThread;
  EXPECT_EQ(threads, 2);
}

TEST_F(DrainTest, AGapThatNoRecordFollowsIsCounted) {
  Writer writer(segment_.view(), 2048);
  for (int i = 0; i < 2048 + 5; ++i) writer.Write();
  drain_.RunLast();
  const auto blocks = Blocks();
  EXPECT_EQ(Payloads(blocks, 1).size(), 2048u);
  EXPECT_NE(Losses(blocks).find("RingFull\t5\t7\t9\t"), std::string::npos) << Losses(blocks);
}

TEST_F(DrainTest, OpenCallsAndRangesOutliveTheSegment) {
  Writer writer(segment_.view(), 2048);
  writer.Write();
  writer.ring().call_op.store(42);
  drain_.RunLast();
  bool found = false;
  for (const Block& block : Blocks()) {
    if (block.header.kind != SpoolKind::kRing) continue;
    found = true;
    ASSERT_EQ(block.payload.size(), kRingHeaderBytes);
  }
  EXPECT_TRUE(found);
}

// For readers on other machines; the last word is that of the end.
TEST_F(DrainTest, WhatAThreadIsInsideOfIsWrittenOnceWhileItGoesOn) {
  const auto written = [&] {
    std::vector<std::uint64_t> slots;
    for (const Block& block : ReadSpool(dir_.path() + "/spool"))
      if (block.header.kind == SpoolKind::kRing) slots.push_back(block.header.first_slot);
    return slots;
  };
  using Slots = std::vector<std::uint64_t>;
  Writer writer(segment_.view(), 2048);
  writer.ring().call_op.store(42);
  drain_.WriteOpen();  // Nothing of it is in the spool.
  writer.Write();
  drain_.WriteOpen();
  EXPECT_EQ(written(), Slots{});
  drain_.Run();
  drain_.WriteOpen();
  drain_.WriteOpen();
  EXPECT_EQ(written(), Slots{1});
  writer.ring().call_begin_ticks.store(99);  // Another call, without a record between.
  drain_.WriteOpen();
  EXPECT_EQ(written(), (Slots{1, 1}));
  writer.ring().call_op.store(0);
  writer.Write();
  drain_.Run();
  drain_.WriteOpen();
  EXPECT_EQ(written(), (Slots{1, 1}));
  drain_.RunLast();
  EXPECT_EQ(written(), (Slots{1, 1, 0}));
}

TEST_F(DrainTest, SurvivesARingThatTheApplicationOverwrote) {
  Writer writer(segment_.view(), 2048);
  writer.Write();
  std::memset(static_cast<void*>(segment_.view().slots(writer.entry().offset)), 0, kSlotBytes);
  drain_.Run();
  EXPECT_EQ(writer.ring().tail.load(), writer.ring().head.load());
  writer.Write();
  drain_.Run();
  writer.ring().head.store(1u << 30);
  drain_.Run();
  writer.entry().offset = ~std::uint64_t{0} - 63;
  drain_.Run();
  writer.entry().offset = 0;
  drain_.RunLast();
  const auto blocks = Blocks();
  EXPECT_NE(Losses(blocks).find("UnknownRecord"), std::string::npos);
}

TEST_F(DrainTest, AFullDiskIsCountedAndReportedAndTheRingsGoOn) {
  Writer writer(segment_.view(), 16384);
  std::uint64_t written = 0;
  {
    const FullBeyond disk(1 << 20);
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < 16384; ++i) written += writer.Write();
      drain_.Run();
      EXPECT_EQ(writer.ring().tail.load(), writer.ring().head.load()) << "the application must find room";
    }
    EXPECT_EQ(drain_.RunLast(), "");
    const SpoolEnd end{};
    EXPECT_TRUE(spool_.Append({SpoolKind::kEnd}, &end, sizeof end, SpoolReserve::kAll));
  }
  EXPECT_EQ(written, 163840u);
  const auto blocks = Blocks();
  const std::uint64_t kept = Payloads(blocks, 1).size();
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(kept + drain_.lost_records(), written);
  EXPECT_EQ(blocks.back().header.kind, SpoolKind::kEnd);
  EXPECT_NE(Losses(blocks).find("SpoolWrite\t" + std::to_string(drain_.lost_records()) + "\t"), std::string::npos)
      << Losses(blocks);
}

TEST_F(DrainTest, AGapThatTheFullDiskLosesStillCounts) {
  Writer writer(segment_.view(), 2048);
  std::uint64_t asked = 0;
  {
    const FullBeyond disk(1);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 3000; ++i, ++asked) writer.Write();
      drain_.Run();
      writer.WriteGap();
    }
    drain_.Run();
  }
  drain_.RunLast();
  const auto blocks = Blocks();
  const std::string losses = Losses(blocks);
  // 2,048 slots; the gap takes one of the next round's.
  EXPECT_NE(losses.find("SpoolWrite\t6142\t"), std::string::npos) << losses;
  EXPECT_NE(losses.find("RingFull\t2858\t7\t9\t"), std::string::npos) << losses;
  EXPECT_EQ(drain_.lost_records() + 2858, asked);
}

TEST_F(DrainTest, AGapBeyondTheSizeLimitStillCounts) {
  Writer writer(segment_.view(), 2048);
  drain_.LimitBytes(1);
  for (int i = 0; i < 2048 + 5; ++i) writer.Write();
  drain_.Run();
  writer.WriteGap();
  drain_.RunLast();
  const std::string losses = Losses(Blocks());
  EXPECT_NE(losses.find("RingFull\t5\t7\t9\t"), std::string::npos) << losses;
}

// Of the record blocks: slot number and kind of each record.
std::map<std::uint64_t, RecordKind> KindsBySlot(const std::vector<Block>& blocks) {
  std::map<std::uint64_t, RecordKind> kinds;
  for (const Block& block : blocks) {
    if (block.header.kind != SpoolKind::kRecords) continue;
    for (std::size_t at = 0; at < block.payload.size();) {
      RecordHead head;
      std::memcpy(&head, block.payload.data() + at, sizeof head);
      kinds[block.header.first_slot + at / kSlotBytes] = head.kind;
      at += head.slots * kSlotBytes;
    }
  }
  return kinds;
}

TEST_F(DrainTest, TextsAndLossRecordsOfAFullDiskAreWrittenWhenThereIsRoomAgain) {
  Writer writer(segment_.view(), 2048);
  {
    const FullBeyond disk(1);
    writer.Write();
    writer.WriteText("a name", 1);
    writer.WriteLoss(1, 77);
    writer.Write();
    drain_.Run();
    EXPECT_EQ(drain_.lost_records(), 2u) << "the others are kept for later";
  }
  drain_.RunLast();
  const auto blocks = Blocks();
  // Where they were: the text in the slots 1 and 2, the loss in 3 and 4.
  EXPECT_EQ(KindsBySlot(blocks),
            (std::map<std::uint64_t, RecordKind>{{1, RecordKind::kString}, {3, RecordKind::kLoss}}));
  EXPECT_NE(Losses(blocks).find("SpoolWrite\t2\t"), std::string::npos) << Losses(blocks);
}

TEST_F(DrainTest, TextsOfAThreadThatEndedOnAFullDiskComeWithTheirThread) {
  Writer writer(segment_.view(), 2048);
  {
    const FullBeyond disk(1);
    writer.WriteText("a name", 1);
    writer.entry().state.store(SlotState::kClosed);
    drain_.Run();
    EXPECT_EQ(writer.entry().state.load(), SlotState::kFree);
  }
  drain_.RunLast();
  const auto blocks = Blocks();
  std::vector<SpoolKind> kinds;
  for (const Block& block : blocks)
    if (block.header.generation == 1 && block.header.kind != SpoolKind::kProcess) kinds.push_back(block.header.kind);
  EXPECT_EQ(kinds, (std::vector<SpoolKind>{SpoolKind::kThread, SpoolKind::kRecords}));
}

TEST_F(DrainTest, TextsThatNeverFindRoomAreCounted) {
  Writer writer(segment_.view(), 2048);
  std::string failed;
  {
    const FullBeyond disk(1);
    writer.WriteText("a name", 1);
    writer.Write();
    drain_.Run();
    failed = drain_.RunLast();
  }
  EXPECT_EQ(drain_.lost_records(), 2u);
  // Nothing could be written, not even this: it is the caller's to say.
  EXPECT_EQ(failed, "SpoolWrite 2");
  drain_.RunLast();
  const std::string losses = Losses(Blocks());
  EXPECT_NE(losses.find("SpoolWrite\t2\t"), std::string::npos) << "it is not forgotten: " << losses;
}

TEST(Spool, WhatMattersMoreThanRecordsLeavesRoomForTheEnd) {
  TempDir dir;
  const FullBeyond disk(256 << 10);
  auto spool = SpoolWriter::Create(dir.path() + "/spool");
  ASSERT_TRUE(spool.ok());
  const std::string bytes(8 << 10, 'x');
  const auto blocks = [&](SpoolReserve reserve) {
    int count = 0;
    while (count < 100 && spool.value().Append({SpoolKind::kMeta}, bytes, reserve)) ++count;
    return count;
  };
  EXPECT_EQ(blocks(SpoolReserve::kNone), 15) << "128 of 256 KiB";
  EXPECT_EQ(blocks(SpoolReserve::kHalf), 8) << "64 KiB more";
  EXPECT_EQ(blocks(SpoolReserve::kNone), 0);
  EXPECT_EQ(blocks(SpoolReserve::kAll), 8) << "the rest";
}

TEST(Segment, NoRoomAnywhereSaysWhy) {
  TempDir dir;
  const auto segment = Segment::Create({.tmpfs_dir = dir.path() + "/absent", .total_bytes = 8 << 20});
  ASSERT_FALSE(segment.ok());
  EXPECT_NE(segment.error().what.find("absent"), std::string::npos);
}

// Of a mapping of this process; bytes that are in its page table.
std::uint64_t ResidentBytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  std::uint64_t kilobytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) here = line.find(path) != std::string::npos;
    if (here && line.starts_with("Rss:")) kilobytes += std::stoull(line.substr(4));
  }
  return kilobytes << 10;
}

TEST(Segment, RingsArePopulatedAheadOfTheirWriters) {
  TempDir dir;
  constexpr std::uint64_t kRing = 8 << 20;
  auto segment = Segment::Create({.tmpfs_dir = "/dev/shm",
                                  .disk_path = dir.path() + "/ring",
                                  .total_bytes = 64 << 20,
                                  .main_ring_bytes = kRing,
                                  .other_ring_bytes = kRing / 4});
  ASSERT_TRUE(segment.ok());
  const std::string path = segment.value().path();
  const SegmentView view = segment.value().view();
  EXPECT_GE(view.header().ready_bytes.load(), kArenaOffset + kRing) << "allocated: nobody meets a full tmpfs";
  EXPECT_GE(ResidentBytes(path), kRing / 8);
  EXPECT_LT(ResidentBytes(path), kRing / 2);
  view.rings()[0].offset = kArenaOffset;
  view.rings()[0].capacity_slots = view.header().main_ring_slots;
  view.header().rings_used.store(1);
  const std::uint64_t slots = view.header().main_ring_slots;
  for (const auto& [head, least] : {std::pair<std::uint64_t, std::uint64_t>{0, kRing / 8},
                                    {slots / 2, kRing * 5 / 8},
                                    {slots / 4, kRing * 5 / 8},
                                    {3 * slots, kRing}}) {
    view.ring(kArenaOffset).head.store(head);
    segment.value().PopulateAhead();
    EXPECT_GE(ResidentBytes(path), least) << head;
  }
  // What is no ring of this segment (its file can be written by the program) is left alone.
  view.rings()[1].offset = view.bytes - 4096;
  view.rings()[1].capacity_slots = 0xffffffff;
  view.rings()[2].offset = UINT64_MAX - 100;
  view.header().rings_used.store(0xffffffff);
  segment.value().PopulateAhead();
  segment.value().Remove();
}

TEST(Segment, FallsBackToDiskAndRemembersWhy) {
  TempDir dir;
  auto segment = Segment::Create({.tmpfs_dir = dir.path() + "/absent",
                                  .disk_path = dir.path() + "/ring",
                                  .total_bytes = 8 << 20,
                                  .main_ring_bytes = 1 << 20,
                                  .other_ring_bytes = 1 << 18});
  ASSERT_TRUE(segment.ok());
  EXPECT_TRUE(segment.value().on_disk());
  EXPECT_FALSE(segment.value().tmpfs_trouble().empty());
  const SegmentHeader& header = segment.value().view().header();
  EXPECT_EQ(header.magic, kSegmentMagic);
  EXPECT_EQ(header.main_ring_slots, 32768u);
  EXPECT_EQ(header.other_ring_slots, 8192u);
  EXPECT_GE(header.ready_bytes.load(), kArenaOffset + kRingHeaderBytes + (1u << 20));
  segment.value().ExtendAhead(std::uint64_t{1} << 40);
  EXPECT_EQ(header.ready_bytes.load(), segment.value().view().bytes);
}

}  // namespace
}  // namespace lockstep::agent
