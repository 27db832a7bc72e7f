// Are numbers of JSON text exact, and what is none refused?

#include "ingest/kineto/read/decimal.h"

#include <gtest/gtest.h>

#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::kineto {
namespace {

TEST(KinetoDecimal, MicrosecondsBecomeExactNanoseconds) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"0", 0},
      {"-0", 0},
      {"1", 1000},
      {"45.5", 45'500},
      {"0.001", 1},
      {".5", 500},
      {"5.", 5'000},
      {"12345678", 12'345'678'000},
      {"1669783687464181", 1'669'783'687'464'181'000},
      {"1669783687464181.125", 1'669'783'687'464'181'125},
      {"4458676522690.655", 4'458'676'522'690'655},
      {"4458676522690.65", 4'458'676'522'690'650},
      {"4458676522690.6559", 4'458'676'522'690'655},    // Cut, not rounded.
      {"-4458676522690.6559", -4'458'676'522'690'655},  // Towards zero.
      {"9223372036854775.807", INT64_MAX},
      {"-9223372036854775.807", -INT64_MAX},
      {"1.5e3", 1'500'000},
      {"1.5E+3", 1'500'000},
      {"1669783687464181125e-3", 1'669'783'687'464'181'125},
      {"1.669783687464181e15", 1'669'783'687'464'181'000},
      {"15e-4", 1},
      {"1e-999999999999", 0},
      {"0e999999999999", 0},
      {"0.0000000000000000000000000000001e31", 1'000},
      {"00000000000000000000000000000001", 1'000},
  };
  for (const auto& [text, ns] : cases) EXPECT_EQ(ScaledDecimal(text, 3), ns) << text;
}

TEST(KinetoDecimal, WhatIsNoFiniteNumberOrTooLargeIsNone) {
  for (const char* text : {"",
                           "-",
                           ".",
                           "e5",
                           "1e",
                           "1e+",
                           "NaN",
                           "nan",
                           "-nan",
                           "inf",
                           "Infinity",
                           "-Infinity",
                           "null",
                           "true",
                           "0x10",
                           "1.2.3",
                           "1,5",
                           "12a",
                           "--1",
                           "9223372036854775.808",
                           "10000000000000000",
                           "99999999999999999999",
                           "1e300",
                           "1e999999999999999999999",
                           "12345678x",
                           "1234567.89012345x"})
    EXPECT_EQ(ScaledDecimal(text, 3), std::nullopt) << text;
}

TEST(KinetoDecimal, IdsKeepAllTheirBits) {
  EXPECT_EQ(ParseId("0"), 0);
  EXPECT_EQ(ParseId("73689"), 73689);
  EXPECT_EQ(ParseId("-7"), -7);
  EXPECT_EQ(ParseId("123456789012345678"), 123456789012345678);
  EXPECT_EQ(ParseId("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(ParseId("18446744073709551615"), -1);
  EXPECT_EQ(ParseId("18446744073709551614"), -2);
  EXPECT_EQ(ParseId("7.0"), 7);
  EXPECT_EQ(ParseId("1e3"), 1000);
  for (const char* text : {"", "18446744073709551616", "123456789012345678901234", "stream 7", "0x7", "NaN", "-"})
    EXPECT_EQ(ParseId(text), kAbsent) << text;
}

}  // namespace
}  // namespace lockstep::kineto
