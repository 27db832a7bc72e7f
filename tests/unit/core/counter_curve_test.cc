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

TEST(CounterCurve, WhatItGrewAtMost) {
  CounterCurve curve({{10, 20}, {20, 30}, {30, 45}, {45, 50}});
  for (const auto& [at, value] : {std::pair(10, 1), {15, 4}, {20, 6}, {24, 7}, {40, 17}}) curve.Add(at, value);
  EXPECT_EQ(curve.AtMost(0, 0), 5) << "read at both ends";
  EXPECT_EQ(curve.AtMost(1, 1), 17 - 6) << "up to the reading after it";
  EXPECT_EQ(curve.AtMost(0, 1), 16);
  EXPECT_EQ(curve.AtMost(2, 2), -1) << "no reading after it";
  EXPECT_EQ(curve.AtMost(3, 3), -1);
}

}  // namespace
}  // namespace lockstep
