// NCCL's functions interposed, under a fake libnccl that calls the profiler as the real one
// does; chaining of the user's own plugin; programs that look for NCCL.

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/unit/comms/nccl/nccl_records.h"

namespace lockstep {
namespace {

constexpr char kCalls[] = LOCKSTEP_BUILD_DIR "/tests/nccl_calls";
constexpr char kFind[] = LOCKSTEP_BUILD_DIR "/tests/nccl_find";
constexpr char kFakeDir[] = LOCKSTEP_BUILD_DIR "/tests/fake_nccl";

struct Output {
  std::string out, errors;
  int status = 0;
};

Output Finish(ProbeChild& child) {
  Output output;
  for (std::string line; !(line = child.Line()).empty();) output.out += line + "\n";
  output.errors = child.Errors();
  output.status = child.Wait();
  return output;
}

enum Sources { kBare = 0, kPlugin = 1, kInterposed = 2, kBoth = 3, kNeither = 4 };

Output Traced(TestSegment& segment, const char* program, std::vector<std::string> arguments, int sources = kBoth,
              std::vector<std::string> env = {}) {
  std::string preload = "LD_PRELOAD=";
  if (sources != kBare) preload += kProbe;
  if ((sources & kInterposed) != 0) preload += std::string(" ") + kGpuLibrary;
  env.push_back(preload);
  if (sources == kBare) env.emplace_back("LOCKSTEP_SEGMENT=");
  if ((sources & kPlugin) != 0) env.push_back(std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary);
  if ((sources & kPlugin) == 0) env.emplace_back("NCCL_PROFILER_PLUGIN=none");
  ProbeChild child(segment.path(), std::move(arguments), env, program);
  return Finish(child);
}

// Calls of one function with their communicator's own record.
std::map<std::uint32_t, NcclRecords::Comm> CommsOf(const NcclRecords& records) {
  std::map<std::uint32_t, NcclRecords::Comm> comms;
  for (const auto& comm : records.comms)
    if ((comm.flags & 64) == 0) comms.emplace(comm.record.comm, comm);
  return comms;
}

class NcclCalls : public testing::TestWithParam<int> {
 protected:
  std::vector<std::string> env() const { return {"FAKE_NCCL_PROFILER=" + std::to_string(GetParam())}; }
};
INSTANTIATE_TEST_SUITE_P(Versions, NcclCalls, testing::Values(4, 5, 6));

TEST_P(NcclCalls, TheSameWithAndWithoutLockstep) {
  for (const char* scenario :
       {"all", "alone", "init-all", "grouped", "nonblocking", "split", "graph", "unseen", "threads"}) {
    TestSegment unused, segment;
    const Output bare = Traced(unused, kCalls, {scenario}, kBare, env());
    EXPECT_EQ(WEXITSTATUS(bare.status), 3) << scenario;
    for (const int sources : {kPlugin, kInterposed, kBoth}) {
      TestSegment traced;
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
    TestSegment segment;
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
      ASSERT_EQ(collectives.size(), 8u);
      EXPECT_GE(collectives[0].record.ticks, records.calls[1].record.begin_ticks);
      EXPECT_LE(collectives[0].record.ticks, records.calls[1].record.end_ticks);
      EXPECT_EQ(collectives[2].record.count, 80u);  // NCCL counts bytes there.
      EXPECT_EQ(collectives[2].record.dtype, static_cast<int>(DataType::kInt8));
      for (const auto& begin : records.begins) EXPECT_EQ(begin.record.comm, comm.record.comm);
    }
  }
}

TEST_P(NcclCalls, OneRankAndErrors) {
  TestSegment segment;
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
    TestSegment segment;
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
  TestSegment segment;
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
  TestSegment segment;
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
    TestSegment segment;
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

// What no plugin tells is computed alike by every rank: here by two processes.
TEST(NcclCallsState, IdentityWithoutAPluginIsTheSameEverywhere) {
  std::vector<std::vector<std::uint64_t>> ids;
  for (int process = 0; process < 2; ++process) {
    TestSegment segment;
    Traced(segment, kCalls, {"split"}, kInterposed);
    ids.emplace_back();
    const NcclRecords records(segment);
    for (const auto& [number, comm] : CommsOf(records)) ids.back().push_back(comm.record.id);
  }
  EXPECT_EQ(ids[0], ids[1]);
}

TEST_P(NcclCalls, Graphs) {
  TestSegment segment;
  Traced(segment, kCalls, {"graph"}, kBoth, env());
  const NcclRecords records(segment);
  const auto collectives = records.Of(NcclEvent::kCollective);
  ASSERT_EQ(collectives.size(), 3u);
  EXPECT_EQ(collectives[0].record.count + collectives[1].record.count + collectives[2].record.count, 8u + 8u + 9u);
  if (GetParam() >= 5) {
    const auto api = records.Of(NcclEvent::kCollectiveApi);
    ASSERT_EQ(api.size(), 2u);
    EXPECT_EQ(api[0].record.flags, kNcclCaptured);
    EXPECT_EQ(api[1].record.flags, 0);
    for (const auto& coll : collectives) EXPECT_EQ(coll.record.parent, api[coll.record.count == 8 ? 0 : 1].record.id);
  }
}

TEST_P(NcclCalls, MadePastUs) {
  TestSegment segment;
  Traced(segment, kCalls, {"unseen"}, kBoth, env());
  const NcclRecords records(segment);
  const auto calls = records.CallsOf("ncclAllReduce");
  ASSERT_EQ(calls.size(), 1u);
  ASSERT_EQ(records.comms.size(), 2u);
  EXPECT_EQ(calls[0].record.comm, records.comms[0].record.comm);  // Proved by the event within the call.
}

TEST_P(NcclCalls, ManyThreads) {
  TestSegmentOptions options;
  options.bytes = std::uint64_t{128} << 20;
  options.other_ring_slots = 1 << 14;
  TestSegment segment(options);
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

// --- the user's own plugin ---
std::map<std::string, int> OtherSaw(const std::string& path) {
  std::map<std::string, int> seen;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.rfind(": ");
    seen[line.substr(0, colon)] = std::stoi(line.substr(colon + 2));
  }
  return seen;
}

struct ChainCase {
  int host, plugin;  // Versions.
  const char* mask;
};

// What the plugin sees must be what it sees alone.
TEST(NcclChain, TheUsersPluginSeesWhatItWouldSeeAlone) {
  for (const char* scenario : {"all", "grouped", "init-all", "graph", "nonblocking", "split"}) {
    for (const ChainCase& each : {ChainCase{4, 4, "2"}, ChainCase{4, 4, "6"}, ChainCase{5, 5, "2"},
                                  ChainCase{5, 5, "3590"}, ChainCase{5, 5, "2048"}, ChainCase{6, 5, "6"},
                                  ChainCase{5, 5, "1"}, ChainCase{5, 5, "512"}, ChainCase{5, 5, "0"}}) {
      const std::string plugin =
          std::string(kFakeDir) + "/libnccl-profiler-other" + std::to_string(each.plugin) + ".so";
      TestSegment unused, segment;
      const std::string out = segment.path() + "-other", bare_out = unused.path() + "-other";
      const std::vector<std::string> common{"FAKE_NCCL_PROFILER=" + std::to_string(each.host),
                                            std::string("OTHER_PLUGIN_MASK=") + each.mask};
      auto bare = common, chained = common;
      bare.push_back("OTHER_PLUGIN_OUT=" + bare_out);
      bare.push_back("NCCL_PROFILER_PLUGIN=" + plugin);
      // Without the line for no plugin that Run adds: the last one counts.
      ProbeChild child(
          unused.path(), {scenario},
          [&] {
            auto env = bare;
            env.emplace_back("LD_PRELOAD=");
            return env;
          }(),
          kCalls);
      const Output alone = Finish(child);
      chained.push_back("OTHER_PLUGIN_OUT=" + out);
      chained.push_back("LOCKSTEP_NCCL_PLUGIN_CHAINED=" + plugin);
      const Output output = Traced(segment, kCalls, {scenario}, kBoth, chained);
      EXPECT_EQ(output.out, alone.out);
      EXPECT_EQ(output.errors, "");
      EXPECT_EQ(output.status, alone.status);
      auto expected = OtherSaw(bare_out), seen = OtherSaw(out);
      // NCCL 2.28's second end of an API event is not passed on.
      expected.erase("stopped twice");
      EXPECT_EQ(seen, expected) << scenario << " " << each.host << " " << each.plugin << " " << each.mask;
      EXPECT_FALSE(seen.empty());
      const NcclRecords records(segment);
      EXPECT_EQ(records.losses.at("NcclPluginChained"), 1u);
      EXPECT_EQ(records.details.at("NcclPluginChained"), plugin);
      EXPECT_FALSE(records.Of(NcclEvent::kCollective).empty());
      std::set<std::uint64_t> ids;
      for (const auto& begin : records.begins) {
        EXPECT_TRUE(ids.insert(begin.record.id).second);
        EXPECT_EQ(records.EndsOf(begin.record.id), 1u);
      }
      unlink(out.c_str());
      unlink(bare_out.c_str());
    }
  }
}

TEST(NcclChain, AnOlderPluginUnderANewerNccl) {
  TestSegment segment;
  const std::string out = segment.path() + "-other";
  Traced(segment, kCalls, {"all"}, kBoth,
         {"FAKE_NCCL_PROFILER=5", "OTHER_PLUGIN_MASK=2", "OTHER_PLUGIN_OUT=" + out,
          std::string("LD_LIBRARY_PATH=") + kFakeDir, "LOCKSTEP_NCCL_PLUGIN_CHAINED=other4"});
  const auto seen = OtherSaw(out);
  EXPECT_EQ(seen.at("start 2 of 1"), 8);  // Under the group's launch, as 2.28 itself gives it to plugins of 2.27.
  EXPECT_EQ(seen.at("stop 2"), 8);
  EXPECT_EQ(seen.count("foreign handle"), 0u);
  EXPECT_EQ(seen.count("start 512"), 0u);
  unlink(out.c_str());
}

TEST(NcclChain, RecordingOffOrNoSegmentTheUsersPluginGoesOn) {
  const std::string plugin = std::string(kFakeDir) + "/libnccl-profiler-other5.so";
  for (const bool gone : {false, true}) {
    TestSegmentOptions options;
    options.recording = false;
    TestSegment segment(options);
    const std::string out = segment.path() + "-other";
    std::vector<std::string> env{"OTHER_PLUGIN_MASK=2", "OTHER_PLUGIN_OUT=" + out,
                                 "LOCKSTEP_NCCL_PLUGIN_CHAINED=" + plugin};
    if (gone) env.emplace_back("LOCKSTEP_SEGMENT=");
    const Output output = Traced(segment, kCalls, {"all"}, kBoth, env);
    EXPECT_EQ(WEXITSTATUS(output.status), 3);
    EXPECT_EQ(output.errors, "");
    const auto seen = OtherSaw(out);
    EXPECT_EQ(seen.at("stop 2"), 8);
    EXPECT_EQ(seen.at("finalize"), 1);
    EXPECT_TRUE(NcclRecords(segment).begins.empty());
    unlink(out.c_str());
  }
}

TEST(NcclChain, OneThatCannotBeLoadedIsSaidOnce) {
  for (const std::string& plugin : {std::string("/nowhere/libnccl-profiler-x.so"), std::string(kGpuLibrary)}) {
    TestSegment segment;
    const Output output = Traced(segment, kCalls, {"grouped"}, kBoth, {"LOCKSTEP_NCCL_PLUGIN_CHAINED=" + plugin});
    EXPECT_EQ(WEXITSTATUS(output.status), 3);
    EXPECT_EQ(output.errors.rfind("lockstep: the NCCL profiler plugin " + plugin + " is not called beside", 0), 0u)
        << output.errors;
    EXPECT_EQ(std::count(output.errors.begin(), output.errors.end(), '\n'), 1);
    EXPECT_EQ(NcclRecords(segment).Of(NcclEvent::kCollective).size(), 5u);
  }
}

// --- programs that look for NCCL ---
TEST(NcclFind, AnAbsentNcclAnswersThatItCannotWork) {
  TestSegment segment;
  const Output output = Traced(segment, kFind, {"absent"});
  EXPECT_EQ(output.out, "version 0\nanswer 2\nanswer 2\n");
  EXPECT_EQ(output.errors, "");
  EXPECT_EQ(output.status, 0);
}

TEST(NcclFind, ALibraryThatIsLoadedForItsUserAlone) {
  TestSegment segment;
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
  TestSegment segment;
  const std::vector<std::string> env{std::string("NVTX_INJECTION64_PATH=") + kProbe};
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
  EXPECT_EQ(RangesOf(segment).size(), 12u);

  TestSegmentOptions options;
  options.recording = false;
  TestSegment windows(options);
  windows.header().window.kind = WindowKind::kManual;
  Traced(windows, LOCKSTEP_BUILD_DIR "/tests/nccl_ranges", {"windows"}, kNeither, env);
  const NcclRecords some(windows);
  ASSERT_EQ(some.calls.size(), 1u);
  EXPECT_EQ(some.calls[0].record.seq, 4u);
#endif
}

// NCCL's own ranges, where neither the plugin nor the interposed functions see its calls.
TEST(NcclFind, TheRealLibrarysRangesAreItsCalls) {
#ifndef LOCKSTEP_NCCL_LIBRARY
  GTEST_SKIP() << "no libnccl.so.2 on this machine";
#else
  TestSegment unused, segment;
  const std::string library = LOCKSTEP_NCCL_LIBRARY;
  const Output bare = Traced(unused, kFind, {"ranges", library}, kBare);
  const Output output =
      Traced(segment, kFind, {"ranges", library}, kNeither, {std::string("NVTX_INJECTION64_PATH=") + kProbe});
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
  TestSegment unused, segment;
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
#endif
}

}  // namespace
}  // namespace lockstep
