#include "core/event_clock.h"

#include <gtest/gtest.h>

#include "core/time.h"

namespace lockstep {
namespace {

template <typename A, typename B>
concept Subtractable = requires(A a, B b) {
  a - b;
};
static_assert(Subtractable<RankTime, RankTime>);
static_assert(!Subtractable<RankTime, ClusterTime>, "clocks must not mix");

TEST(ClockDistortion, ParsesTheRanksOwnPart) {
  const char* spec = "1:offset_s=1000,ppm=50,wander_us=50,period_s=300;2:step_ms=1,step_at_s=5";
  EXPECT_FALSE(ParseClockDistortion(spec, 0).active());
  EXPECT_EQ(ParseClockDistortion(spec, 1).offset_ns, 1'000'000'000'000);
  EXPECT_DOUBLE_EQ(ParseClockDistortion(spec, 1).ppm, 50);
  EXPECT_EQ(ParseClockDistortion(spec, 2).step_ns, 1'000'000);
  EXPECT_FALSE(ParseClockDistortion("1:nonsense=3", 1).active());
}

TEST(ClockDistortion, AppliesEveryTerm) {
  ClockDistortion d;
  d.offset_ns = 1000;
  d.ppm = 100;
  d.step_ns = 7;
  d.step_at_ns = 1'000'000;
  EXPECT_EQ(Distort(d, 0), 1000);
  EXPECT_EQ(Distort(d, 10'000), 10'000 + 1000 + 1);
  EXPECT_EQ(Distort(d, 1'000'000), 1'000'000 + 1000 + 100 + 7);
}

TEST(EventClock, SnapshotsBracketTicks) {
  for (const ClockMode mode : {ClockMode::kRaw, ClockMode::kTsc}) {
    if (mode == ClockMode::kTsc && !TscIsInvariant()) continue;
    EventClock clock{mode, {}};
    const ClockSnapshot a = TakeSnapshot(clock);
    while (clock.RankNs() - a.raw_ns < 20'000'000) {
    }
    const ClockSnapshot b = TakeSnapshot(clock);
    EXPECT_GT(b.ticks, a.ticks);
    EXPECT_GT(b.raw_ns, a.raw_ns);
    EXPECT_LT(b.width_ns, 100'000);
  }
}

TEST(ClockDomain, DistortedClocksAreTheirOwnDomain) {
  ClockDistortion distorted;
  distorted.ppm = 1;
  EXPECT_EQ(ClockDomainHash({}, 0), ClockDomainHash({}, 1));
  EXPECT_NE(ClockDomainHash(distorted, 1), ClockDomainHash({}, 1));
  EXPECT_NE(ClockDomainHash(distorted, 1), ClockDomainHash(distorted, 2));
}

}  // namespace
}  // namespace lockstep
