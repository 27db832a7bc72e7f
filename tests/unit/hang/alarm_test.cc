#include "hang/alarm.h"

#include <gtest/gtest.h>

#include "jobs.h"

namespace lockstep::hang {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000, kAfter = 30 * kSecond;

// Rank 2 did not enter what the others have waited in for `waited_ns`.
Progress Late(std::int64_t waited_ns, double cpu_share) {
  Progress progress = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4)})});
  for (Member& member : progress.groups[0].members)
    for (Operation& call : member.calls) call.created_ns = 1000 * kSecond;
  for (RankFacts& facts : progress.ranks) facts.seen_ns = 1000 * kSecond + waited_ns;
  progress.ranks[2].cpu_share = cpu_share;
  return progress;
}

bool Alarms(const Progress& progress) {
  Judgement judgement = Judge(progress, {.least_wait_ns = kAfter});
  KeepAlarms(progress, kAfter, judgement);
  return !judgement.verdicts.empty();
}

TEST(Alarm, RankThatSleepsMayStillComeForAWhile) {
  EXPECT_FALSE(Alarms(Late(31 * kSecond, 0)));
  EXPECT_FALSE(Alarms(Late(74 * kSecond, 0)));
  EXPECT_TRUE(Alarms(Late(76 * kSecond, 0)));
}

TEST(Alarm, WhoWorkedUntilLatelyShowsThatOthersGoOn) {
  // Rank 1 came to the same wait 20 s ago, from something else.
  const auto job = [](std::int64_t waited_ns) {
    Progress progress = Late(waited_ns, 0);
    const std::int64_t moved_ns = progress.ranks[1].seen_ns - 20 * kSecond;
    progress.ranks[1].moved_ns = progress.groups[0].members[1].calls[0].created_ns = moved_ns;
    return progress;
  };
  EXPECT_FALSE(Alarms(job(179 * kSecond)));
  EXPECT_TRUE(Alarms(job(181 * kSecond)));
}

TEST(Alarm, RankThatWorksHasLonger) {
  for (const double share : {1.0, -1.0}) {
    EXPECT_FALSE(Alarms(Late(179 * kSecond, share)));
    EXPECT_TRUE(Alarms(Late(181 * kSecond, share)));
  }
}

// Its host cannot be reached, or it runs without Lockstep. Whom the others wait for is not told.
TEST(Alarm, RankOfWhichNothingIsThereHasAsLong) {
  const auto unseen = [](std::int64_t waited_ns, std::int64_t longest_ns, bool two = true) {
    Progress progress = two ? JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), Unseen(2), Unseen(3)})})
                            : JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), Unseen(2)})});
    for (Member& member : progress.groups[0].members)
      for (Operation& call : member.calls) call.created_ns = 1000 * kSecond;
    for (RankFacts& facts : progress.ranks) {
      facts.seen_ns = 1000 * kSecond + waited_ns;
      facts.longest_wait_ns = longest_ns;
    }
    return progress;
  };
  EXPECT_FALSE(Alarms(unseen(179 * kSecond, kNotKnown)));
  EXPECT_TRUE(Alarms(unseen(181 * kSecond, kNotKnown)));
  EXPECT_FALSE(Alarms(unseen(181 * kSecond, 100 * kSecond)));
  EXPECT_FALSE(Alarms(unseen(179 * kSecond, kNotKnown, false)));
  EXPECT_TRUE(Alarms(unseen(181 * kSecond, kNotKnown, false)));
}

// Ranks of a service wait in a broadcast until one of them has a request.
TEST(Alarm, RankThatListensHasAsLong) {
  for (const char* call : {"poll", "accept", "recv"}) {
    Progress progress = Late(179 * kSecond, 0);
    progress.ranks[2].asleep_in = call;
    EXPECT_FALSE(Alarms(progress));
    progress.ranks[2].asleep_in = "read";
    EXPECT_TRUE(Alarms(progress));
  }
}

TEST(Alarm, WhatNoHealthyJobDoesIsSaidAtOnce) {
  Progress stopped = Late(31 * kSecond, 0);
  stopped.ranks[2].state = RankState::kStopped;
  EXPECT_TRUE(Alarms(stopped));
  stopped = Late(29 * kSecond, 0);
  stopped.ranks[2].state = RankState::kStopped;
  EXPECT_FALSE(Alarms(stopped));
}

// Checkpoints that take 100 s come again.
TEST(Alarm, JobThatWaitedAsLongBeforeMayDoSoAgain) {
  Progress progress = Late(150 * kSecond, 0);
  progress.ranks[1].longest_wait_ns = 100 * kSecond;
  EXPECT_FALSE(Alarms(progress));
  progress = Late(201 * kSecond, 0);
  progress.ranks[1].longest_wait_ns = 100 * kSecond;
  EXPECT_TRUE(Alarms(progress));
  // What the late rank has waited for elsewhere says nothing of these.
  progress = Late(150 * kSecond, 0);
  progress.ranks[2].longest_wait_ns = 100 * kSecond;
  EXPECT_TRUE(Alarms(progress));
}

// What cannot end by itself needs no such patience.
TEST(Alarm, CallsThatDoNotBelongTogetherAreSaidWhateverWasBefore) {
  Progress progress = Late(31 * kSecond, 0);
  progress.groups[0].members[2] = progress.groups[0].members[1];
  progress.groups[0].members[2].rank = 2;
  progress.groups[0].members[2].calls[0].kind = "barrier";
  for (RankFacts& facts : progress.ranks) facts.longest_wait_ns = 100 * kSecond;
  EXPECT_TRUE(Alarms(progress));
}

// A master and some of its workers go on while others wait for theirs.
TEST(Alarm, WhileOthersGoOnItMayBeByDesign) {
  Progress progress = Late(100 * kSecond, 0);
  progress.ranks[2].moved_ns = progress.ranks[2].seen_ns - kSecond;
  EXPECT_FALSE(Alarms(progress));
  progress = Late(181 * kSecond, 0);
  progress.ranks[2].moved_ns = progress.ranks[2].seen_ns - kSecond;
  EXPECT_TRUE(Alarms(progress));
}

// What was last seen of a rank that was killed is that it went on.
TEST(Alarm, WhoIsDeadDoesNotGoOn) {
  for (const RankState state : {RankState::kKilled, RankState::kExited}) {
    Progress progress = Late(31 * kSecond, 0);
    progress.ranks[2].state = state;
    progress.ranks[2].seen_ns = 1000 * kSecond;
    progress.ranks[2].moved_ns = 999 * kSecond;
    EXPECT_TRUE(Alarms(progress));
  }
}

TEST(Alarm, NobodyIsAccusedOfWhatIsNotKnown) {
  // Who else is in the group.
  Progress progress = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4)})});
  progress.groups[0].complete = false;
  for (Member& member : progress.groups[0].members)
    for (Operation& call : member.calls) call.created_ns = 0;
  for (RankFacts& facts : progress.ranks) facts.seen_ns = 100'000 * kSecond;
  ASSERT_FALSE(Judge(progress, {}).verdicts.empty());
  EXPECT_FALSE(Alarms(progress));
}

// As long as where a rank is waited for that may compute.
TEST(Alarm, WhereAllIsKnownButWhoIsWaitedFor) {
  for (const bool somebody_outside : {true, false}) {
    Progress progress = JobOf({Named("f0", {At(0, 1, 0)}), Named("f1", {At(1, 1, somebody_outside ? 1 : 0)})});
    progress.whole = true;
    for (Group& group : progress.groups) {
      group.complete = false;
      for (Operation& call : group.members[0].calls) call.created_ns = 0;
    }
    for (RankFacts& facts : progress.ranks) facts.seen_ns = 179 * kSecond;
    EXPECT_FALSE(Alarms(progress));
    for (RankFacts& facts : progress.ranks) facts.seen_ns = 181 * kSecond;
    EXPECT_TRUE(Alarms(progress));
    for (RankFacts& facts : progress.ranks) facts.longest_wait_ns = 100 * kSecond;
    EXPECT_FALSE(Alarms(progress));
  }
}

}  // namespace
}  // namespace lockstep::hang
