#include "analysis/report/text_table.h"

#include <gtest/gtest.h>

#include "core/wrap.h"

namespace lockstep::report {
namespace {

TextTable Sample() {
  TextTable table(2, {{.head = "what", .width = 10, .right = false, .lead = 0, .sentence = true},
                      {.head = "first", .width = 12, .keep = 3},
                      {.head = "second", .width = 12, .keep = 1},
                      {.head = "third", .width = 12, .right = false, .lead = 2, .keep = 2}});
  table.Add({"one", "1", "22", "text"});
  table.Add({"two", "333", "4", "\x1b[31mred\x1b[0m"});
  return table;
}

TEST(TextTable, RoomyAndThenTight) {
  const TextTable::Laid roomy = Sample().Lay(60);
  EXPECT_EQ(roomy.head, "  what              first       second  third");
  EXPECT_EQ(roomy.rows[0], "  one                   1           22  text");
  EXPECT_EQ(roomy.rows[1], "  two                 333            4  \x1b[31mred\x1b[0m");
  EXPECT_EQ(Sample().Lay(45).head, roomy.head) << "nothing stands behind the last column";
  const TextTable::Laid tight = Sample().Lay(44);
  EXPECT_EQ(tight.head, "  what first second  third");
  EXPECT_EQ(tight.left_out, "");
}

TEST(TextTable, WholeColumnsAreLeftOutTheLeastImportantFirst) {
  EXPECT_EQ(Sample().Lay(26).left_out, "");
  EXPECT_EQ(Sample().Lay(25).left_out, "second");
  EXPECT_EQ(Sample().Lay(25).rows[1], "  two    333  \x1b[31mred\x1b[0m");
  EXPECT_EQ(Sample().Lay(18).left_out, "second, third");
  EXPECT_EQ(Sample().Lay(11).left_out, "first, second, third");
  EXPECT_EQ(Sample().Lay(0).rows[0], "  one") << "a column that is always there";
  EXPECT_EQ(NotShown("idle, last", 60), "not shown in 60 columns: idle, last");
  EXPECT_EQ(NotShown("", 60), "");
}

TEST(TextTable, ASentenceIsBrokenBeforeAColumnIsLeftOut) {
  TextTable table(0, {{.head = "if", .right = false, .lead = 0, .sentence = true},
                      {.head = "step", .width = 10, .lead = 2, .keep = 1}});
  table.Add({"transfers took no time and late ranks stayed late", "12 ms"});
  const TextTable::Laid laid = table.Lay(40);
  EXPECT_EQ(laid.left_out, "");
  EXPECT_EQ(laid.rows[0], "transfers took no time and late    12 ms\nranks stayed late");
  for (std::size_t width = 30; width < 90; ++width) EXPECT_LE(PaintedColumns(table.Lay(width).head), width);
}

TEST(TextTable, RowsThatLackCells) {
  TextTable table(0, {{.head = "a"}, {.head = "b"}});
  EXPECT_EQ(table.Lay(80).head, " a b");
  table.Add({"1"});
  EXPECT_EQ(table.Lay(80).rows[0], " 1");
}

}  // namespace
}  // namespace lockstep::report
