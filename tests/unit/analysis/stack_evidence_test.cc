// Which function is named as the place where a rank is late, and when none is.

#include "analysis/stragglers/stack_evidence.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/words/render.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
namespace {

// Samples of a rank: one each 10 ms.
class Sampler {
 public:
  struct Frame {
    std::string function;
    std::uint32_t line = 1;
    std::string file = "train.py";
    bool library = false;
  };
  // Outermost first; none: inside communication.
  Sampler& Add(int count, const std::vector<Frame>& frames, bool late = false) {
    std::uint32_t stack = schema::kNone;
    for (const Frame& frame : frames) {
      tables_.stacks.Append({.parent = stack,
                             .function = strings_.Intern(frame.function),
                             .file = strings_.Intern(frame.file),
                             .line = frame.line,
                             .python = !frame.library,
                             .library = frame.library});
      stack = static_cast<std::uint32_t>(tables_.stacks.rows() - 1);
    }
    for (; count > 0; --count, now_ns_ += kEach) {
      tables_.samples.Append({.time_ns = now_ns_, .thread = 0, .stack = stack, .stopped_ns = 50'000});
      if (late) awaited_.push_back({now_ns_, now_ns_ + 1});
    }
    return *this;
  }
  SampledStacks Take() const { return SampledStacksOf(tables_, {}, Normalize(awaited_)); }

 private:
  static constexpr std::int64_t kEach = 10'000'000;
  schema::RankTables tables_;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings_{tables_.strings, tables_.string_bytes};
  std::vector<Interval> awaited_;
  std::int64_t now_ns_ = 0;
};

const Sampler::Frame kMain{"main", 9}, kWork{"work", 20}, kCollate{"collate", 88};
const Sampler::Frame kSleep{"clock_nanosleep", 0, "libc.so.6", true};

TEST(StackEvidence, WhatItDoesLongerThanAHealthyRank) {
  // It collates before it works, so that the others wait while it works.
  Sampler late, healthy;
  late.Add(20, {kMain, kCollate, kSleep}).Add(60, {kMain, kWork}).Add(20, {kMain, kWork}, true);
  healthy.Add(80, {kMain, kWork}).Add(20, {});
  const SampledStacks with = healthy.Take();
  const auto place = PlaceOf(late.Take(), &with, 0.2);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->function, "collate");
  EXPECT_EQ(place->file, "train.py");
  EXPECT_EQ(place->line, 88);
  EXPECT_EQ(place->in, "clock_nanosleep");
  EXPECT_EQ(place->samples, 20);
  EXPECT_EQ(place->healthy_samples, 0);
  EXPECT_EQ(place->longest_stop_ns, 50'000);
  EXPECT_EQ(Rendered(ClauseOf(*place)), "20 of 100 samples: collate, train.py:88 (in clock_nanosleep)");
}

TEST(StackEvidence, InItsLateTimeWhereNothingElseIsKnown) {
  Sampler late;
  late.Add(60, {kMain, kWork}).Add(2, {kMain, kWork}, true).Add(9, {kMain, kCollate}, true);
  const auto place = PlaceOf(late.Take(), nullptr, 0.2);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(Rendered(ClauseOf(*place)), "9 of 11 samples of its late time: collate, train.py:88");
}

TEST(StackEvidence, AFunctionStandsForTheManyThatItCalls) {
  Sampler late, healthy;
  for (int i = 0; i < 10; ++i) late.Add(4, {kMain, kCollate, {"part" + std::to_string(i), 5}}, true);
  late.Add(60, {kMain, kWork});
  healthy.Add(60, {kMain, kWork}).Add(40, {});
  const SampledStacks with = healthy.Take();
  const auto place = PlaceOf(late.Take(), &with, 0.4);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->function, "collate");
}

// Its main thread waits in the library while the other rank's messages come: that is not what it does longer.
TEST(StackEvidence, WaitingOfTheHealthyRankCountsForNothing) {
  const Sampler::Frame wait{"wait", 700, "distributed.py", true};
  Sampler late, healthy;
  late.Add(60, {kMain, kWork}).Add(38, {kMain, kCollate}).Add(2, {kMain, wait});
  healthy.Add(60, {kMain, kWork}).Add(40, {kMain, wait});
  const SampledStacks with = healthy.Take();
  const auto place = PlaceOf(late.Take(), &with, 0.3);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->function, "collate");
}

TEST(StackEvidence, ALibrarysFunctionIsToldByWhoCallsIt) {
  Sampler late;
  late.Add(10, {kMain, kCollate, {"stack", 44, "numpy.py", true}, {"dgemm", 0, "libopenblas.so", true}}, true);
  auto place = PlaceOf(late.Take(), nullptr, 0.3);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->function, "collate");
  EXPECT_EQ(place->in, "dgemm");
  // Where the program has no lines.
  Sampler stripped;
  stripped.Add(10, {{"main", 0, "app"}, {"Burn()", 0, "app"}, kSleep}, true);
  place = PlaceOf(stripped.Take(), nullptr, 0.3);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(Rendered(ClauseOf(*place)), "10 of 10 samples of its late time: Burn(), app (in clock_nanosleep)");
}

TEST(StackEvidence, NothingFromFewSamplesOrAlikeRanks) {
  Sampler few, alike, healthy, none, small;
  few.Add(4, {kMain, kCollate}, true);
  EXPECT_FALSE(PlaceOf(few.Take(), nullptr, 0.2).has_value());
  healthy.Add(80, {kMain, kWork}).Add(20, {kMain, kCollate});
  const SampledStacks with = healthy.Take();
  alike.Add(81, {kMain, kWork}, true).Add(21, {kMain, kCollate});
  EXPECT_FALSE(PlaceOf(alike.Take(), &with, 0.2).has_value());
  // What it does longer is not what the others wait for.
  small.Add(70, {kMain, kWork}).Add(20, {kMain, kCollate}).Add(6, {kMain, {"log", 3}});
  EXPECT_FALSE(PlaceOf(small.Take(), &with, 0.4).has_value());
  EXPECT_FALSE(PlaceOf(none.Take(), &with, 0.2).has_value());
  EXPECT_FALSE(PlaceOf(none.Take(), nullptr, 0.2).has_value());
  none.Add(50, {}, true);
  EXPECT_FALSE(PlaceOf(none.Take(), nullptr, 0.2).has_value());
}

TEST(SampledStacks, DamagedParentsEnd) {
  schema::RankTables tables;
  tables.stacks.Append({.parent = 1, .function = 0, .line = 1});
  tables.stacks.Append({.parent = 0, .function = 7, .line = 1});
  tables.samples.Append({.time_ns = 5, .thread = 0, .stack = 1, .stopped_ns = 0});
  tables.samples.Append({.time_ns = 6, .thread = 0, .stack = 99, .stopped_ns = 0});
  const SampledStacks stacks = SampledStacksOf(tables, {}, {});
  EXPECT_EQ(stacks.samples(), 2);
  EXPECT_EQ(stacks.inside_communication, 1);
}

}  // namespace
}  // namespace lockstep::analysis
