#include "core/wrap.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "core/printed.h"

namespace lockstep {
namespace {

TEST(Wrap, BreaksAtSpacesOnly) {
  EXPECT_EQ(WrapText("", "", "one two three", 7), "one two\nthree\n");
  EXPECT_EQ(WrapText("- ", "  ", "one two three", 9), "- one two\n  three\n");
  EXPECT_EQ(WrapText("", "", "one  two", 20), "one  two\n");
  EXPECT_EQ(WrapText("", "", "one  two", 5), "one\ntwo\n") << "spaces at the end of a line are left out";
  EXPECT_EQ(WrapText("  ", "  ", "", 20), "\n");
}

TEST(Wrap, AWordThatDoesNotFitBehindTheIndentationBeginsFurtherLeft) {
  EXPECT_EQ(WrapText("      ", "      ", "a /path/of/many/letters b", 22),
            "      a\n /path/of/many/letters\n      b\n");
  EXPECT_EQ(WrapText("", "    ", "a wider-than-all b", 10), "a\nwider-than-all\n    b\n");
  EXPECT_EQ(WrapText("head  ", "      ", "twelve-letter", 14), "head\n twelve-letter\n");
}

TEST(Wrap, WideLettersAndColours) {
  EXPECT_EQ(WrapText("", "", "日本 語", 6), "日本\n語\n");
  EXPECT_EQ(PaintedColumns("\x1b[1m\x1b[31mred\x1b[0m"), 3u);
  EXPECT_EQ(WrapText("", "", "\x1b[31mred\x1b[0m and", 7), "\x1b[31mred\x1b[0m and\n");
}

TEST(Wrap, LongLinesGoOnBelowTheirLastColumn) {
  const std::string line = "ok        mpi      Open MPI was found and works\n";
  EXPECT_EQ(WrapLongLines(line, 100), line);
  EXPECT_EQ(WrapLongLines(line, 40), "ok        mpi      Open MPI was found\n                   and works\n");
  EXPECT_EQ(WrapLongLines("  one two three\nshort", 10), "  one two\n    three\nshort");
  EXPECT_EQ(WrapLongLines("", 10), "");
  EXPECT_EQ(WrapLongLines("\n\n", 10), "\n\n");
}

// Of any text: no line is wider, no word is broken, none is lost.
TEST(Wrap, Property) {
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned words = below(30); words-- > 0;) {
      text += std::string(below(12) == 0 ? 30 + below(40) : 1 + below(9), static_cast<char>('a' + below(26)));
      text += std::string(1 + (below(6) == 0 ? below(4) : 0), ' ');
    }
    const std::string head(below(20), below(2) == 0 ? ' ' : '#'), indent(below(20), ' ');
    const std::size_t columns = 20 + below(60);
    const std::string wrapped = WrapText(head + " ", indent, text, columns);
    std::istringstream lines(wrapped), words(wrapped), wanted(head + " " + text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t first = line.find_first_not_of(' ');
      const bool one_word = first == std::string::npos || line.find(' ', first) == std::string::npos;
      EXPECT_TRUE(PrintedColumns(line) <= columns || (one_word && first == 0)) << columns << ": " << line;
    }
    for (std::string word, want; wanted >> want;) {
      ASSERT_TRUE(words >> word);
      EXPECT_EQ(word, want);
    }
    std::string more;
    EXPECT_FALSE(words >> more) << more;
  }
}

}  // namespace
}  // namespace lockstep
