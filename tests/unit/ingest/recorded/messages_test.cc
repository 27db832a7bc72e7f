// Messages of a job that does not move: which send is which receive, and whom the judge names from them.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ingest/recorded/mpi_words.h"
#include "ingest/recorded/progress.h"
#include "recorded_jobs.h"

namespace lockstep::recorded {
namespace {

// A partitioned message matches none of another kind, and none that was made before or after it.
TEST(Recorded, APartitionedMessageWithoutASend) {
  constexpr std::uint64_t kFirst = schema::kPartitionedSeq, kSecond = 2 * schema::kPartitionedSeq;
  Ranks job = Job(2);
  job[0]->Message(false, 1, 7, kFirst, true).WaitsFor(1);
  job[1]->Message(true, 0, 7, 0).Message(true, 0, 7, kSecond);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {1}));
}

TEST(Recorded, AReceiveWithoutASend) {
  Ranks job = Job(2);
  job[0]->Message(false, 1, 7, 0).InMessage(MpiOp::kRecv, 1, 7);
  job[1]->Message(true, 0, 7, 0);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {1}));
  // With another tag it is another message.
  job[1]->Message(true, 0, 8, 0);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {1}));
  // It was sent: nobody's call is missing.
  job[1]->Message(true, 0, 7, 1);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kCannotTell, {}));
}

TEST(Recorded, AReceiveWithAnyTag) {
  Ranks job = Job(2);
  job[0]->InMessage(MpiOp::kRecv, 1, -2);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {1}));
  job[1]->Message(true, 0, 7, 0);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kCannotTell, {}));
}

TEST(Recorded, MessagesThatWereLostAreNotMissing) {
  Ranks job = Job(2);
  job[0]->InMessage(MpiOp::kRecv, 1, 7);
  job[1]->Lost(Loss::kRingFull);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kCannotTell, {}));
}

TEST(Recorded, ReceivesInACircle) {
  Ranks job = Job(3);
  for (int rank = 0; rank < 3; ++rank) job[rank]->InMessage(MpiOp::kRecv, (rank + 1) % 3, 7);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kCircularWait, {0, 1, 2}));
}

TEST(Recorded, BothEndsAreInside) {
  Ranks job = Job(2);
  job[0]->InMessage(MpiOp::kRecv, 1, 7);
  job[1]->InMessage(MpiOp::kSsend, 0, 7);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kAllInside, {}));
}

TEST(Recorded, OfManyRequestsThoseThatNobodyAnsweredHoldUp) {
  Ranks job = Job(3);
  // Rank 0 receives from both; rank 1 sent, did not wait for it, and has gone to the next collective.
  job[0]->Message(false, 1, 7, 0, true).Message(false, 2, 7, 0, true).WaitsFor(2);
  job[1]->Message(true, 0, 7, 0, true).Inside(MpiOp::kAllreduce, 5);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {2}));
  // Any one of them is enough for rank 0, and who will answer is not known.
  job[0] = std::make_unique<Rank>(3);
  job[0]->Reduced(5).Message(false, 1, 7, 0, true).Message(false, 2, 7, 0, true).WaitsFor(2, MpiOp::kWaitany);
  for (const Said& said : JudgeJob(job)) EXPECT_EQ(said.culprits, (std::vector<std::int32_t>{2}));
}

// Rank 0 waits for a message that rank 1 has sent; rank 1 waits for rank 0's next one, since long before the end.
Ranks JobWithAMessageOnItsWay(const char* host = "b") {
  Ranks job = Job(3);
  job[0]->Message(false, 1, 7, 0, true).WaitsFor(1).Meta("host", "a");
  job[1]->Message(true, 0, 7, 0).Called(MpiOp::kSend, schema::CallOutcome::kCompleted, 1005 * kMs, kMs);
  job[1]->InMessage(MpiOp::kRecv, 0, 8).Meta("host", host);
  job[2]->Inside(MpiOp::kAllreduce, 5).Meta("host", "a");
  return job;
}

std::vector<Cause> CausesOf(const Ranks& job) {
  std::vector<Cause> causes;
  for (const Said& said : JudgeJob(job)) {
    EXPECT_TRUE(said.culprits.empty()) << said;
    causes.push_back(said.cause);
  }
  return causes;
}

TEST(Recorded, AMessageThatWasSentAndDoesNotComeIsTheNetworks) {
  using Causes = std::vector<Cause>;
  Ranks job = JobWithAMessageOnItsWay();
  EXPECT_EQ(CausesOf(job), Causes{Cause::kAllInside});
  // Between hosts that share a name.
  job = JobWithAMessageOnItsWay("a");
  for (const int rank : {0, 1, 2}) job[rank]->Meta("boot_id", rank == 1 ? "2" : "1");
  EXPECT_EQ(CausesOf(job), Causes{Cause::kAllInside});
  std::vector<std::string> hosts;
  for (const hang::RankFacts& facts : ProgressOfJob(job).ranks) hosts.push_back(facts.host);
  EXPECT_EQ(hosts, (std::vector<std::string>{"a#1", "a#2", "a#1"}));  // As everything else calls them.
  // Together with one of its own host, which has come: nothing can hold that up.
  job = JobWithAMessageOnItsWay();
  job[0] = std::make_unique<Rank>(3);
  job[0]->Reduced(5).Message(false, 1, 7, 0, true).Message(false, 2, 7, 0, true).WaitsFor(2).Meta("host", "a");
  job[2]->Message(true, 0, 7, 0).Called(MpiOp::kSend, schema::CallOutcome::kCompleted, 1005 * kMs, kMs);
  EXPECT_EQ(CausesOf(job), Causes{Cause::kAllInside});
}

TEST(Recorded, AMessageThatWasSentIsNotTheNetworksIfAnythingElseMayHoldItUp) {
  const auto not_the_network = [](const Ranks& job) {
    for (const Cause cause : CausesOf(job)) EXPECT_EQ(cause, Cause::kCannotTell);
  };
  not_the_network(JobWithAMessageOnItsWay("a"));  // Within a host.
  not_the_network(JobWithAMessageOnItsWay(""));   // Where it is, is not known.
  Ranks job = JobWithAMessageOnItsWay("a");
  job[0]->Meta("boot_id", "1");  // The other may be of it.
  not_the_network(job);
  // The sender computes, and moves nothing meanwhile.
  job = JobWithAMessageOnItsWay();
  job[1] = std::make_unique<Rank>(3);
  job[1]->Reduced(5).Message(true, 0, 7, 0).Meta("host", "b");
  job[1]->Called(MpiOp::kSend, schema::CallOutcome::kCompleted, 1005 * kMs, kMs);
  job[2] = std::make_unique<Rank>(3);
  job[2]->Reduced(5);
  not_the_network(job);
  // It sent just now.
  job = JobWithAMessageOnItsWay();
  job[1]->Called(MpiOp::kSend, schema::CallOutcome::kCompleted, kEnd - 100 * kMs, kMs);
  not_the_network(job);
  // A receive from anybody, not complete itself, may have taken it.
  job = JobWithAMessageOnItsWay();
  job[0] = std::make_unique<Rank>(3);
  job[0]->Reduced(5).Message(false, -2, 7, UINT64_MAX, true);
  job[0]->t.p2p.peer_world_rank.back() = -1;
  job[0]->Message(false, 1, 7, 0, true).WaitsFor(1).Meta("host", "a");
  not_the_network(job);
  // Something was lost of it.
  job = JobWithAMessageOnItsWay();
  job[1]->Lost(Loss::kRingFull);
  not_the_network(job);
  // It was killed, and what it had not handed on is gone with it.
  job = JobWithAMessageOnItsWay();
  job[1]->Ended(3'000 * kMs, schema::ProcessEnd::kSignal, 9);
  for (const Said& said : JudgeJob(job)) EXPECT_NE(said.cause, Cause::kAllInside);
  // It is stopped.
  job = JobWithAMessageOnItsWay();
  job[1]->Meta("stopped.100", "T");
  for (const Said& said : JudgeJob(job)) EXPECT_NE(said.cause, Cause::kAllInside);
  // Its own part of the same call waits for a send that nobody receives: that one holds it up.
  job = JobWithAMessageOnItsWay();
  job[0] = std::make_unique<Rank>(3);
  job[0]->Reduced(5).Message(false, 1, 7, 0, true).Message(false, 2, 9, 0, true).WaitsFor(2).Meta("host", "a");
  for (const Said& said : JudgeJob(job)) EXPECT_NE(said.cause, Cause::kAllInside);
}

// The sender waits in `op` for somebody who is not known, or asks by it again and again.
Ranks JobWhoseSenderIsIn(MpiOp op, bool asks = false) {
  Ranks job = JobWithAMessageOnItsWay();
  job[1] = std::make_unique<Rank>(3);
  job[1]->Reduced(5).Message(true, 0, 7, 0).Meta("host", "b");
  job[1]->Called(MpiOp::kSend, schema::CallOutcome::kCompleted, 1005 * kMs, kMs);
  if (asks)
    job[1]->Called(op, schema::CallOutcome::kNothingCompleted, 1100 * kMs, kEnd - 1101 * kMs);
  else
    job[1]->Fact({.op = static_cast<std::uint16_t>(op), .begin_ns = 1100 * kMs});
  return job;
}

bool SaysTheNetwork(const Ranks& job) {
  const std::vector<Cause> causes = CausesOf(job);
  return std::find(causes.begin(), causes.end(), Cause::kAllInside) != causes.end();
}

// Not every MPI call hands on what its rank has sent: who sits in a file system, or waits at the server of names, sends
// nothing meanwhile.
TEST(Recorded, AMessageIsTheNetworksIfItsSenderIsInACallThatMovesMessages) {
  for (const MpiOp op : {MpiOp::kWin_fence, MpiOp::kWaitall, MpiOp::kProbe, MpiOp::kComm_split, MpiOp::kBuffer_detach})
    EXPECT_TRUE(SaysTheNetwork(JobWhoseSenderIsIn(op))) << FindMpiOp(static_cast<std::uint16_t>(op))->name;
  for (const MpiOp op : {MpiOp::kFile_read, MpiOp::kFile_write_at_all, MpiOp::kLookup_name, MpiOp::kComm_accept,
                         MpiOp::kWin_lock, MpiOp::kAlloc_mem})
    EXPECT_FALSE(SaysTheNetwork(JobWhoseSenderIsIn(op))) << FindMpiOp(static_cast<std::uint16_t>(op))->name;
  // One that this version does not know.
  EXPECT_FALSE(SaysTheNetwork(JobWhoseSenderIsIn(static_cast<MpiOp>(65'000))));
  // Two threads of it: one of them is enough.
  Ranks job = JobWhoseSenderIsIn(MpiOp::kFile_read);
  job[1]->InMessage(MpiOp::kRecv, 0, 8);
  EXPECT_TRUE(SaysTheNetwork(job));
}

TEST(Recorded, WhichCallsMoveMessages) {
  // Those that wait for others or ask for requests do.
  for (const MpiOp op : {MpiOp::kBarrier, MpiOp::kNeighbor_alltoallw, MpiOp::kSend, MpiOp::kRecv, MpiOp::kMrecv,
                         MpiOp::kSendrecv_replace, MpiOp::kMprobe, MpiOp::kIprobe, MpiOp::kWaitsome, MpiOp::kTestany,
                         MpiOp::kRequest_get_status, MpiOp::kComm_dup, MpiOp::kIntercomm_create, MpiOp::kWin_create,
                         MpiOp::kComm_flush_buffer})
    EXPECT_TRUE(MovesMessages(static_cast<std::uint16_t>(op))) << FindMpiOp(static_cast<std::uint16_t>(op))->name;
  // Those that post, look things up, or wait for something other than messages do not.
  for (const MpiOp op :
       {MpiOp::kNone,          MpiOp::kIallreduce, MpiOp::kAllreduce_init, MpiOp::kBsend,        MpiOp::kIsend,
        MpiOp::kStart,         MpiOp::kPready,     MpiOp::kParrived,       MpiOp::kRequest_free, MpiOp::kComm_idup,
        MpiOp::kComm_set_name, MpiOp::kComm_spawn, MpiOp::kInit,           MpiOp::kOther,        MpiOp::kPublish_name,
        MpiOp::kBuffer_attach, MpiOp::kFile_open,  MpiOp::kFile_iread_all, MpiOp::kWin_test,     MpiOp::kWin_wait,
        MpiOp::kPut,           MpiOp::kRget})
    EXPECT_FALSE(MovesMessages(static_cast<std::uint16_t>(op))) << static_cast<int>(op);
  for (const MpiOpInfo& info : kMpiOps) {
    const bool never = IsIo(info.cls) || IsSetup(info.cls) || info.cls == MpiClass::kRmaPost;
    EXPECT_FALSE(never && MovesMessages(static_cast<std::uint16_t>(info.op))) << info.name;
  }
}

}  // namespace
}  // namespace lockstep::recorded
