// What hooks report: facts, samples of memory, their steps.

#include "core/collective.h"
#include "core/fact.h"
#include "decode_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;

class Facts : public DecodeTest {};

TEST(FactLine, Parts) {
  constexpr std::string_view kLine = "torch\tversion=1.13\tcuda=a b\tempty=";
  EXPECT_EQ(FactName(kLine), "torch");
  EXPECT_EQ(FactRest(kLine), "version=1.13\tcuda=a b\tempty=");
  EXPECT_EQ(FactValue(kLine, "cuda"), "a b");
  EXPECT_EQ(FactValue(FactRest(kLine), "version"), "1.13");
  EXPECT_EQ(FactValue(kLine, "empty"), "");
  EXPECT_EQ(FactValue(kLine, "cud"), "");
  EXPECT_EQ(FactValue("", "x"), "");
  EXPECT_EQ(FactRest("alone"), "");
}

TEST_F(Facts, BucketsBecomeRows) {
  const auto tables = TablesOf(
      ThreadRecords()
          .Text(RecordKind::kFact, 0,
                "ddp_bucket\tmodel=1\tbucket=0\tbytes=1050624\tcap=26214400\tdtype=float32\trebuilt=1\tparameters=3 2")
          .Text(RecordKind::kFact, 0, "ddp_bucket\tmodel=1\tbucket=1\tbytes=64\tdtype=complex64\tparameters="));
  const auto& b = tables.gradient_buckets;
  ASSERT_EQ(b.rows(), 2u);
  EXPECT_EQ(b.model[0], 1u);
  EXPECT_EQ(b.bucket[1], 1u);
  EXPECT_EQ(b.bytes[0], 1050624u);
  EXPECT_EQ(b.cap_bytes[0], 26214400u);
  EXPECT_EQ(b.dtype[0], static_cast<std::uint16_t>(DataType::kFloat32));
  EXPECT_EQ(b.dtype[1], static_cast<std::uint16_t>(DataType::kUnknown));
  EXPECT_EQ(TextOf(tables, b.parameters[0]), "3 2");
  EXPECT_EQ(b.parameters[1], kNone);
  EXPECT_EQ(b.rebuilt[0], 1);
  EXPECT_EQ(b.rebuilt[1], 0);
}

TEST_F(Facts, UnknownOnesBecomeMeta) {
  const auto tables = TablesOf(ThreadRecords()
                                   .Text(RecordKind::kFact, 0, "torch\tversion=2.11")
                                   .Text(RecordKind::kFact, 0, "seen")
                                   .Text(RecordKind::kFact, 0, "torch\tversion=9"));
  EXPECT_EQ(MetaOf(tables, "fact.torch"), "version=2.11");
  EXPECT_EQ(MetaOf(tables, "fact.torch.2"), "version=9");
  EXPECT_EQ(MetaOf(tables, "fact.seen"), "");
}

TEST_F(Facts, WhatIsMissingIsALoss) {
  const auto tables =
      TablesOf(ThreadRecords()
                   .Text(RecordKind::kFact, 0, "python_isolated")
                   .Text(RecordKind::kFact, 0, "torch_unhooked\twhat=the hooks failed: x")
                   .Text(RecordKind::kFact, 0, "mpi_unrecorded\tlibrary=libmpi.so\twhy=it was not there")
                   .Text(RecordKind::kFact, 0, "torch_hook_missing\tpart=DataLoader\twhy=AttributeError: x", 1)
                   .Text(RecordKind::kFact, 0, ""));
  EXPECT_EQ(LossCount(tables, "PythonIsolated"), 1u);
  EXPECT_EQ(LossCount(tables, "BackendNotCaptured"), 1u);
  EXPECT_EQ(MetaOf(tables, "fact.mpi_unrecorded"), "library=libmpi.so\twhy=it was not there");
  EXPECT_EQ(LossCount(tables, "TorchUnhooked"), 1u);
  EXPECT_EQ(LossCount(tables, "TorchHook"), 1u);
  EXPECT_EQ(LossCount(tables, "StringTruncated"), 1u);
  EXPECT_EQ(LossCount(tables, "UnknownRecord"), 1u);
}

TEST_F(Facts, MemorySamples) {
  const auto tables = TablesOf(ThreadRecords().Add(MemoryRecord{{RecordKind::kMemory, 3, 1}, 65535, 500, 123, 456}));
  ASSERT_EQ(tables.gpu_memory.rows(), 1u);
  EXPECT_EQ(tables.gpu_memory.device[0], 65535);
  EXPECT_EQ(tables.gpu_memory.kind[0], 3);
  EXPECT_EQ(tables.gpu_memory.allocated_bytes[0], 123u);
  EXPECT_EQ(tables.gpu_memory.reserved_bytes[0], 456u);
}

ThreadRecords ThreeHookSteps() {
  return ThreadRecords().String(1, "backward").Step(0, 100, 1, 2).Step(1, 200, 2, 2).Step(2, 300, 3, 2);
}
RangeRecord TorchRange(std::uint8_t category, std::uint64_t begin) {
  return {{RecordKind::kRange, static_cast<std::uint8_t>(2 | category << 4), 1}, 1, begin, begin + 5, 0, 0, 0};
}

TEST_F(Facts, TheStepAfterTheLastOptimizerIsNone) {
  const auto tables = TablesOf(ThreeHookSteps().Add(TorchRange(3, 250)).Add(TorchRange(1, 350)));
  EXPECT_EQ(tables.steps.index, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(LossCount(tables, "StepIncomplete"), 0u);
}

TEST_F(Facts, ButOneThatTrainedAndWasCutIs) {
  const auto tables = TablesOf(ThreeHookSteps().Add(TorchRange(3, 350)));
  EXPECT_EQ(tables.steps.index, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(tables.steps.complete[2], 0);
}

}  // namespace
}  // namespace lockstep::trace
