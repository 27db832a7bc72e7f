// Events of a rank read by time, against all of them.

#include "merge/timeline/event_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace lockstep::test {
namespace {

// Three pieces of ranges and kernels (ingest::kPieceRows), a few of them long; collectives that name their kernels.
schema::RankTables Recorded(bool in_order) {
  constexpr int kRows = 150'000;
  std::mt19937 random(5);
  std::vector<std::int64_t> begins;
  for (int i = 0; i < kRows; ++i) begins.push_back(1000 + static_cast<std::int64_t>(random() % 1'000'000));
  if (in_order) std::sort(begins.begin(), begins.end());
  schema::RankTables t;
  t.meta.Append({.key = 3, .value = 4});
  t.steps.Append({.index = 7, .begin_ns = 1000, .end_ns = 2000, .complete = 1});
  t.gpu_memory.Resize(2);
  t.kernel_shapes.Resize(3);
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t length = i % 10'007 == 0 ? 400'000 : static_cast<std::int64_t>(random() % 50);
    t.ranges.Append({.begin_ns = begins[static_cast<std::size_t>(i)], .duration_ns = length, .thread = 1});
    t.kernels.Append({.begin_ns = begins[static_cast<std::size_t>(i)],
                      .duration_ns = length,
                      .device = static_cast<std::uint16_t>(i % 3 == 0),
                      .name = static_cast<std::uint32_t>(i)});
    if (i % 100 == 0)
      t.collectives.Append({.begin_ns = begins[static_cast<std::size_t>(i)],
                            .end_ns = i % 200 == 0 ? begins[static_cast<std::size_t>(i)] + length : schema::kNoTime,
                            .kernel = static_cast<std::uint32_t>(i)});
  }
  t.ranges.source[7] = schema::RangeSource::kCpuOp;
  t.ranges.category[100'000] = schema::Category::kForward;
  return t;
}

template <typename Table, typename EndOf>
std::vector<std::int64_t> BeginsIn(const Table& table, Interval time, EndOf&& end_of) {
  std::vector<std::int64_t> begins;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const std::int64_t begin = table.begin_ns[i];
    if (begin < time.end && (begin >= time.begin || end_of(i) > time.begin)) begins.push_back(begin);
  }
  return begins;
}

TEST(EventWindows, HoldWhatBeginsInThemAndWhatLastsIntoThem) {
  for (const bool in_order : {true, false}) {
    const schema::RankTables all = Recorded(in_order);
    merge::EventWindows events{schema::RankTables(all)};
    EXPECT_EQ(events.rows(), all.ranges.rows() + all.kernels.rows() + all.collectives.rows());
    EXPECT_EQ(events.Head().gpu_memory.rows(), 2u);
    EXPECT_EQ(events.Head().ranges.rows(), 0u);
    std::vector<std::int64_t> kernels;
    std::set<std::uint16_t> devices;
    std::size_t others = 0;
    events.Scan([&](merge::EventWindows::Seen what, std::int64_t begin, std::uint16_t device) {
      if (what == merge::EventWindows::kKernel)
        kernels.push_back(begin), devices.insert(device);
      else
        ++others;
    });
    EXPECT_EQ(others, 2u) << "an operator, a forward pass";
    EXPECT_EQ(kernels, all.kernels.begin_ns);
    EXPECT_EQ(devices, (std::set<std::uint16_t>{0, 1}));
    for (const Interval time : {Interval{0, 2'000'000}, Interval{300'000, 310'000}, Interval{1000, 1001},
                                Interval{0, 1000}, Interval{1'400'000, 1'500'000}, Interval{500'000, 500'000}}) {
      const schema::RankTables part = events.Read(time);
      EXPECT_EQ(part.ranges.begin_ns, BeginsIn(all.ranges, time, [&](std::size_t i) {
                  return all.ranges.begin_ns[i] + all.ranges.duration_ns[i];
                }));
      EXPECT_EQ(part.ranges.thread, std::vector<std::uint32_t>(part.ranges.rows(), 1));
      const auto of_collectives =
          BeginsIn(all.collectives, time, [&](std::size_t i) { return all.collectives.end_ns[i]; });
      EXPECT_EQ(part.collectives.begin_ns, of_collectives);
      for (std::size_t i = 0; i < part.collectives.rows(); ++i) {
        const std::uint32_t kernel = part.collectives.kernel[i];
        if (kernel == schema::kNone) continue;
        ASSERT_LT(kernel, part.kernels.rows());
        EXPECT_EQ(part.kernels.begin_ns[kernel], part.collectives.begin_ns[i]);
        EXPECT_EQ(part.kernels.name[kernel] % 100, 0u);
      }
      EXPECT_EQ(part.steps.index, all.steps.index);
      EXPECT_EQ(part.meta.rows(), 1u);
      EXPECT_EQ(part.kernel_shapes.rows(), 3u);
      EXPECT_EQ(part.gpu_memory.rows(), 0u);
      const schema::RankTables more = events.ReadWithOperations(time);
      EXPECT_EQ(more.ranges.begin_ns, part.ranges.begin_ns);
      EXPECT_EQ(more.collectives.begin_ns, all.collectives.begin_ns);
    }
    EXPECT_EQ(std::move(events).ReadAll().kernels.name, all.kernels.name);
  }
}

TEST(EventWindows, OfARankWithoutEventsAreEmpty) {
  merge::EventWindows events{schema::RankTables()};
  EXPECT_EQ(events.rows(), 0u);
  events.Scan([](merge::EventWindows::Seen, std::int64_t, std::uint16_t) { FAIL(); });
  EXPECT_EQ(events.Read({0, 100}).kernels.rows(), 0u);
}

}  // namespace
}  // namespace lockstep::test
