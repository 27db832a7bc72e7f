// What rank files say of a job that does not move, and whom the judge names from it. Ranks are written down by hand.

#include "ingest/recorded/progress.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mpi_ops.h"
#include "core/window.h"
#include "hang/judge.h"
#include "trace/decode/open_call.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::recorded {
namespace {

using hang::Cause;
using schema::kNoTime;
using trace::Awaits;

constexpr std::int64_t kMs = 1'000'000, kEnd = 60'000 * kMs;
constexpr std::uint32_t kWorld = 0;

class MemorySource final : public ingest::RankSource {
 public:
  explicit MemorySource(const schema::RankTables& tables) : tables_(tables) {}
  std::uint64_t EventRows() const override { return 0; }
  bool complete() const override { return true; }

 private:
  ingest::ReadTables LoadHead() const override { return {tables_, {}}; }
  std::unique_ptr<ingest::EventReader> LoadEvents() const override { return ingest::ReadFromMemory(tables_); }
  ingest::ReadTables LoadAll() const override { return {tables_, {}}; }
  const schema::RankTables& tables_;
};

// A rank that recorded from the begin to kEnd, and what it did.
class Rank {
 public:
  explicit Rank(int size) {
    t.processes.Append({.process = 0,
                        .pid = 100,
                        .begin_ns = 0,
                        .end_ns = kEnd,
                        .ended = schema::ProcessEnd::kSignal,
                        .end_code = 15});
    t.threads.Append({.thread = 0, .process = 0, .tid = 100, .training = 1});
    t.windows.Append({.begin_ns = 0, .end_ns = kEnd, .begin_cause = static_cast<std::uint8_t>(WindowCause::kRunBegin)});
    t.clock_snapshots.Append({.ticks = 0, .raw_ns = 0, .realtime_ns = 1'000'000'000'000});
    t.comms.Append({.comm = 0,
                    .global_id = 77,
                    .size = static_cast<std::uint32_t>(size),
                    .kind = schema::CommKind::kIntra,
                    .unidentified = 0,
                    .first_world_rank = 0,
                    .stride = 1});
  }
  Rank& Reduced(std::uint64_t count) {
    for (std::uint64_t seq = 0; seq < count; ++seq) Collective(seq, kEnd / 2);
    return *this;
  }
  Rank& Collective(std::uint64_t seq, std::int64_t end_ns) {
    t.collectives.Append({.comm = kWorld,
                          .seq = seq,
                          .kind = schema::Code(CollectiveKind::kAllReduce),
                          .mode = schema::Code(CollectiveMode::kBlocking),
                          .uneven = 0,
                          .begin_ns = Next(),
                          .last_incomplete_ns = kNoTime,
                          .end_ns = end_ns,
                          .bytes = 80,
                          .count = 10,
                          .dtype = schema::Code(DataType::kFloat64),
                          .root = -1});
    if (end_ns == kNoTime) t.collectives.mode.back() = schema::Code(CollectiveMode::kNonBlocking);
    return *this;
  }
  Rank& Inside(MpiOp op, std::uint64_t seq, std::uint64_t count = 10, std::int32_t root = -1) {
    return Fact({.op = static_cast<std::uint16_t>(op),
                 .awaits = Awaits::kCollective,
                 .begin_ns = Next(),
                 .comm = kWorld,
                 .seq = seq,
                 .bytes = count * 8,
                 .count = count,
                 .dtype = schema::Code(DataType::kFloat64),
                 .peer = root});
  }
  Rank& Message(bool sends, std::int32_t peer, std::int32_t tag, std::uint64_t seq, bool open = false) {
    t.p2p.Append({.comm = kWorld,
                  .direction = sends ? schema::Direction::kSend : schema::Direction::kReceive,
                  .mode = schema::Code(open ? CollectiveMode::kNonBlocking : CollectiveMode::kBlocking),
                  .peer = peer,
                  .peer_world_rank = peer,
                  .tag = tag,
                  .seq = seq,
                  .begin_ns = Next(),
                  .last_incomplete_ns = kNoTime,
                  .bytes = 8,
                  .outcome = open ? schema::RequestOutcome::kNeverCompleted : schema::RequestOutcome::kCompleted});
    return *this;
  }
  Rank& InMessage(MpiOp op, std::int32_t peer, std::int32_t tag) {
    return Fact({.op = static_cast<std::uint16_t>(op),
                 .awaits = op == MpiOp::kRecv || op == MpiOp::kProbe ? Awaits::kReceive : Awaits::kSend,
                 .begin_ns = Next(),
                 .comm = kWorld,
                 .bytes = 8,
                 .peer = peer,
                 .tag = tag});
  }
  // In MPI_Waitall for the last `count` messages that were posted.
  Rank& WaitsFor(std::uint32_t count, MpiOp op = MpiOp::kWaitall) {
    const std::int64_t begin_ns = Next();
    for (std::size_t i = t.p2p.rows() - count; i < t.p2p.rows(); ++i)
      Fact({.op = static_cast<std::uint16_t>(op),
            .awaits = t.p2p.direction[i] == schema::Direction::kSend ? Awaits::kSend : Awaits::kReceive,
            .requests = count,
            .begin_ns = begin_ns,
            .posted_ns = t.p2p.begin_ns[i],
            .comm = kWorld,
            .peer = t.p2p.peer[i],
            .tag = t.p2p.tag[i]});
    return *this;
  }
  Rank& Fact(const trace::OpenCallFact& call) {
    return Meta("fact.open_call" + (++facts_ > 1 ? "." + std::to_string(facts_) : ""), trace::TextOf(call));
  }
  Rank& Meta(std::string_view key, std::string_view value) {
    t.meta.Append({.key = strings_.Intern(key), .value = strings_.Intern(value)});
    return *this;
  }
  // Of PyTorch over gloo; its Python calls are recorded, and one of them has ended.
  Rank& OfTorch() {
    t.comms.kind.back() = schema::CommKind::kTorchGroup;
    t.ranges.Append({.begin_ns = 0, .duration_ns = kMs, .thread = 0, .name = strings_.Intern("c10d::barrier")});
    return *this;
  }
  Rank& Called(MpiOp op, std::uint8_t outcome, std::int64_t begin_ns, std::int64_t duration_ns) {
    t.mpi_calls.Append({.begin_ns = begin_ns,
                        .duration_ns = duration_ns,
                        .op = static_cast<std::uint16_t>(op),
                        .comm = kWorld,
                        .outcome = outcome});
    return *this;
  }
  Rank& Lost(Loss loss) {
    t.losses.Append({.name = strings_.Intern(Info(loss).name), .count = 3});
    return *this;
  }
  Rank& Ended(std::int64_t ns, std::uint8_t how = schema::ProcessEnd::kExit, std::int32_t code = 0) {
    t.processes.end_ns[0] = t.windows.end_ns[0] = ns;
    t.processes.ended[0] = how;
    t.processes.end_code[0] = code;
    return *this;
  }

  std::uint32_t Text(std::string_view text) { return strings_.Intern(text); }

  schema::RankTables t;

 private:
  std::int64_t Next() { return now_ns_ += kMs; }
  std::int64_t now_ns_ = 1000 * kMs;
  int facts_ = 0;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings_{t.strings, t.string_bytes};
};

struct Said {
  Cause cause;
  std::vector<std::int32_t> culprits;
  friend bool operator==(const Said&, const Said&) = default;
};
std::ostream& operator<<(std::ostream& out, const Said& said) {
  out << hang::NameOf(said.cause);
  for (const std::int32_t rank : said.culprits) out << " " << rank;
  return out;
}

using Ranks = std::vector<std::unique_ptr<Rank>>;

Ranks Job(int size, std::uint64_t reduced = 5) {
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<Rank>(size));
    ranks.back()->Reduced(reduced);
  }
  return ranks;
}

hang::Progress ProgressOfJob(const Ranks& ranks) {
  std::vector<std::unique_ptr<MemorySource>> sources;
  std::vector<RecordedRank> recorded;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank] == nullptr) continue;
    sources.push_back(std::make_unique<MemorySource>(ranks[rank]->t));
    recorded.push_back({static_cast<std::int32_t>(rank), false, sources.back().get(), &ranks[rank]->t});
  }
  return ProgressOf(recorded, static_cast<std::int32_t>(ranks.size()), 5'000 * kMs, 1).progress;
}

std::vector<Said> JudgeJob(const Ranks& ranks) {
  std::vector<Said> said;
  for (const hang::Verdict& verdict : hang::Judge(ProgressOfJob(ranks), {.least_wait_ns = 5'000 * kMs}).verdicts)
    said.push_back({verdict.cause, verdict.culprits});
  return said;
}
std::vector<Said> Only(Cause cause, std::vector<std::int32_t> culprits) { return {{cause, std::move(culprits)}}; }

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

// A partitioned message matches none of another kind, and none that was made before or after it.
TEST(Recorded, APartitionedMessageWithoutASend) {
  constexpr std::uint64_t kFirst = schema::kPartitionedSeq, kSecond = 2 * schema::kPartitionedSeq;
  Ranks job = Job(2);
  job[0]->Message(false, 1, 7, kFirst, true).WaitsFor(1);
  job[1]->Message(true, 0, 7, 0).Message(true, 0, 7, kSecond);
  EXPECT_EQ(JudgeJob(job), Only(Cause::kDidNotEnter, {1}));
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
