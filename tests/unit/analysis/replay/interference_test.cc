#include "analysis/replay/graph/interference.h"

#include <gtest/gtest.h>

namespace lockstep::replay {
namespace {

TEST(NsByCount, SumsToTheWindow) {
  const IntervalSet a = {{0, 100}}, b = {{40, 60}, {80, 200}};
  EXPECT_EQ(NsByCount({&a, &b}, {20, 90}), (std::vector<std::int64_t>{0, 40, 30}));
  EXPECT_EQ(NsByCount({&a, &b}, {150, 250}), (std::vector<std::int64_t>{50, 50, 0}));
}

TEST(NsByCount, AWindowWithoutLengthHasNone) {
  const IntervalSet a = {{0, 100}};
  EXPECT_EQ(NsByCount({&a}, {50, 50}), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(NsByCount({&a}, {50, 20}), (std::vector<std::int64_t>{0, 0}));
}

}  // namespace
}  // namespace lockstep::replay
