// What the page shows of ranks from inside comes of the same rows as the tables, cut evenly in time.

#include "analysis/report/html/inside.h"

#include <gtest/gtest.h>

#include "analysis/core/device.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/engine/view_index.h"
#include "tests/unit/analysis/tables/hand_made.h"

namespace lockstep::report {
namespace {

using test::HandMade;
constexpr std::uint8_t kSample = 3;

PageJson Made(const std::vector<const HandMade*>& ranks, const std::vector<Interval>& windows,
              const std::vector<std::int32_t>& named, const InsideLimits& limits) {
  const merge::Timeline timeline = test::TimelineOf(ranks, windows);
  const analysis::AnalyzeOptions options;
  const analysis::Context context(timeline, options);
  const tables::ViewIndex index(timeline);
  std::vector<std::int32_t> all;
  for (std::size_t r = 0; r < ranks.size(); ++r) all.push_back(static_cast<std::int32_t>(r));
  Inside inside(context, all, named, limits);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    inside.Add(r, tables::MakeRankView(index, all[r], ranks[r]->tables, {}));
  return inside.Json();
}

TEST(Inside, MemoryIsTheMostOfAStretchAndHoldsUntilTheNext) {
  HandMade rank, without;
  rank.Memory(100, kSample, 0, 0, 700, 900);
  rank.Memory(240, kSample, 0, 0, 500, 900);  // The same stretch as the one before it.
  rank.Memory(600, kSample, 0, 0, 2000, 0);   // Reserved is not known.
  rank.Memory(620, kSample, analysis::kHostMemory, 0, 50, 0);
  rank.Memory(5000, kSample, 0, 0, 99999, 0);  // After the window.
  const PageJson json = Made({&rank, &without}, {{0, 1000}, {0, 1000}}, {}, {.memory_columns = 4});
  const PageJson& lines = json["memory"]["lines"];
  ASSERT_EQ(lines.size(), 2u) << "gpu and host of rank 0, none of rank 1";
  EXPECT_EQ(lines[0]["where"], "gpu");
  EXPECT_EQ(lines[0]["allocated"], Packed({700, 700, 2000, 2000}));
  EXPECT_EQ(lines[0]["reserved"], Packed({900, 900, 900, 900}));
  EXPECT_EQ(lines[1]["where"], "host");
  EXPECT_EQ(lines[1]["allocated"], Packed({kUnknownCell, kUnknownCell, 50, 50}));
}

TEST(Inside, SensorsShowTheLowestClockAndTheMeanUtilization) {
  HandMade rank, without;
  const auto reading = [&](std::int64_t time_ns, std::uint32_t clock, std::uint32_t utilization) {
    rank.tables.gpu_samples.Append({.time_ns = time_ns,
                                    .device = 0,
                                    .sm_clock_mhz = clock,
                                    .memory_clock_mhz = schema::kNone,
                                    .power_mw = schema::kNone,
                                    .temperature_c = schema::kNone,
                                    .utilization_percent = utilization});
  };
  reading(10, 1980, 100);
  reading(20, 1200, 0);
  reading(30, schema::kNone, schema::kNone);
  reading(990, 1500, 70);
  const PageJson json = Made({&without, &rank}, {{0, 1000}, {0, 1000}}, {}, {.sensor_columns = 200});
  const PageJson& sensors = json["sensors"];
  EXPECT_EQ(sensors["columns"], 2) << "no more stretches than readings fill";
  EXPECT_EQ(sensors["ranks"], PageJson({1}));
  EXPECT_EQ(sensors["measures"]["sm_clock_mhz"], Packed({1200, 1500}));
  EXPECT_EQ(sensors["measures"]["utilization_percent"], Packed({50, 70}));
  EXPECT_TRUE(sensors["measures"]["power_mw"].is_null());
}

TEST(Inside, TablesHaveTheNamedRanksAndOthers) {
  std::vector<HandMade> ranks(20);
  std::vector<const HandMade*> pointers;
  for (HandMade& rank : ranks) {
    rank.Kernel("gemm", 100, 200);
    for (int i = 0; i < 5; ++i) rank.Kernel("small" + std::to_string(i), 300 + 10 * i, 305 + 10 * i);
    pointers.push_back(&rank);
  }
  const std::vector<Interval> windows(ranks.size(), {0, 1000});
  const PageJson json = Made(pointers, windows, {17, 3}, {.table_ranks = 4, .rows = 2});
  const PageJson& kernels = json["tables"][0];
  EXPECT_EQ(kernels["name"], "kernels");
  EXPECT_EQ(kernels["ranks"], PageJson({0, 3, 5, 17}));
  ASSERT_EQ(kernels["rows"].size(), 8u) << "two of each";
  for (std::size_t i = 0; i < kernels["rows"].size(); i += 2) EXPECT_EQ(kernels["rows"][i][1], "gemm");
  for (const PageJson& row : kernels["rows"]) EXPECT_EQ(row.size(), kernels["columns"].size());
}

TEST(Inside, NothingRecordedIsNothing) {
  HandMade rank;
  for (const Interval window : {Interval{0, 1000}, Interval{500, 500}}) {
    const PageJson json = Made({&rank}, {window}, {0}, {});
    EXPECT_TRUE(json["memory"].is_null());
    EXPECT_TRUE(json["sensors"].is_null());
    EXPECT_TRUE(json["tables"].empty());
  }
}

}  // namespace
}  // namespace lockstep::report
