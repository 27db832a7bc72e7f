// The table of functions in samples of stacks.

#include <gtest/gtest.h>

#include "hand_made.h"

namespace lockstep::test {
namespace {

TEST(StacksTable, FunctionsWithWhatTheyCall) {
  HandMade rank;
  auto& stacks = rank.tables.stacks;
  const auto frame = [&](std::uint32_t parent, const char* function, std::uint32_t line) {
    stacks.Append({.parent = parent,
                   .function = rank.Intern(function),
                   .file = rank.Intern("train.py"),
                   .line = line,
                   .python = 1,
                   .library = 0});
    return static_cast<std::uint32_t>(stacks.rows() - 1);
  };
  const std::uint32_t main = frame(schema::kNone, "main", 9), collate = frame(main, "collate", 88),
                      again = frame(collate, "collate", 90), work = frame(main, "work", 20);
  std::int64_t now_ns = 0;
  for (const std::uint32_t stack : {collate, again, work, work, schema::kNone})
    rank.tables.samples.Append({.time_ns = now_ns += 100, .thread = 0, .stack = stack, .stopped_ns = 1'500});
  merge::Timeline timeline = TimelineOf({&rank}, {{0, 10'000}});
  // The others waited for it at the first two.
  timeline.tables.collectives.Resize(1);
  timeline.tables.collectives.last_rank[0] = 0;
  timeline.tables.collectives.splits[0] = 1;
  timeline.tables.collectives.last_arrival_ns[0] = 210;
  timeline.tables.collectives.charge_ns[0] = 150;
  const tables::Table table = Make("stacks", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 3u);
  const std::int64_t row = FindRow(table, "function", std::string("collate"));
  EXPECT_EQ(std::get<std::int64_t>(At(table, row, "samples")), 2) << "who calls itself counts once";
  EXPECT_EQ(std::get<std::int64_t>(At(table, row, "self")), 2);
  EXPECT_EQ(std::get<std::int64_t>(At(table, row, "late_samples")), 2);
  EXPECT_EQ(std::get<double>(At(table, row, "share")), 0.4);
  EXPECT_EQ(std::get<double>(At(table, row, "late_share")), 1.0);
  EXPECT_EQ(std::get<std::int64_t>(At(table, row, "line")), 88);
  EXPECT_EQ(std::get<std::int64_t>(At(table, FindRow(table, "function", std::string("main")), "samples")), 4);
  EXPECT_EQ(std::get<std::int64_t>(At(table, FindRow(table, "function", std::string("work")), "late_samples")), 0);
  ASSERT_EQ(table.notes.size(), 1u);
  EXPECT_NE(table.notes[0].find("5 samples, 1 of them inside communication, 2 while others waited for it"),
            std::string::npos)
      << table.notes[0];
}

TEST(StacksTable, WithoutSamplesSaysSo) {
  const HandMade rank;
  const tables::Table table = Make("stacks", TimelineOf({&rank}, {{0, 10'000}}), {&rank});
  EXPECT_TRUE(table.rows.empty());
  ASSERT_EQ(table.notes.size(), 1u);
  EXPECT_NE(table.notes[0].find("no samples"), std::string::npos);
}

TEST(CallersTable, TheJobsOwnLinesWithWhatTheyCalled) {
  HandMade rank;
  auto& stacks = rank.tables.stacks;
  const auto frame = [&](std::uint32_t parent, const char* function, std::uint32_t line, bool library) {
    stacks.Append({.parent = parent,
                   .function = rank.Intern(function),
                   .file = rank.Intern("train.py"),
                   .line = line,
                   .python = 1,
                   .library = library});
    return static_cast<std::uint32_t>(stacks.rows() - 1);
  };
  const std::uint32_t main = frame(schema::kNone, "main", 9, false), step = frame(main, "step", 40, false),
                      inner = frame(step, "all_reduce", 2000, true), other = frame(main, "step", 40, false),
                      alone = frame(schema::kNone, "thread", 0, true);
  const auto call = [&](std::uint32_t caller, std::int64_t begin_ns, std::int64_t ns) {
    rank.tables.collectives.Append({.comm = 0,
                                    .kind = schema::Code(CollectiveKind::kAllReduce),
                                    .begin_ns = begin_ns,
                                    .end_ns = begin_ns + ns,
                                    .bytes = 8,
                                    .caller = caller});
  };
  call(inner, 100, 50);
  call(other, 200, 30);  // The same line, called from elsewhere.
  call(alone, 300, 5);
  call(schema::kNone, 400, 5);
  rank.tables.p2p.Append({.direction = schema::Direction::kReceive,
                          .begin_ns = 500,
                          .end_ns = schema::kNoTime,
                          .bytes = 3,
                          .caller = step});
  const tables::Table table = Make("callers", TimelineOf({&rank}, {{0, 10'000}}), {&rank});
  ASSERT_EQ(table.rows.size(), 3u);
  const std::int64_t row = FindRow(table, "inside_ns", std::int64_t{80});
  EXPECT_EQ(std::get<std::string>(At(table, row, "function")), "step");
  EXPECT_EQ(std::get<std::string>(At(table, row, "kind")), "all-reduce");
  EXPECT_EQ(std::get<std::int64_t>(At(table, row, "line")), 40);
  EXPECT_EQ(std::get<std::int64_t>(At(table, row, "calls")), 2);
  EXPECT_EQ(std::get<std::int64_t>(At(table, row, "bytes")), 16);
  EXPECT_EQ(std::get<std::int64_t>(At(table, FindRow(table, "function", std::string("thread")), "calls")), 1);
  EXPECT_EQ(std::get<std::int64_t>(At(table, FindRow(table, "kind", std::string("recv")), "inside_ns")), 0);
  ASSERT_EQ(table.notes.size(), 1u);
  EXPECT_NE(table.notes[0].find("1 operation whose caller is not known"), std::string::npos) << table.notes[0];
}

TEST(CallersTable, WithoutCallersSaysHow) {
  const HandMade rank;
  const tables::Table table = Make("callers", TimelineOf({&rank}, {{0, 10'000}}), {&rank});
  EXPECT_TRUE(table.rows.empty());
  ASSERT_EQ(table.notes.size(), 1u);
  EXPECT_NE(table.notes[0].find("--stacks calls"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
