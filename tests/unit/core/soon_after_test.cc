#include "core/soon_after.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(SoonAfter, HoldsFromThreeOnIfNineOfTenFollow) {
  SoonAfter seen;
  for (int i = 0; i < 2; ++i) seen.Add(0, 900, 1000);
  EXPECT_FALSE(seen.Holds());
  seen.Add(0, 900, 1000);
  EXPECT_TRUE(seen.Holds());
  seen.Add(0, 899, 1000);  // 101 of 1000: not soon.
  EXPECT_FALSE(seen.Holds());
}

// Of waits of 5 ms that end 30 us after the other rank came, and of 50 us that end as long after it.
TEST(MovedSoonAfter, LongWaitsAreJudgedByLongOnes) {
  MovedSoonAfter moved;
  for (int i = 0; i < 100; ++i) moved.Add(40'000, false, 0, 20'000, 50'000);
  for (int i = 0; i < 2; ++i) moved.Add(42'000, false, 0, 4'970'000, 5'000'000);
  EXPECT_FALSE(moved.Holds(40'000, false, 5'000'000)) << "two alone are too few, and the short ones say no";
  moved.Add(41'000, false, 0, 7'970'000, 8'000'000);
  EXPECT_TRUE(moved.Holds(40'000, false, 5'000'000));
  EXPECT_TRUE(moved.Holds(40'000, false, 20'000'000)) << "the longest are judged by the next shorter ones";
  EXPECT_FALSE(moved.Holds(40'000, false, 50'000));
  EXPECT_FALSE(moved.Holds(40'000, true, 5'000'000));
  EXPECT_FALSE(moved.Holds(400'000, false, 5'000'000));
}

// A chain of ranks whose first one is late: each waits for the one before it, and while it waits the one behind it
// comes to its next call, as long after its last as this one waits.
TEST(ReadyInCall, TheOtherMessageOfACallMayExplainItsEnd) {
  ReadyInCall call;
  call.Add(0, 100, 1000);  // From behind: it was there when this one came.
  EXPECT_FALSE(call.Explains(0, 100, 1000));
  call.Add(1, 995, 1000);  // From before.
  EXPECT_TRUE(call.Explains(0, 100, 1000));
  EXPECT_FALSE(call.Explains(1, 100, 1000)) << "its own is no other";
  call.Add(2, 1001, 1000);  // Sent without a handshake, received after the call.
  EXPECT_FALSE(call.Explains(1, 100, 1000));
  ReadyInCall late;
  late.Add(0, 100, 1000);
  late.Add(1, 500, 1000);  // Half of the time before the end.
  EXPECT_FALSE(late.Explains(0, 100, 1000));
}

}  // namespace
}  // namespace lockstep
