#include "hang/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "jobs.h"

namespace lockstep::hang {
namespace {

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string Said(const Progress& progress, bool all_ranks = false) {
  return TextOf(progress, Judge(progress, {}), all_ranks);
}

TEST(HangText, SaysWhoHowLongAndWhatToDo) {
  Progress job = JobOf({Named("dp", {At(0, 482, 481), At(1, 482, 481), At(2, 481, 481)})});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    job.groups[0].members[rank].calls[0].created_ns = 1'000'000'000;
    job.groups[0].members[rank].calls[0].bytes = 17'700'000;
    job.ranks[rank].seen_ns = 32'000'000'000;
  }
  job.ranks[2].host = "node3";
  job.ranks[2].doing = "in data loading, train.py:88 collate";
  EXPECT_EQ(
      Said(job),
      "HANG  all-reduce #482 of 17.7 MB on group dp (ranks 0-2) waits for rank 2 (node3); 2 ranks have waited 31 s\n"
      "      rank 2 did not enter; nothing else of it is known\n"
      "      rank 2 is in data loading, train.py:88 collate\n"
      "      → look at what the host of rank 2 does: input, a lock, the file system, a caught exception\n");
}

TEST(HangText, WhatIsNotRecordedIsNotToldAsKnown) {
  Progress job = JobOf({Named("tp", {At(0, 5, 4), At(1, 4, 4)})});
  for (RankFacts& facts : job.ranks) facts.shows = {"NCCL"};
  EXPECT_TRUE(
      Has(Said(job), "rank 1 did not enter; nothing else of it is known: Flight Recorder dumps show NCCL only\n"))
      << Said(job);
  EXPECT_TRUE(Has(Said(job), "a caught exception, a call outside NCCL\n")) << Said(job);
  EXPECT_FALSE(Has(Said(job), "healthy") || Has(Said(job), "nobody else")) << Said(job);
  // Most of a group did not come.
  Progress most = JobOf({Named("tp", {At(0, 5, 4), At(1, 4, 4), At(2, 4, 4), At(3, 4, 4)})});
  for (RankFacts& facts : most.ranks) facts.shows = {"NCCL", "gloo"};
  EXPECT_TRUE(Has(Said(most),
                  "ranks 1-3 did not enter; nothing else of them is known: Flight Recorder dumps show NCCL "
                  "and gloo only; either they are late, or rank 0 made one call too many\n"))
      << Said(most);
  // What Lockstep recorded shows calls of MPI; NCCL's it does not.
  job.source = Source::kRankFile;
  EXPECT_TRUE(Has(Said(job), "rank 1 did not enter; it is inside no other call that was recorded\n")) << Said(job);
  // Counts of calls.
  job.source = Source::kAnswer;
  for (RankFacts& facts : job.ranks) facts.counts_only = true;
  EXPECT_TRUE(Has(Said(job), "rank 1 did not enter; whether it waits elsewhere is not known\n")) << Said(job);
}

// The launcher ends the others at once: however short they have waited, their wait has no end.
TEST(HangText, WhoLeavesMpiWithCode0IsNamedForAShortWait) {
  Progress job = JobOf({Named("dp", {At(0, 101, 100), At(1, 100, 100), At(2, 101, 100)})});
  job.groups[0].members[1].calls = {Call(100)};
  job.groups[0].members[1].calls[0].state = OperationState::kCompleted;
  for (RankFacts& facts : job.ranks) facts.seen_ns = 300'000'000;
  for (const std::size_t rank : {0, 2}) job.groups[0].members[rank].calls[0].created_ns = 100'000'000;
  const auto said = [&] { return TextOf(job, Judge(job, {.least_wait_ns = kLeastWaitNs}), false); };
  job.ranks[1].state = RankState::kExited;
  EXPECT_TRUE(Has(said(), "nothing hangs")) << said();
  job.ranks[1].without_finalize = true;
  EXPECT_EQ(said(),
            "HANG  rank 1 exited with code 0 without MPI_Finalize while ranks 0 and 2 waited for it in all-reduce #101 "
            "on group dp (ranks 0-2)\n"
            "      its last call in this group was all-reduce #100\n"
            "      → look for what calls exit() or returns from main() on rank 1 before MPI_Finalize\n");
  // What the others wait for among themselves may come.
  job.groups.push_back(Named("pp", {At(0, 3, 2), At(2, 2, 2)}));
  job.groups[0].members[0] = At(0, 100, 100);
  job.groups[1].members[0].calls[0].created_ns = 100'000'000;
  EXPECT_TRUE(Has(said(), "while rank 2 waited for it in all-reduce #101")) << said();
  EXPECT_FALSE(Has(said(), "pp")) << said();
}

TEST(HangText, WhoLeavesMpiOwesAMessage) {
  Progress job = JobOf({Named("world", {At(0, 4, 4), At(1, 4, 4)})});
  job.groups[0].on_host = true;
  job.groups[0].members[0].messages = {Message("recv", 1)};
  job.groups[0].members[0].messages[0].created_ns = 100'000'000;
  job.ranks[0].seen_ns = 300'000'000;
  job.ranks[1].state = RankState::kExited;
  job.ranks[1].without_finalize = true;
  const std::string said = TextOf(job, Judge(job, {.least_wait_ns = kLeastWaitNs}), false);
  EXPECT_TRUE(
      Has(said, "rank 1 exited with code 0 without MPI_Finalize while rank 0 waited for it in recv from rank 1"))
      << said;
}

TEST(HangText, EveryCauseHasWords) {
  for (int cause = 0; cause <= static_cast<int>(Cause::kCannotTell); ++cause) {
    const Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)})});
    Verdict verdict = Judge(job, {}).verdicts.at(0);
    verdict.cause = static_cast<Cause>(cause);
    const Words words = WordsOf(job, verdict, false);
    EXPECT_TRUE(Has(words.headline, "all-reduce #5 on group dp")) << cause;
    EXPECT_FALSE(words.remedy.empty()) << cause;
    EXPECT_STRNE(NameOf(verdict.cause), "") << cause;
  }
}

TEST(HangText, WhoIsInsideNothing) {
  Progress job = JobOf({Named("f0", {At(0, 1, 0)}), Named("dp", {At(0, 4, 4), At(1, 4, 4), At(2, 4, 4)})});
  job.groups[0].complete = false;
  job.whole = true;
  job.ranks[1].doing = "asleep (CPU 0 %, in nanosleep)";
  job.ranks[2].state = RankState::kExited;
  EXPECT_EQ(Said(job),
            "HANG  all-reduce #1 on group f0 (rank 0 and perhaps more) waits, and the facts do not say for whom; 1 "
            "rank waits\n"
            "      rank 1 is inside no call that was recorded: asleep (CPU 0 %, in nanosleep)\n"
            "      rank 2 has left\n"
            "      → look at ranks 1 and 2: those who wait may wait for one of them\n");
}

TEST(HangText, SaysWhatTheOddOneOfACircleWaitsIn) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4), At(2, 5, 4)})});
  job.groups[0].members[1].messages = {Message("recv", 0), Message("recv", 2)};
  EXPECT_EQ(
      Said(job),
      "HANG  all-reduce #5 on group dp (ranks 0-2) cannot end: the ranks called different operations; 2 ranks wait\n"
      "      ranks 0 and 2 wait in all-reduce #5 on group dp for rank 1\n"
      "      rank 1 waits in recv from rank 0 on group dp for rank 0\n"
      "      rank 1 waits in recv from rank 2 on group dp for rank 2\n"
      "      → the program's order of calls depends on the rank: look for a branch around these lines\n");
}

TEST(HangText, NamesCannotMakeLines) {
  Progress job = JobOf({Named("a\nHANG  b\x1b[31m", {At(0, 5, 4), At(1, 4, 4)})});
  job.groups[0].members[0].calls[0].kind = "x\ny";
  job.groups[0].members[0].calls[0].site = "t\rz";
  job.ranks[1].host = "h\ni";
  job.ranks[1].doing = "d\ne";
  const std::string said = Said(job);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 5) << said;
  EXPECT_FALSE(Has(said, "\x1b"));
  EXPECT_FALSE(Has(said, "\r"));
}

TEST(HangText, LongListsOnlyWhereAsked) {
  std::vector<Member> members;
  for (std::int32_t rank = 0; rank < 60; ++rank) members.push_back(At(rank, rank % 4 == 0 ? 4 : 5, 4));
  const Progress job = JobOf({Named("dp", members)});
  EXPECT_TRUE(Has(Said(job), "ranks 0, 4, 8 and 12 others"));
  EXPECT_TRUE(Has(Said(job, true), "ranks 0,4,8,12,16,20,24,28,32,36,40,44,48,52,56"));
}

TEST(HangText, NothingHangs) {
  Progress idle = JobOf({Named("dp", {At(0, 4, 4), At(1, 4, 4)})});
  EXPECT_EQ(Said(idle), "nothing hangs: no rank is inside an operation that others hold up\n");
  for (RankFacts& facts : idle.ranks) facts.shows = {"NCCL"};
  EXPECT_EQ(
      Said(idle),
      "nothing hangs: no rank is inside an operation that others hold up (Flight Recorder dumps show NCCL only)\n");
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)})});
  job.groups[0].members[0].calls[0].created_ns = 1'000'000;
  job.ranks[0].seen_ns = 41'000'000;
  EXPECT_EQ(TextOf(job, Judge(job, {.least_wait_ns = 50'000'000}), false),
            "nothing hangs: 1 operation was open, the longest for 40 ms\n");
}

TEST(HangText, WhatIsNotKnownIsNotNo) {
  const auto json = [](const Progress& job) { return nlohmann::json::parse(JsonOf(job, Judge(job, {}))); };
  const std::string begin = "whether anything hangs is not known: ";
  // No rank at all.
  EXPECT_EQ(Said({}), begin + "nothing tells of any rank what it is inside of\n      → add the dumps of all ranks\n");
  EXPECT_EQ(json({})["hangs"], nullptr);
  // Two of four ranks.
  Progress job = JobOf({Named("dp", {At(0, 4, 4), At(1, 4, 4), Unseen(2), Unseen(3)})});
  EXPECT_EQ(Said(job), begin +
                           "nothing tells what ranks 2,3 are inside of; no other rank is inside an operation that "
                           "others hold up\n"
                           "      → add the dumps of all ranks\n"
                           "      no dump of ranks 2,3\n");
  EXPECT_FALSE(Judge(job, {}).known);
  EXPECT_EQ(json(job)["hangs"], nullptr);
  EXPECT_TRUE(Has(json(job)["not_known"], begin));
  // One whose recording had ended before.
  job = JobOf({Named("dp", {At(0, 4, 4), At(1, 4, 4)})});
  job.source = Source::kRankFile;
  job.ranks[1].blind = true;
  EXPECT_EQ(Said(job), begin +
                           "nothing tells what rank 1 is inside of; no other rank is inside an operation that others "
                           "hold up\n"
                           "      → look at the stacks of rank 1\n");
  job.ranks[1].blind = false;
  EXPECT_EQ(json(job)["hangs"], false);
  EXPECT_EQ(json(job)["not_known"], nullptr);
  // Facts that leave it open for everybody.
  for (const Open open : {Open::kNoCounts, Open::kUnreadFiles}) {
    job.open = open;
    EXPECT_TRUE(Said(job).starts_with(begin)) << Said(job);
    EXPECT_EQ(json(job)["hangs"], nullptr);
  }
  // Somebody hangs for certain, whatever else is not known.
  job.open = Open::kNothing;
  job.groups.push_back(Named("pp", {At(0, 5, 4), At(1, 4, 4), Unseen(2)}));
  EXPECT_TRUE(Said(job).starts_with("HANG  ")) << Said(job);
  EXPECT_EQ(json(job)["hangs"], true);
}

TEST(HangJson, HoldsTheSame) {
  const Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4), Unseen(3)})});
  const auto json = nlohmann::json::parse(JsonOf(job, Judge(job, {})));
  EXPECT_EQ(json["schema"], "lockstep.hang/1");
  EXPECT_EQ(json["hangs"], true);
  EXPECT_EQ(json["no_dump"], nlohmann::json({3}));
  const auto& verdict = json["verdicts"].at(0);
  EXPECT_EQ(verdict["cause"], "did_not_enter");
  EXPECT_EQ(verdict["culprits"], nlohmann::json({2}));
  EXPECT_EQ(verdict["group"]["ranks"], nlohmann::json({0, 1, 2, 3}));
  EXPECT_EQ(verdict["call"]["sequence"], 5);
  EXPECT_EQ(verdict["waited_ns"], nullptr);
}

TEST(HangText, OneCulpritOfSeveralOperationsIsToldOnce) {
  const Progress progress = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4)})});
  Judgement judgement = Judge(progress, {});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  judgement.verdicts.push_back(judgement.verdicts[0]);
  const auto blocks = [&](bool all) {
    const std::string text = TextOf(progress, judgement, all);
    std::size_t count = 0;
    for (std::size_t at = text.find("HANG  "); at != std::string::npos; at = text.find("HANG  ", at + 1)) ++count;
    return std::pair{count, text.find("1 more operation waits for the same") != std::string::npos};
  };
  EXPECT_EQ(blocks(false), (std::pair<std::size_t, bool>{1, true}));
  EXPECT_EQ(blocks(true), (std::pair<std::size_t, bool>{2, false}));
  // The one in which the culprit itself waits is not the one that is told.
  judgement.verdicts[0].waiting = {2};
  EXPECT_NE(TextOf(progress, judgement, false).find("2 ranks"), std::string::npos)
      << TextOf(progress, judgement, false);
}

TEST(HangText, WhoCalledFromWhere) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4)})});
  const auto said = [&] { return TextOf(job, Judge(job, {}), false); };
  EXPECT_EQ(said().find("called it at"), std::string::npos);
  // Of the other one it is not known.
  job.groups[0].members[1].calls[0].site = "train.py:88 step";
  EXPECT_NE(said().find("      those who wait called it at train.py:88 step\n"), std::string::npos) << said();
  job.groups[0].members[0].calls[0].site = "train.py:88 step";
  EXPECT_NE(said().find("      those who wait called it at train.py:88 step\n"), std::string::npos) << said();
  job.groups[0].members[0].calls[0].site = "train.py:70 warm_up";
  EXPECT_NE(said().find("      rank 0 called it at train.py:70 warm_up\n      rank 1 called it at train.py:88 step\n"),
            std::string::npos)
      << said();
  EXPECT_EQ(said().find("those who wait"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::hang
