#include "core/printed.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

using namespace std::string_literals;

TEST(Printed, WhatIsSeenStays) {
  for (const char* text :
       {"", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "Größe Ähre", "训练步骤",
        "тест", "עברית", "السلام", "क्षि", "👩‍🚀🇩🇪", "a\\b", "tab-less", "naïve é"})
    EXPECT_EQ(Printed(text), text);
}

TEST(Printed, WhatATerminalObeysIsShown) {
  EXPECT_EQ(Printed("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(Printed("a\x1b[31mb\x1b[0m"), "a\\x1b[31mb\\x1b[0m");
  EXPECT_EQ(Printed("x\n\r\ty\x7f\b\0z"s), "x\\x0a\\x0d\\x09y\\x7f\\x08\\x00z");
  EXPECT_EQ(Printed("\xc2\x9b"
                    "2J"),
            "\\u009b2J");  // C1 as UTF-8
  EXPECT_EQ(Printed("\x9b"
                    "2J"),
            "\\x9b2J");  // and as a byte.
  EXPECT_EQ(Printed("\u202e\u2066\u2069\u200e\u200f\u2028\u2029\ufeff\u200b"),
            "\\u202e\\u2066\\u2069\\u200e\\u200f\\u2028\\u2029\\ufeff\\u200b");
  EXPECT_EQ(Printed("\U000e0041"), "\\U000e0041");  // A tag.
}

TEST(Printed, BytesThatAreNoUtf8AreShown) {
  EXPECT_EQ(Printed("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Printed("a\xc3"), "a\\xc3");                           // Cut.
  EXPECT_EQ(Printed("\xc0\x8a"), "\\xc0\\x8a");                    // Overlong line end.
  EXPECT_EQ(Printed("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");           // Overlong C1.
  EXPECT_EQ(Printed("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // Surrogate.
  EXPECT_EQ(Printed("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // Beyond Unicode.
  EXPECT_EQ(Printed("\xe2\x28\xa1"), "\\xe2(\\xa1");
}

TEST(Printed, LinesKeepLineEndsAndOurColors) {
  EXPECT_EQ(PrintedLines("a\nb\x1b[1;31mc\x1b[0m\n", true), "a\nb\x1b[1;31mc\x1b[0m\n");
  EXPECT_EQ(PrintedLines("a\nb\x1b[31mc\n", false), "a\nb\\x1b[31mc\n");
  // Not every sequence that begins like a color is one.
  EXPECT_EQ(PrintedLines("\x1b[2J\x1b[31\x1b[m\x1b[?25l\x1b[00000000000000000001m", true),
            "\\x1b[2J\\x1b[31\x1b[m\\x1b[?25l\\x1b[00000000000000000001m");
}

// Whatever the bytes: nothing that a terminal obeys comes out, and cleaning twice changes nothing.
TEST(Printed, AnyBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 12, '\0');
    // Mostly bytes that begin or continue something.
    static constexpr unsigned char kLikely[] = {0x1b, '[',  'm',  '\n', 0xc2, 0x9b, 0xe2, 0x80,
                                                0xae, 0xf3, 0xa0, 0x81, 0xef, 0xbf, 0xbe};
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 256 : kLikely[random() % sizeof kLikely]);
    const std::string clean = Printed(text);
    for (const char c : clean) ASSERT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f) << clean;
    for (const char* obeyed : {"\xc2\x80", "\xc2\x9b", "\u202e", "\u2028"})
      ASSERT_EQ(clean.find(obeyed), std::string::npos);
    ASSERT_EQ(Printed(clean), clean);
    ASSERT_EQ(PrintedColumns(PrintedShort(clean, 8)) <= 8, true);
  }
}

TEST(Printed, ColumnsAndShortening) {
  EXPECT_EQ(PrintedColumns("Größe"), 5u);
  EXPECT_EQ(PrintedColumns("训练"), 4u);
  EXPECT_EQ(PrintedColumns("e\u0301"), 1u);
  EXPECT_EQ(PrintedColumns("🚀"), 2u);
  EXPECT_EQ(PrintedShort("abcdef", 6), "abcdef");
  EXPECT_EQ(PrintedShort("abcdefghijkl", 9), "abcd..jkl");
  EXPECT_EQ(PrintedShort("训练训练训练训练", 9), "训练..练");
  EXPECT_EQ(PrintedShort(std::string(100'000, 'x'), 50).size(), 50u);
}

TEST(Printed, BeginsEndWithACharacter) {
  EXPECT_EQ(BeginOf("abc", 3), "abc");
  EXPECT_EQ(BeginOf("abcd", 3), "abc");
  EXPECT_EQ(BeginOf("aé", 2), "a");
  EXPECT_EQ(BeginOf("a🚀", 4), "a");
  EXPECT_EQ(BeginOf("a🚀b", 5), "a🚀");
  EXPECT_EQ(BeginOf("\x80\x80\x80\x80\x80\x80\x80", 5).size(), 2u);
}

TEST(Printed, JsonSaysTheSame) {
  EXPECT_EQ(PrintedJson("{\"a\": \"\u009b\u202e\x7f\U000e0041 \\u001b é\"}\n"),
            "{\"a\": \"\\u009b\\u202e\\u007f\\udb40\\udc41 \\u001b é\"}\n");
}

TEST(Printed, CsvHoldsNeitherControlsNorFormulas) {
  EXPECT_EQ(PrintedCsv("gemm"), "gemm");
  EXPECT_EQ(PrintedCsv("a,b"), "\"a,b\"");
  EXPECT_EQ(PrintedCsv("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(PrintedCsv("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
  EXPECT_EQ(PrintedCsv("@SUM(1,2)"), "\"'@SUM(1,2)\"");
  EXPECT_EQ(PrintedCsv("-x"), "'-x");
  EXPECT_EQ(PrintedCsv("a\nb"), "a\\x0ab");
  EXPECT_EQ(PrintedCsv("\t=1"), "\\x09=1");
}

}  // namespace
}  // namespace lockstep
