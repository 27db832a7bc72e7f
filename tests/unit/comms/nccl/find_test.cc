// Programs that look for NCCL, the real libnccl without a driver, and NCCL's own NVTX ranges.

#include <gtest/gtest.h>

#include <sstream>

#include "tests/unit/comms/nccl/nccl_run.h"

namespace lockstep::nccl {
namespace {

TEST(NcclFind, AnAbsentNcclAnswersThatItCannotWork) {
  probe::TestSegment segment;
  const Output output = Traced(segment, kFind, {"absent"});
  EXPECT_EQ(output.out, "version 0\nanswer 2\nanswer 2\n");
  EXPECT_EQ(output.errors, "");
  EXPECT_EQ(output.status, 0);
}

TEST(NcclFind, ALibraryThatIsLoadedForItsUserAlone) {
  probe::TestSegment segment;
  const Output output = Traced(segment, kFind, {"local", std::string(kFakeDir) + "/libnccl.so.2"});
  EXPECT_EQ(output.out, "result 0\nresult 0\n");
  const NcclRecords records(segment);
  // One by name, through us; one by the library's handle, which only the plugin sees.
  EXPECT_EQ(records.CallsOf("ncclAllReduce").size(), 1u);
  EXPECT_EQ(records.Of(NcclEvent::kCollective).size(), 2u);
  EXPECT_EQ(records.CallsOf("ncclAllReduce")[0].record.comm, records.comms[0].record.comm);
}

TEST(NcclRanges, CommunicatorsAndCallsOfAStaticNccl) {
#ifndef LOCKSTEP_REAL_NVTX
  GTEST_SKIP() << "no NVTX headers on this machine";
#else
  probe::TestSegment segment;
  const std::vector<std::string> env{std::string("NVTX_INJECTION64_PATH=") + probe::kProbe};
  const Output output = Traced(segment, LOCKSTEP_BUILD_DIR "/tests/nccl_ranges", {"calls"}, kNeither, env);
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(output.errors, "");
  const NcclRecords records(segment);
  ASSERT_EQ(records.comms.size(), 3u);
  EXPECT_EQ(records.comms[0].record.id, 0xa1u);
  EXPECT_EQ(records.comms[0].record.size, 8u);
  EXPECT_EQ(records.comms[0].record.rank, 5);
  EXPECT_EQ(records.comms[0].record.device, 2);
  EXPECT_EQ(records.comms[0].flags, static_cast<int>(NcclSource::kNvtx));
  EXPECT_EQ(records.comms[1].record.id, 0xb2u);
  EXPECT_EQ(records.comms[1].record.parent, 0xa1u);
  EXPECT_EQ(records.comms[1].record.rank, 1);
  EXPECT_EQ(records.comms[2].record.id, 0xc3u);
  EXPECT_EQ(records.comms[2].record.rank, -1);
  const std::uint32_t a = records.comms[0].record.comm, b = records.comms[1].record.comm,
                      c = records.comms[2].record.comm;
  struct Expected {
    const char* name;
    std::uint32_t comm;
    std::uint64_t bytes, seq;
    int peer;
    std::uint8_t reduction;
  };
  const Expected expected[] = {{"ncclAllReduce", a, 4096, 0, -1, 1},    {"ncclAllReduce", a, 4096, 1, -1, 1},
                               {"ncclAllReduce", a, 4096, 2, -1, 1},    {"ncclSend", b, 32, 0, 3, 0},
                               {"ncclAllReduce", b, 64, 0, -1, 3},      {"ncclAllReduce", c, 1, 0, -1, 6},
                               {"ncclAllReduce", kNoComm, 77, 0, -1, 5}};
  ASSERT_EQ(records.calls.size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const auto& call = records.calls[i];
    EXPECT_EQ(call.name, expected[i].name) << i;
    EXPECT_EQ(call.record.comm, expected[i].comm) << i;
    EXPECT_EQ(call.record.count, expected[i].bytes) << i;
    EXPECT_EQ(call.record.seq, expected[i].seq) << i;
    EXPECT_EQ(call.record.peer, expected[i].peer) << i;
    EXPECT_EQ(call.record.reduction, expected[i].reduction) << i;
    EXPECT_LT(call.record.begin_ticks, call.record.end_ticks) << i;
  }
  // The ranges themselves are there as ever.
  EXPECT_EQ(probe::RangesOf(segment).size(), 12u);

  probe::TestSegmentOptions options;
  options.recording = false;
  probe::TestSegment windows(options);
  windows.header().window.kind = WindowKind::kManual;
  Traced(windows, LOCKSTEP_BUILD_DIR "/tests/nccl_ranges", {"windows"}, kNeither, env);
  const NcclRecords some(windows);
  ASSERT_EQ(some.calls.size(), 1u);
  EXPECT_EQ(some.calls[0].record.seq, 4u);
#endif
}

TEST(NcclFind, OneThatIsInsideALibraryLoadedForItsUserAlone) {
  probe::TestSegment segment;
  const Output output = Traced(segment, kFind, {"inside", LOCKSTEP_BUILD_DIR "/tests/libuses_nccl.so"});
  EXPECT_EQ(output.out, "result 0\n");
  EXPECT_EQ(output.errors, "");
  const NcclRecords records(segment);
  ASSERT_EQ(records.CallsOf("ncclAllReduce").size(), 1u);
  EXPECT_EQ(records.CallsOf("ncclAllReduce")[0].record.reduction, 4);
  EXPECT_EQ(records.Of(NcclEvent::kCollective).size(), 1u);

  // Each caller reaches its own of two.
  probe::TestSegment both;
  const Output two = Traced(
      both, kFind, {"inside", LOCKSTEP_BUILD_DIR "/tests/libuses_nccl.so", std::string(kFakeDir) + "/libnccl.so.2"});
  EXPECT_EQ(two.out, "other 4\nresult 0\n");
}

// NCCL's own ranges, where neither the plugin nor the interposed functions see its calls.
TEST(NcclFind, TheRealLibrarysRangesAreItsCalls) {
#ifndef LOCKSTEP_NCCL_LIBRARY
  GTEST_SKIP() << "no libnccl.so.2 on this machine";
#else
  probe::TestSegment unused, segment;
  const std::string library = LOCKSTEP_NCCL_LIBRARY;
  const Output bare = Traced(unused, kFind, {"ranges", library}, kBare);
  const Output output =
      Traced(segment, kFind, {"ranges", library}, kNeither, {std::string("NVTX_INJECTION64_PATH=") + probe::kProbe});
  EXPECT_EQ(output.out, bare.out);
  EXPECT_EQ(output.errors, bare.errors);
  const NcclRecords records(segment);
  struct Expected {
    CollectiveKind function;
    std::uint8_t direction, reduction;
    int peer;
  };
  const std::map<std::string, Expected> expected{{"ncclAllGather", {CollectiveKind::kAllGather, 0, 0, -1}},
                                                 {"ncclAlltoAll", {CollectiveKind::kAllToAll, 0, 0, -1}},
                                                 {"ncclAllReduce", {CollectiveKind::kAllReduce, 0, 4, -1}},
                                                 {"ncclReduceScatter", {CollectiveKind::kReduceScatter, 0, 4, -1}},
                                                 {"ncclBroadcast", {CollectiveKind::kBroadcast, 0, 0, 3}},
                                                 {"ncclGather", {CollectiveKind::kGather, 0, 0, 3}},
                                                 {"ncclScatter", {CollectiveKind::kScatter, 0, 0, 3}},
                                                 {"ncclReduce", {CollectiveKind::kReduce, 0, 3, 1}},
                                                 {"ncclSend", {CollectiveKind::kSendRecv, 0, 0, 6}},
                                                 {"ncclRecv", {CollectiveKind::kSendRecv, 1, 0, 6}}};
  EXPECT_GE(records.calls.size(), 7u);  // Older ones have no AlltoAll, Gather, Scatter.
  for (const auto& call : records.calls) {
    ASSERT_EQ(expected.count(call.name), 1u) << call.name;
    const Expected& what = expected.at(call.name);
    EXPECT_EQ(call.flags, static_cast<int>(NcclSource::kNvtx));
    EXPECT_EQ(call.record.function, static_cast<int>(what.function)) << call.name;
    EXPECT_EQ(call.record.direction, what.direction) << call.name;
    EXPECT_EQ(call.record.reduction, what.reduction) << call.name;
    EXPECT_EQ(call.record.peer, what.peer) << call.name;
    EXPECT_EQ(call.record.count, 16u) << call.name;
    EXPECT_EQ(call.record.comm, kNoComm);
    EXPECT_EQ(call.record.dtype, static_cast<int>(DataType::kByte));
  }
  EXPECT_EQ(segment.view().processes()[0].nccl_used.load(), 4u);
#endif
}

TEST(NcclFind, TheRealLibraryWithoutADriver) {
#ifndef LOCKSTEP_NCCL_LIBRARY
  GTEST_SKIP() << "no libnccl.so.2 on this machine";
#else
  probe::TestSegment unused, segment;
  const std::string library = LOCKSTEP_NCCL_LIBRARY;
  const Output bare = Traced(unused, kFind, {"real", library}, kBare);
  const Output output = Traced(segment, kFind, {"real", library});
  EXPECT_NE(bare.out.find("id 0\n"), std::string::npos);
  EXPECT_EQ(output.out, bare.out);
  EXPECT_EQ(output.errors, bare.errors);
  EXPECT_EQ(output.status, bare.status);
  const NcclRecords records(segment);
  ASSERT_EQ(records.CallsOf("ncclCommInitRank").size(), 1u);
  std::istringstream words(bare.out.substr(bare.out.find("init ") + 5));
  int result = -1;
  words >> result;
  EXPECT_EQ(records.CallsOf("ncclCommInitRank")[0].record.result, result);
  ASSERT_EQ(records.CallsOf("ncclCommInitAll").size(), 1u);
  EXPECT_NE(records.CallsOf("ncclCommInitAll")[0].record.result, 0);
  for (const auto& [word, function] : {std::pair{"signal ", "ncclSignal"}, std::pair{"config ", "ncclAllReduceConfig"}})
    EXPECT_EQ(records.CallsOf(function).size(), bare.out.find(word) == std::string::npos ? 0u : 1u) << function;
#endif
}

}  // namespace
}  // namespace lockstep::nccl
