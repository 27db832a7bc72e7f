#include "core/counter_curve.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(CounterCurve, InterpolatesAndKnowsWhatItDoesNot) {
  CounterCurve curve({{0, 10}, {50, 150}, {-50, 1000}, {300, 400}, {100, 150}, {20, 20}});
  EXPECT_EQ(curve.Within(0), -1);
  curve.Add(0, 100);
  EXPECT_EQ(curve.Within(0), -1);
  curve.Add(100, 150);
  curve.Add(90, 1000);  // Out of order: dropped.
  curve.Add(200, 350);
  EXPECT_EQ(curve.Within(0), 5);
  EXPECT_EQ(curve.Within(1), 25 + 100);
  EXPECT_EQ(curve.Within(2), 250);
  EXPECT_EQ(curve.Within(3), -1);
  EXPECT_EQ(curve.Within(4), 100);
  EXPECT_EQ(curve.Within(5), 0);
}

}  // namespace
}  // namespace lockstep
