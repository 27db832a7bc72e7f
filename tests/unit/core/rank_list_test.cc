#include "core/rank_list.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Spans = std::vector<std::pair<std::int32_t, std::int32_t>>;

TEST(RankList, Lists) {
  EXPECT_EQ(ParseRankSpans("3"), Spans({{3, 4}}));
  EXPECT_EQ(ParseRankSpans("0-3,7"), Spans({{0, 4}, {7, 8}}));
  EXPECT_EQ(ParseRankSpans("8:16,0"), Spans({{8, 16}, {0, 1}})) << "without its end, as steps are given";
  EXPECT_EQ(ParseRankSpans("2147483646"), Spans({{INT32_MAX - 1, INT32_MAX}}));
}

TEST(RankList, AnythingElse) {
  for (const char* wrong :
       {"",    ",",   "0,",  ",0",    "0,,1",  "x",    "-1",  "+1",  " 1",         "1 ",          "1-",          "-",
        "3-1", "3:3", "3:2", "1-2-3", "1:2:3", "0..3", "0x1", "1.5", "2147483647", "99999999999", "0-2147483647"})
    EXPECT_FALSE(ParseRankSpans(wrong)) << wrong;
}

}  // namespace
}  // namespace lockstep
