// Whether waits show that data moved outside of them.

#include "analysis/replay/moved_outside.h"

#include <gtest/gtest.h>

#include <functional>

#include "analysis/replay/host_run.h"

namespace lockstep::replay {
namespace {

constexpr CollectiveKind kGather = CollectiveKind::kAllGather;

// Two ranks post gathers of growing sizes, compute, and wait. `waits(transfer, computed)`: how long the wait takes.
HostRun Job(const std::function<double(double transfer, double computed)>& waits) {
  HostRun run;
  run.ranks = {0, 1};
  run.stretches.resize(2);
  std::int64_t now = 0;
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::uint64_t bytes = 500'000u << (i % 5);
    const double transfer = 1e3 * static_cast<double>(bytes) / 600, computed = transfer * (0.4 + 0.3 * (i % 4));
    run.collectives.push_back({i, 7, kGather, bytes, 2});
    for (RankStretches& rank : run.stretches) {
      RankCollective c;
      c.collective = i;
      c.posted = c.in_wait = true;
      c.begin_ns = now;
      c.wait_begin_ns = now + static_cast<std::int64_t>(computed);
      c.end_ns = c.end_low_ns = c.wait_begin_ns + static_cast<std::int64_t>(waits(transfer, computed));
      rank.collectives.push_back(c);
    }
    now = run.stretches[0].collectives.back().end_ns + 1000;
  }
  return run;
}

TEST(MovedOutsideWaits, RefutedByWaitsThatFoundItDone) {
  const HostRun run = Job([](double transfer, double computed) { return std::max(20e3, transfer - computed); });
  EXPECT_EQ(MovedOutsideWaits(run).count({7, kGather}), 1u);
}

TEST(MovedOutsideWaits, NotWhereWaitsTakeWhatTheBytesTake) {
  EXPECT_TRUE(MovedOutsideWaits(Job([](double transfer, double) { return transfer; })).empty());
  // Whatever the noise.
  int i = 0;
  EXPECT_TRUE(MovedOutsideWaits(Job([&](double transfer, double) { return transfer * (1 + 0.8 * (i++ % 3)); })).empty());
}

// Of two in flight the one that is waited for first takes the other along.
TEST(MovedOutsideWaits, WhatWasInFlightTogetherIsNotAsked) {
  HostRun run = Job([](double transfer, double computed) { return std::max(20e3, transfer - computed); });
  for (RankStretches& rank : run.stretches)
    for (std::size_t i = 1; i < rank.collectives.size(); ++i)
      rank.collectives[i].begin_ns = rank.collectives[i - 1].wait_begin_ns;
  EXPECT_TRUE(MovedOutsideWaits(run).empty());
}

}  // namespace
}  // namespace lockstep::replay
