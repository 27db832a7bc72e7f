#include "analysis/replay/graph/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

namespace lockstep::replay {
namespace {

namespace fs = std::filesystem;

// On busy cores a transfer takes its time or a time slice more. The deviation of the median is between the two; the
// range of 90 % is what was seen.
TEST(CostModel, TimesOfTwoKindsSpreadAsFarAsTheyWereSeen) {
  CostModel costs;
  for (int i = 0; i < 100; ++i) costs.Add(16'384, i % 5 < 2 ? 200'000 : i % 5 == 2 ? 1'000'000 : 4'000'000 + 1000 * i);
  costs.Fit();
  const auto estimate = costs.At(16'384);
  ASSERT_TRUE(estimate.has_value());
  EXPECT_GE(estimate->high_ns, 4'000'000);
  EXPECT_LE(estimate->high_ns, 5'500'000);
  EXPECT_LE(estimate->low_ns, 200'000);
}

TEST(CostModel, AKnownLineComesBack) {
  CostModel model;
  std::mt19937 random(3);
  std::lognormal_distribution<double> noise(0, 0.02);
  for (std::uint64_t bytes = 1 << 10; bytes <= 1 << 26; bytes *= 4)
    for (int i = 0; i < 101; ++i)
      model.Add(bytes, std::llround((20'000 + 0.1 * static_cast<double>(bytes)) * noise(random)));
  model.Fit();
  const auto line = model.AlphaBeta().value();
  EXPECT_NEAR(line.alpha_ns, 20'000, 400);
  EXPECT_NEAR(line.beta_ns_per_byte, 0.1, 0.002);
  EXPECT_LT(line.median_error.value(), 0.01);
  for (const std::uint64_t bytes : {1ull << 10, 1ull << 20, 1ull << 26, 1ull << 28}) {
    const auto at = model.At(bytes).value();
    const double truth = 20'000 + 0.1 * static_cast<double>(bytes);
    EXPECT_NEAR(at.ns / truth, 1, 0.03) << bytes;
    EXPECT_LT(at.low_ns, truth);
    EXPECT_GT(at.high_ns, truth);
    EXPECT_EQ(at.extrapolated, bytes == 1 << 28);
  }
  const auto inner = model.At(3 << 20).value();
  EXPECT_FALSE(inner.extrapolated);
  EXPECT_LT(inner.low_ns, 20'000 + 0.1 * (3 << 20));
  EXPECT_GT(inner.high_ns, 20'000 + 0.1 * (3 << 20));
}

TEST(CostModel, OneSizeAndNone) {
  CostModel none;
  none.Add(100, 0);
  none.Fit();
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(none.At(100).has_value());
  EXPECT_FALSE(none.AlphaBeta().has_value());
  CostModel one;
  one.Add(1000, 500);
  one.Fit();
  EXPECT_FALSE(one.AlphaBeta().has_value()) << "one size says nothing of latency and bandwidth";
  EXPECT_EQ(one.At(1000)->ns, 500);
  EXPECT_FALSE(one.At(1000)->extrapolated);
  const auto twice = one.At(2000).value();
  EXPECT_TRUE(twice.extrapolated);
  EXPECT_LE(twice.low_ns, 500);
  EXPECT_GE(twice.high_ns, 1000);
}

TEST(CostModel, OneSizeAndWhatWasSeenBesideIt) {
  const auto made = [](std::int64_t beside_ns, std::int64_t latency_ns) {
    CostModel model;
    for (int i = 0; i < 20; ++i) model.Add(1 << 20, 1'000'000 + 10'000 * (i % 3));
    if (beside_ns != 0) model.AddBeside(16 << 20, beside_ns);
    model.SetLatency(latency_ns);
    model.Fit();
    return model;
  };
  const CostModel with = made(4'000'000, 0);
  const auto at = with.At(16 << 20).value();
  EXPECT_FALSE(at.extrapolated);
  EXPECT_EQ(at.ns, 4'000'000);
  EXPECT_GT(at.factor, 1) << "seen once is not known";
  EXPECT_FALSE(with.At(4 << 20)->extrapolated);
  EXPECT_FALSE(with.AlphaBeta().has_value()) << "a first time is no bandwidth";
  EXPECT_EQ(with.usable_sizes(), 1u);
  EXPECT_EQ(with.knots().size(), 2u);
  EXPECT_FALSE(with.contradiction().has_value());
  // Sixteen times the bytes in less time: size is not what they take their time for, so of others nothing is known.
  const CostModel without = made(900'000, 400'000);
  EXPECT_EQ(without.knots().size(), 1u);
  EXPECT_EQ(without.contradiction().value().bytes, 16u << 20);
  EXPECT_GT(without.At(16 << 20)->factor, 10);
  // A broadcast, which stands for an all-reduce, need not cost as much as one: it shows nothing, and is left out.
  CostModel broadcast;
  broadcast.Add(1 << 20, 1'000'000);
  broadcast.AddBeside(16 << 20, 900'000, false);
  broadcast.Fit();
  EXPECT_FALSE(broadcast.contradiction().has_value());
  EXPECT_EQ(broadcast.knots().size(), 1u);
  // Nor does it hide what an all-reduce of that size took.
  CostModel both;
  both.Add(1 << 20, 1'000'000);
  both.AddBeside(16 << 20, 900'000, false);
  both.AddBeside(16 << 20, 4'000'000);
  both.Fit();
  EXPECT_EQ(both.At(16 << 20)->ns, 4'000'000);
  // Fewer bytes, on the line through latency and the size that is known.
  const auto half = made(0, 400'000).At(512 << 10).value();
  EXPECT_NEAR(half.ns, 705'000, 5'000);
  EXPECT_TRUE(half.extrapolated);
  EXPECT_LT(half.factor, 1.7);
  EXPECT_GT(made(0, 0).At(128 << 10)->factor, 2.5) << "without it, latency or bandwidth: who knows";
  EXPECT_EQ(made(0, 2'000'000).At(128 << 10)->ns, made(0, 0).At(128 << 10)->ns) << "no latency is above all of it";
}

// On a slow network a broadcast's time is not half of an all-reduce's: its root has handed the data over at once.
TEST(CostModel, AnotherKindStandsForTheStepsOnlyWhereNoneOfThatKindTells) {
  CostModel model;
  for (int i = 0; i < 20; ++i) model.Add(528'384, 39'000'000);
  model.AddBeside(1'585'152, 111'700'000);
  model.AddBeside(1'585'152, 42'000'000, false);
  model.AddBeside(1'000'000, 39'500'000, false);
  model.AddBeside(1'152, 1'200'000, false);  // Of fewer bytes nothing else tells.
  model.Fit();
  EXPECT_EQ(model.At(1'585'152)->ns, 111'700'000);
  EXPECT_GT(model.At(1'000'000)->ns, 60'000'000);
  EXPECT_EQ(model.At(1'152)->ns, 1'200'000);
}

// What moves nearly as many bytes in a sixtieth of the time is another operation, and no reason to know nothing of all
// other sizes.
TEST(CostModel, FewerBytesInNextToNoTimeAreAnotherOperation) {
  CostModel model;
  for (int i = 0; i < 20; ++i) model.Add(16'640, 1'800'000 + 10'000 * (i % 5));
  model.AddBeside(16'384, 28'000, false);
  model.AddBeside(2'304, 1'200'000, false);
  model.AddBeside(798'720, 3'600'000);
  model.Fit();
  EXPECT_EQ(model.knots().size(), 3u);
  EXPECT_LT(model.At(400'000)->factor, 2);
}

TEST(CostModel, OfManyBesideTheMiddleCounts) {
  CostModel model;
  for (int i = 0; i < 20; ++i) model.Add(1 << 20, 1'000'000);
  for (const std::int64_t ns : {9'000'000, 4'000'000, 4'200'000, 1'100'000, 4'100'000}) model.AddBeside(4 << 20, ns);
  for (const std::int64_t ns : {30'000'000, 16'000'000}) model.AddBeside(16 << 20, ns);
  model.Fit();
  EXPECT_EQ(model.At(4 << 20)->ns, 4'100'000);
  EXPECT_EQ(model.At(16 << 20)->ns, 16'000'000) << "a first time is slow";
}

// A little more that took a little less shows nothing: noise does it.
TEST(CostModel, MoreBytesAreAContradictionFromTwiceTheRate) {
  const auto contradicted = [](std::uint64_t bytes, std::int64_t ns) {
    CostModel model;
    for (int i = 0; i < 20; ++i) model.Add(1 << 20, 1'000'000);
    model.AddBeside(bytes, ns);
    model.Fit();
    return model.contradiction().has_value();
  };
  EXPECT_FALSE(contradicted((1 << 20) + 4096, 970'000));
  EXPECT_FALSE(contradicted((3 << 20) / 2, 900'000));
  EXPECT_TRUE(contradicted((3 << 20) / 2, 700'000));
  EXPECT_TRUE(contradicted(2 << 20, 1'000'000));
}

// What each bucket costs by itself is in each of them. Where a quarter of them have next to none of it, it was not that
// but something that comes and goes: a core that somebody else had first.
TEST(CostModel, WhatMakesSomeTransfersSlowIsNoCostOfEach) {
  const auto contradicted = [](std::int64_t quick_ns, int quick_of_ten) {
    CostModel model;
    for (int i = 0; i < 40; ++i) model.Add(512 << 10, i % 10 < quick_of_ten ? quick_ns : 4'000'000);
    model.AddBeside(3 << 19, 1'500'000);
    model.Fit();
    return model.contradiction().has_value();
  };
  EXPECT_FALSE(contradicted(400'000, 4));
  EXPECT_TRUE(contradicted(400'000, 1)) << "one in ten is chance";
  EXPECT_TRUE(contradicted(2'000'000, 4)) << "the quick ones are slow as well";
  EXPECT_TRUE(contradicted(4'000'000, 0));
}

// Sizes far apart are interpolated badly; what takes as many bytes as a known one, and a few more, is known all the
// same.
TEST(CostModel, TheTwoSizesAroundBoundWhatIsBetween) {
  CostModel model;
  for (int i = 0; i < 20; ++i) {
    model.Add(2'048, 22'000);
    model.Add(1 << 20, 354'000);
    model.Add(12'607'488, 9'290'000);
  }
  model.Fit();
  const auto near = model.At((1 << 20) + 2'048).value();
  EXPECT_NEAR(near.ns, 354'000, 2'000);
  EXPECT_LT(near.factor, 1.02);
  const auto far = model.At(5 << 20).value();
  EXPECT_GT(far.factor, 1.5);
  EXPECT_LE(far.ns * far.factor, 9'290'000 * 1.01);
  EXPECT_LT(model.At(12'600'000)->factor, 1.02);
}

TEST(CostModel, MoreBytesThatTakeNoLongerHaveNoLine) {
  for (const std::int64_t large_ns : {6'490'000, 6'000'000}) {
    CostModel model;
    for (int i = 0; i < 10; ++i) {
      model.Add(1 << 20, 6'490'000);
      model.Add(2 << 20, large_ns);
      model.Add(3 << 20, large_ns);
    }
    model.Fit();
    EXPECT_FALSE(model.AlphaBeta().has_value()) << large_ns;
  }
  CostModel two;
  for (int i = 0; i < 10; ++i) {
    two.Add(1 << 20, 1'000'000);
    two.Add(2 << 20, 1'500'000);
  }
  two.Fit();
  ASSERT_TRUE(two.AlphaBeta().has_value());
  EXPECT_FALSE(two.AlphaBeta()->median_error.has_value()) << "any two sizes lie on a line";
}

TEST(CostModel, DoubtfulSizesAreKeptOut) {
  CostModel model;
  for (std::uint64_t bytes = 1 << 10; bytes <= 1 << 20; bytes *= 2) {
    const bool hiccup = bytes == 1 << 14;
    for (int i = 0; i < 5; ++i) model.Add(bytes, hiccup ? 900'000 : 10'000 + static_cast<std::int64_t>(bytes / 10));
  }
  model.Fit();
  for (const CostModel::Knot& knot : model.knots())
    EXPECT_EQ(knot.doubt, knot.bytes == 1 << 14 ? CostModel::Doubt::kOutlier : CostModel::Doubt::kNothing)
        << knot.bytes;
  EXPECT_NEAR(model.At(1 << 14)->ns, 10'000 + (1 << 14) / 10, 500);
  // Nothing is moved: half a microsecond for any size.
  CostModel idle;
  for (std::uint64_t bytes = 8; bytes <= 1 << 30; bytes *= 2) idle.Add(bytes, 470);
  idle.Fit();
  for (const CostModel::Knot& knot : idle.knots()) EXPECT_EQ(knot.doubt, CostModel::Doubt::kImpossible) << knot.bytes;
  EXPECT_FALSE(idle.At(1 << 20).has_value());
}

struct Log {
  CostModel out_of_place, in_place;
  std::size_t inconsistent = 0;  // Time and bandwidth of a row contradict each other.
};

// nccl-tests' table; under mpirun each line begins with "[1,0]<stdout>:".
Log ReadNcclTests(const fs::path& path) {
  Log log;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (const std::size_t tag = line.find("<stdout>:"); tag != std::string::npos) line = line.substr(tag + 9);
    std::istringstream fields(line);
    std::uint64_t bytes, count;
    std::string type, operation, error;
    double time_us, algorithm_bandwidth, bus_bandwidth;
    if (!(fields >> bytes >> count >> type >> operation) || type != "float") continue;
    for (CostModel* model : {&log.out_of_place, &log.in_place}) {
      if (!(fields >> time_us >> algorithm_bandwidth >> bus_bandwidth >> error)) break;
      model->Add(bytes, std::llround(time_us * 1000));
      const double got = static_cast<double>(bytes) / time_us / 1000;
      log.inconsistent += std::abs(got - algorithm_bandwidth) > 0.006 + 0.02 * got;
    }
  }
  log.out_of_place.Fit();
  log.in_place.Fit();
  return log;
}

TEST(CostModel, PublicMeasurementsLeaveOneOut) {
  const fs::path logs = fs::path(LOCKSTEP_SHARED_DIR) / "traces/nccl_tests_a100/nccl-test-log";
  if (!fs::exists(logs)) GTEST_SKIP() << "no reference traces in " << LOCKSTEP_SHARED_DIR;
  std::vector<double> all;
  for (const int ranks : {1, 2, 4, 8, 16, 32, 64, 128}) {
    const Log log = ReadNcclTests(logs / ("nccl_" + std::to_string(ranks) + ".log"));
    ASSERT_GE(log.out_of_place.knots().size(), 20u) << ranks;
    EXPECT_EQ(log.inconsistent, 0u) << ranks;
    std::vector<double> errors = log.out_of_place.LeaveOneOut();
    for (double& error : errors) error = std::abs(error);
    std::sort(errors.begin(), errors.end());
    std::size_t doubtful = 0;
    for (const auto& knot : log.out_of_place.knots()) doubtful += knot.doubt != CostModel::Doubt::kNothing;
    std::cout << ranks << " ranks: leave-one-out median " << 100 * errors[errors.size() / 2] << " %, worst "
              << 100 * errors.back() << " %, doubtful sizes " << doubtful << ", line's median error "
              << 100 * log.out_of_place.AlphaBeta()->median_error.value() << " %\n";
    EXPECT_LE(errors[errors.size() / 2], 0.09) << ranks;
    all.insert(all.end(), errors.begin(), errors.end());
    // A communicator of one rank moves nothing in place, and copies out of place.
    for (const auto& knot : log.in_place.knots())
      EXPECT_EQ(knot.doubt == CostModel::Doubt::kImpossible, ranks == 1) << ranks << " " << knot.bytes;
  }
  // First rows of the large jobs are warm-up: 1.2 ms for 1 KiB, 0.1 ms for 2 KiB.
  const Log large = ReadNcclTests(logs / "nccl_128.log");
  EXPECT_EQ(large.out_of_place.knots()[0].doubt, CostModel::Doubt::kOutlier);
  std::sort(all.begin(), all.end());
  std::cout << "all: median " << 100 * all[all.size() / 2] << " %, worst " << 100 * all.back() << " %\n";
}

}  // namespace
}  // namespace lockstep::replay
