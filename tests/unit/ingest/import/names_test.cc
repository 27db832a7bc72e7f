// What names and arguments of traces mean.

#include "ingest/map/names.h"

#include <gtest/gtest.h>

#include "core/operation_name.h"
#include "ingest/inputs.h"
#include "ingest/map/args.h"

namespace lockstep::ingest {
namespace {

TEST(ImportNames, RuntimeCalls) {
  for (const char* launch : {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchKernelExC_v11060", "cuLaunchKernel",
                             "cuLaunchKernelEx", "cudaLaunchCooperativeKernel", "hipLaunchKernel",
                             "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipExtLaunchKernel"})
    EXPECT_EQ(ApiKind(launch), 1) << launch;
  for (const char* copy : {"cudaMemcpyAsync", "hipMemcpyWithStream", "cudaMemsetAsync", "cuMemcpyHtoDAsync_v2"})
    EXPECT_EQ(ApiKind(copy), 2) << copy;
  for (const char* sync :
       {"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize"})
    EXPECT_EQ(ApiKind(sync), 3) << sync;
  EXPECT_EQ(ApiKind("cudaGraphLaunch"), 4);
  EXPECT_EQ(ApiKind("cudaMalloc"), 5);
  EXPECT_EQ(ApiKind("hipFree"), 5);
  EXPECT_EQ(ApiKind("cudaEventRecordWithFlags"), 6);
  EXPECT_EQ(ApiKind("cudaStreamWaitEvent"), 6);
  EXPECT_EQ(ApiKind("cudaLaunchHostFunc"), 0);
  EXPECT_EQ(ApiKind("cudaStreamIsCapturing"), 0);
}

TEST(ImportNames, Copies) {
  EXPECT_EQ(CopyKindOf("Memcpy HtoD (Pageable -> Device)", "").kind, 1);
  EXPECT_EQ(CopyKindOf("Memcpy HtoD (Pageable -> Device)", "").host_memory, 1);
  EXPECT_EQ(CopyKindOf("Memcpy DtoH (Device -> Pinned)", "").kind, 2);
  EXPECT_EQ(CopyKindOf("Memcpy DtoH (Device -> Pinned)", "").host_memory, 2);
  EXPECT_EQ(CopyKindOf("Memcpy DtoD (Device -> Device)", "").kind, 3);
  EXPECT_EQ(CopyKindOf("Memcpy PtoP (Device -> Device)", "").kind, 4);
  EXPECT_EQ(CopyKindOf("CopyHostToDevice", "").kind, 1);
  EXPECT_EQ(CopyKindOf("Copy", "\"DtoH\"").kind, 2);
  EXPECT_EQ(CopyKindOf("Memset (Device)", "").kind, 6);
}

TEST(ImportNames, Steps) {
  for (const char* step : {"step 12", "Train Step", "iteration=3", "ProfilerStep#12", "batch_7"})
    EXPECT_GE(StepWord(step), 0) << step;
  for (const char* other : {"stepping", "aten::step", "load", "steps of the whole epoch", ""})
    EXPECT_EQ(StepWord(other), -1) << other;
}

TEST(ImportNames, RangesOfEmitNvtx) {
  const auto is = [](std::string_view text, std::string_view name, std::int64_t sequence, std::string_view sizes,
                     bool emitted, bool is_operator) {
    const EmittedRange range = EmittedRangeOf(text);
    EXPECT_EQ(range.name, name) << text;
    EXPECT_EQ(range.sequence, sequence) << text;
    EXPECT_EQ(range.sizes, sizes) << text;
    EXPECT_EQ(range.emitted, emitted) << text;
    EXPECT_EQ(range.is_operator(), is_operator) << text;
  };
  is("aten::mm", "aten::mm", -1, "", false, true);
  is("aten::mm, seq = 12", "aten::mm", 12, "", true, true);
  is("aten::copy_, op_id = 991065", "aten::copy_", -1, "", true, true);
  is("aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]], input_op_ids = [[(33, 0)], []]", "aten::mm", 12,
     "[[2, 3], [3, 4]]", true, true);
  is("MyFunctionBackward, stashed seq = 4, sizes = [[]]", "MyFunctionBackward", 4, "[[]]", true, true);
  // Of record_function(), and of others.
  is("forward, op_id = 5", "forward", -1, "", true, false);
  is("Optimizer.step#Adam.step, op_id = 5, sizes = []", "Optimizer.step#Adam.step", -1, "[]", true, false);
  is("FSDP::pre_forward (blocks.3), op_id = 5", "FSDP::pre_forward (blocks.3)", -1, "", true, false);
  is("record_param_comms, op_id = 5", "record_param_comms", -1, "", true, true);
  is("flash_attn::_flash_attn_forward, op_id = 5", "flash_attn::_flash_attn_forward", -1, "", true, true);
  is("solve, tol = 1", "solve, tol = 1", -1, "", false, false);
  is("seq = 12", "seq = 12", -1, "", false, false);
  is("ns::solve", "ns::solve", -1, "", false, false);
  is("a, seq = x, op_id = 7", "a, seq = x", -1, "", true, false);
  is("", "", -1, "", false, false);
}

TEST(ImportNames, ElementTypes) {
  for (const char* name : {"Float", "float", "c10::Float"})
    EXPECT_EQ(ElementTypeOf(name).type, DataType::kFloat32) << name;
  EXPECT_EQ(ElementTypeOf("c10::BFloat16").bytes, 2u);
  EXPECT_EQ(ElementTypeOf("long int").bytes, 8u);
  EXPECT_EQ(ElementTypeOf("ComplexDouble").bytes, 16u);
  EXPECT_EQ(ElementTypeOf("Float8_e5m2fnuz").type, DataType::kFloat8e5m2);
  // What NVTX tells of a message is known, and the same as when Lockstep recorded it.
  EXPECT_EQ(ElementTypeOf("bytes").type, DataType::kByte);
  EXPECT_EQ(ElementTypeOf("bytes").bytes, 1u);
  EXPECT_EQ(ElementTypeOf("Quaternion").type, DataType::kUnknown);
  EXPECT_EQ(ElementTypeOf("Quaternion").bytes, 0u);
}

TEST(ImportNames, Operations) {
  for (const char* name : {"allreduce", "nccl:all_reduce", "allreduce_coalesced", "allreduce_sparse", "gloo:all_reduce",
                           "gloo:sparse_all_reduce"})
    EXPECT_EQ(KindOfOperation(name), CollectiveKind::kAllReduce) << name;
  for (const char* name :
       {"all_gather", "_allgather_base", "nccl:_all_gather_base", "all_gather_into_tensor_coalesced"})
    EXPECT_EQ(KindOfOperation(name), CollectiveKind::kAllGather) << name;
  for (const char* name : {"reduce_scatter", "_reduce_scatter_base", "nccl:reduce_scatter_tensor_coalesced"})
    EXPECT_EQ(KindOfOperation(name), CollectiveKind::kReduceScatter) << name;
  EXPECT_EQ(KindOfOperation("all_to_allv"), CollectiveKind::kAllToAll);
  EXPECT_EQ(KindOfOperation("nccl:all_reduce_barrier"), CollectiveKind::kBarrier);
  EXPECT_EQ(KindOfOperation("_broadcast_oop"), CollectiveKind::kBroadcast);
  EXPECT_EQ(KindOfOperation("reduce"), CollectiveKind::kReduce);
  EXPECT_EQ(KindOfOperation("gather"), CollectiveKind::kGather);
  for (const char* name : {"wait", "init", "send", "recv", "coalesced", "startCoalescing", ""})
    EXPECT_EQ(KindOfOperation(name), CollectiveKind::kNone) << name;
  EXPECT_EQ(DirectionOfOperation("send"), 0);
  EXPECT_EQ(DirectionOfOperation("nccl:recv 0<-1"), 1);
  EXPECT_EQ(DirectionOfOperation("nccl:all_reduce"), -1);
  EXPECT_EQ(PeerOf("nccl:send 0->13"), 13);
  EXPECT_EQ(PeerOf("nccl:recv 0<-1"), 1);
  EXPECT_EQ(PeerOf("nccl:recv"), -1);
}

TEST(ImportNames, RangesAndSteps) {
  EXPECT_EQ(RangeCategory("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"), 1);
  EXPECT_EQ(RangeCategory("DistributedDataParallel.forward"), 2);
  EXPECT_EQ(RangeCategory("## forward ##"), 2);
  EXPECT_EQ(RangeCategory("autograd::engine::evaluate_function: MmBackward0"), 3);
  EXPECT_EQ(RangeCategory("## backward ##"), 3);
  EXPECT_EQ(RangeCategory("Optimizer.zero_grad#Adam.zero_grad"), 4);
  EXPECT_EQ(RangeCategory("aten::backward"), 0);
  EXPECT_EQ(RangeCategory("my forward thinking label"), 0);
  EXPECT_EQ(StepNumber("ProfilerStep#12"), 12);
  EXPECT_EQ(StepNumber("ProfilerStep#"), -1);
  EXPECT_EQ(StepNumber("ProfilerStep#1x"), -1);
  EXPECT_EQ(StepNumber("ProfilerStep#99999999999999999999"), -1);
}

TEST(ImportArgs, CursorSurvivesAnything) {
  const std::string text = R"({"a": 1, "b": "x\"y", "c": [1, {"d": "]"}], "e": {"f": 2}, "g": null})";
  ArgsCursor cursor(text);
  std::string_view key, value;
  std::vector<std::pair<std::string, std::string>> seen;
  while (cursor.Next(key, value)) seen.emplace_back(key, value);
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[1].second, R"("x\"y")");
  EXPECT_EQ(seen[2].second, R"([1, {"d": "]"}])");
  EXPECT_EQ(seen[4].second, "null");
  EXPECT_EQ(ArgOf(text, "e"), R"({"f": 2})");
  EXPECT_EQ(ArgOf(text, "f"), "");
  // Cut anywhere it ends, and what was whole before is there.
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    ArgsCursor part(std::string_view(text).substr(0, cut));
    std::size_t n = 0;
    while (part.Next(key, value)) ++n;
    EXPECT_LE(n, 5u);
  }
}

TEST(ImportArgs, Values) {
  EXPECT_EQ(IntOf("12", -1), 12);
  EXPECT_EQ(IntOf("\"12\"", -1), 12);
  EXPECT_EQ(IntOf("12.9", -1), 12);
  EXPECT_EQ(IntOf("1e9", -1), -1);
  EXPECT_EQ(IntOf("99999999999999999999", -1), -1);
  EXPECT_EQ(UnsignedOf("18446744073709551615", 0), UINT64_MAX);
  bool cut = false;
  EXPECT_EQ(IntsOf("\"[0, 8, 16]\"", &cut), (std::vector<std::int64_t>{0, 8, 16}));
  EXPECT_FALSE(cut);
  EXPECT_EQ(IntsOf("[0, 1, ...]", &cut), (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(cut);
  EXPECT_TRUE(IntsOf("[]").empty());
  std::string scratch;
  EXPECT_EQ(TextOf(R"("a\u00e9\n")", scratch), "a\xc3\xa9\n");
}

TEST(ImportInputs, RankOfName) {
  EXPECT_EQ(RankOfName("a/trace_8_rank_1.json").rank, 1);
  EXPECT_EQ(RankOfName("rank-3.pt.trace.json.gz").rank, 3);
  EXPECT_EQ(RankOfName("x/rank_12/host.json").rank, 12);
  EXPECT_EQ(RankOfName("worker3_step_12.1694128201557.pt.trace.json.gz").rank, 3);
  EXPECT_TRUE(RankOfName("RANK07.json").certain);
  EXPECT_EQ(RankOfName("job_5.json").rank, 5);
  EXPECT_FALSE(RankOfName("job_5.json").certain);
  EXPECT_EQ(RankOfName("host_77.1694128201557.pt.trace.json").rank, -1);
  EXPECT_EQ(RankOfName("trace.json").rank, -1);
}

TEST(ImportInputs, NaturalOrder) {
  EXPECT_TRUE(NaturalLess("rank2", "rank10"));
  EXPECT_FALSE(NaturalLess("rank10", "rank2"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_TRUE(NaturalLess("rank02", "rank2") != NaturalLess("rank2", "rank02"));
  EXPECT_FALSE(NaturalLess("x", "x"));
}

TEST(ImportInputs, PlannedRanks) {
  // Told ranks win whatever the order; the rest fill the gaps.
  auto plan = PlanRanks({{"a.json", 2, -1}, {"b.json", -1, -1}, {"c.json", 0, -1}, {"d.json", -1, -1}}, 4);
  EXPECT_EQ(plan[0].rank, 2);
  EXPECT_EQ(plan[1].rank, 1);
  EXPECT_EQ(plan[2].rank, 0);
  EXPECT_EQ(plan[3].rank, 3);
  EXPECT_TRUE(plan[0].told);
  EXPECT_FALSE(plan[1].told);
  plan = PlanRanks({{"a.json", 1, -1}, {"node7_2211.json", -1, -1}, {"b.json", 0, -1}}, 2);
  EXPECT_TRUE(plan[1].extra) << "a helper process of a job whose ranks are all there";
  EXPECT_FALSE(plan[0].extra || plan[2].extra);
  plan = PlanRanks({{"a.json", 1, -1}, {"b.json", -1, -1}, {"c.json", -1, -1}}, 2);
  EXPECT_FALSE(plan[1].extra || plan[2].extra) << "which of them is rank 0 is not known";
  // The first by name keeps a rank.
  plan = PlanRanks({{"a.json", 1, -1}, {"b.json", 1, -1}}, 2);
  EXPECT_EQ(plan[0].loser_to, -1);
  EXPECT_EQ(plan[1].loser_to, 0);
  // Process ids are no ranks.
  plan = PlanRanks({{"h_4711.json", -1, -1}, {"h_4712.json", -1, -1}}, 0);
  EXPECT_EQ(plan[0].rank, 0);
  EXPECT_EQ(plan[1].rank, 1);
  // A name's rank that is taken does not throw the file away.
  // Which rank is left is known if the others are all of the others.
  EXPECT_FALSE(PlanRanks({{"a.json", 1, -1}, {"b.json", -1, -1}}, 2)[1].guessed);
  EXPECT_FALSE(PlanRanks({{"a.json", -1, -1}}, 0)[0].guessed);
  EXPECT_TRUE(PlanRanks({{"a.json", 5, -1}, {"b.json", -1, -1}}, 0)[1].guessed);
  EXPECT_TRUE(PlanRanks({{"a.json", 0, -1}, {"b.json", 0, -1}, {"c.json", -1, -1}}, 3)[2].guessed);
  EXPECT_TRUE(PlanRanks({{"a.json", 0, -1}, {"b.json", -1, -1}}, 4)[1].guessed);
  plan = PlanRanks({{"rank_0.json", 5, -1}, {"x/rank_5.json", -1, -1}}, 0);
  EXPECT_EQ(plan[0].rank, 5);
  EXPECT_EQ(plan[1].rank, 0);
  EXPECT_EQ(plan[1].loser_to, -1);
}

}  // namespace
}  // namespace lockstep::ingest
