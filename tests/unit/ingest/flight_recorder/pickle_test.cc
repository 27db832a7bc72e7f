#include "ingest/flight_recorder/pickle.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::flight_recorder {
namespace {

using namespace std::string_literals;

Result<Parsed> Read(const std::string& body) {
  static std::string kept;  // Texts of a document are parts of it.
  kept = "\x80\x02"s + body + ".";
  return ReadPickle(kept);
}

std::int64_t Number(const std::string& body) {
  const Result<Parsed> parsed = Read(body);
  return parsed.ok() ? parsed.value().document.Integer(parsed.value().root, -77) : -99;
}

TEST(Pickle, Numbers) {
  EXPECT_EQ(Number("K\xff"), 255);
  EXPECT_EQ(Number("M\x01\x02"), 513);
  EXPECT_EQ(Number("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(Number("\x8a\x00"s), 0);
  EXPECT_EQ(Number("\x8a\x01\xff"), -1);
  EXPECT_EQ(Number("\x8a\x05\x00\x00\x00\x00\x01"s), std::int64_t{1} << 32);
  EXPECT_EQ(Number("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"), INT64_MAX);
  EXPECT_EQ(Number("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01"s), INT64_MAX);
  EXPECT_EQ(Number("\x8b\x01\x00\x00\x00\x07"s), 7);
  EXPECT_EQ(Number("G\x40\x08\x00\x00\x00\x00\x00\x00"s), 3);
  EXPECT_EQ(Number("\x88"), 1);
  EXPECT_EQ(Number("X\x02\x00\x00\x00"s + "42"), 42);
}

TEST(Pickle, DictsListsAndTuples) {
  // {"a": [1, (2, 3)], "b": None}
  const Result<Parsed> parsed =
      Read("}q\x00(X\x01\x00\x00\x00"s + "a](K\x01K\x02K\x03\x86"s + "eX\x01\x00\x00\x00"s + "bNu");
  ASSERT_TRUE(parsed.ok()) << parsed.error().what;
  const Document& document = parsed.value().document;
  const ValueId list = document.At(parsed.value().root, "a");
  ASSERT_EQ(document.Items(list).size(), 2u);
  EXPECT_EQ(document.Integer(document.Items(document.Items(list)[1])[1], -1), 3);
  EXPECT_NE(document.At(parsed.value().root, "b"), kNoValue);
  EXPECT_EQ(document.At(parsed.value().root, "c"), kNoValue);
}

TEST(Pickle, WhatIsUsedTwiceIsThereOnce) {
  const Result<Parsed> parsed = Read("](K\x05q\x01h\x01h\x01"s + "2e");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().document.Items(parsed.value().root).size(), 4u);
  EXPECT_EQ(parsed.value().document.size(), 2u);
}

TEST(Pickle, MemoizeCountsByItself) { EXPECT_EQ(Number("K\x07\x94K\x08\x94"s + "00h\x01"), 8); }

TEST(Pickle, ObjectsAreRefused) {
  for (const std::string& body : std::vector<std::string>{
           "cos\nsystem\n"s, "X\x02\x00\x00\x00"s + "osX\x06\x00\x00\x00"s + "system\x93", "K\x01K\x02R"s,
           "K\x01K\x02"s + "b", "(ios\nsystem\n"s, "(K\x01o"s, "K\x01K\x02\x81", "K\x01\x92", "Pid\n"s, "K\x01Q"s,
           "\x82\x01", "\x83\x01\x02", "\x84\x01\x02\x03\x04", "\x8f", "\x96", "\x97"}) {
    const Result<Parsed> parsed = Read(body);
    ASSERT_FALSE(parsed.ok()) << body;
    EXPECT_NE(parsed.error().what.find("no plain value"), std::string::npos) << parsed.error().what;
  }
}

TEST(Pickle, DamageIsSaid) {
  for (const std::string& body :
       std::vector<std::string>{"K"s,      "X\xff\xff\xff\xff"s, "\x8a\xff"s,     "a"s,        "u"s,
                                "(u"s,     "](K\x01u"s,          "}K\x01"s + "a", "}(K\x01u"s, "h\x05"s,
                                "q\x00"s,  "r\xff\xff\xff\xff"s, "(((0"s,         "1"s,        "2"s,
                                "(K\x01"s, "K\x01K\x02"s,        "\x86"s,         "K\x01(e"s,  "Z"s,
                                ""s,       "](K\x01(e"s}) {
    EXPECT_FALSE(Read(body).ok()) << testing::PrintToString(body);
  }
  EXPECT_FALSE(ReadPickle("").ok());
  EXPECT_FALSE(ReadPickle("hello").ok());
  EXPECT_FALSE(ReadPickle("\x80\x09.").ok());
}

TEST(Pickle, NestedDeep) {
  EXPECT_FALSE(Read(std::string(5000, '(')).ok());
  // Without marks: each list in the next. Nothing here follows it.
  std::string lists;
  for (int i = 0; i < 300'000; ++i) lists += "]";
  for (int i = 1; i < 300'000; ++i) lists += "a";
  EXPECT_TRUE(Read(lists).ok());
}

TEST(Pickle, AListWithinItself) {
  const Result<Parsed> parsed = Read("]q\x00h\x00"s + "a");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().document.Items(parsed.value().root)[0], parsed.value().root);
}

// Each list holds the one before twice: as a tree it would have 2^200 values.
TEST(Pickle, SharedListsDoNotGrow) {
  std::string body = "]q\x00"s;
  for (char i = 1; i < 100; ++i) body += "](h"s + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "eq" + i;
  const Result<Parsed> parsed = Read("(" + body + "t");
  ASSERT_TRUE(parsed.ok()) << parsed.error().what;
  EXPECT_LE(parsed.value().document.size(), 102u);
}

}  // namespace
}  // namespace lockstep::flight_recorder
