// Who is late, from how long ranks wait, and what is kept of their stacks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/mpi_ops.h"
#include "core/spool_layout.h"
#include "core/torch_records.h"
#include "runtime/agent/late/late_judge.h"
#include "runtime/agent/late/stack_plan.h"
#include "runtime/agent/late/stack_tree.h"
#include "runtime/agent/late/wait_cells.h"
#include "runtime/agent/late/wait_sums.h"
#include "temp_dir.h"

namespace lockstep::agent {
namespace {

constexpr std::int64_t kMs = 1'000'000, kSecond = 1'000'000'000;

// Records as the probe writes them, ticks = ns.
class Calls {
 public:
  template <typename T>
  Calls& Add(RecordKind kind, T record) {
    record.head = {kind, record.head.flags, static_cast<std::uint16_t>(sizeof record / kSlotBytes)};
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof record);
    std::memcpy(bytes_.data() + at, &record, sizeof record);
    return *this;
  }
  Calls& Comm(std::uint32_t comm, std::uint64_t global_id, std::uint32_t size, std::uint8_t flags = 0) {
    CommRecord record{};
    record.head.flags = flags;
    record.comm = comm;
    record.global_id = global_id;
    record.size = size;
    return Add(RecordKind::kComm, record);
  }
  Calls& Mpi(MpiOp op, std::uint32_t comm, std::uint64_t begin, std::uint64_t end, std::uint64_t bytes = 8,
             std::uint8_t flags = 0) {
    MpiRecord call{};
    call.head.flags = flags;
    call.op = static_cast<std::uint16_t>(op);
    call.begin_ticks = begin;
    call.end_ticks = end;
    call.comm = comm;
    call.bytes = bytes;
    return Add(RecordKind::kMpi, call);
  }
  Calls& Begin(std::uint64_t work, CollectiveKind kind, std::uint64_t ticks, std::uint32_t comm = 0) {
    TorchBeginRecord record{};
    record.head.flags = static_cast<std::uint8_t>(kind);
    record.comm = comm;
    record.ticks = ticks;
    record.work = work;
    record.count = 10;
    record.dtype = static_cast<std::uint16_t>(DataType::kFloat32);
    return Add(RecordKind::kTorchBegin, record);
  }
  Calls& End(std::uint64_t work, std::uint64_t ticks) {
    TorchEndRecord record{};
    record.ticks = ticks;
    record.work = work;
    return Add(RecordKind::kTorchEnd, record);
  }
  void GiveTo(WaitSums& sums, std::uint32_t process = 0) {
    RingEntry entry{};
    entry.process = process;
    const iovec part{bytes_.data(), bytes_.size()};
    sums.Take(entry, std::span(&part, 1));
    bytes_.clear();
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST(WaitSums, CountsCollectivesInWhichAllWaitForAll) {
  WaitSums sums;
  EXPECT_EQ(sums.process(), -1);
  Calls()
      .Comm(0, 77, 4)
      .Comm(1, 78, 2)
      .Comm(2, 79, 1)
      .Comm(3, 80, 4, 0x80)
      .Mpi(MpiOp::kAllreduce, 0, 100, 160)
      .Mpi(MpiOp::kBarrier, 0, 200, 230, 0)
      .Mpi(MpiOp::kAllgather, 1, 300, 305)
      .Mpi(MpiOp::kAllreduce, 0, 400, 900, 0)                  // Moves nothing.
      .Mpi(MpiOp::kAllreduce, 0, 400, 900, 8, kMpiUnrecorded)  // Another time's.
      .Mpi(MpiOp::kBcast, 0, 400, 900)                         // Not all wait for all.
      .Mpi(MpiOp::kBarrier, 2, 400, 900)                       // A rank with itself.
      .Mpi(MpiOp::kBarrier, 3, 400, 900)                       // Others do not know this communicator.
      .Mpi(MpiOp::kRecv, 0, 400, 900)
      .GiveTo(sums, 3);
  EXPECT_EQ(sums.process(), 3);
  const std::vector<WaitSum> largest = sums.Largest(4, 1);
  ASSERT_EQ(largest.size(), 2u);
  EXPECT_EQ(largest[0].comm, 77u);
  EXPECT_EQ(largest[0].count, 2u);
  EXPECT_EQ(largest[0].ns, 90);
  EXPECT_EQ(largest[1].comm, 78u);
  EXPECT_EQ(sums.Largest(1, 2).size(), 1u);
  EXPECT_EQ(sums.Largest(1, 2)[0].ns, 180);
}

TEST(WaitSums, WorksOfPyTorchEndOnOtherThreads) {
  WaitSums sums;
  Calls()
      .Comm(0, 5, 2)
      .Begin(1, CollectiveKind::kAllReduce, 100)
      .Begin(2, CollectiveKind::kAllReduce, 110)
      .GiveTo(sums);
  Calls().End(2, 150).End(1, 160).End(4, 500).End(3, 300).GiveTo(sums);
  Calls().Begin(3, CollectiveKind::kAllReduce, 290).Begin(4, CollectiveKind::kSendRecv, 290).GiveTo(sums);
  const std::vector<WaitSum> largest = sums.Largest(4, 1);
  ASSERT_EQ(largest.size(), 1u);
  EXPECT_EQ(largest[0].count, 3u);
  EXPECT_EQ(largest[0].ns, 60 + 40 + 10);
}

TEST(WaitSums, TheNextProgramBeginsAnew) {
  WaitSums sums;
  Calls().Comm(0, 5, 2).Mpi(MpiOp::kBarrier, 0, 0, 50).GiveTo(sums, 0);
  Calls().Mpi(MpiOp::kBarrier, 0, 0, 50).GiveTo(sums, 1);  // A child that makes no communicator.
  EXPECT_EQ(sums.Largest(4, 1)[0].ns, 50);
  Calls().Comm(0, 6, 2).Mpi(MpiOp::kBarrier, 0, 0, 20).GiveTo(sums, 1);
  ASSERT_EQ(sums.Largest(4, 1).size(), 1u);
  EXPECT_EQ(sums.Largest(4, 1)[0].comm, 6u);
}

// Ranks whose collectives last so long: a look of every agent each half second.
class Ranks {
 public:
  explicit Ranks(int ranks) : cells_(static_cast<std::size_t>(ranks)), judges_(cells_.size()) {
    for (int rank = 0; rank < ranks; ++rank) cells_[static_cast<std::size_t>(rank)].rank = rank;
  }
  // Half a second with `count` collectives of a communicator, in each of which rank r is for mean_ns[r]; -1: it is no
  // member.
  Ranks& Add(std::uint64_t comm, std::uint64_t count, const std::vector<std::int64_t>& mean_ns) {
    for (std::size_t rank = 0; rank < mean_ns.size(); ++rank) {
      if (mean_ns[rank] < 0) continue;
      auto& sums = cells_[rank].sums;
      std::size_t at = 0;
      while (sums[at].count != 0 && sums[at].comm != comm) ++at;
      sums[at].comm = comm;
      sums[at].count += count;
      sums[at].ns += static_cast<std::int64_t>(count) * mean_ns[rank];
    }
    return *this;
  }
  void Look(const std::vector<int>& ended = {}) {
    now_ns_ += kSecond / 2;
    for (std::size_t rank = 0; rank < cells_.size(); ++rank) {
      if (std::find(ended.begin(), ended.end(), static_cast<int>(rank)) != ended.end()) continue;
      ++cells_[rank].beat;
      cells_[rank].compare_with = judges_[rank].compare_with();
      std::vector<WaitCell> others;
      for (const WaitCell& cell : cells_)
        if (cell.rank != static_cast<int>(rank) && cell.beat != 0) others.push_back(cell);
      judges_[rank].Look(now_ns_, cells_[rank], others);
    }
  }
  std::vector<int> Late() const {
    std::vector<int> late;
    for (std::size_t rank = 0; rank < judges_.size(); ++rank)
      if (judges_[rank].late()) late.push_back(static_cast<int>(rank));
    return late;
  }
  std::vector<int> Asked() const {
    std::vector<int> asked;
    for (std::size_t rank = 0; rank < judges_.size(); ++rank)
      if (judges_[rank].asked_for()) asked.push_back(static_cast<int>(rank));
    return asked;
  }
  const LateJudge& Judge(std::size_t rank) const { return judges_[rank]; }

 private:
  std::vector<WaitCell> cells_;
  std::vector<LateJudge> judges_;
  std::int64_t now_ns_ = kSecond;
};

using Named = std::vector<int>;

TEST(LateJudge, TheRankThatWaitsLittleIsLate) {
  Ranks ranks(4);
  for (int look = 0; look < 3; ++look) ranks.Add(9, 10, {20 * kMs, 21 * kMs, kMs, 20 * kMs}).Look();
  EXPECT_EQ(ranks.Late(), Named{}) << "a second is too short to say so";
  for (int look = 0; look < 6; ++look) ranks.Add(9, 10, {20 * kMs, 21 * kMs, kMs, 20 * kMs}).Look();
  EXPECT_EQ(ranks.Late(), Named{2});
  EXPECT_EQ(ranks.Judge(2).compare_with(), 1);
  EXPECT_NEAR(ranks.Judge(2).share(), 0.38, 0.01);
  EXPECT_EQ(ranks.Asked(), Named{1});
  // It is the same one that is compared with for as long as it lasts.
  for (int look = 0; look < 4; ++look) ranks.Add(9, 10, {25 * kMs, 21 * kMs, kMs, 20 * kMs}).Look();
  EXPECT_EQ(ranks.Judge(2).compare_with(), 1);
  // And it ends.
  for (int look = 0; look < 6; ++look) ranks.Add(9, 10, {kMs, kMs, kMs, kMs}).Look();
  EXPECT_EQ(ranks.Late(), Named{});
  EXPECT_EQ(ranks.Judge(2).compare_with(), -1);
  EXPECT_EQ(ranks.Asked(), Named{});
}

TEST(LateJudge, OfTwoAndOfSeveral) {
  Ranks two(2), eight(8);
  for (int look = 0; look < 10; ++look) {
    two.Add(9, 5, {kMs, 30 * kMs}).Look();
    eight.Add(9, 5, {30 * kMs, kMs, 30 * kMs, 30 * kMs, kMs, 30 * kMs, 30 * kMs, 30 * kMs}).Look();
  }
  EXPECT_EQ(two.Late(), Named{0});
  EXPECT_EQ(eight.Late(), (Named{1, 4}));
}

TEST(LateJudge, AHealthyJobHasNone) {
  Ranks equal(4), short_waits(4), turns(4), one_early(4), alone(1);
  for (int look = 0; look < 20; ++look) {
    equal.Add(9, 10, {5 * kMs, 6 * kMs, 5 * kMs, 6 * kMs}).Look();
    // Many small collectives that a tree lets go at different moments.
    short_waits.Add(9, 10'000, {8'000, 30'000, 30'000, 40'000}).Look();
    // Whoever has no core is late, another one each second.
    std::vector<std::int64_t> waits(4, 20 * kMs);
    waits[static_cast<std::size_t>(look / 2 % 4)] = kMs;
    turns.Add(9, 10, waits).Look();
    one_early.Add(9, 10, {kMs, kMs, 20 * kMs, kMs}).Look();
    alone.Add(9, 10, {kMs}).Look();
    EXPECT_EQ(equal.Late(), Named{});
    EXPECT_EQ(short_waits.Late(), Named{});
    EXPECT_EQ(turns.Late(), Named{});
    EXPECT_EQ(one_early.Late(), Named{});
    EXPECT_EQ(alone.Late(), Named{});
  }
}

// Ranks 0 and 1, 2 and 3 meet first, then 0 and 2, 1 and 3: rank 0 comes late to 2 only for what it waited for rank 1.
TEST(LateJudge, WhoWaitsForALateRankIsNotLateForIt) {
  Ranks ranks(4);
  for (int look = 0; look < 12; ++look)
    ranks.Add(1, 10, {20 * kMs, kMs, -1, -1})
        .Add(2, 10, {-1, -1, kMs, kMs})
        .Add(3, 10, {kMs, -1, 20 * kMs, -1})
        .Add(4, 10, {-1, kMs, -1, 20 * kMs})
        .Look();
  EXPECT_EQ(ranks.Late(), Named{1});
}

TEST(LateJudge, LongStepsTakeLongerToJudge) {
  Ranks ranks(2);
  for (int step = 0; step < 3; ++step) {
    for (int look = 0; look < 8; ++look) ranks.Look();
    ranks.Add(9, 1, {kMs, 3 * kSecond}).Look();
  }
  EXPECT_EQ(ranks.Late(), Named{});
  for (int step = 0; step < 9; ++step) {
    for (int look = 0; look < 8; ++look) ranks.Look();
    ranks.Add(9, 1, {kMs, 3 * kSecond}).Look();
  }
  EXPECT_EQ(ranks.Late(), Named{0});
}

TEST(LateJudge, WhoLooksFirstIsComparedAsSoonAsTheOthersAreThere) {
  Ranks ranks(2);
  ranks.Add(9, 10, {kMs, -1}).Look({1});
  for (int look = 0; look < 10; ++look) ranks.Add(9, 10, {kMs, 20 * kMs}).Look();
  EXPECT_EQ(ranks.Late(), Named{0});
}

TEST(LateJudge, OthersThatAreGoneAreNotComparedWith) {
  Ranks ranks(2);
  for (int look = 0; look < 10; ++look) ranks.Add(9, 10, {kMs, 20 * kMs}).Look();
  EXPECT_EQ(ranks.Late(), Named{0});
  for (int look = 0; look < 60; ++look) ranks.Add(9, 10, {kMs, -1}).Look({1});
  EXPECT_FALSE(ranks.Judge(0).late());
}

TEST(WaitCells, EachSeesTheOthersAndTheLastOneCleansUp) {
  const TempDir dir;
  const WaitCells first(dir.path(), 0, 3), second(dir.path(), 1, 3), third(dir.path(), 2, 3);
  WaitCell own;
  own.rank = 0;
  own.beat = 4;
  own.sums[0] = {77, 5, 900};
  EXPECT_TRUE(first.Exchange(own).empty());
  own.rank = 2;
  own.compare_with = 0;
  const std::vector<WaitCell> seen = third.Exchange(own);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].rank, 0);
  EXPECT_EQ(seen[0].beat, 4u);
  EXPECT_EQ(seen[0].sums[0].ns, 900);
  own.rank = 1;
  EXPECT_EQ(second.Exchange(own).size(), 2u);
  EXPECT_EQ(second.Exchange(own)[1].compare_with, 0);
  first.Leave();
  EXPECT_EQ(second.Exchange(own).size(), 1u);
  third.Leave();
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/.waits"));
  second.Leave();
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/.waits"));
  second.Leave();
}

TEST(WaitCells, DamageIsNoCell) {
  const TempDir dir;
  WaitCell own;
  own.rank = 0;
  WaitCells(dir.path(), 0, 2).Exchange(own);
  {
    std::fstream file(dir.path() + "/.waits", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(40);
    file.put('x');
  }
  own.rank = 1;
  EXPECT_TRUE(WaitCells(dir.path(), 1, 2).Exchange(own).empty());
}

TEST(WaitCells, LargeJobsLookMoreSeldom) {
  EXPECT_LT(WaitCells("", 0, 2).period_ns(), kSecond);
  EXPECT_EQ(WaitCells("", 0, 512).period_ns(), 4 * kSecond);
  EXPECT_EQ(WaitCells("", 0, 1 << 20).period_ns(), 60 * kSecond);
}

StackFrame Frame(const std::string& function, int line) { return {function, "train.py", line, true}; }

TEST(StackTree, AFunctionIsWrittenOnce) {
  StackTree tree;
  const std::vector<StackFrame> collate = {Frame("main", 9), Frame("collate", 88)};
  const std::vector<StackFrame> step = {Frame("main", 9), Frame("step", 3)};
  EXPECT_EQ(tree.Add({}), 0u);
  const std::uint32_t first = tree.Add(collate);
  EXPECT_EQ(tree.Add(collate), first);
  EXPECT_NE(tree.Add(step), first);
  const auto lines = tree.TakeLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].text,
            "1\t0\t9\t1\t0\ttrain.py\tmain\n2\t1\t88\t1\t0\ttrain.py\tcollate\n3\t1\t3\t1\t0\ttrain.py\tstep\n");
  EXPECT_EQ(lines[0].frames, 3u);
  EXPECT_TRUE(tree.TakeLines().empty());
}

TEST(StackTree, HostileNamesAndDeepRecursionsStayWithinBounds) {
  StackTree tree;
  tree.Add(std::vector<StackFrame>{{"a\tb\nc", std::string(5000, 'x'), -4, false}});
  const auto lines = tree.TakeLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(std::count(lines[0].text.begin(), lines[0].text.end(), '\n'), 1);
  EXPECT_EQ(std::count(lines[0].text.begin(), lines[0].text.end(), '\t'), 6);
  EXPECT_LT(lines[0].text.size(), 1000u);
  tree.Add(std::vector<StackFrame>(10'000, Frame("deeper", 1)));
  std::uint64_t frames = 0;
  for (const StackTree::Lines& piece : tree.TakeLines()) {
    frames += piece.frames;
    EXPECT_LE(piece.text.size(), kSpoolBlockBytes);
  }
  EXPECT_GT(frames, 100u);
  EXPECT_LT(frames, 1000u);
}

TEST(StackPlan, Words) {
  EXPECT_EQ(StackPlanOf("late")->kind, StackPlan::kLate);
  EXPECT_EQ(StackPlanOf("hang")->kind, StackPlan::kHang);
  EXPECT_EQ(StackPlanOf("off")->kind, StackPlan::kOff);
  EXPECT_EQ(StackPlanOf("all:12.5")->kind, StackPlan::kAll);
  EXPECT_EQ(StackPlanOf("all:12.5")->hz, 12.5);
  EXPECT_FALSE(StackPlanOf("late")->calls);
  EXPECT_TRUE(StackPlanOf("calls")->calls);
  EXPECT_FALSE(StackPlanOf("calls")->told);
  EXPECT_TRUE(StackPlanOf("off,calls")->calls);
  EXPECT_EQ(StackPlanOf("off,calls")->kind, StackPlan::kOff);
  EXPECT_EQ(StackPlanOf("calls,all:2")->hz, 2);
  for (const char* bad : {"", "all", "all:", "all:0", "all:-1", "all:nan", "all:1e9", "all:5 ", "on", "late "})
    EXPECT_FALSE(StackPlanOf(bad)) << bad;
}

}  // namespace
}  // namespace lockstep::agent
