#include "ingest/ras/combine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "hang/join.h"
#include "hang/judge.h"
#include "hang/text.h"

namespace lockstep::ras {
namespace {

using Counts = std::map<std::string, std::int64_t>;
using Ranks = std::vector<std::int32_t>;

constexpr std::int64_t kSecond = 1'000'000'000;

CommRank RankAt(std::int32_t rank, Counts counts, std::int32_t process) {
  return {.rank = rank,
          .process = {.host = "node" + std::to_string(process / 8), .gpu = process % 8, .pid = 1000 + process},
          .status = Status::kRunning,
          .counts = std::move(counts)};
}

// As in JSON. `processes`: by rank; empty: as the ranks are.
Communicator CommOf(const std::string& hash, const std::vector<Counts>& counts, const Ranks& processes = {}) {
  Communicator communicator{.hash = hash, .size = static_cast<std::int32_t>(counts.size()), .counts_are_whole = true};
  for (std::size_t i = 0; i < counts.size(); ++i)
    communicator.ranks.push_back(RankAt(static_cast<std::int32_t>(i), counts[i],
                                        processes.empty() ? static_cast<std::int32_t>(i) : processes[i]));
  return communicator;
}

Answer AnswerAt(std::int64_t time_ns, std::vector<Communicator> communicators) {
  Answer answer{.time_ns = time_ns};
  answer.communicators = std::move(communicators);
  return answer;
}

struct Said {
  hang::Progress progress;
  hang::Judgement judgement;
  std::vector<std::string> notes;
  bool Noted(const std::string& text) const {
    for (const std::string& note : notes)
      if (note.find(text) != std::string::npos) return true;
    return false;
  }
};

Said Judged(const std::vector<Answer>& answers) {
  Said said;
  said.progress = Combine(answers, said.notes);
  said.judgement = hang::Judge(said.progress, {.least_wait_ns = 5 * kSecond});
  return said;
}

TEST(Ras, WhoIsBehindIsNamedAndWhatIsNotKnownIsSaid) {
  const Said said =
      Judged({AnswerAt(kSecond, {CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 8}}, {{"all_reduce", 9}}})})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  const hang::Verdict& verdict = said.judgement.verdicts[0];
  EXPECT_EQ(verdict.cause, hang::Cause::kDidNotEnter);
  EXPECT_EQ(verdict.culprits, (Ranks{1}));
  EXPECT_EQ(verdict.waited_ns, hang::kNotKnown);
  const std::string text = hang::TextOf(said.progress, said.judgement, false);
  EXPECT_NE(text.find("HANG  all-reduce #9 on group NCCL 0xab (ranks 0-2) waits for rank 1 (node0); 2 ranks wait\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("whether it waits elsewhere is not known"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 is process 1001 on node0, GPU 1"), std::string::npos) << text;
  EXPECT_TRUE(said.Noted("RAS was asked once"));
}

TEST(Ras, TwoAnswersTellHowLong) {
  const Communicator stuck = CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 8}}, {{"all_reduce", 9}}});
  const Said said = Judged({AnswerAt(10 * kSecond, {stuck}), AnswerAt(41 * kSecond, {stuck})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].waited_ns, 31 * kSecond);
  EXPECT_FALSE(said.Noted("asked once"));
  // One second is no wait.
  EXPECT_TRUE(Judged({AnswerAt(40 * kSecond, {stuck}), AnswerAt(41 * kSecond, {stuck})}).judgement.verdicts.empty());
}

TEST(Ras, AJobThatGoesOnHangsNowhere) {
  const Said said = Judged({AnswerAt(10 * kSecond, {CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 8}}})}),
                            AnswerAt(41 * kSecond, {CommOf("ab", {{{"all_reduce", 90}}, {{"all_reduce", 89}}})})});
  EXPECT_TRUE(said.judgement.verdicts.empty());
  EXPECT_TRUE(said.notes.empty()) << said.notes[0];
}

TEST(Ras, ThatOthersRunAheadIsNoProgress) {
  const Said said = Judged(
      {AnswerAt(10 * kSecond, {CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 8}}, {{"all_reduce", 8}}})}),
       AnswerAt(41 * kSecond, {CommOf("ab", {{{"all_reduce", 30}}, {{"all_reduce", 8}}, {{"all_reduce", 30}}})})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].culprits, (Ranks{1}));
  EXPECT_EQ(said.judgement.verdicts[0].call.sequence, 9);
  EXPECT_EQ(said.judgement.verdicts[0].waited_ns, 31 * kSecond);
}

TEST(Ras, AllAlikeCannotBeTold) {
  const Communicator alike = CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 9}}});
  Said said = Judged({AnswerAt(kSecond, {alike})});
  EXPECT_TRUE(said.judgement.verdicts.empty());
  EXPECT_TRUE(said.Noted("not what has completed"));
  EXPECT_EQ(hang::TextOf(said.progress, said.judgement, false).substr(0, 29), "no rank is behind the others;");
  said = Judged({AnswerAt(kSecond, {alike}), AnswerAt(60 * kSecond, {alike})});
  EXPECT_TRUE(said.judgement.verdicts.empty());
  EXPECT_TRUE(said.Noted("either all are inside an operation or all hosts are elsewhere"));
}

TEST(Ras, AProcessThatDoesNotAnswer) {
  // How far the others' hosts ran ahead says nothing beside it.
  Communicator communicator = CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 8}}, {}, {{"all_reduce", 9}}});
  communicator.ranks[2].silent = communicator.ranks[2].dead = true;
  Said said = Judged({AnswerAt(kSecond, {communicator})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].cause, hang::Cause::kUnreachable);
  EXPECT_EQ(said.judgement.verdicts[0].culprits, (Ranks{2}));
  EXPECT_NE(hang::TextOf(said.progress, said.judgement, false).find("rank 2 is dead to RAS"), std::string::npos);
  // The others went on until it stopped.
  const Answer before =
      AnswerAt(0, {CommOf("ab", {{{"all_reduce", 5}}, {{"all_reduce", 5}}, {{"all_reduce", 5}}, {{"all_reduce", 5}}})});
  EXPECT_EQ(Judged({before, AnswerAt(20 * kSecond, {communicator})}).judgement.verdicts.at(0).culprits, (Ranks{2}));
  // Where most are gone, the one that is left is not their victim alone.
  for (const std::size_t rank : {0U, 1U}) communicator.ranks[rank].silent = true;
  said = Judged({AnswerAt(kSecond, {communicator})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].cause, hang::Cause::kCannotTell);
  EXPECT_EQ(said.judgement.verdicts[0].candidates, (Ranks{0, 1, 2}));
}

TEST(Ras, CallsInAnotherOrder) {
  const Counts usual = {{"all_reduce", 9}, {"broadcast", 3}}, other = {{"all_reduce", 8}, {"broadcast", 4}};
  const Said said = Judged({AnswerAt(kSecond, {CommOf("ab", {usual, usual, other, usual})})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].cause, hang::Cause::kOtherOperation);
  EXPECT_EQ(said.judgement.verdicts[0].culprits, (Ranks{2}));
  EXPECT_NE(hang::TextOf(said.progress, said.judgement, false).find("rank 2 called broadcast"), std::string::npos);
  // Who may have begun as two others did contradicts neither.
  const Said open = Judged({AnswerAt(kSecond, {CommOf("ab", {{{"all_reduce", 9}, {"broadcast", 4}},
                                                             {{"all_reduce", 9}, {"broadcast", 3}},
                                                             {{"all_reduce", 8}, {"broadcast", 4}}})})});
  ASSERT_EQ(open.judgement.verdicts.size(), 1u);
  EXPECT_TRUE(open.judgement.verdicts[0].culprits.empty());
}

TEST(Ras, AMinorityThatIsAheadIsNotBlamed) {
  std::vector<Counts> counts(32, {{"all_reduce", 8}});
  counts[3] = counts[9] = {{"all_reduce", 9}};
  const Said said = Judged({AnswerAt(kSecond, {CommOf("ab", counts)})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_TRUE(said.judgement.verdicts[0].culprits.empty());
  EXPECT_EQ(said.judgement.verdicts[0].candidates.size(), 30u);
}

TEST(Ras, BlameGoesOnThroughGroups) {
  // Ranks 0-3; in {0, 1} rank 1 is behind, but it waits for rank 3 in {1, 3}.
  const Counts eight = {{"all_reduce", 8}}, nine = {{"all_reduce", 9}};
  const Said said =
      Judged({AnswerAt(kSecond, {CommOf("aa", {eight, eight, eight, eight}), CommOf("bb", {nine, eight}, {0, 1}),
                                 CommOf("cc", {nine, eight}, {1, 3})})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].culprits, (Ranks{3}));
}

TEST(Ras, SeveralThatMayWaitInMessagesAreCandidates) {
  const Counts eight = {{"all_reduce", 8}}, nine = {{"all_reduce", 9}};
  const Said said = Judged({AnswerAt(kSecond, {CommOf("aa", {nine, eight, eight, nine, nine, nine})})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].cause, hang::Cause::kCannotTell);
  EXPECT_EQ(said.judgement.verdicts[0].candidates, (Ranks{1, 2}));
  EXPECT_NE(hang::TextOf(said.progress, said.judgement, false)
                .find("inside a message or another communicator, which RAS does not show"),
            std::string::npos);
}

TEST(Ras, RanksOfTheJobWhereNoCommunicatorHasThem) {
  const Counts eight = {{"all_reduce", 8}}, nine = {{"all_reduce", 9}};
  const std::vector<Answer> answers = {
      AnswerAt(kSecond, {CommOf("aa", {nine, eight}, {9, 2}), CommOf("bb", {eight, eight}, {0, 80})})};
  Said said = Judged(answers);
  EXPECT_TRUE(said.progress.own_ranks);
  EXPECT_TRUE(said.Noted("numbered by host, GPU and process"));
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].culprits, (Ranks{1}));  // node0 before node1 and node10.
  // What Lockstep recorded knows the processes.
  hang::Progress recorded;
  for (const std::int32_t process : {0, 2, 9, 80})
    recorded.ranks.push_back({.rank = 100 - process, .pid = 1000 + process});
  std::reverse(recorded.ranks.begin(), recorded.ranks.end());
  ASSERT_TRUE(hang::Join(recorded, said.progress));
  EXPECT_EQ(hang::Judge(recorded, {}).verdicts.at(0).culprits, (Ranks{98}));
  // And where two have one id, nothing is told.
  recorded.ranks[0].pid = recorded.ranks[1].pid;
  recorded.groups.clear();
  EXPECT_FALSE(hang::Join(recorded, said.progress));
  EXPECT_TRUE(recorded.groups.empty());
}

TEST(Ras, ATextDoesNotTellRanksOfSmallCommunicators) {
  Communicator small =
      CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 9}}, {{"all_reduce", 8}}, {{"all_reduce", 9}}});
  small.counts_are_whole = false;
  for (const std::size_t rank : {0U, 1U, 3U}) small.ranks[rank].process = {};
  Answer answer = AnswerAt(kSecond, {small});
  answer.gpus = 8;
  Said said = Judged({answer});
  EXPECT_TRUE(said.judgement.verdicts.empty());
  EXPECT_TRUE(said.Noted("NCCL 0xab: rank 2 of its 4 (process 1002 on node0, GPU 2) has called less than others"));
  EXPECT_EQ(hang::TextOf(said.progress, said.judgement, false).substr(0, 16), "ranks are behind");
  // Then nobody is named beside it: who is behind in the whole job may wait there.
  Communicator all = CommOf("cd", std::vector<Counts>(8, {{"broadcast", 4}}));
  all.counts_are_whole = false;
  all.ranks[6].counts["broadcast"] = 3;
  answer.communicators.push_back(all);
  said = Judged({answer});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);
  EXPECT_EQ(said.judgement.verdicts[0].cause, hang::Cause::kCannotTell);
  EXPECT_EQ(said.judgement.verdicts[0].candidates, (Ranks{6}));
}

TEST(Ras, WhatIsNewInTheLastAnswerIsNoWaitYet) {
  const Said said = Judged({AnswerAt(kSecond, {CommOf("ab", {{{"all_reduce", 8}}, {{"all_reduce", 8}}})}),
                            AnswerAt(30 * kSecond, {CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 8}}})})});
  ASSERT_EQ(said.judgement.verdicts.size(), 1u);  // It has not moved on since.
  Communicator before = CommOf("ab", {{}, {}}), behind = CommOf("ab", {{{"all_reduce", 9}}, {{"all_reduce", 8}}});
  before.counts_are_whole = behind.counts_are_whole = false;
  Answer last = AnswerAt(30 * kSecond, {behind});
  last.gpus = 2;
  const Said open = Judged({AnswerAt(kSecond, {before}), last});
  EXPECT_TRUE(open.judgement.verdicts.empty());
  EXPECT_TRUE(open.Noted("was not in the answer before"));
}

TEST(Ras, WithoutCountsNothingIsKnown) {
  // Ranks that answer, and counts of none.
  const Communicator bare = CommOf("ab", {{}, {}, {}});
  const Said said = Judged({AnswerAt(kSecond, {bare}), AnswerAt(30 * kSecond, {bare})});
  EXPECT_EQ(said.progress.open, hang::Open::kNoCounts);
  EXPECT_FALSE(said.Noted("all ranks have called alike"));
  EXPECT_EQ(hang::TextOf(said.progress, said.judgement, false).substr(0, 36), "whether anything hangs is not known:");
  // Of one rank in three.
  const Communicator some[] = {CommOf("ab", {{{"all_reduce", 8}}, {{"all_reduce", 8}}, {}}),
                               CommOf("ab", {{{"all_reduce", 80}}, {{"all_reduce", 80}}, {}})};
  const Said two = Judged({AnswerAt(kSecond, {some[0]}), AnswerAt(30 * kSecond, {some[1]})});
  EXPECT_FALSE(two.judgement.known);
  EXPECT_EQ(two.judgement.blind, (Ranks{2}));
}

TEST(Ras, ThatOneCommunicatorGoesOnSaysNothingOfOthers) {
  // Ranks 0 and 1 go on, 2 and 3 are all alike and have stood.
  const auto answer = [](std::int64_t time_ns, std::int64_t moving) {
    return AnswerAt(time_ns,
                    {CommOf("aa", {{{"all_reduce", 5}}, {{"all_reduce", 5}}, {{"all_reduce", 5}}, {{"all_reduce", 5}}}),
                     CommOf("ab", {{{"all_gather", moving}}, {{"all_gather", moving}}}),
                     CommOf("ac", {{{"all_gather", 7}}, {{"all_gather", 7}}}, {2, 3})});
  };
  const Said said = Judged({answer(kSecond, 10), answer(30 * kSecond, 90)});
  EXPECT_TRUE(said.judgement.verdicts.empty());
  EXPECT_FALSE(said.judgement.known);
  EXPECT_TRUE(said.Noted("no count of 2 ranks has moved"));
}

TEST(Ras, NothingAtAll) {
  Answer answer;
  EXPECT_EQ(Judged({answer}).progress.open, hang::Open::kNoCounts);
  EXPECT_FALSE(Judged({answer}).judgement.known);
  answer.dead = {{"n", 1, 1, 5}};
  EXPECT_TRUE(Judged({answer}).Noted("process 5 on n, GPU 1 does not answer"));
  Communicator empty{.hash = "ab", .size = 4, .counts_are_whole = true};
  EXPECT_TRUE(Judged({AnswerAt(1, {empty})}).judgement.verdicts.empty());
}

}  // namespace
}  // namespace lockstep::ras
