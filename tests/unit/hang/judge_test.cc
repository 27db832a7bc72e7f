#include "hang/judge.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "jobs.h"

namespace lockstep::hang {
namespace {

using Ranks = std::vector<std::int32_t>;

struct Said {
  Cause cause;
  Ranks culprits;
  friend bool operator==(const Said&, const Said&) = default;
};

std::vector<Said> JudgeAll(const Progress& progress, std::int64_t least_wait_ns = 0) {
  std::vector<Said> said;
  for (const Verdict& verdict : Judge(progress, {.least_wait_ns = least_wait_ns}).verdicts)
    said.push_back({verdict.cause, verdict.culprits});
  return said;
}
std::vector<Said> Only(Cause cause, Ranks culprits) { return {{cause, std::move(culprits)}}; }

TEST(Judge, NobodyWaits) {
  EXPECT_TRUE(JudgeAll({}).empty());
  EXPECT_TRUE(JudgeAll(JobOf({Named("dp", {At(0, 5, 5), At(1, 5, 5)})})).empty());
  // One is ahead, and has completed what it entered.
  EXPECT_TRUE(JudgeAll(JobOf({Named("dp", {At(0, 5, 5), At(1, 4, 4)})})).empty());
}

TEST(Judge, DidNotEnter) {
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)})})), Only(Cause::kDidNotEnter, {1}));
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 7, 4), At(1, 7, 4), At(2, 4, 4), At(3, 5, 4)})})),
            Only(Cause::kDidNotEnter, {2}));
}

TEST(Judge, TheOneAheadIsNotBlamed) {
  const auto said = JudgeAll(JobOf({Named("dp", {At(0, 9, 4), At(1, 5, 4), At(2, 5, 4), At(3, 4, 4)})}));
  EXPECT_EQ(said, Only(Cause::kDidNotEnter, {3}));
}

TEST(Judge, MostDidNotComeAndNoneOfThemWaits) {
  const Judgement judgement = Judge(JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4), At(2, 4, 4), At(3, 4, 4)})}), {});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  EXPECT_EQ(judgement.verdicts[0].cause, Cause::kExtraOrMissingCall);
  EXPECT_TRUE(judgement.verdicts[0].culprits.empty());
  EXPECT_EQ(judgement.verdicts[0].candidates, (Ranks{1, 2, 3}));
}

// A rank that began the operation and went on, where MPI moves it only inside calls.
Member Away(std::int32_t rank, std::int64_t entered) {
  Member member = At(rank, entered, entered - 1);
  member.calls.back().waited = false;
  member.moves_in_calls = true;
  return member;
}

TEST(Judge, WhoBeganItAndWentOn) {
  const Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), Away(2, 5)})});
  const Judgement judgement = Judge(job, {});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  EXPECT_EQ(judgement.verdicts[0].cause, Cause::kDidNotEnter);
  EXPECT_EQ(judgement.verdicts[0].culprits, (Ranks{2}));
  EXPECT_TRUE(judgement.verdicts[0].began);
  // Where threads of a library move it, everybody is inside.
  Progress threads = job;
  threads.groups[0].members[2].moves_in_calls = false;
  EXPECT_EQ(JudgeAll(threads), Only(Cause::kAllInside, {}));
  // Who did not begin it at all comes first.
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 5, 4), Away(1, 5), At(2, 4, 4)})})), Only(Cause::kDidNotEnter, {2}));
}

TEST(Judge, WhoBeganItIsNotAWaiter) {
  // Rank 2 waits for nobody, although what it began is open: it holds up the second group.
  EXPECT_EQ(JudgeAll(JobOf({Named("a", {At(1, 4, 4), Away(2, 5)}), Named("b", {At(0, 3, 2), At(2, 2, 2)})})),
            Only(Cause::kDidNotEnter, {2}));
}

TEST(Judge, MostHaveEnded) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4), At(2, 4, 4), At(3, 4, 4)})});
  for (std::int32_t rank = 1; rank < 4; ++rank) job.ranks[static_cast<std::size_t>(rank)].state = RankState::kExited;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kExtraOrMissingCall, {}));
  for (std::int32_t rank = 2; rank < 4; ++rank) job.groups[0].members[static_cast<std::size_t>(rank)] = At(rank, 5, 4);
  EXPECT_EQ(JudgeAll(job), Only(Cause::kEarlyExit, {1}));
}

TEST(Judge, AnotherRootThanThatOfThoseWhoAreThrough) {
  // Ranks 1 and 3 have sent to rank 0 and gone on; rank 2 waits as a root of its own.
  const auto gather = [](Member member, std::int32_t root, bool through) {
    member.calls = {Call(5, "gather")};
    member.calls[0].peer = root;
    if (through) member.calls[0].state = OperationState::kCompleted;
    return member;
  };
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {gather(At(0, 5, 4), 0, false), gather(At(1, 5, 5), 0, true),
                                         gather(At(2, 5, 4), 2, false), gather(At(3, 5, 5), 0, true)})})),
            Only(Cause::kMismatch, {2}));
}

TEST(Judge, OthersLeftWhatTheyCalledInstead) {
  // A broadcast is over for its root and for who has the data, whatever the last rank calls.
  const auto calls = [](Member member, const char* kind, bool through) {
    member.calls = {{.sequence = 5, .kind = kind, .created_ns = 10}};
    if (through) member.calls[0].state = OperationState::kCompleted;
    return member;
  };
  EXPECT_EQ(
      JudgeAll(JobOf({Named("dp", {calls(At(0, 5, 5), "broadcast", true), calls(At(1, 5, 5), "broadcast", true),
                                   calls(At(2, 5, 5), "broadcast", true), calls(At(3, 5, 4), "barrier", false)})})),
      Only(Cause::kOtherOperation, {3}));
}

TEST(Judge, WhatTheProcessDoesDecidesHowItIsCalled) {
  for (const auto& [state, cause] :
       {std::pair(RankState::kStopped, Cause::kStopped), std::pair(RankState::kExited, Cause::kEarlyExit),
        std::pair(RankState::kKilled, Cause::kKilled), std::pair(RankState::kSilent, Cause::kUnreachable),
        std::pair(RankState::kAlive, Cause::kDidNotEnter)}) {
    Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4)})});
    job.ranks[2].state = state;
    EXPECT_EQ(JudgeAll(job), Only(cause, {2}));
    if (state == RankState::kAlive) continue;
    // Inside, as all others.
    job.groups[0].members[2] = At(2, 5, 4);
    EXPECT_EQ(JudgeAll(job), Only(cause, {2}));
    // Nothing is known of its calls.
    job.groups[0].members[2] = Unseen(2);
    EXPECT_EQ(JudgeAll(job), Only(cause, {2}));
  }
}

TEST(Judge, BlameIsPassedOn) {
  // 1 did not come to dp, because it waits for 3 in tp.
  const Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)}), Named("tp", {At(1, 8, 7), At(3, 7, 7)})});
  EXPECT_EQ(JudgeAll(job), Only(Cause::kDidNotEnter, {3}));
}

TEST(Judge, BlameIsPassedOnThroughMessages) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)}), Named("pp", {At(1, 0, 0), At(2, 0, 0)})});
  job.groups[1].members[0].messages = {Message("recv", 2)};
  EXPECT_EQ(JudgeAll(job), Only(Cause::kDidNotEnter, {2}));
}

TEST(Judge, BehindInWhatOthersHaveCompleted) {
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 9, 6), At(1, 9, 6), At(2, 9, 4)})})), Only(Cause::kBehindOnGpu, {2}));
  // Also if it does not come to later calls.
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 9, 6), At(1, 9, 6), At(2, 7, 4)})})), Only(Cause::kBehindOnGpu, {2}));
}

TEST(Judge, NotStarted) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 5, 4)})});
  for (Member& member : job.groups[0].members) {
    member.shows_started = true;
    if (member.rank != 1) member.calls[0].state = OperationState::kStarted;
  }
  EXPECT_EQ(JudgeAll(job), Only(Cause::kBehindOnGpu, {1}));
  // Where starts are not recorded, a missing one says nothing.
  job.groups[0].members[1].shows_started = false;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kAllInside, {}));
}

TEST(Judge, EverybodyInside) {
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4)})})), Only(Cause::kAllInside, {}));
  EXPECT_EQ(JudgeAll(JobOf({Named("one", {At(0, 5, 4)})})), Only(Cause::kAllInside, {}));
}

TEST(Judge, EverybodyInsideBehindAnEarlierWait) {
  // 0 and 1 are inside tp; but before that 1 entered dp, where 2 is missing.
  Progress job = JobOf({Named("dp", {At(1, 5, 4), At(2, 4, 4)}), Named("tp", {At(0, 8, 7), At(1, 8, 7)})});
  job.groups[0].members[0].calls[0].created_ns = 10;
  job.groups[1].members[0].calls[0].created_ns = 20;
  job.groups[1].members[1].calls[0].created_ns = 20;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kDidNotEnter, {2}));
}

TEST(Judge, AnotherOperation) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 5, 4)})});
  job.groups[0].members[2].calls[0].kind = "broadcast";
  EXPECT_EQ(JudgeAll(job), Only(Cause::kOtherOperation, {2}));
}

TEST(Judge, AnotherSizeTypeOrRoot) {
  const Progress same = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 5, 4)})});
  Progress size = same, type = same, root = same;
  size.groups[0].members[1].calls[0].elements_in = 7;
  type.groups[0].members[1].calls[0].type = "Half";
  for (Member& member : root.groups[0].members) member.calls[0].kind = "broadcast", member.calls[0].peer = 0;
  root.groups[0].members[1].calls[0].peer = 2;
  for (const Progress& job : {size, type, root}) EXPECT_EQ(JudgeAll(job), Only(Cause::kMismatch, {1}));
}

TEST(Judge, TwoOfTwoAreNotAskedToVote) {
  for (const std::vector<std::int32_t>& odd : {std::vector<std::int32_t>{1}, {1, 3}}) {
    std::vector<Member> members;
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(2 * odd.size()); ++rank)
      members.push_back(At(rank, 5, 4));
    for (const std::int32_t rank : odd) members[static_cast<std::size_t>(rank)].calls[0].elements_in = 7;
    EXPECT_EQ(JudgeAll(JobOf({Named("dp", members)})), Only(Cause::kMismatch, {}));
  }
}

TEST(Judge, SizesThatMayDiffer) {
  for (const char* kind : {"all_to_all", "all_gather_v", "coalesced"}) {
    Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4)})});
    for (Member& member : job.groups[0].members) {
      member.calls[0].kind = kind;
      // What one sends more it receives less.
      member.calls[0].elements_in = 10 + member.rank;
      member.calls[0].elements_out = 11 - member.rank;
    }
    EXPECT_EQ(JudgeAll(job), Only(Cause::kAllInside, {})) << kind;
  }
}

TEST(Judge, AnExchangeThatSendsMoreThanItReceives) {
  Progress job = JobOf({Named("ep", {At(0, 5, 4), At(1, 5, 4)})});
  for (Member& member : job.groups[0].members) member.calls[0].kind = "all_to_all";
  job.groups[0].members[0].calls[0].elements_out = 90;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kMismatch, {}));
}

TEST(Judge, UnknownSizesAreNoMismatch) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4)})});
  job.groups[0].members[1].calls[0].elements_in = kNotKnown;
  job.groups[0].members[1].calls[0].type = "";
  EXPECT_EQ(JudgeAll(job), Only(Cause::kAllInside, {}));
}

// The ring has lost the call; only its number is known.
// A link between hosts is cut: those that lack its data are no more to blame than who was to send it.
TEST(Judge, OnHostsWhoIsBehindIsNotNamed) {
  Progress job = JobOf({Named("world", {At(0, 5, 4), At(1, 6, 5), At(2, 5, 4), At(3, 6, 5)})});
  EXPECT_EQ(JudgeAll(job), Only(Cause::kBehindOnGpu, {0, 2}));
  job.groups[0].on_host = true;
  const Judgement judgement = Judge(job, {});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  EXPECT_EQ(judgement.verdicts[0].cause, Cause::kAllInside);
  EXPECT_EQ(judgement.verdicts[0].culprits, Ranks{});
  EXPECT_EQ(judgement.verdicts[0].candidates, (Ranks{0, 2}));
}

// Its other threads carried it (gloo), and it is not known to wait.
TEST(Judge, WhoIsStoppedHoldsUpWhatItBegan) {
  Progress job = JobOf({Named("world", {At(0, 5, 4), At(1, 5, 4), At(2, 5, 4)})});
  job.groups[0].members[2].calls[0].waited = false;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kAllInside, {}));
  job.ranks[2].state = RankState::kStopped;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kStopped, {2}));
}

// Where hosts carry it, some come to the end of a sum that is longer on one of them.
TEST(Judge, OneHasLeftWhatIsLongerOnAnother) {
  Progress job = JobOf({Named("world", {At(0, 5, 4), At(1, 5, 4), At(2, 5, 4), At(3, 5, 5)})});
  job.groups[0].members[1].calls[0] = Call(5, "all_reduce", 200);
  job.groups[0].members[3].calls = {Call(5)};
  job.groups[0].members[3].calls[0].state = OperationState::kCompleted;
  job.groups[0].on_host = true;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kMismatch, {1}));
  // Other operations would not have let it go.
  job.groups[0].members[1].calls[0] = Call(5, "barrier");
  EXPECT_NE(JudgeAll(job), Only(Cause::kOtherOperation, {1}));
}

TEST(Judge, LostCallsAreNoMismatch) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 5, 4)})});
  job.groups[0].members[1].calls.clear();
  EXPECT_EQ(JudgeAll(job), Only(Cause::kAllInside, {}));
}

TEST(Judge, ACallLessAndACallMore) {
  const auto kinds = [](std::int32_t rank, const std::vector<std::int64_t>& sizes) {
    Member member = At(rank, 4 + static_cast<std::int64_t>(sizes.size()), 4);
    for (std::size_t i = 0; i < sizes.size(); ++i) member.calls[i].elements_in = sizes[i];
    return member;
  };
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {kinds(0, {1, 2, 3}), kinds(1, {1, 2, 3}), kinds(2, {2, 3})})})),
            Only(Cause::kExtraOrMissingCall, {2}));
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {kinds(0, {1, 2, 3}), kinds(1, {9, 1, 2}), kinds(2, {1, 2, 3})})})),
            Only(Cause::kExtraOrMissingCall, {1}));
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {kinds(0, {1, 2, 3}), kinds(1, {2, 1, 3}), kinds(2, {1, 2, 3})})})),
            Only(Cause::kMismatch, {1}));
  // Of two ranks, either may be right.
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {kinds(0, {1, 2, 3}), kinds(1, {2, 3})})})),
            Only(Cause::kExtraOrMissingCall, {}));
}

TEST(Judge, CircleOfGroups) {
  const Progress job = JobOf({Named("a", {At(0, 5, 4), At(1, 4, 4)}), Named("b", {At(0, 7, 7), At(1, 8, 7)})});
  const Judgement judgement = Judge(job, {});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  EXPECT_EQ(judgement.verdicts[0].cause, Cause::kCircularWait);
  EXPECT_EQ(judgement.verdicts[0].culprits, (Ranks{0, 1}));
  EXPECT_EQ(judgement.verdicts[0].cycle.size(), 2u);
}

// Both have entered both, in another order: on a GPU, each waits behind the other.
TEST(Judge, CircleOfQueues) {
  Progress job = JobOf({Named("a", {At(0, 5, 4), At(1, 5, 4)}), Named("b", {At(0, 8, 7), At(1, 8, 7)})});
  const std::int64_t times[2][2] = {{10, 20}, {20, 10}};
  for (std::size_t g = 0; g < 2; ++g)
    for (std::size_t rank = 0; rank < 2; ++rank) job.groups[g].members[rank].calls[0].created_ns = times[g][rank];
  EXPECT_EQ(JudgeAll(job), Only(Cause::kCircularWait, {0, 1}));
}

TEST(Judge, CircleOfMessages) {
  for (const char* kind : {"send", "recv"}) {
    Progress job = JobOf({Named("pp", {At(0, 0, 0), At(1, 0, 0), At(2, 0, 0)})});
    for (Member& member : job.groups[0].members) member.messages = {Message(kind, (member.rank + 1) % 3)};
    EXPECT_EQ(JudgeAll(job), Only(Cause::kCircularWait, {0, 1, 2})) << kind;
  }
}

// Rank 1 goes on to the messages of the next step, for which its two neighbours come after the sum.
TEST(Judge, OneOfACircleMissedTheOperationOfTheOthers) {
  Progress job = JobOf({Named("world", {At(0, 9, 8), At(1, 8, 8), At(2, 9, 8), At(3, 9, 8)})});
  job.groups[0].members[1].messages = {Message("recv", 0), Message("recv", 2)};
  const Judgement judgement = Judge(job, {});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  EXPECT_EQ(judgement.verdicts[0].cause, Cause::kOtherOperation);
  EXPECT_EQ(judgement.verdicts[0].culprits, (Ranks{1}));
  EXPECT_EQ(judgement.verdicts[0].call.kind, "all_reduce");
  EXPECT_FALSE(judgement.verdicts[0].message);
  EXPECT_EQ(judgement.verdicts[0].cycle.size(), 3u);
  // Of two, either may be wrong: those that wait beside them have no part in it.
  job.groups[0].members[1].messages = {Message("recv", 0)};
  EXPECT_EQ(JudgeAll(job), Only(Cause::kCircularWait, {0, 1}));
}

TEST(Judge, OneHasTwoGroupsInAnotherOrder) {
  const auto job_of = [](std::int32_t size, std::int32_t swapped) {
    std::vector<Member> a, b;
    for (std::int32_t rank = 0; rank < size; ++rank) {
      a.push_back(At(rank, rank < swapped ? 4 : 5, 4));
      b.push_back(At(rank, rank < swapped ? 8 : 7, 7));
    }
    return JobOf({Named("a", a), Named("b", b)});
  };
  EXPECT_EQ(JudgeAll(job_of(3, 1)), Only(Cause::kOtherOperation, {0}));
  EXPECT_EQ(JudgeAll(job_of(6, 2)), Only(Cause::kOtherOperation, {0, 1}));
  EXPECT_EQ(JudgeAll(job_of(6, 4)), Only(Cause::kOtherOperation, {4, 5}));
  EXPECT_EQ(JudgeAll(job_of(4, 2)), Only(Cause::kCircularWait, {0, 1, 2, 3}));
}

TEST(Judge, Messages) {
  const auto job_of = [](std::vector<Operation> first, std::vector<Operation> second) {
    Progress job = JobOf({Named("pp", {At(0, 0, 0), At(1, 0, 0)})});
    job.groups[0].members[0].messages = std::move(first);
    job.groups[0].members[1].messages = std::move(second);
    return job;
  };
  EXPECT_EQ(JudgeAll(job_of({Message("send", 1)}, {})), Only(Cause::kDidNotEnter, {1}));
  EXPECT_EQ(JudgeAll(job_of({Message("send", 1)}, {Message("recv", 0)})), Only(Cause::kAllInside, {}));
  EXPECT_EQ(JudgeAll(job_of({Message("send", 1)}, {Message("recv", 0, 11)})), Only(Cause::kMismatch, {}));
  // A message from anybody waits for nobody in particular, and may be this one.
  EXPECT_TRUE(JudgeAll(job_of({Message("recv", -1)}, {})).empty());
  EXPECT_EQ(JudgeAll(job_of({Message("send", 1)}, {Message("recv", -1)})), Only(Cause::kAllInside, {}));
}

TEST(Judge, WhoBeganItsHalfOfAMessageAndDoesNotGoOn) {
  Progress job = JobOf({Named("pp", {At(0, 0, 0), At(1, 0, 0)})});
  job.groups[0].members[0].messages = {Message("send", 1)};
  job.groups[0].members[1].messages = {Message("recv", 0)};
  job.groups[0].members[1].messages[0].waited = false;  // MPI_Irecv, and not in a wait for it.
  EXPECT_EQ(JudgeAll(job), Only(Cause::kAllInside, {}));
  for (const auto& [state, cause] :
       {std::pair(RankState::kStopped, Cause::kStopped), std::pair(RankState::kKilled, Cause::kKilled)}) {
    job.ranks[1].state = state;
    job.ranks[0].state = RankState::kAlive;
    EXPECT_EQ(JudgeAll(job), Only(cause, {1}));
  }
  // The launcher ended both: that tells of nobody.
  job.ranks[0].state = RankState::kKilled;
  EXPECT_NE(JudgeAll(job), Only(Cause::kKilled, {1}));
}

TEST(Judge, MessagesWithNumbers) {
  Progress job = JobOf({Named("pp", {At(0, 0, 0), At(1, 0, 0)})});
  Operation send = Message("send", 1), receive = Message("recv", 0);
  send.sequence = 7;
  receive.sequence = 6;
  job.groups[0].members[0].messages = {send};
  job.groups[0].members[1].messages = {receive};
  job.groups[0].members[0].messages_completed = 6;
  // The sixth is complete on the other side, so the receiver's is what stopped.
  EXPECT_EQ(JudgeAll(job), Only(Cause::kBehindOnGpu, {1}));
}

TEST(Judge, NoDump) {
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), Unseen(2)})})), Only(Cause::kNoDump, {2}));
  // Two groups wait, and each for one rank only.
  EXPECT_EQ(JudgeAll(JobOf({Named("a", {At(0, 5, 4), Unseen(2)}), Named("b", {At(1, 5, 4), Unseen(3)})})),
            Only(Cause::kNoDump, {2, 3}));
  // Only one rank is in both.
  EXPECT_EQ(JudgeAll(JobOf(
                {Named("a", {At(0, 5, 4), Unseen(2), Unseen(3)}), Named("b", {At(1, 5, 4), Unseen(3), Unseen(4)})})),
            Only(Cause::kNoDump, {3}));
}

TEST(Judge, NoDumpIsNotBlamedForBeingOne) {
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4), Unseen(2)})})), Only(Cause::kDidNotEnter, {1}));
  // Others have completed it, so it took part.
  EXPECT_EQ(JudgeAll(JobOf({Named("dp", {At(0, 5, 5), At(1, 5, 4), Unseen(2)})})), Only(Cause::kBehindOnGpu, {1}));
}

TEST(Judge, CannotTell) {
  const auto undecided = [](const Progress& job, const Ranks& candidates) {
    const Judgement judgement = Judge(job, {});
    ASSERT_EQ(judgement.verdicts.size(), 1u);
    EXPECT_EQ(judgement.verdicts[0].cause, Cause::kCannotTell);
    EXPECT_TRUE(judgement.verdicts[0].culprits.empty());
    EXPECT_EQ(judgement.verdicts[0].candidates, candidates);
  };
  // One of two.
  undecided(JobOf({Named("dp", {At(0, 5, 4), Unseen(2), Unseen(3)})}), {2, 3});
  // The only dump of a job: rank 1 may itself wait for rank 2 or 3.
  undecided(JobOf({Named("pp", {At(0, 5, 4), Unseen(1)}), Named("dp", {Unseen(1), Unseen(2), Unseen(3)})}), {1});
  // Rank 2 may wait for rank 1, of which is known that it waits for nobody.
  undecided(JobOf({Named("a", {At(0, 5, 4), Unseen(2)}), Named("b", {At(1, 5, 5), Unseen(2)})}), {2});
  // Who else is in the group is not known.
  Progress job = JobOf({Named("a", {At(0, 5, 4), At(1, 5, 4)})});
  job.groups[0].complete = false;
  undecided(job, {});
}

TEST(Judge, MessagesThatAreNotRecorded) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4)})});
  job.ranks[2].hides_messages = true;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kDidNotEnter, {2}));
  // Two may be connected by one.
  Progress two = JobOf({Named("a", {At(0, 5, 4), At(2, 4, 4)}), Named("b", {At(1, 5, 4), At(3, 4, 4)})});
  EXPECT_EQ(JudgeAll(two).size(), 2u);
  EXPECT_EQ(JudgeAll(two)[0].cause, Cause::kDidNotEnter);
  for (RankFacts& facts : two.ranks) facts.hides_messages = true;
  for (const Said& said : JudgeAll(two)) EXPECT_EQ(said, (Said{Cause::kCannotTell, {}}));
  job.ranks[2].makes_messages = true;
  EXPECT_EQ(JudgeAll(job), Only(Cause::kCannotTell, {}));
}

TEST(Judge, WhoReceivesFromAnybodyWaitsForSomebody) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4)})});
  job.groups[0].members[2].messages = {Message("recv", -1)};
  EXPECT_EQ(JudgeAll(job), Only(Cause::kCannotTell, {}));
}

TEST(Judge, WhoIsInsideNothingWhereItIsNotKnownWhoIsMissing) {
  // File operations of three ranks; the communicator of a file is not known.
  Progress job = JobOf(
      {Named("f0", {At(0, 1, 0)}), Named("f2", {At(2, 1, 0)}), Named("dp", {At(0, 4, 4), At(1, 4, 4), At(2, 4, 4)})});
  job.groups[0].complete = job.groups[1].complete = false;
  job.ranks[0].seen_ns = 100;
  const auto verdict = [&](const JudgeOptions& options = {}) { return Judge(job, options).verdicts.at(0); };
  EXPECT_TRUE(verdict().candidates.empty());
  EXPECT_FALSE(verdict().outside || verdict().nobody_outside);
  job.whole = true;
  EXPECT_EQ(verdict().cause, Cause::kCannotTell);
  EXPECT_EQ(verdict().candidates, (Ranks{1}));
  EXPECT_TRUE(verdict().outside);
  // It may be in a message that its facts do not show.
  job.ranks[1].hides_messages = true;
  EXPECT_TRUE(verdict().candidates.empty());
  job.ranks[1].hides_messages = false;
  // It is inside another one, that has only begun.
  job.groups[2].members[1] = At(1, 5, 4);
  job.groups[2].members[1].calls[0].created_ns = 90;
  job.ranks[1].seen_ns = 100;
  EXPECT_TRUE(verdict({.least_wait_ns = 20}).candidates.empty());
  EXPECT_FALSE(verdict({.least_wait_ns = 20}).nobody_outside);
  // Nobody is left.
  job.groups[2].members[1] = At(1, 4, 4);
  job.groups.push_back(Named("f1", {At(1, 1, 0)}));
  job.groups[3].complete = false;
  EXPECT_TRUE(verdict().candidates.empty());
  EXPECT_TRUE(verdict().nobody_outside);
}

TEST(Judge, WorkUnderWay) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)})});
  job.groups[0].members[0].calls[0].created_ns = 1'000;
  job.ranks[0].seen_ns = 3'000;
  EXPECT_TRUE(JudgeAll(job, 5'000).empty());
  EXPECT_EQ(Judge(job, {.least_wait_ns = 5'000}).oldest_young_ns, 2'000);
  EXPECT_EQ(JudgeAll(job, 2'000), Only(Cause::kDidNotEnter, {1}));
  job.ranks[0].seen_ns = kNotKnown;
  EXPECT_EQ(JudgeAll(job, 5'000), Only(Cause::kDidNotEnter, {1}));
}

TEST(Judge, WhoCameLastToWhatHoldsOthersUpIsHeldUpToo) {
  // Rank 2 is a root of its own, and came to it a moment ago; ranks 1 and 3 are in the next operation.
  const auto since = [](Member member, std::int64_t created_ns) {
    member.calls.back().created_ns = created_ns;
    return member;
  };
  const auto gather = [](Member member, std::int32_t root, bool through) {
    member.calls.insert(member.calls.begin(), Call(5, "gather"));
    member.calls.front().peer = root;
    if (through) member.calls.front().state = OperationState::kCompleted;
    if (!through) member.calls.resize(1);
    return member;
  };
  Progress differs =
      JobOf({Named("dp", {since(gather(At(0, 5, 4), 0, false), 1'000), since(gather(At(1, 6, 5), 0, true), 1'000),
                          since(gather(At(2, 5, 4), 2, false), 9'500), since(gather(At(3, 6, 5), 0, true), 1'000)})});
  for (RankFacts& facts : differs.ranks) facts.seen_ns = 10'000;
  EXPECT_EQ(JudgeAll(differs, 1'000), Only(Cause::kMismatch, {2}));
  EXPECT_EQ(Judge(differs, {.least_wait_ns = 1'000}).oldest_young_ns, kNotKnown);
  // Rank 1 is waited for; rank 2 came late to where others wait for rank 1, and rank 3 waits for rank 2.
  Progress passes = JobOf({Named("a", {since(At(0, 5, 4), 1'000), At(1, 4, 4), since(At(2, 5, 4), 9'500)}),
                           Named("b", {At(2, 2, 2), since(At(3, 3, 2), 1'000)})});
  for (RankFacts& facts : passes.ranks) facts.seen_ns = 10'000;
  EXPECT_EQ(JudgeAll(passes, 1'000), Only(Cause::kDidNotEnter, {1}));
  // Ranks 0 and 1 wait for one another; rank 2 came late to where rank 0 waits, and rank 3 waits for rank 2.
  Progress circle = JobOf({Named("a", {since(At(0, 5, 4), 1'000), At(1, 4, 4), since(At(2, 5, 4), 9'500)}),
                           Named("b", {At(0, 7, 7), since(At(1, 8, 7), 1'000)}),
                           Named("c", {At(2, 2, 2), since(At(3, 3, 2), 1'000)})});
  for (RankFacts& facts : circle.ranks) facts.seen_ns = 10'000;
  const Judgement judgement = Judge(circle, {.least_wait_ns = 1'000});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  EXPECT_EQ(judgement.verdicts[0].cause, Cause::kCircularWait);
  EXPECT_EQ(judgement.verdicts[0].culprits, (Ranks{0, 1}));
  EXPECT_EQ(judgement.verdicts[0].joined, (Ranks{2}));
  EXPECT_EQ(judgement.oldest_young_ns, kNotKnown);
  // A message of two sizes, whose receiver came a moment ago, and rank 2 waits for it.
  Progress sizes =
      JobOf({Named("p2p", {At(0, 0, 0), At(1, 0, 0)}), Named("b", {At(1, 2, 2), since(At(2, 3, 2), 1'000)})});
  sizes.groups[0].members[0].messages = {Message("send", 1)};
  sizes.groups[0].members[1].messages = {Message("recv", 0, 11)};
  sizes.groups[0].members[0].messages[0].created_ns = 1'000;
  sizes.groups[0].members[1].messages[0].created_ns = 9'500;
  for (RankFacts& facts : sizes.ranks) facts.seen_ns = 10'000;
  EXPECT_EQ(JudgeAll(sizes, 1'000), Only(Cause::kMismatch, {}));
}

TEST(Judge, ManyRanksInARow) {
  // Each waits for the next one; recursion would end here.
  constexpr std::int32_t kRanks = 50'000;
  Progress job;
  for (std::int32_t rank = 0; rank < kRanks; ++rank) job.ranks.push_back({.rank = rank});
  for (std::int32_t rank = 0; rank + 1 < kRanks; ++rank)
    job.groups.push_back(Named(std::to_string(rank), {At(rank, 5, 4), At(rank + 1, 4, 4)}));
  EXPECT_EQ(JudgeAll(job), Only(Cause::kDidNotEnter, {kRanks - 1}));
}

TEST(Judge, Held) {
  const Judgement judgement = Judge(JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4), Unseen(7)})}), {});
  EXPECT_EQ(judgement.waiting, 2u);
  EXPECT_EQ(judgement.no_dump, (Ranks{7}));
  EXPECT_EQ(judgement.verdicts.at(0).waiting, (Ranks{0, 1}));
}

}  // namespace
}  // namespace lockstep::hang
