// What programs call things must neither break the page nor read as something else.

#include "analysis/report/html/packed.h"

#include <gtest/gtest.h>

#include "analysis/report/html/shell.h"

namespace lockstep::report {
namespace {

TEST(Harmless, KeepsWhatIsHarmless) {
  EXPECT_EQ(Harmless("plain"), "plain");
  EXPECT_EQ(Harmless("Größe \xf0\x9f\x98\x80 \"'<&>"), "Größe \xf0\x9f\x98\x80 \"'<&>");
  EXPECT_EQ(Harmless(""), "");
}

TEST(Harmless, ReplacesWhatIsNoUtf8) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(Harmless("\xff\xfe"), bad + bad);
  EXPECT_EQ(Harmless("a\xc3"), "a" + bad);                         // Cut.
  EXPECT_EQ(Harmless("\xc0\xaf"), bad + bad);                      // Overlong.
  EXPECT_EQ(Harmless("\xe0\x80\x80"), bad + bad + bad);            // Overlong.
  EXPECT_EQ(Harmless("\xed\xa0\x80"), bad + bad + bad);            // Half a surrogate pair.
  EXPECT_EQ(Harmless("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // Beyond Unicode.
}

TEST(Harmless, ShowsWhatHidesOrTurns) {
  EXPECT_EQ(Harmless("a\xe2\x80\xae"
                     "b"),
            "a\\u202eb");
  EXPECT_EQ(Harmless("a\xe2\x80\xa8"
                     "b\xe2\x81\xa6"),
            "a\\u2028b\\u2066");
  EXPECT_EQ(Harmless(std::string_view("a\0b\x1b[31m", 8)), "a\\u0000b\\u001b[31m");
  EXPECT_EQ(Harmless("\xf3\xa0\x81\x81"), "\\u{e0041}");
  EXPECT_EQ(Harmless("a\nb\tc"), "a b c");
}

TEST(Harmless, CutsWhatIsLong) {
  EXPECT_EQ(Harmless("abcdef", 4), "abcd ... (2 more bytes)");
  EXPECT_EQ(Harmless("abcd", 4), "abcd");
}

TEST(ScriptSafe, CannotEndItsElement) {
  const PageJson json{{"name", "</script><!--"}, {"n", 1}};
  const std::string text = ScriptSafe(json);
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(text.find('>'), std::string::npos);
  EXPECT_EQ(PageJson::parse(text), json);
}

TEST(Shell, WhatIsFilledInIsNotSearched) {
  EXPECT_EQ(FillShell("<t>@LOCKSTEP_TITLE@</t><p>@LOCKSTEP_TEXT@</p>@LOCKSTEP_DATA@.", "@LOCKSTEP_DATA@<",
                      "@LOCKSTEP_TEXT@", "{}"),
            "<t>@LOCKSTEP_DATA@&lt;</t><p>@LOCKSTEP_TEXT@</p>{}.");
  // The real one has each place once, in this order.
  const std::string page = FillShell(ReportShell(), "T1", "T2", "T3");
  EXPECT_EQ(page.find("@LOCKSTEP_"), std::string::npos);
  EXPECT_LT(page.find("T1"), page.find("T2"));
}

TEST(Packed, UnitGrowsWithTheSpan) {
  EXPECT_EQ(Packed({1, 2, 3})["unit"], 1);
  EXPECT_EQ(Packed({-5, 2, kUnknownCell})["base"], -5);
  EXPECT_EQ(Packed({})["n"], 0);
  // Totals of long runs: exact.
  const PageJson wide = Packed({0, (std::int64_t{1} << 48) - 2});
  EXPECT_EQ(wide["unit"], 1);
  EXPECT_EQ(wide["width"], 6);
  EXPECT_EQ(Packed({0, 254})["width"], 1);
  EXPECT_EQ(Packed({0, 255})["width"], 2);  // 255 is unknown.
  EXPECT_GT(Packed({0, std::int64_t{1} << 50})["unit"].get<std::uint64_t>(), 1u);
  EXPECT_NO_THROW(Packed({INT64_MIN + 1, INT64_MAX}));
}

TEST(Packed, RoundedToSomeBits) {
  std::vector<std::int64_t> values{5, 1000, 123456789, kUnknownCell};
  RoundTo(9, values);
  EXPECT_EQ(values[0], 5);
  EXPECT_NEAR(static_cast<double>(values[2]), 123456789, 123456789 / 512.0);
  EXPECT_EQ(values[3], kUnknownCell);
}

}  // namespace
}  // namespace lockstep::report
