// NCCL's communicators: their own keys, shared kernels, operations without kernel, messages.

#include <gtest/gtest.h>

#include "fixture.h"

namespace lockstep::test {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint64_t kId = 0xabc;

// Row 1 of comms: a NCCL communicator, as a rank file has it.
void AddComm(RankBuilder& rank, std::int32_t comm_rank, std::uint32_t size, std::uint64_t id = kId) {
  rank.t.comms.Append({.comm = static_cast<std::uint32_t>(rank.t.comms.rows()),
                       .global_id = id,
                       .size = size,
                       .rank = comm_rank,
                       .kind = 3,
                       .first_world_rank = -1,
                       .stride = 0,
                       .name = kNone,
                       .end_ns = kNoTime});
}

// A collective of `operations` that share a kernel; end kNoTime: its kernel was not found.
void Add(RankBuilder& rank, CollectiveKind kind, std::uint64_t seq, std::int64_t begin, std::int64_t end,
         std::uint32_t kernel = kNone, std::uint32_t operations = 1, std::uint64_t bytes = 4096) {
  schema::Collectives::Row row;
  row.comm = 1;
  row.seq = seq;
  row.kind = static_cast<std::uint8_t>(kind);
  row.mode = 3;
  row.begin_ns = begin;
  row.post_end_ns = begin;
  row.last_incomplete_ns = kNoTime;
  row.wait_begin_ns = end == kNoTime ? kNoTime : begin;
  row.end_ns = end;
  row.bytes = bytes;
  row.root = -1;
  row.call = kNone;
  row.kernel = kernel;
  row.kernel_operations = kernel == kNone ? 0 : operations;
  row.enqueue_begin_ns = begin - 5;
  rank.t.collectives.Append(row);
}

void Send(RankBuilder& rank, bool receive, std::int32_t peer, std::uint64_t seq, std::int64_t begin, std::int64_t end,
          std::uint32_t kernel) {
  rank.t.p2p.Append({.comm = 1,
                     .direction = static_cast<std::uint8_t>(receive),
                     .mode = 3,
                     .peer = peer,
                     .peer_world_rank = -1,
                     .tag = 0,
                     .seq = seq,
                     .begin_ns = begin,
                     .post_end_ns = begin,
                     .last_incomplete_ns = kNoTime,
                     .wait_begin_ns = end == kNoTime ? kNoTime : begin,
                     .end_ns = end,
                     .bytes = 64,
                     .call = kNone,
                     .kernel = kernel});
}

TEST(NcclMatch, EachFunctionIsNumberedByItself) {
  Merged job(2);
  for (std::int32_t r = 0; r < 2; ++r) {
    AddComm(job[r], r, 2);
    // Both functions' number 0, in the opposite order on the ranks' clocks.
    const std::uint32_t a = job[r].Kernel("ncclA", 100 + 10 * r, 200, 90, 1);
    const std::uint32_t b = job[r].Kernel("ncclB", 300 + 10 * r, 400, 290, 1);
    Add(job[r], CollectiveKind::kReduceScatter, 0, 100 + 10 * r, 200, a);
    Add(job[r], CollectiveKind::kAllGather, 0, 300 + 10 * r, 400, b, 1, 8192);
  }
  job.Run();
  ASSERT_EQ(job.collectives().rows(), 2u);
  EXPECT_EQ(job.collectives().kind, (std::vector<std::uint8_t>{3, 2}));
  EXPECT_EQ(job.collectives().comm_id, (std::vector<std::uint64_t>{kId, kId}));
  EXPECT_EQ(job.collectives().seen, (std::vector<std::uint32_t>{2, 2}));
  EXPECT_EQ(job.matched.mismatched, 0u);
  EXPECT_EQ(job.matched.unmatched, 0u);
  EXPECT_EQ(job.collectives().last_rank, (std::vector<std::int32_t>{1, 1}));
  EXPECT_EQ(job.collectives().transfer_ns, (std::vector<std::int64_t>{90, 90}));
  EXPECT_EQ(job.terms[0].exposed_wait_ns, 20);
  EXPECT_EQ(job.terms[1].exposed_wait_ns, 0);
}

// What one function's numbers say of the other's is nothing: a rank without broadcasts misses all of them.
TEST(NcclMatch, MissingOnesAreMissedPerFunction) {
  Merged job(2);
  for (std::int32_t r = 0; r < 2; ++r) {
    AddComm(job[r], r, 2);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto at = static_cast<std::int64_t>(100 + 100 * i);
      Add(job[r], CollectiveKind::kAllReduce, i, at, at + 50, job[r].Kernel("nccl", at, at + 50, at - 5, 1));
    }
  }
  Add(job[0], CollectiveKind::kBroadcast, 1, 350, 360, job[0].Kernel("nccl", 350, 360, 345, 1));
  job.Run();
  EXPECT_EQ(job.collectives().rows(), 4u);
  EXPECT_EQ(job.matched.unmatched, 1u);
  EXPECT_EQ(job.matched.mismatched, 0u);
}

// Three operations in one kernel count once in the identity, and say that they share.
TEST(NcclMatch, ASharedKernelCountsOnce) {
  Merged job(2);
  for (std::int32_t r = 0; r < 2; ++r) {
    AddComm(job[r], r, 2);
    job[r].Kernel("gemm", 0, 50, -5);
    const std::int64_t begin = r == 0 ? 100 : 160;
    const std::uint32_t kernel = job[r].Kernel("nccl", begin, 300, begin - 5, 1);
    for (std::uint64_t i = 0; i < 3; ++i) Add(job[r], CollectiveKind::kAllReduce, i, begin, 300, kernel, 3);
    job[r].Kernel("gemm", 350, 400, 340);
  }
  job.Run();
  ASSERT_EQ(job.collectives().rows(), 3u);
  EXPECT_EQ(job.collectives().operations, (std::vector<std::uint32_t>{3, 3, 3}));
  EXPECT_EQ(job.terms[0].exposed_wait_ns, 60);
  EXPECT_EQ(job.terms[0].exposed_transfer_ns, 140);
  EXPECT_EQ(job.terms[0].comm_ns, 200);
  EXPECT_EQ(job.terms[1].comm_ns, 140);
  EXPECT_EQ(job.terms[0].compute_ns, 100);
}

// One rank without the kernel: nobody's wait is known, and nothing of it lasts until the end of the capture.
TEST(NcclMatch, AnOperationWithoutKernelHasNoTimes) {
  Merged job(2);
  for (std::int32_t r = 0; r < 2; ++r) {
    AddComm(job[r], r, 2);
    job[r].Kernel("gemm", 0, 50, -5);
    if (r == 0) {
      Add(job[r], CollectiveKind::kAllReduce, 0, 100, 300, job[r].Kernel("nccl", 100, 300, 90, 1));
      Send(job[r], false, 1, 0, 310, 330, job[r].Kernel("nccl", 310, 330, 305, 1));
    } else {
      Add(job[r], CollectiveKind::kAllReduce, 0, 150, kNoTime);
      Send(job[r], true, 0, 0, 160, kNoTime, kNone);
    }
    job[r].Kernel("gemm", 900, 1000, 890);
  }
  job.Run();
  ASSERT_EQ(job.collectives().rows(), 1u);
  EXPECT_EQ(job.collectives().splits[0], 0);
  EXPECT_EQ(job.collectives().last_rank[0], -1);
  EXPECT_EQ(job.collectives().wait_ns[0], -1);
  EXPECT_EQ(job.collectives().violation[0], 0);
  EXPECT_EQ(job.matched.unmatched, 0u);
  EXPECT_EQ(job.terms[0].exposed_unsplit_ns, 220);
  EXPECT_EQ(job.terms[1].comm_ns, 0);
  EXPECT_EQ(job.terms[1].idle_ns, 850);
  EXPECT_EQ(job.p2p.matched, 1u);
  EXPECT_EQ(job.p2p.partner_begin_ns[0][0], kNoTime);
}

// A communicator's ranks need not be the job's: the members are what the ranks say of themselves.
TEST(NcclMatch, MessagesFindTheirPartnersByTheCommunicatorsRanks) {
  Merged job(4);
  for (std::int32_t r = 0; r < 4; ++r) {
    job[r].Kernel("gemm", 0, 50, -5);
    if (r % 2 == 0) AddComm(job[r], 0, 1, 0x77);  // Another row 1.
    if (r % 2 == 1) AddComm(job[r], r == 1 ? 1 : 0, 2);
  }
  // World rank 1 is rank 1 of it, world rank 3 rank 0. 3 sends late.
  Send(job[1], true, 0, 0, 100, 400, job[1].Kernel("nccl", 100, 400, 90, 1));
  Send(job[3], false, 1, 0, 250, 400, job[3].Kernel("nccl", 250, 400, 240, 1));
  for (std::int32_t r = 0; r < 4; ++r) job[r].Kernel("gemm", 500, 550, 490);
  job.Run();
  EXPECT_EQ(job.p2p.matched, 1u);
  EXPECT_EQ(job.p2p.unplaced, 0u);
  EXPECT_EQ(job.p2p.partner_begin_ns[1][0], 250);
  ASSERT_EQ(job.p2p.pairs.rows(), 1u);
  EXPECT_EQ(job.p2p.pairs.source_rank[0], 3);
  EXPECT_EQ(job.p2p.pairs.destination_rank[0], 1);
  EXPECT_EQ(job.p2p.pairs.bytes[0], 64u);
  EXPECT_EQ(job.terms[1].exposed_wait_ns, 150) << "its kernel, until the sender's begins";
  EXPECT_EQ(job.terms[1].exposed_unsplit_ns, 150);
  EXPECT_EQ(job.terms[1].comm_ns, 300);
}

TEST(NcclMatch, ByHtasRulesMessagesGoByTheirKernelsNames) {
  Merged job(2);
  job.hta = true;
  for (std::int32_t r = 0; r < 2; ++r) {
    AddComm(job[r], r, 2);
    job[r].Kernel("gemm", 0, 50, -5);
    Send(job[r], r == 0, 1 - r, 0, 100, 200, job[r].Kernel("ncclDevKernel_SendRecv", 100, 200, 90, 1));
  }
  job.Run();
  EXPECT_EQ(job.terms[0].comm_ns, 100);
}

// One rank: what it does is a copy, or nothing.
TEST(NcclMatch, ACommunicatorOfOneRankDoesNotCommunicate) {
  Merged job(1);
  AddComm(job[0], 0, 1);
  job[0].Kernel("gemm", 0, 50, -5);
  job[0].t.copies.Append({.begin_ns = 100, .duration_ns = 40, .kind = 3});
  Add(job[0], CollectiveKind::kAllReduce, 0, 100, 140);
  Add(job[0], CollectiveKind::kAllReduce, 1, 160, kNoTime);
  job[0].Kernel("gemm", 200, 250, 190);
  job.Run();
  EXPECT_EQ(job.terms[0].comm_ns, 0);
  EXPECT_EQ(job.terms[0].exposed_copy_ns, 40);
  EXPECT_EQ(job.terms[0].idle_ns, 110);
}

// ncclCommInitAll: one process is several members.
TEST(NcclMatch, OneProcessMayBeSeveralMembers) {
  Merged job(1);
  AddComm(job[0], 0, 2);
  AddComm(job[0], 1, 2);
  for (std::uint32_t gpu = 0; gpu < 2; ++gpu) {
    const std::int64_t begin = gpu == 0 ? 100 : 130;
    Add(job[0], CollectiveKind::kAllReduce, 0, begin, 200, job[0].Kernel("nccl", begin, 200, begin - 5, 1));
    job[0].t.collectives.comm[gpu] = 1 + gpu;
  }
  job.Run();
  ASSERT_EQ(job.collectives().rows(), 1u);
  EXPECT_EQ(job.collectives().seen[0], 2u);
  EXPECT_EQ(job.matched.mismatched, 0u);
  EXPECT_EQ(job.matched.unmatched, 0u);
  EXPECT_EQ(job.collectives().transfer_ns[0], 70);
}

TEST(NcclMatch, StepsAreFoundInTheOrderOfOneFunction) {
  Merged job(2);
  for (std::int32_t r = 0; r < 2; ++r) {
    AddComm(job[r], r, 2);
    std::uint64_t reduce = 0, gather = 0;
    for (std::int64_t step = 0; step < 10; ++step) {
      const std::int64_t at = 10'000 * step;
      for (const std::uint64_t bytes : {100u, 200u, 300u}) {
        const std::int64_t begin = at + static_cast<std::int64_t>(bytes);
        Add(job[r], CollectiveKind::kAllReduce, reduce++, begin, begin + 50,
            job[r].Kernel("nccl", begin, begin + 50, begin - 5, 1), 1, bytes);
      }
      Add(job[r], CollectiveKind::kAllGather, gather++, at + 500, at + 550,
          job[r].Kernel("nccl", at + 500, at + 550, at + 490, 1), 1, 64);
    }
  }
  job.Run();
  EXPECT_GE(job.steps.common.size(), 8u);
  EXPECT_EQ(job.matched.unmatched, 0u);
}

}  // namespace
}  // namespace lockstep::test
