// NCCL's functions interposed, under a fake libnccl that calls the profiler as the real one
// does.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/schema_enums.h"
#include "tests/unit/comms/nccl/nccl_run.h"

namespace lockstep::nccl {
namespace {

// Calls of one function with their communicator's own record.
std::map<std::uint32_t, NcclRecords::Comm> CommsOf(const NcclRecords& records) {
  std::map<std::uint32_t, NcclRecords::Comm> comms;
  for (const auto& comm : records.comms)
    if ((comm.flags & 64) == 0) comms.emplace(comm.record.comm, comm);
  return comms;
}

// RCCL calls the same functions and interfaces; only its library says that the GPUs are AMD's.
TEST(RcclCalls, TheSameRecordsAndTheVendor) {
  for (const int version : {5, 7}) {  // 7: RCCL takes its newest, 6.
    const std::vector<std::string> env{"FAKE_NCCL_PROFILER=" + std::to_string(version)};
    probe::TestSegment unused, nccl, rccl;
    const Output bare = Traced(unused, kRcclCalls, {"all"}, kBare, env);
    Traced(nccl, kCalls, {"all"}, kBoth, {"FAKE_NCCL_PROFILER=" + std::to_string(std::min(version, 6))});
    const Output output = Traced(rccl, kRcclCalls, {"all"}, kBoth, env);
    EXPECT_EQ(output.out, bare.out);
    EXPECT_EQ(output.errors, bare.errors);
    EXPECT_EQ(nccl.view().processes()[0].gpu_vendor.load(), 0);
    EXPECT_EQ(rccl.view().processes()[0].gpu_vendor.load(), schema::Vendor::kAmd);
    const NcclRecords expected(nccl), found(rccl);
    ASSERT_EQ(found.begins.size(), expected.begins.size());
    for (std::size_t i = 0; i < found.begins.size(); ++i) {
      EXPECT_EQ(found.begins[i].record.count, expected.begins[i].record.count);
      EXPECT_EQ(found.begins[i].record.function, expected.begins[i].record.function);
    }
    EXPECT_FALSE(found.Of(NcclEvent::kCollective).empty());
  }
}

class NcclCalls : public testing::TestWithParam<int> {
 protected:
  std::vector<std::string> env() const { return {"FAKE_NCCL_PROFILER=" + std::to_string(GetParam())}; }
};
INSTANTIATE_TEST_SUITE_P(Versions, NcclCalls, testing::Values(4, 5, 6, 7));

TEST_P(NcclCalls, TheSameWithAndWithoutLockstep) {
  for (const char* scenario : {"all", "alone", "init-all", "grouped", "nonblocking", "split", "graph", "unseen",
                               "threads", "copies", "newer"}) {
    probe::TestSegment unused, segment;
    const Output bare = Traced(unused, kCalls, {scenario}, kBare, env());
    EXPECT_EQ(WEXITSTATUS(bare.status), 3) << scenario;
    for (const int sources : {kPlugin, kInterposed, kBoth}) {
      probe::TestSegment traced;
      const Output output = Traced(traced, kCalls, {scenario}, sources, env());
      EXPECT_EQ(output.out, bare.out) << scenario;
      EXPECT_EQ(output.errors, bare.errors) << scenario;
      EXPECT_EQ(output.status, bare.status) << scenario;
      EXPECT_EQ(traced.view().processes()[0].nccl_used.load(), static_cast<unsigned>(sources)) << scenario;
    }
  }
}

TEST_P(NcclCalls, EveryFunctionWithWhatItSays) {
  for (const int sources : {kInterposed, kBoth}) {
    probe::TestSegment segment;
    Traced(segment, kCalls, {"all"}, sources, env());
    const NcclRecords records(segment);
    const auto comms = CommsOf(records);
    ASSERT_EQ(comms.size(), 1u);
    const auto& comm = comms.begin()->second;
    EXPECT_EQ(comm.name, "world");
    EXPECT_EQ(comm.record.size, 4u);
    EXPECT_EQ(comm.record.rank, 1);
    EXPECT_EQ(comm.flags, sources == kBoth ? 1 : 2);
    struct Expected {
      const char* name;
      CollectiveKind function;
      std::uint8_t direction, dtype, reduction;
      std::uint64_t count;
      int peer;
      std::uint64_t seq;
    };
    constexpr auto kF32 = static_cast<std::uint8_t>(DataType::kFloat32);
    constexpr auto kF64 = static_cast<std::uint8_t>(DataType::kFloat64);
    const Expected expected[] = {
        {"ncclCommInitRankConfig", CollectiveKind::kNone, 0, 0, 0, 0, -1, 0},
        {"ncclAllReduce", CollectiveKind::kAllReduce, 0, kF32, 1, 100, -1, 0},
        {"ncclAllReduce", CollectiveKind::kAllReduce, 0, kF32, 5, 100, -1, 1},
        {"ncclAllGather", CollectiveKind::kAllGather, 0, kF64, 0, 10, -1, 0},
        {"ncclReduceScatter", CollectiveKind::kReduceScatter, 0, kF32, 3, 11, -1, 0},
        {"ncclBroadcast", CollectiveKind::kBroadcast, 0, kF32, 0, 12, 2, 0},
        {"ncclBcast", CollectiveKind::kBroadcast, 0, kF32, 0, 13, 1, 1},
        {"ncclReduce", CollectiveKind::kReduce, 0, kF32, 2, 14, 3, 0},
        {"ncclAlltoAll", CollectiveKind::kAllToAll, 0, kF32, 0, 15, -1, 0},
        {"ncclGather", CollectiveKind::kGather, 0, kF32, 0, 16, 2, 0},
        {"ncclScatter", CollectiveKind::kScatter, 0, kF32, 0, 17, 2, 0},
        {"ncclGroupStart", CollectiveKind::kNone, 0, 0, 0, 0, -1, 0},
        {"ncclSend", CollectiveKind::kSendRecv, 0, kF32, 0, 18, 1, 0},
        {"ncclRecv", CollectiveKind::kSendRecv, 1, kF32, 0, 19, 3, 0},
        {"ncclGroupEnd", CollectiveKind::kNone, 0, 0, 0, 0, -1, 0},
        {"ncclRedOpCreatePreMulSum", CollectiveKind::kNone, 0, kF32, 0, 0, -1, 0},
        {"ncclAllReduce", CollectiveKind::kAllReduce, 0, kF32, 6, 20, -1, 2},
        {"ncclRedOpDestroy", CollectiveKind::kNone, 0, 0, 0, 0, -1, 0},
        {"ncclCommFinalize", CollectiveKind::kNone, 0, 0, 0, 0, -1, 0},
        {"ncclCommDestroy", CollectiveKind::kNone, 0, 0, 0, 0, -1, 0},
    };
    ASSERT_EQ(records.calls.size(), std::size(expected));  // Bcast's own Broadcast is not one.
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < std::size(expected); ++i) {
      const auto& call = records.calls[i];
      EXPECT_EQ(call.name, expected[i].name);
      EXPECT_EQ(call.flags, static_cast<int>(NcclSource::kInterposed));
      EXPECT_EQ(call.record.function, static_cast<int>(expected[i].function)) << call.name;
      EXPECT_EQ(call.record.direction, expected[i].direction) << call.name;
      EXPECT_EQ(call.record.dtype, expected[i].dtype) << call.name;
      EXPECT_EQ(call.record.reduction, expected[i].reduction) << call.name;
      EXPECT_EQ(call.record.count, expected[i].count) << call.name;
      EXPECT_EQ(call.record.peer, expected[i].peer) << call.name;
      EXPECT_EQ(call.record.seq, expected[i].seq) << call.name;
      EXPECT_EQ(call.record.result, 0) << call.name;
      EXPECT_GE(call.record.begin_ticks, last);
      EXPECT_GE(call.record.end_ticks, call.record.begin_ticks);
      last = call.record.end_ticks;
      const bool of_group = call.name.rfind("ncclGroup", 0) == 0;
      EXPECT_EQ(call.record.comm, of_group ? kNoComm : comm.record.comm) << call.name;
      if (expected[i].function != CollectiveKind::kNone) {
        EXPECT_EQ(call.record.stream, 0x51u);
        EXPECT_NE(call.record.buffer, 0u);
      }
    }
    // The plugin's events of an operation lie within its call, on the same thread.
    if (sources == kBoth) {
      const auto collectives = records.Of(NcclEvent::kCollective);
      ASSERT_EQ(collectives.size(), GetParam() >= 6 ? 6u : 8u) << "2.29.2 and later say nothing of broadcasts";
      EXPECT_GE(collectives[0].record.ticks, records.calls[1].record.begin_ticks);
      EXPECT_LE(collectives[0].record.ticks, records.calls[1].record.end_ticks);
      EXPECT_EQ(collectives[2].record.count, 80u);  // NCCL counts bytes there.
      EXPECT_EQ(collectives[2].record.dtype, static_cast<int>(DataType::kInt8));
      for (const auto& begin : records.begins) EXPECT_EQ(begin.record.comm, comm.record.comm);
      if (GetParam() >= 5) {
        std::vector<std::uint64_t> tags;
        for (const NcclEvent event : {NcclEvent::kCollectiveApi, NcclEvent::kP2pApi})
          for (const auto& api : records.Of(event))
            if (api.record.seq != 0) tags.push_back(api.record.seq);
        EXPECT_EQ(tags, GetParam() == 7 ? (std::vector<std::uint64_t>{41, 42}) : std::vector<std::uint64_t>());
        EXPECT_EQ(records.Of(NcclEvent::kCollectiveApi).size(), 8u);
      }
    }
  }
}

// Collectives that copy engines do are told from 2.29.2 on, with the calls around them.
TEST_P(NcclCalls, CollectivesByCopyEngines) {
  probe::TestSegment segment;
  auto copying = env();
  copying.emplace_back("FAKE_NCCL_COPY_ENGINES=1");
  Traced(segment, kCalls, {"copies"}, kBoth, copying);
  const NcclRecords records(segment);
  const auto copies = records.Of(NcclEvent::kCopyEngine);
  ASSERT_EQ(copies.size(), GetParam() >= 6 ? 8u : 0u);
  const auto api = records.Of(NcclEvent::kCollectiveApi);
  for (std::size_t i = 0; i < copies.size(); ++i) {
    EXPECT_EQ(copies[i].record.seq, 2 * i);
    EXPECT_EQ(records.EndsOf(copies[i].record.id), 1u);
    const auto parent = std::find_if(api.begin(), api.end(),
                                     [&](const auto& each) { return each.record.id == copies[i].record.parent; });
    ASSERT_NE(parent, api.end());
    EXPECT_EQ(parent->record.count, copies[i].record.count);
    EXPECT_EQ(parent->record.flags, i == 7 ? kNcclCaptured : 0);
    EXPECT_EQ(copies[i].name, parent->name);
  }
}

// The second window's times are its own, though works were not recorded between the windows.
TEST(NcclCallsState, KernelChannelsOfALaterWindowAreItsOwn) {
  probe::TestSegmentOptions options;
  options.recording = false;
  probe::TestSegment segment(options);
  segment.header().window.kind = WindowKind::kManual;
  segment.header().gpu_options = kNcclKernelChannels;
  const Output output = Traced(segment, kCalls, {"channels"}, kBoth, {"FAKE_NCCL_PROFILER=7"});
  const auto channels = NcclRecords(segment).Of(NcclEvent::kKernelChannel);
  ASSERT_EQ(channels.size(), 2u) << output.errors;
  const std::size_t second = output.out.find('\n') + 1;
  EXPECT_GE(channels[0].record.count, std::stoull(output.out));
  EXPECT_LT(channels[0].record.count, std::stoull(output.out.substr(second)));
  EXPECT_GE(channels[1].record.count, std::stoull(output.out.substr(second)));
}

TEST_P(NcclCalls, OneRankAndErrors) {
  probe::TestSegment segment;
  Traced(segment, kCalls, {"alone"}, kBoth, env());
  const NcclRecords records(segment);
  const auto comms = CommsOf(records);
  ASSERT_EQ(comms.size(), 1u);
  EXPECT_TRUE(records.begins.empty());
  const auto calls = records.CallsOf("ncclAllReduce");
  ASSERT_EQ(calls.size(), 8u);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(calls[i].record.comm, comms.begin()->first);
  EXPECT_EQ(calls[5].record.result, 4);
  EXPECT_EQ(calls[6].record.seq, 5u);  // The failed one was none.
  EXPECT_EQ(calls[7].record.comm, kNoComm);
  EXPECT_EQ(calls[7].record.result, 4);
  EXPECT_EQ(records.CallsOf("ncclCommInitRank")[1].record.result, 4);
}

TEST_P(NcclCalls, SeveralCommunicatorsOfOneCall) {
  for (const int sources : {kInterposed, kBoth}) {
    probe::TestSegment segment;
    Traced(segment, kCalls, {"init-all"}, sources, env());
    const NcclRecords records(segment);
    const auto comms = CommsOf(records);
    ASSERT_EQ(comms.size(), 4u);
    const auto calls = records.CallsOf("ncclAllReduce");
    ASSERT_EQ(calls.size(), 4u);
    std::set<std::uint64_t> ids;
    for (int i = 0; i < 4; ++i) {
      const auto& comm = comms.at(calls[static_cast<std::size_t>(i)].record.comm).record;
      EXPECT_EQ(comm.rank, i);
      EXPECT_EQ(comm.size, 4u);
      EXPECT_EQ(comm.device, sources == kBoth ? -1 : 3 - i);
      ids.insert(comm.id);
    }
    EXPECT_EQ(ids.size(), 1u);
    EXPECT_EQ(records.Of(NcclEvent::kCollective).size(), sources == kBoth ? 4u : 0u);
    EXPECT_EQ(records.CallsOf("ncclGroupStart").size(), 1u);  // The one within ncclCommInitAll is NCCL's.
  }
}

TEST_P(NcclCalls, CommunicatorsMadeInAGroupAreToldApart) {
  probe::TestSegment segment;
  Traced(segment, kCalls, {"grouped"}, kBoth, env());
  const NcclRecords records(segment);
  const auto comms = CommsOf(records);
  ASSERT_EQ(comms.size(), 2u);
  for (const auto& call : records.CallsOf("ncclAllReduce")) {
    const auto& comm = comms.at(call.record.comm);
    const bool second = call.record.count == 2 || call.record.count == 5;
    EXPECT_EQ(comm.record.rank, second ? 1 : 0);
    EXPECT_EQ(comm.name, second ? "named in a group" : "");
  }
  // Call and event name one communicator.
  for (const auto& coll : records.Of(NcclEvent::kCollective)) {
    if (coll.record.function != static_cast<int>(CollectiveKind::kAllReduce)) continue;
    const bool second = coll.record.count == 2 || coll.record.count == 5;
    EXPECT_EQ(comms.at(coll.record.comm).record.rank, second ? 1 : 0);
  }
  if (GetParam() >= 5) {
    EXPECT_EQ(records.Of(NcclEvent::kKernelLaunch).size(), 4u);
  }
}

TEST_P(NcclCalls, OneThatIsReadyLater) {
  probe::TestSegment segment;
  Traced(segment, kCalls, {"nonblocking"}, kBoth, env());
  const NcclRecords records(segment);
  const auto comms = CommsOf(records);
  const auto calls = records.CallsOf("ncclAllReduce");
  ASSERT_EQ(calls.size(), 1u);
  const auto& comm = comms.at(calls[0].record.comm);
  EXPECT_EQ(comm.record.rank, 5);
  EXPECT_EQ(comm.record.size, 8u);
  ASSERT_EQ(records.Of(NcclEvent::kCollective).size(), 1u);
  EXPECT_EQ(comms.at(records.Of(NcclEvent::kCollective)[0].record.comm).record.id,
            comms.at(calls[0].record.comm).record.id);
  EXPECT_EQ(records.CallsOf("ncclCommInitRankConfig")[0].record.result, 7);
}

TEST_P(NcclCalls, SplitAndShrunk) {
  for (const int sources : {kInterposed, kBoth}) {
    probe::TestSegment segment;
    Traced(segment, kCalls, {"split"}, sources, env());
    const NcclRecords records(segment);
    const auto comms = CommsOf(records);
    ASSERT_EQ(comms.size(), 4u);
    const auto calls = records.CallsOf("ncclAllReduce");
    ASSERT_EQ(calls.size(), 4u);
    const auto& half = comms.at(calls[0].record.comm);
    const auto& other = comms.at(calls[1].record.comm);
    const auto& shrunk = comms.at(calls[2].record.comm);
    const auto& world = comms.at(calls[3].record.comm);
    EXPECT_EQ(half.name, "half");
    EXPECT_EQ(half.record.size, 4u);
    EXPECT_EQ(half.record.rank, 2);
    EXPECT_EQ(shrunk.record.size, 7u);
    EXPECT_EQ(shrunk.record.rank, 5);
    EXPECT_EQ(half.record.parent, world.record.id);
    EXPECT_EQ(shrunk.record.parent, world.record.id);
    EXPECT_EQ((std::set<std::uint64_t>{half.record.id, other.record.id, shrunk.record.id, world.record.id}).size(), 4u);
    std::size_t ended = 0;
    for (const auto& comm : records.comms) ended += (comm.flags & 64) != 0 ? 1 : 0;
    EXPECT_EQ(ended, 4u);
  }
}

TEST_P(NcclCalls, FunctionsOfLaterVersions) {
  for (const int sources : {kInterposed, kBoth}) {
    probe::TestSegment segment;
    Traced(segment, kCalls, {"newer"}, sources, env());
    const NcclRecords records(segment);
    const auto comms = CommsOf(records);
    ASSERT_EQ(comms.size(), 3u);
    struct Expected {
      const char* name;
      CollectiveKind function;
      std::uint64_t count;
      int peer, result, reduction;
    };
    const Expected expected[] = {{"ncclCommInitRank", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclCommGrow", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclCommGrow", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclCommGrow", CollectiveKind::kNone, 0, -1, 4, 0},
                                 {"ncclAllReduceConfig", CollectiveKind::kAllReduce, 30, -1, 0, 3},
                                 {"ncclReduceConfig", CollectiveKind::kReduce, 31, 2, 0, 1},
                                 {"ncclPutSignal", CollectiveKind::kNone, 32, 1, 0, 0},
                                 {"ncclSignal", CollectiveKind::kNone, 0, 2, 0, 0},
                                 {"ncclWaitSignal", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclSignal", CollectiveKind::kNone, 0, 2, 4, 0},
                                 {"ncclGroupStart", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclAllReduce", CollectiveKind::kAllReduce, 33, -1, 0, 1},
                                 {"ncclGroupSimulateEnd", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclCommRevoke", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclCommDestroy", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclCommDestroy", CollectiveKind::kNone, 0, -1, 0, 0},
                                 {"ncclCommDestroy", CollectiveKind::kNone, 0, -1, 0, 0}};
    ASSERT_EQ(records.calls.size(), std::size(expected));
    for (std::size_t i = 0; i < std::size(expected); ++i) {
      const auto& call = records.calls[i];
      EXPECT_EQ(call.name, expected[i].name);
      EXPECT_EQ(call.record.function, static_cast<int>(expected[i].function)) << call.name;
      EXPECT_EQ(call.record.count, expected[i].count) << call.name;
      EXPECT_EQ(call.record.peer, expected[i].peer) << call.name;
      EXPECT_EQ(call.record.result, expected[i].result) << call.name;
      EXPECT_EQ(call.record.reduction, expected[i].reduction) << call.name;
    }
    const auto& grown = comms.at(records.calls[4].record.comm);
    const auto& joined = comms.at(records.calls[5].record.comm);
    EXPECT_EQ(grown.record.size, 6u);
    EXPECT_EQ(grown.record.rank, 3);
    EXPECT_EQ(joined.record.rank, 5);
    EXPECT_EQ(joined.name, "joined");
    // Only NCCL tells those who were in it and those who join the same identity.
    for (const auto* comm : {&grown, &joined}) EXPECT_EQ(comm->record.id != 0, sources == kBoth);
    EXPECT_EQ(records.calls[6].record.comm, records.calls[13].record.comm) << "revoked is not ended";
    std::size_t ended = 0;
    for (const auto& comm : records.comms) ended += (comm.flags & 64) != 0 ? 1 : 0;
    EXPECT_EQ(ended, 3u);
  }
}

TEST_P(NcclCalls, AbortsWhileOperationsAreInFlight) {
  probe::TestSegmentOptions options;
  options.bytes = std::uint64_t{128} << 20;
  options.other_ring_slots = 1 << 14;
  probe::TestSegment segment(options);
  const Output output = Traced(segment, kCalls, {"storm"}, kBoth, env());
  EXPECT_EQ(WEXITSTATUS(output.status), 3);
  EXPECT_EQ(output.errors, "");
  const NcclRecords records(segment);
  const auto comms = CommsOf(records);
  EXPECT_EQ(comms.size(), 801u);
  std::map<std::uint32_t, int> ended;
  for (const auto& comm : records.comms) ended[comm.record.comm] += (comm.flags & 64) != 0 ? 1 : 0;
  for (const auto& [number, times] : ended) EXPECT_EQ(times, 1) << number;
  // An operation is its communicator's, or of one that is not known any more; never another's.
  for (const auto& call : records.CallsOf("ncclAllReduce"))
    EXPECT_TRUE(call.record.comm == kNoComm || comms.contains(call.record.comm));
  EXPECT_TRUE(records.losses.empty());
}

// What no plugin tells is computed alike by every rank: here by two processes.
TEST(NcclCallsState, IdentityWithoutAPluginIsTheSameEverywhere) {
  std::vector<std::vector<std::uint64_t>> ids;
  for (int process = 0; process < 2; ++process) {
    probe::TestSegment segment;
    Traced(segment, kCalls, {"split"}, kInterposed);
    ids.emplace_back();
    const NcclRecords records(segment);
    for (const auto& [number, comm] : CommsOf(records)) ids.back().push_back(comm.record.id);
  }
  EXPECT_EQ(ids[0], ids[1]);
}

// NCCL tells of what is captured then, or of each replay, where a proxy takes part.
TEST_P(NcclCalls, Graphs) {
  for (const bool proxies : {false, true}) {
    probe::TestSegment segment;
    auto variables = env();
    if (proxies) variables.push_back("FAKE_NCCL_PROXIES=1");
    Traced(segment, kCalls, {"graph"}, kBoth, variables);
    const NcclRecords records(segment);
    const auto collectives = records.Of(NcclEvent::kCollective);
    ASSERT_EQ(collectives.size(), proxies ? 3u : 2u);
    std::uint64_t count = 0;
    for (const auto& coll : collectives) count += coll.record.count;
    EXPECT_EQ(count, proxies ? 8u + 8u + 9u : 8u + 9u);
    if (GetParam() < 5) continue;
    const auto api = records.Of(NcclEvent::kCollectiveApi);
    ASSERT_EQ(api.size(), 2u);
    EXPECT_EQ(api[0].record.flags, kNcclCaptured);
    EXPECT_EQ(api[1].record.flags, 0);
    for (const auto& coll : collectives) EXPECT_EQ(coll.record.parent, api[coll.record.count == 8 ? 0 : 1].record.id);
  }
}

TEST_P(NcclCalls, MadePastUs) {
  probe::TestSegment segment;
  Traced(segment, kCalls, {"unseen"}, kBoth, env());
  const NcclRecords records(segment);
  const auto calls = records.CallsOf("ncclAllReduce");
  ASSERT_EQ(calls.size(), 1u);
  ASSERT_EQ(records.comms.size(), 2u);
  EXPECT_EQ(calls[0].record.comm, records.comms[0].record.comm);  // Proved by the event within the call.
}

TEST_P(NcclCalls, ManyThreads) {
  probe::TestSegmentOptions options;
  options.bytes = std::uint64_t{128} << 20;
  options.other_ring_slots = 1 << 14;
  probe::TestSegment segment(options);
  Traced(segment, kCalls, {"threads"}, kBoth, env());
  const NcclRecords records(segment);
  const auto comms = CommsOf(records);
  EXPECT_EQ(comms.size(), 320u);
  EXPECT_EQ(records.comms.size(), 640u);
  const auto calls = records.CallsOf("ncclAllReduce");
  ASSERT_EQ(calls.size(), 3200u);
  for (const auto& call : calls)
    EXPECT_EQ(comms.at(call.record.comm).record.rank + 1, static_cast<std::int64_t>(call.record.count));
  for (const auto& coll : records.Of(NcclEvent::kCollective))
    EXPECT_EQ(comms.at(coll.record.comm).record.rank + 1, static_cast<std::int64_t>(coll.record.count));
}

}  // namespace
}  // namespace lockstep::nccl
