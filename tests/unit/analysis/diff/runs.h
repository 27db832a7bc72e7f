#pragma once
// Pairs of runs whose difference is known, made in memory.

#include <cmath>
#include <cstdint>
#include <vector>

#include "analysis/diff/compare.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {

// A series with mean 1: white noise of `noise`, and drifting noise of `slow` that forgets itself by `memory` per step.
inline std::vector<double> NoisySeries(std::size_t n, double noise, double slow, double memory, std::uint64_t seed) {
  Noise random(seed);
  std::vector<double> series;
  double level = random.Next() * slow;
  for (std::size_t i = 0; i < n; ++i) {
    level = memory * level + std::sqrt(1 - memory * memory) * slow * random.Next();
    series.push_back(1 + level + noise * random.Next());
  }
  return series;
}

struct PairSpec {
  int ranks = 4, steps = 62;
  double noise = 0.02;          // Of each rank's compute in each step.
  double slow = 0, memory = 0;  // Of all ranks together; see NoisySeries.
  double factor = 1;            // Of the compute of `slowed`, -1: of all.
  int slowed = -1;
  int buckets = 5;
  std::uint64_t bucket_bytes = 1'000'000;
};

inline Job MakeRun(const PairSpec& spec, std::uint64_t seed) {
  JobSpec job;
  job.ranks = spec.ranks;
  job.steps = spec.steps;
  job.warmup = 2;
  job.blocking = true;
  job.buckets = spec.buckets;
  job.bucket_bytes = spec.bucket_bytes;
  const auto common = NoisySeries(static_cast<std::size_t>(spec.steps), 0, spec.slow, spec.memory, seed * 7919 + 1);
  std::vector<std::vector<double>> own;
  for (int r = 0; r < spec.ranks; ++r)
    own.push_back(NoisySeries(static_cast<std::size_t>(spec.steps), spec.noise, 0, 0,
                              seed * 104729 + static_cast<std::uint64_t>(r) + 2));
  job.compute = [=](int step, int rank) {
    const double factor = spec.slowed < 0 || spec.slowed == rank ? spec.factor : 1;
    return static_cast<std::int64_t>(40e6 * factor * common[static_cast<std::size_t>(step)] *
                                     own[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)]);
  };
  return Simulate(job);
}

inline diff::RunSample SampleRun(const Job& job, const std::string& label) {
  const analysis::AnalyzeOptions options = job.Options();
  auto sample = diff::SampleOf(job.timeline, options, label);
  EXPECT_TRUE(sample.ok()) << sample.error().what;
  return sample.ok() ? std::move(sample).value() : diff::RunSample{};
}

inline diff::Comparison CompareRuns(const diff::RunSample& base, const diff::RunSample& now,
                                    std::string_view limits = diff::kDefaultLimits) {
  auto comparison = diff::Compare(base, now, diff::ParseLimits(limits).value());
  EXPECT_TRUE(comparison.ok()) << comparison.error().what;
  return comparison.ok() ? std::move(comparison).value() : diff::Comparison{};
}

}  // namespace lockstep::test
