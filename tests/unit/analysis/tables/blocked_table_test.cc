// The table of places at which training threads are blocked.

#include <gtest/gtest.h>

#include "hand_made.h"

namespace lockstep::test {
namespace {

void Block(HandMade& rank, std::uint8_t kind, const char* call, std::int64_t begin_ns, std::int64_t ns,
           std::uint32_t caller, const char* detail = "", std::uint32_t thread = 0) {
  rank.tables.blocked.Append({.begin_ns = begin_ns,
                              .duration_ns = ns,
                              .thread = thread,
                              .kind = kind,
                              .function = rank.Intern(call),
                              .waker = schema::kNone,
                              .woken_ns = schema::kNoTime,
                              .others_cpu_ns = -1,
                              .module = rank.Intern("libtorch_cpu.so"),
                              .detail = *detail == 0 ? schema::kNone : rank.Intern(detail),
                              .caller = caller});
}

TEST(BlockedTable, PlacesWithWhatCounts) {
  HandMade rank;
  rank.Step(0, 0, 10'000);
  rank.Step(1, 10'000, 100'000);
  rank.tables.stacks.Append({.parent = schema::kNone,
                             .function = rank.Intern("save"),
                             .file = rank.Intern("train.py"),
                             .line = 40,
                             .python = 1});
  using Kind = schema::BlockedKind;
  Block(rank, Kind::kFile, "fsync", 1'000, 500, 0, "checkpoint.pt");
  Block(rank, Kind::kFile, "write", 2'000, 100, 0, "log");
  Block(rank, Kind::kLock, "pthread_mutex_lock", 3'000, 50, schema::kNone);
  Block(rank, Kind::kLock, "pthread_mutex_lock", 90'000, 50, schema::kNone);      // Not in the window.
  Block(rank, Kind::kSleep, "nanosleep", 3'500, 50, schema::kNone, "", 1);        // Another thread.
  Block(rank, Kind::kSocket, "recv", 4'000, 1'000, schema::kNone, "10.0.0.2:1");  // Within a recorded call.
  rank.MpiCall(3'900, 5'100);
  tables::TableOptions options;
  options.first_step = options.last_step = 0;
  const tables::Table table = Make("blocked", TimelineOf({&rank}, {{0, 100'000}}), {&rank}, options);
  ASSERT_EQ(table.rows.size(), 3u);
  const std::int64_t save = FindRow(table, "function", std::string("save"));
  EXPECT_EQ(save, 0) << "what is blocked most comes first";
  EXPECT_EQ(std::get<std::string>(At(table, save, "kind")), "file");
  EXPECT_EQ(std::get<std::int64_t>(At(table, save, "line")), 40);
  EXPECT_EQ(std::get<std::int64_t>(At(table, save, "calls")), 2);
  EXPECT_EQ(std::get<std::int64_t>(At(table, save, "total_ns")), 600);
  EXPECT_EQ(std::get<std::int64_t>(At(table, save, "mean_ns")), 300);
  EXPECT_EQ(std::get<std::int64_t>(At(table, save, "max_ns")), 500);
  EXPECT_EQ(std::get<std::int64_t>(At(table, save, "blocked_ns")), 600);
  EXPECT_NEAR(std::get<double>(At(table, save, "share")), 600.0 / 650, 1e-12);
  EXPECT_EQ(std::get<std::string>(At(table, save, "detail")), "checkpoint.pt");
  EXPECT_EQ(std::get<std::int64_t>(At(table, save, "per_step_ns")), 600);
  const std::int64_t lock = FindRow(table, "call", std::string("pthread_mutex_lock"));
  EXPECT_EQ(std::get<std::int64_t>(At(table, lock, "calls")), 1);
  EXPECT_EQ(std::get<std::string>(At(table, lock, "module")), "libtorch_cpu.so");
  const std::int64_t socket = FindRow(table, "kind", std::string("socket or pipe"));
  EXPECT_EQ(std::get<std::int64_t>(At(table, socket, "total_ns")), 1'000);
  EXPECT_EQ(std::get<std::int64_t>(At(table, socket, "blocked_ns")), 0) << "a recorded call has this time";
}

TEST(BlockedTable, WithoutCallsSaysSo) {
  const HandMade rank;
  const tables::Table table = Make("blocked", TimelineOf({&rank}, {{0, 10'000}}), {&rank});
  EXPECT_TRUE(table.rows.empty());
  ASSERT_EQ(table.notes.size(), 1u);
}

}  // namespace
}  // namespace lockstep::test
