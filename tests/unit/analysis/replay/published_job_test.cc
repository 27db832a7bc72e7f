// The published job ST of ByteDance's what-if analysis: our replay and counterfactuals
// against the artifact's own results.

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "pipeline_job.h"

namespace lockstep::replay {
namespace {

namespace fs = std::filesystem;
constexpr double kTolerance = 1e-6;  // The artifact keeps durations as 32-bit floats of seconds.

std::string Inflated(const fs::path& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  char buffer[65536];
  for (int n; file != nullptr && (n = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  if (file != nullptr) gzclose(file);
  return text;
}

class PublishedJob : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path shared = LOCKSTEP_SHARED_DIR;
    const fs::path trace = shared / "traces/bytedance_straggler_ST/ops-ST.csv.gz";
    expected_ = shared / "expected/bytedance_straggler_ST";
    if (!fs::exists(trace)) GTEST_SKIP() << "no reference traces in " << shared;
    std::istringstream csv(Inflated(trace));
    job_ = ReadPipelineJob(csv);
    ASSERT_EQ(job_.graph.operations().size(), 6784u);
    what_if_.emplace(job_.graph, OrdinaryDurations(job_.graph, job_.likeness),
                     [this](const Schedule& s) { return job_.Lengths(s); });
  }
  nlohmann::json Expected(const char* file) const {
    std::ifstream in(expected_ / file);
    return nlohmann::json::parse(in);
  }
  static void Near(double got, double expected, const std::string& what) {
    EXPECT_LE(std::abs(got - expected), kTolerance * std::abs(expected)) << what << ": " << got << " for " << expected;
  }

  fs::path expected_;
  PipelineJob job_;
  std::optional<Counterfactual> what_if_;
};

TEST_F(PublishedJob, StepsAsReplayed) {
  const auto result = Expected("result-ST.json");
  const auto real = what_if_->ReplaySteps([](std::uint32_t) { return false; });
  const auto ideal = what_if_->ReplaySteps([](std::uint32_t) { return true; });
  ASSERT_TRUE(real.ok() && ideal.ok());
  for (std::size_t i = 0; i < job_.steps.size(); ++i) {
    const std::string step = std::to_string(job_.steps[i]);
    Near(static_cast<double>(real.value()[i]) / 1e9, result["step_t_nodelay"][step], "step " + step);
    Near(static_cast<double>(ideal.value()[i]) / 1e9, result["step_t_noblk"][step], "ideal step " + step);
  }
}

TEST_F(PublishedJob, SlowdownsByTypeStageAndRank) {
  const auto result = Expected("result-ST.json");
  const Result<double> slowdown = what_if_->Slowdown();
  ASSERT_TRUE(slowdown.ok());
  Near(slowdown.value(), result["blocking_slowdown"], "S");
  for (const auto& [name, value] : result["blocking_decompose_by_optype"].items()) {
    // "forward-pp-comm": sends and receives of the pass together.
    const std::size_t transfers = name.find("-pp-comm");
    const auto belongs = [&, name = name](std::uint32_t i) {
      const std::string& type = job_.type[i];
      return transfers == std::string::npos
                 ? type == name
                 : type == name.substr(0, transfers) + "-send" || type == name.substr(0, transfers) + "-recv";
    };
    bool any = false;
    for (std::uint32_t i = 0; i < job_.type.size(); ++i) any |= belongs(i);
    EXPECT_TRUE(any) << name;
    Near(what_if_->Of(belongs).value().slowdown, value, name);
  }
  for (const auto& [name, value] : result["blocking_decompose_by_stage"].items())
    Near(what_if_->Of([&](std::uint32_t i) { return job_.stage[i] == std::stoi(name); }).value().slowdown, value,
         "stage " + name);
  for (const auto& [name, value] : result["blocking_decompose_by_dp_rank"].items())
    Near(what_if_->Of([&](std::uint32_t i) { return job_.data_rank[i] == std::stoi(name); }).value().slowdown, value,
         "data rank " + name);
}

// The worst 3 % of the workers, here one: the worker whose stage and data rank are both worst, as the
// artifact scores them (the lower of the two).
TEST_F(PublishedJob, TheWorstWorkerAndTheLastStage) {
  std::vector<double> by_stage, by_rank;
  for (std::int32_t s = 0; s < job_.stages; ++s)
    by_stage.push_back(what_if_->Of([&](std::uint32_t i) { return job_.stage[i] == s; }).value().slowdown);
  for (std::int32_t d = 0; d < job_.data_ranks; ++d)
    by_rank.push_back(what_if_->Of([&](std::uint32_t i) { return job_.data_rank[i] == d; }).value().slowdown);
  std::int32_t worst = -1;
  double score = 0;
  for (std::int32_t s = 0; s < job_.stages; ++s)
    for (std::int32_t d = 0; d < job_.data_ranks; ++d)
      if (std::min(by_stage[static_cast<std::size_t>(s)], by_rank[static_cast<std::size_t>(d)]) > score) {
        score = std::min(by_stage[static_cast<std::size_t>(s)], by_rank[static_cast<std::size_t>(d)]);
        worst = s * job_.data_ranks + d;
      }
  const auto workers = Expected("mw-ST.json"), stage = Expected("ms-ST.json");
  const auto of_worst = what_if_->Of([&](std::uint32_t i) { return job_.WorkerOf(i) == worst; }).value();
  const auto of_stage = what_if_->Of([&](std::uint32_t i) { return job_.stage[i] == job_.stages - 1; }).value();
  const double waste = stage["tori"].get<double>() - stage["tideal"].get<double>();
  // Differences of nearly equal times: held to what 1e-6 of a time is in them.
  const double tolerance = 2 * kTolerance * stage["tori"].get<double>() / waste;
  EXPECT_NEAR(of_worst.removed, workers["Mw"], tolerance);
  EXPECT_NEAR(of_worst.added, workers["add"], tolerance);
  EXPECT_NEAR(of_stage.removed, stage["Ms"], tolerance);
  EXPECT_NEAR(of_stage.added, stage["add"], tolerance);
}

}  // namespace
}  // namespace lockstep::replay
