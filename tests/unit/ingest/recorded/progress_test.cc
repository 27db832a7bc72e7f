// What rank files say of a job that does not move: who came to a collective, and what became of the others.

#include "ingest/recorded/progress.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recorded_jobs.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::recorded {
namespace {

TEST(Recorded, NobodyWaits) {
  EXPECT_TRUE(JudgeJob({}).empty());
  EXPECT_TRUE(JudgeJob(Job(1)).empty());
  EXPECT_TRUE(JudgeJob(Job(4)).empty());
  EXPECT_TRUE(JudgeJob(Job(2, 0)).empty());
}

TEST(Recorded, DidNotEnter) {
  Ranks job = Job(512);
  for (int rank = 0; rank < 512; ++rank)
    if (rank != 300) job[rank]->Inside(MpiOp::kAllreduce, 5);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {300}));
  const hang::Progress progress = ProgressOfJob(job);
  ASSERT_EQ(progress.groups.size(), 1u);
  EXPECT_EQ(progress.groups[0].members[300].entered, 5);
  EXPECT_EQ(progress.groups[0].members[299].entered, 6);
  EXPECT_EQ(progress.groups[0].members[299].completed, 5);
  EXPECT_EQ(progress.groups[0].members[299].calls.back().bytes, 80);
}

// A damaged file names the row behind the last communicator.
TEST(Recorded, ACommunicatorThatIsNotThere) {
  constexpr std::uint32_t kComms = 3;  // glibc keeps its own numbers right behind three pointers.
  Ranks job = Job(2);
  for (auto& rank : job) {
    while (rank->t.comms.rows() < kComms) {
      rank->t.comms.Append({.comm = static_cast<std::uint32_t>(rank->t.comms.rows()),
                            .global_id = 100 + rank->t.comms.rows(),
                            .size = 2,
                            .kind = schema::CommKind::kIntra,
                            .unidentified = 0,
                            .first_world_rank = 0,
                            .stride = 1});
    }
    rank->Collective(0, kEnd / 2);
    rank->t.collectives.comm.back() = kComms;
  }
  job[0]->Inside(MpiOp::kAllreduce, 5);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {1}));
}

// A host that lost its power: what its ranks did then is not what they do now.
TEST(Recorded, FactsHaveAnAge) {
  Ranks job = Job(3);
  for (const int rank : {0, 1, 2}) job[rank]->t.processes.ended[0] = schema::ProcessEnd::kUnknown;
  for (const int rank : {0, 1}) job[rank]->Inside(MpiOp::kAllreduce, 5);
  EXPECT_EQ(ProgressOfJob(job).ranks[2].doing, "");
  job[2]->Ended(kEnd - 50'000 * kMs, schema::ProcessEnd::kUnknown);
  EXPECT_EQ(ProgressOfJob(job).ranks[2].doing, "not heard of for 50 s, its host or network may be gone");
  EXPECT_EQ(ProgressOfJob(job).ranks[0].doing, "");
  // One that is known to have ended is not missed.
  job[2]->t.processes.ended[0] = schema::ProcessEnd::kExit;
  EXPECT_EQ(ProgressOfJob(job).ranks[2].doing, "");
}

TEST(Recorded, WhereItWasCalled) {
  Ranks job = Job(2);
  for (auto& rank : job) {
    const std::uint32_t file = rank->Text("train.py"), library = rank->Text("distributed_c10d.py");
    const auto frame = [&](std::uint32_t parent, const char* function, std::uint32_t of, std::uint32_t line, bool lib) {
      rank->t.stacks.Append(
          {.parent = parent, .function = rank->Text(function), .file = of, .line = line, .python = 1, .library = lib});
      return static_cast<std::uint32_t>(rank->t.stacks.rows() - 1);
    };
    const std::uint32_t step = frame(schema::kNone, "step", file, 88, false),
                        inner = frame(step, "all_reduce", library, 9, true);
    rank->t.collectives.caller.back() = inner;
  }
  job[0]->Inside(MpiOp::kAllreduce, 5);
  hang::Progress progress = ProgressOfJob(job);
  EXPECT_EQ(progress.groups[0].members[1].calls.back().site, "train.py:88 step");
  EXPECT_EQ(progress.groups[0].members[0].calls.back().site, "");
  // The open call has its own.
  const std::int64_t now_ns = 1100 * kMs;
  job[1]->Fact({.op = static_cast<std::uint16_t>(MpiOp::kAllreduce),
                .awaits = Awaits::kCollective,
                .begin_ns = now_ns,
                .comm = kWorld,
                .seq = 5,
                .bytes = 80,
                .count = 10,
                .caller = 0});
  progress = ProgressOfJob(job);
  EXPECT_EQ(progress.groups[0].members[1].calls.back().site, "train.py:88 step");
  EXPECT_EQ(progress.groups[0].members[1].calls.back().sequence, 6);
  // A damaged tree has no end of its own.
  job[1]->t.stacks.parent[0] = 1;
  job[1]->t.stacks.library = {1, 1};
  EXPECT_EQ(ProgressOfJob(job).groups[0].members[1].calls.back().site, "train.py:88 step");
}

TEST(Recorded, CallsThatDiffer) {
  Ranks job = Job(4);
  for (int rank = 0; rank < 4; ++rank) job[rank]->Inside(rank == 1 ? MpiOp::kBarrier : MpiOp::kAllreduce, 5);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kOtherOperation, {1}));
  job = Job(4);
  for (int rank = 0; rank < 4; ++rank) job[rank]->Inside(MpiOp::kBcast, 5, 10, rank == 1 ? 1 : 0);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kMismatch, {1}));
  job = Job(4);
  for (int rank = 0; rank < 4; ++rank) job[rank]->Inside(MpiOp::kAllreduce, 5, rank == 1 ? 9 : 10);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kMismatch, {1}));
}

TEST(Recorded, ARankWithoutAFile) {
  Ranks job = Job(4);
  for (int rank = 0; rank < 4; ++rank) job[rank]->Inside(MpiOp::kAllreduce, 5);
  job[2] = nullptr;
  EXPECT_EQ(JudgeJob(job), Only(Cause::kNoDump, {2}));
}

TEST(Recorded, WhatBecameOfAProcess) {
  const auto job_with = [](auto&& change) {
    Ranks job = Job(3);
    job[0]->Inside(MpiOp::kAllreduce, 5);
    job[1]->Inside(MpiOp::kAllreduce, 5);
    change(*job[2]);
    return JudgeJob(job);
  };
  // It ended as the others began to wait, and they went on waiting.
  EXPECT_EQ(job_with([](Rank& rank) { rank.Ended(1100 * kMs); }), Only(Cause::kEarlyExit, {2}));
  EXPECT_EQ(job_with([](Rank& rank) { rank.Ended(1100 * kMs, schema::ProcessEnd::kSignal, 9); }),
            Only(Cause::kKilled, {2}));
  // They had waited for long when it was killed, and were ended with it.
  EXPECT_EQ(job_with([](Rank& rank) { rank.Ended(kEnd - kMs, schema::ProcessEnd::kSignal, 9); }),
            Only(Cause::kDidNotEnter, {2}));
  EXPECT_EQ(job_with([](Rank& rank) { rank.Ended(kEnd - kMs, schema::ProcessEnd::kExit, 143); }),
            Only(Cause::kDidNotEnter, {2}));
  EXPECT_EQ(
      job_with([](Rank& rank) { rank.Called(MpiOp::kFinalize, schema::CallOutcome::kNotReturned, 1100 * kMs, 0); }),
      Only(Cause::kEarlyExit, {2}));
  // Between MPI_Init and MPI_Finalize with code 0: that explains any wait, as short as it may be.
  EXPECT_EQ(job_with([](Rank& rank) { rank.Ended(kEnd - kMs).Meta("inside_mpi", "1"); }), Only(Cause::kEarlyExit, {2}));
  EXPECT_EQ(job_with([](Rank& rank) { rank.Ended(kEnd - kMs, schema::ProcessEnd::kExit, 3).Meta("inside_mpi", "1"); }),
            Only(Cause::kDidNotEnter, {2}));
  EXPECT_EQ(job_with([](Rank& rank) { rank.Meta("stopped.100", "5"); }), Only(Cause::kStopped, {2}));
  EXPECT_EQ(job_with([](Rank& rank) { rank.Meta("stopped.100", "5").Meta("stopped.101", "6"); }),
            Only(Cause::kStopped, {2}));
  EXPECT_EQ(job_with([](Rank& rank) { rank.Meta("stopped.101", "6"); }), Only(Cause::kDidNotEnter, {2}));
}

TEST(Recorded, ARankThatWasKilledInsideACall) {
  const auto job_with = [](std::int64_t killed_ns) {
    Ranks job = Job(4);
    job[0]->Collective(5, kEnd / 2).Inside(MpiOp::kAllreduce, 6);
    for (int rank = 1; rank < 4; ++rank) job[rank]->Inside(MpiOp::kAllreduce, 5);
    job[3]->Ended(killed_ns, schema::ProcessEnd::kSignal, 9);
    return JudgeJob(job);
  };
  // The others waited on for it.
  for (const Said& said : job_with(1100 * kMs)) EXPECT_EQ(said, (Said{Cause::kKilled, {3}}));
  EXPECT_FALSE(job_with(1100 * kMs).empty());
  // It had waited with the others, or was ended with them.
  for (const std::int64_t killed_ns : {kEnd / 2, kEnd - kMs})
    for (const Said& said : job_with(killed_ns)) EXPECT_NE(said.cause, Cause::kKilled);
}

// Its agent was killed with it, and nobody wrote down its end.
TEST(Recorded, ARankThatIsGoneWithItsAgent) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  struct stat name_space {};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &name_space), 0);
  const auto job_with = [&](pid_t pid, const std::string& boot) {
    Ranks job = Job(3);
    job[0]->Inside(MpiOp::kAllreduce, 5);
    job[1]->Inside(MpiOp::kAllreduce, 5);
    job[2]->Ended(1100 * kMs, schema::ProcessEnd::kUnknown);
    job[2]->t.windows.end_ns[0] = 1100 * kMs;
    job[2]->t.processes.pid[0] = pid;
    job[2]->Meta("boot_id", boot).Meta("pid_namespace", std::to_string(name_space.st_ino));
    return JudgeJob(job);
  };
  EXPECT_EQ(job_with(gone, trace::BootId()), Only(Cause::kKilled, {2}));
  // It may live on, or nobody here can know.
  EXPECT_EQ(job_with(::getpid(), trace::BootId()), Only(Cause::kDidNotEnter, {2}));
  EXPECT_EQ(job_with(gone, "of another machine"), Only(Cause::kDidNotEnter, {2}));
}

TEST(Recorded, EverybodyFinalizesButOne) {
  for (const MpiOp op : {MpiOp::kFinalize, MpiOp::kSession_finalize}) {
    Ranks job = Job(3);
    for (int rank : {0, 1}) job[rank]->Called(op, schema::CallOutcome::kNotReturned, 1100 * kMs, 0);
    EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {2}));
  }
}

// The rank that closed one of two sessions has not left MPI: it computes while the others wait for it.
TEST(Recorded, ASessionThatIsNotTheLast) {
  const auto cause = [](int opened) {
    Ranks job = Job(2);
    job[0]->Inside(MpiOp::kAllreduce, 5);
    for (int i = 0; i < opened; ++i)
      job[1]->Called(MpiOp::kSession_init, schema::CallOutcome::kCompleted, i * kMs, kMs);
    job[1]->Called(MpiOp::kSession_finalize, schema::CallOutcome::kCompleted, 1100 * kMs, kMs);
    return JudgeJob(job);
  };
  EXPECT_EQ(cause(2), Only(Cause::kDidNotEnter, {1}));
  EXPECT_EQ(cause(1), Only(Cause::kEarlyExit, {1}));
}

TEST(Recorded, ARankThatWaitsForSomebodyUnknownIsNotNamed) {
  Ranks job = Job(3);
  job[0]->Inside(MpiOp::kAllreduce, 5);
  job[1]->Inside(MpiOp::kAllreduce, 5);
  job[2]->Fact({.op = static_cast<std::uint16_t>(MpiOp::kWin_fence), .begin_ns = 1100 * kMs});
  EXPECT_EQ(JudgeJob(job), Only(Cause::kCannotTell, {}));
  job[2] = std::make_unique<Rank>(3);
  job[2]->Reduced(5).InMessage(MpiOp::kRecv, -2, 4);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kCannotTell, {}));
  // It asks again and again whether there is a message.
  job[2] = std::make_unique<Rank>(3);
  job[2]->Reduced(5).Called(MpiOp::kIprobe, schema::CallOutcome::kNothingCompleted, 1100 * kMs, kEnd - 1101 * kMs);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kCannotTell, {}));
}

// Whose window it is, is not known, nor who else is to come; that three are inside is.
TEST(Recorded, AllThatWaitInACallOfAnUnknownGroupAreCounted) {
  Ranks job = Job(4);
  for (const int rank : {0, 1, 3})
    job[rank]->Fact({.op = static_cast<std::uint16_t>(MpiOp::kWin_fence), .begin_ns = (1100 + 10 * rank) * kMs});
  job[2]->Meta("blocked.100", "pause");
  std::vector<std::int32_t> outside;
  const auto waiting = [&] {
    const std::vector<hang::Verdict> verdicts =
        hang::Judge(ProgressOfJob(job), {.least_wait_ns = 5'000 * kMs}).verdicts;
    EXPECT_EQ(verdicts.size(), 1u);
    EXPECT_TRUE(verdicts.empty() || verdicts[0].cause == Cause::kCannotTell);
    outside = verdicts.empty() ? std::vector<std::int32_t>{} : verdicts[0].candidates;
    return verdicts.empty() ? std::vector<std::int32_t>{} : verdicts[0].waiting;
  };
  EXPECT_EQ(waiting(), (std::vector<std::int32_t>{0, 1, 3}));
  EXPECT_EQ(outside, (std::vector<std::int32_t>{2}));
  // What it was inside of later is not there.
  const std::int64_t end_ns = std::exchange(job[2]->t.windows.end_ns[0], kEnd / 4);
  waiting();
  EXPECT_TRUE(outside.empty());
  job[2]->t.windows.end_ns[0] = end_ns;
  // Calls of another kind are none of these.
  job[3] = std::make_unique<Rank>(4);
  job[3]->Reduced(5).Fact({.op = static_cast<std::uint16_t>(MpiOp::kFile_read_all), .begin_ns = 1100 * kMs});
  EXPECT_EQ(waiting(), (std::vector<std::int32_t>{0, 1}));
}

TEST(Recorded, WhatWasBegunMovesInCallsOnly) {
  Ranks job = Job(3);
  job[0]->Inside(MpiOp::kAllreduce, 5);
  job[1]->Inside(MpiOp::kAllreduce, 5);
  job[2]->Collective(5, kNoTime);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {2}));
  // Inside another call, MPI moves it.
  job[2]->InMessage(MpiOp::kRecv, -2, 7);
  for (const Said& said : JudgeJob(job)) EXPECT_TRUE(said.culprits.empty()) << said;
}

TEST(Recorded, CommunicatorsThatAreMade) {
  Ranks job = Job(3);
  const auto split = static_cast<std::uint16_t>(MpiOp::kComm_split);
  for (int rank = 0; rank < 3; ++rank)
    job[rank]->Called(MpiOp::kComm_dup, schema::CallOutcome::kCompleted, 1100 * kMs, kMs);
  for (int rank : {0, 1})
    job[rank]->Fact({.op = split, .awaits = Awaits::kCreation, .begin_ns = 1200 * kMs, .comm = kWorld, .seq = 1});
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {2}));
}

// Windows take numbers of their communicator.
TEST(Recorded, CommunicatorsThatAreMadeAfterWindows) {
  Ranks job = Job(3);
  for (int rank = 0; rank < 3; ++rank)
    for (const MpiOp op :
         {MpiOp::kWin_create, MpiOp::kWin_allocate, MpiOp::kWin_allocate_shared, MpiOp::kWin_create_dynamic})
      job[rank]->Called(op, schema::CallOutcome::kCompleted, 1100 * kMs, kMs);
  const auto split = static_cast<std::uint16_t>(MpiOp::kComm_split);
  job[0]->Fact({.op = split, .awaits = Awaits::kCreation, .begin_ns = 1200 * kMs, .comm = kWorld, .seq = 4});
  job[1]->Called(MpiOp::kComm_split, schema::CallOutcome::kCompleted, 1200 * kMs, kMs);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {2}));
}

// DDP's reducer waits in C++, in no call from Python: its thread sleeps until gloo's has done.
TEST(Recorded, InTorchWhoSleepsOnAnotherThreadWaits) {
  const auto job_of = [](std::string_view blocked) {
    Ranks job = Job(3);
    for (auto& rank : job) rank->OfTorch();
    for (const int rank : {0, 2}) job[rank]->Collective(5, kNoTime).Meta("blocked.100", blocked);
    job[1]->Meta("blocked.100", "read of /data/shard");
    return job;
  };
  EXPECT_EQ(JudgeJob(job_of("futex")), Only(Cause::kDidNotEnter, {1}));
  // They began it and went on to something else.
  EXPECT_TRUE(JudgeJob(job_of("nanosleep")).empty());
  EXPECT_TRUE(JudgeJob(job_of("")).empty());
}

TEST(Recorded, WhatWasWaitedForBeforeAndWhenIsKnown) {
  Ranks job = Job(2);
  job[0]->Called(MpiOp::kAllreduce, schema::CallOutcome::kCompleted, 2'000 * kMs, 9'000 * kMs);
  job[0]->Called(MpiOp::kInit, schema::CallOutcome::kCompleted, 0, 30'000 * kMs);
  const hang::Progress progress = ProgressOfJob(job);
  EXPECT_EQ(progress.ranks[0].longest_wait_ns, 9'000 * kMs);
  EXPECT_EQ(progress.ranks[0].seen_ns - progress.ranks[0].moved_ns, kEnd - 11'000 * kMs);
  EXPECT_EQ(progress.ranks[1].longest_wait_ns, hang::kNotKnown);
}

TEST(Recorded, WhereRecordingHadEndedNobodyIsNamed) {
  Ranks job = Job(3);
  for (int rank : {0, 1}) job[rank]->Inside(MpiOp::kAllreduce, 5);
  job[2]->t.windows.end_ns[0] = kEnd / 4;
  for (const Said& said : JudgeJob(job)) EXPECT_NE(said.cause, Cause::kDidNotEnter) << said;
}

}  // namespace
}  // namespace lockstep::recorded
