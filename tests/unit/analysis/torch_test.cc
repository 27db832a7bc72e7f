// Gradient buckets joined with collectives; backends that nothing records; phases.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/core/source.h"
#include "analysis/report/json.h"
#include "synthetic_job.h"

namespace lockstep::test {
namespace {

void AddBucket(Job& job, std::uint32_t bucket, std::uint64_t bytes) {
  auto& tables = job.timeline.tables;
  schema::TlGradientBuckets::Row row{};
  row.bucket = bucket;
  row.bytes = bytes;
  row.cap_bytes = 26214400;
  row.dtype = 11;
  row.parameters = Intern(tables, "1 0");
  row.rebuilt = 1;
  tables.gradient_buckets.Append(row);
}

JobSpec Small() {
  JobSpec spec;
  spec.ranks = 2;
  spec.steps = 12;
  spec.buckets = 3;
  return spec;
}

bool Lost(const analysis::Analysis& analysis, std::string_view name) {
  for (const analysis::LossRow& loss : analysis.losses)
    if (loss.name == name) return true;
  return false;
}

TEST(Buckets, FoundByOrderAndBytes) {
  Job job = Simulate(Small());
  for (std::uint32_t i = 0; i < 3; ++i) AddBucket(job, i, 1'000'000);
  const analysis::Analysis analysis = job.Analyze();
  ASSERT_EQ(analysis.buckets.rows.size(), 3u);
  EXPECT_EQ(analysis.buckets.steps, 10);
  EXPECT_EQ(analysis.buckets.steps_matched, 10);
  EXPECT_EQ(analysis.buckets.current_cap_mb, 25.0);
  for (const analysis::BucketRow& row : analysis.buckets.rows) {
    EXPECT_EQ(row.collectives, 10);
    EXPECT_EQ(row.dtype, "float32");
    EXPECT_EQ(row.parameters, "1 0");
    ASSERT_TRUE(row.transfer_ns_median);
    EXPECT_NEAR(static_cast<double>(*row.transfer_ns_median), 400'000, 40'000);
  }
}

TEST(Buckets, OfAnotherSizeAreNotFound) {
  Job job = Simulate(Small());
  AddBucket(job, 0, 1'000'000);
  AddBucket(job, 1, 999);
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_EQ(analysis.buckets.rows[0].collectives, 10);
  EXPECT_EQ(analysis.buckets.rows[1].collectives, 0);
  EXPECT_FALSE(analysis.buckets.rows[1].transfer_ns_median);
  EXPECT_EQ(analysis.buckets.steps_matched, 0);
  const auto json = nlohmann::json::parse(report::RenderJson(analysis));
  EXPECT_EQ(json["buckets"]["sizes"], (std::vector<std::uint64_t>{1'000'000, 1'000'000, 1'000'000}))
      << "what was reduced; what the framework said of it is in the rows";
  EXPECT_EQ(json["buckets"]["current_cap_mb"], 25.0);
  EXPECT_TRUE(json["buckets"]["rows"][1]["transfer_ns_median"].is_null());
}

void AddGloo(Job& job, std::string_view use) {
  AddMeta(job.timeline.tables, "fact.torch_backend", "name=gloo\trecorded=0\tsize=2");
  AddMeta(job.timeline.tables, "fact.torch_backend.2", "name=mpi\trecorded=1\tsize=2");
  AddMeta(job.timeline.tables, "fact.ddp_model", "model=0\tbackend=gloo\trecorded=0\thook=user.hook\tsize=2");
  if (!use.empty()) AddMeta(job.timeline.tables, "fact.torch_group_use", "backend=gloo\t" + std::string(use));
}

TEST(Backends, CountedAndUnusedOnesSayNothing) {
  for (const char* use : {"steps=12\tused=0\toperations=0\tcovered=0\tuncounted=0",
                          "steps=12\tused=1\toperations=2\tcovered=0\tuncounted=0"}) {
    Job job = Simulate(Small());
    AddGloo(job, use);
    const analysis::Analysis analysis = job.Analyze();
    EXPECT_TRUE(analysis.unrecorded.empty()) << analysis.unrecorded;
    EXPECT_FALSE(Lost(analysis, "BackendNotCaptured"));
  }
}

// That much was recorded beside it changes nothing: each step may wait in it.
TEST(Backends, UsedOrUncountedOnesAreSaidFirst) {
  for (const char* use : {"", "steps=12\tused=12\toperations=24\tcovered=0\tuncounted=0",
                          "steps=12\tused=0\toperations=0\tcovered=0\tuncounted=1",
                          "steps=0\tused=0\toperations=0\tcovered=0\tuncounted=0"}) {
    Job job = Simulate(Small());
    AddGloo(job, use);
    const analysis::Analysis analysis = job.Analyze();
    EXPECT_TRUE(analysis.verdict.starts_with("Communication through gloo is not recorded (")) << analysis.verdict;
    EXPECT_TRUE(Lost(analysis, "BackendNotCaptured"));
    EXPECT_TRUE(analysis.incomplete());
    EXPECT_FALSE(analysis.replay) << "a replay would not wait for it";
  }
}

TEST(Backends, TheLastCountHolds) {
  Job job = Simulate(Small());
  AddGloo(job, "steps=1\tused=1\toperations=9\tcovered=0\tuncounted=0");
  AddMeta(job.timeline.tables, "fact.torch_group_use.2",
          "backend=gloo\tsteps=12\tused=1\toperations=9\tcovered=0\tuncounted=0");
  EXPECT_TRUE(job.Analyze().unrecorded.empty());
}

TEST(Backends, DdpOverGlooIsSaidFirst) {
  Job job = Simulate(Small());
  AddMeta(job.timeline.tables, "fact.torch_backend", "name=gloo\trecorded=0\tsize=2");
  AddMeta(job.timeline.tables, "fact.torch_unrecorded", "backend=gloo\twhat=DDP reduces its gradients through it");
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_NE(analysis.verdict.find("gloo is not recorded (DDP reduces"), std::string::npos) << analysis.verdict;
  EXPECT_TRUE(Lost(analysis, "BackendNotCaptured"));
  EXPECT_TRUE(analysis.incomplete());
}

// Calls of which everything but who waited for whom is known.
TEST(Backends, CoveredCallsCountFromOnePercent) {
  for (const std::int64_t percent : {0, 3}) {
    Job job = Simulate(Small());
    AddGloo(job, "steps=12\tused=12\toperations=24\tcovered=24\tuncounted=0");
    auto& tables = job.timeline.tables;
    const std::int64_t window = tables.rank_totals.end_ns[0] - tables.rank_totals.begin_ns[0];
    tables.step_phases.Append(
        {.index = -1, .rank = tables.rank_totals.rank[0], .phase = 128, .phase_ns = window * percent / 100 + 1000});
    const analysis::Analysis analysis = job.Analyze();
    EXPECT_EQ(analysis.unrecorded.empty(), percent == 0) << percent;
    bool said = false;
    for (const std::string& remark : analysis.remarks) said |= remark.starts_with("Calls over gloo take");
    EXPECT_EQ(said, percent == 0);
  }
}

// An imported trace: nobody said which backend.
TEST(Backends, CallsWithoutABackendsName) {
  Job job = Simulate(Small());
  auto& tables = job.timeline.tables;
  tables.step_phases.Append({.index = -1, .rank = tables.rank_totals.rank[0], .phase = 128, .phase_ns = 1'000'000});
  EXPECT_TRUE(job.Analyze().verdict.starts_with("Communication through torch.distributed is not recorded"));
}

TEST(Backends, WithoutHooksNobodyKnows) {
  Job job = Simulate(Small());
  AddLoss(job.timeline.tables, "PythonIsolated", 0, 1);
  AddLoss(job.timeline.tables, "PythonIsolated", 1, 1);
  const analysis::Analysis analysis = job.Analyze();
  std::size_t said = 0;
  for (const std::string& remark : analysis.remarks) said += remark.find("over gloo is not seen") != std::string::npos;
  EXPECT_EQ(said, 1u);
}

TEST(Backends, NothingElseRecorded) {
  Job job = Simulate(Small());
  auto& tables = job.timeline.tables;
  AddMeta(tables, "fact.torch_backend", "name=gloo\trecorded=0\tsize=2");
  tables.collectives = {};
  tables.collective_ranks = {};
  for (auto& ns : tables.rank_totals.comm_high_ns) ns = 0;
  for (auto& ns : tables.rank_totals.comm_ns) ns = 0;
  job.timeline = merge::MakeTimeline(job.timeline.run_dir, std::move(tables));
  EXPECT_NE(job.Analyze().verdict.find("gloo is not recorded"), std::string::npos);
}

TEST(Phases, InStepsOfTheJson) {
  Job job = Simulate(Small());
  auto& tables = job.timeline.tables;
  tables.step_phases.Append({.index = 3, .rank = 1, .phase = 2, .phase_ns = 1000});
  tables.step_phases.Append({.index = 3, .rank = 1, .phase = 6, .phase_ns = 10});
  const auto json = nlohmann::json::parse(report::RenderJson(job.Analyze()));
  const auto& cell = json["steps"][3]["ranks"][1];
  EXPECT_EQ(cell["phases"]["forward_ns"], 1000);
  EXPECT_EQ(cell["phases"]["checkpoint_ns"], 10);
  EXPECT_EQ(cell["phases"]["input_ns"], 0);
  EXPECT_EQ(cell["phases"]["other_ns"].get<std::int64_t>(),
            cell["end_ns"].get<std::int64_t>() - cell["begin_ns"].get<std::int64_t>() - 1010);
  EXPECT_TRUE(json["steps"][3]["ranks"][0]["phases"].is_null());
}

// Sizes of gradients come from any program (lockstep_gradients): they make no job one of PyTorch.
TEST(Source, WhatTheJobIsSaysWhatMayBeAdvised) {
  Job plain = Simulate(Small());
  EXPECT_FALSE(analysis::SourceOf(plain.timeline).torch);
  EXPECT_EQ(analysis::SourceOf(plain.timeline).imported, "");
  AddMeta(plain.timeline.tables, "fact.gradients", "from=0\tbytes=1,2");
  EXPECT_FALSE(analysis::SourceOf(plain.timeline).torch);
  Job torch = Simulate(Small());
  AddMeta(torch.timeline.tables, "fact.torch_backend", "name=nccl\trecorded=1");
  EXPECT_TRUE(analysis::SourceOf(torch.timeline).torch);
  Job imported = Simulate(Small());
  AddMeta(imported.timeline.tables, "imported", "kineto");
  EXPECT_TRUE(analysis::SourceOf(imported.timeline).torch);
  EXPECT_EQ(analysis::SourceOf(imported.timeline).imported, "kineto");
}

}  // namespace
}  // namespace lockstep::test
