// NCCL's profiler plugin as NCCL drives it, in legal and in nasty orders: what is in the
// rings afterwards.

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/comms/nccl/nccl_records.h"

namespace lockstep::nccl {
namespace {

constexpr char kScenariosProgram[] = LOCKSTEP_BUILD_DIR "/tests/nccl_plugin_scenarios";

class NcclPlugin : public testing::TestWithParam<int> {
 protected:
  static probe::ProbeChild Start(probe::TestSegment& segment, const std::string& scenario, int version,
                                 std::vector<std::string> env = {}) {
    env.insert(env.begin(), std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary);
    return probe::ProbeChild(segment.path(), {scenario, std::to_string(version)}, env, kScenariosProgram);
  }
  static void Run(probe::TestSegment& segment, const std::string& scenario, int version,
                  std::vector<std::string> env = {}) {
    probe::ProbeChild child = Start(segment, scenario, version, std::move(env));
    const std::string errors = child.Errors();
    EXPECT_EQ(child.Wait(), 0);
    EXPECT_EQ(errors, "");
  }
  bool api() const { return GetParam() >= 5; }
};
INSTANTIATE_TEST_SUITE_P(Versions, NcclPlugin, testing::Values(4, 5, 6, 7, 9));

TEST_P(NcclPlugin, OperationsAsNcclTellsThem) {
  probe::TestSegment segment;
  Run(segment, "simple", GetParam());
  const NcclRecords records(segment);
  ASSERT_EQ(records.comms.size(), 2u);
  const auto& comm = records.comms[0];
  EXPECT_EQ(comm.flags, static_cast<int>(NcclSource::kPlugin));
  EXPECT_EQ(comm.record.id, 0xabcdefu);
  EXPECT_EQ(comm.record.size, 16u);
  EXPECT_EQ(comm.record.rank, 3);
  EXPECT_EQ(comm.record.nodes, 2u);
  EXPECT_EQ(comm.record.device, -1);
  EXPECT_EQ(comm.name, "trainer");
  EXPECT_TRUE((comm.record.comm & kNcclCommBit) != 0);
  EXPECT_EQ(records.comms[1].flags, static_cast<int>(NcclSource::kPlugin) | 64);
  EXPECT_EQ(records.comms[1].record.comm, comm.record.comm);
  EXPECT_GT(records.comms[1].record.ticks, comm.record.ticks);

  const auto collectives = records.Of(NcclEvent::kCollective);
  ASSERT_EQ(collectives.size(), 10u);
  EXPECT_EQ(records.begins.size(), api() ? 50u : 20u);
  std::set<std::uint64_t> ids;
  for (const auto& begin : records.begins) {
    EXPECT_TRUE(ids.insert(begin.record.id).second);
    EXPECT_EQ(records.EndsOf(begin.record.id), 1u);
    EXPECT_EQ(begin.record.comm, comm.record.comm);
  }
  for (std::size_t i = 0; i < 10; ++i) {
    const auto& coll = collectives[i];
    EXPECT_EQ(coll.record.seq, i);
    EXPECT_EQ(coll.record.count, 1024u);
    EXPECT_EQ(coll.record.function, static_cast<int>(CollectiveKind::kAllReduce));
    EXPECT_EQ(coll.record.dtype, static_cast<int>(DataType::kFloat32));
    EXPECT_EQ(coll.record.peer, -1);
    EXPECT_EQ(coll.record.channels, 24);
    EXPECT_EQ(coll.record.buffer, 0x1000u);
    EXPECT_EQ(coll.name, "AllReduce");
    EXPECT_EQ(coll.algorithm, "RING");
    EXPECT_EQ(coll.protocol, "SIMPLE");
    const auto group = records.Of(NcclEvent::kGroup)[i].record.id;
    if (api()) {
      EXPECT_EQ(coll.record.parent, records.Of(NcclEvent::kCollectiveApi)[i].record.id);
      EXPECT_EQ(coll.record.group, group);
      EXPECT_EQ(records.Of(NcclEvent::kCollectiveApi)[i].record.stream, 0x77u);
      EXPECT_EQ(records.Of(NcclEvent::kKernelLaunch)[i].record.stream, 0x77u);
      EXPECT_EQ(records.Of(NcclEvent::kGroupApi)[i].record.depth, 1u);
    } else {
      EXPECT_EQ(coll.record.parent, group);
    }
  }
  // The kernel's launch ends before its collective begins.
  if (api()) {
    const auto launch = records.Of(NcclEvent::kKernelLaunch)[0].record.id;
    std::size_t launch_end = 0, coll_begin = 0;
    for (std::size_t i = 0; i < records.order.size(); ++i) {
      if (records.order[i].what == 'e' && records.order[i].id == launch) launch_end = i;
      if (records.order[i].what == 'b' && records.order[i].id == collectives[0].record.id) coll_begin = i;
    }
    EXPECT_LT(launch_end, coll_begin);
  }
  EXPECT_EQ(segment.view().processes()[0].nccl_used.load(), 1u);
  ASSERT_EQ(records.facts.size(), 1u);
  EXPECT_EQ(records.facts[0].rfind("nccl_plugin\tversion=" + std::to_string(std::min(GetParam(), 7)), 0), 0u);
  EXPECT_TRUE(records.losses.empty());
}

TEST_P(NcclPlugin, CommunicatorsComeAndGo) {
  probe::TestSegment segment;
  Run(segment, "again", GetParam());
  const NcclRecords records(segment);
  std::map<std::uint32_t, std::uint64_t> ids;
  std::map<std::uint32_t, int> ended;
  for (const auto& comm : records.comms) {
    if ((comm.flags & 64) != 0)
      ++ended[comm.record.comm];
    else
      EXPECT_TRUE(ids.emplace(comm.record.comm, comm.record.id).second);
  }
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(ended.size(), 4u);
  std::map<std::uint64_t, int> counts;
  for (const auto& coll : records.Of(NcclEvent::kCollective)) {
    ++counts[coll.record.count];
    EXPECT_EQ(ids.at(coll.record.comm), coll.record.count == 10 ? 100u : 200u);
  }
  EXPECT_EQ(counts, (std::map<std::uint64_t, int>{{10, 6}, {20, 6}, {30, 2}}));
}

TEST_P(NcclPlugin, NastyOrdersAreSurvivedAndTold) {
  probe::TestSegment segment;
  Run(segment, "nasty", GetParam());
  const NcclRecords records(segment);
  for (const auto& begin : records.begins) EXPECT_LE(records.EndsOf(begin.record.id), 1u);
  const auto collectives = records.Of(NcclEvent::kCollective);
  ASSERT_EQ(collectives.size(), 9u);  // 3 without communicator, 2 of its own, 1 late child, 3 replays
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(collectives[i].record.comm, kNoComm);
  std::size_t open = 0, unnamed = 0, replays = 0;
  for (const auto& coll : collectives) {
    open += records.EndsOf(coll.record.id) == 0 ? 1 : 0;
    unnamed += coll.name.empty() ? 1 : 0;
    replays += coll.record.seq == 3 ? 1 : 0;
    if (coll.record.seq == 3 && api()) {
      EXPECT_EQ(coll.record.parent, records.Of(NcclEvent::kCollectiveApi)[3].record.id);
    }
  }
  EXPECT_EQ(open, 1u);
  EXPECT_EQ(unnamed, 1u);
  EXPECT_EQ(replays, 3u);
  const auto p2p = records.Of(NcclEvent::kP2p);
  ASSERT_EQ(p2p.size(), 1u);
  EXPECT_EQ(p2p[0].record.function, 1);
  EXPECT_EQ(p2p[0].record.peer, 6);
  EXPECT_EQ(p2p[0].record.count, 7u);
  EXPECT_EQ(p2p[0].record.channels, 2);
  EXPECT_EQ(p2p[0].record.dtype, static_cast<int>(DataType::kBfloat16));
  EXPECT_EQ(records.losses.at("NcclForeignProcess"), 5u);
  EXPECT_EQ(records.losses.size(), 1u);
  EXPECT_TRUE(records.Of(NcclEvent::kKernelChannel).empty());
}

TEST_P(NcclPlugin, WhatWasLostWhileTheRingWasFullIsCountedLater) {
  probe::TestSegment segment;
  probe::ProbeChild child = Start(segment, "full", GetParam());
  ASSERT_EQ(child.Line(), "full");
  segment.Read(0, true);
  child.Go();
  EXPECT_EQ(child.Wait(), 0);
  const NcclRecords records(segment);
  ASSERT_EQ(records.losses.count("NcclForeignProcess"), 1u);
  EXPECT_EQ(records.losses.at("NcclForeignProcess"), 8u);
}

TEST_P(NcclPlugin, SixtyFourThreads) {
  probe::TestSegmentOptions options;
  options.bytes = std::uint64_t{256} << 20;
  probe::TestSegment segment(options);
  Run(segment, "threads", GetParam());
  const NcclRecords records(segment);
  EXPECT_EQ(segment.header().dropped_no_ring, 0u);
  std::set<std::uint64_t> ids, seqs;
  for (const auto& begin : records.begins) EXPECT_TRUE(ids.insert(begin.record.id).second);
  for (const auto& coll : records.Of(NcclEvent::kCollective)) seqs.insert(coll.record.seq);
  EXPECT_EQ(seqs.size(), 6400u);
  std::map<std::uint64_t, int> ends;
  for (const auto& end : records.ends) EXPECT_EQ(++ends[end.id], 1);
  EXPECT_EQ(ends.size(), ids.size());
}

TEST_P(NcclPlugin, CommunicatorsOnManyThreads) {
  probe::TestSegmentOptions options;
  options.bytes = std::uint64_t{128} << 20;
  options.other_ring_slots = 1 << 14;
  probe::TestSegment segment(options);
  Run(segment, "churn", GetParam());
  const NcclRecords records(segment);
  std::map<std::uint32_t, int> seen, ended;
  std::set<std::uint64_t> ids;
  for (const auto& comm : records.comms) {
    ++((comm.flags & 64) != 0 ? ended : seen)[comm.record.comm];
    ids.insert(comm.record.id);
  }
  EXPECT_EQ(seen.size(), 8000u);
  EXPECT_EQ(ended.size(), 8000u);
  EXPECT_EQ(ids.size(), 8000u);
  EXPECT_EQ(records.Of(NcclEvent::kCollective).size(), 80u);
  for (const auto& coll : records.Of(NcclEvent::kCollective)) EXPECT_EQ(seen.count(coll.record.comm), 1u);
  EXPECT_TRUE(records.losses.empty());
}

TEST(NcclPluginState, MoreCommunicatorsThanFitAreCounted) {
  probe::TestSegmentOptions options;
  options.main_ring_slots = 1 << 16;
  probe::TestSegment segment(options);
  probe::ProbeChild child(segment.path(), {"many", "5"}, {std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary},
                          kScenariosProgram);
  ASSERT_EQ(child.Wait(), 0);
  const NcclRecords records(segment);
  // Told at powers of two; the rest at the end.
  EXPECT_GE(records.losses.at("NcclTableFull"), 64u);
  EXPECT_LE(records.losses.at("NcclTableFull"), 104u);
  const auto collectives = records.Of(NcclEvent::kCollective);
  ASSERT_EQ(collectives.size(), 2u);
  EXPECT_EQ(collectives[0].record.comm, kNoComm);
  EXPECT_NE(collectives[1].record.comm, kNoComm);
}

// Recording is off at first; two windows. `mask`: what NCCL asks for meanwhile.
void CheckWindows(int version, WindowKind kind, const std::string& on, const std::string& off,
                  std::uint32_t wanted = 0) {
  probe::TestSegmentOptions options;
  options.recording = false;
  probe::TestSegment segment(options);
  segment.header().window.kind = kind;
  segment.header().gpu_options = wanted;
  probe::ProbeChild child(segment.path(), {"windows", std::to_string(version)},
                          {std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary}, kScenariosProgram);
  EXPECT_EQ(child.Line(), off);
  EXPECT_EQ(child.Line(), on);
  EXPECT_EQ(child.Line(), off);
  EXPECT_EQ(child.Line(), "0");
  EXPECT_EQ(child.Errors(), "");
  ASSERT_EQ(child.Wait(), 0);
  const NcclRecords records(segment);
  EXPECT_EQ(records.comms.size(), 2u);  // Although recording was off.
  std::vector<std::uint64_t> seqs;
  for (const auto& coll : records.Of(NcclEvent::kCollective)) {
    seqs.push_back(coll.record.seq);
    EXPECT_EQ(records.EndsOf(coll.record.id), 1u);  // Also of the one that ended while off.
  }
  EXPECT_EQ(seqs, (std::vector<std::uint64_t>{1, 2, 4}));
  for (const auto& api : records.Of(NcclEvent::kCollectiveApi)) EXPECT_EQ(records.EndsOf(api.record.id), 1u);
}

// Copy engines' collectives from 6 on: their copies and synchronisations are CUPTI's to tell.
std::string Mask(int version) { return version == 4 ? "6" : version == 5 ? "3590" : "7686"; }

TEST(NcclPluginState, TheMaskFollowsTheWindow) {
  for (int version : {4, 5, 6, 7}) CheckWindows(version, WindowKind::kManual, Mask(version), "0");
}
TEST(NcclPluginState, WhereTheAgentMaySwitchOnTheMaskStays) { CheckWindows(5, WindowKind::kTimer, Mask(5), Mask(5)); }

// NCCL 2.31.2 and later count the works that have the bit of kernel channels, the GPU counts all: it stays.
TEST(NcclPluginState, KernelChannelsStayOnWhereNcclCountsThem) {
  CheckWindows(5, WindowKind::kManual, "3654", "0", kNcclKernelChannels);
  CheckWindows(7, WindowKind::kManual, "7750", "64", kNcclKernelChannels);
}

TEST(NcclPluginState, KernelChannelsOnRequest) {
  for (int version : {4, 5, 6, 7}) {
    probe::TestSegment segment;
    segment.header().gpu_options = kNcclKernelChannels;
    probe::ProbeChild child(segment.path(), {"kernels", std::to_string(version)},
                            {std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary}, kScenariosProgram);
    EXPECT_EQ(child.Line(), version == 4 ? "70" : version == 5 ? "3654" : "7750");
    ASSERT_EQ(child.Wait(), 0);
    const NcclRecords records(segment);
    const auto channels = records.Of(NcclEvent::kKernelChannel);
    ASSERT_EQ(channels.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(channels[i].record.channels, i);
      EXPECT_EQ(channels[i].record.count, 1'756'135'989'724'672'000u + i * 32);
      EXPECT_EQ(channels[i].record.parent, records.Of(NcclEvent::kCollective)[0].record.id);
      EXPECT_EQ(records.EndsOf(channels[i].record.id), 1u);
    }
    for (const auto& end : records.ends) {
      if (end.head.flags != static_cast<int>(NcclEvent::kKernelChannel)) continue;
      EXPECT_EQ((end.value - 1'756'135'989'724'672'000u - 6400) % 32, 0u);
      EXPECT_GE(end.value, 1'756'135'989'724'678'400u);
    }
  }
}

// Version 7 as NCCL 2.32.3 writes it, by the offsets of its header.
TEST(NcclPluginState, TheNewestLayoutByItsOffsets) {
  probe::TestSegment segment;
  probe::ProbeChild child(segment.path(), {"layout7", "7"}, {std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary},
                          kScenariosProgram);
  ASSERT_EQ(child.Wait(), 0);
  const NcclRecords records(segment);
  const auto collectives = records.Of(NcclEvent::kCollective);
  ASSERT_EQ(collectives.size(), 2u);
  EXPECT_EQ(collectives[0].record.seq, 21u);
  EXPECT_EQ(collectives[0].record.count, 4096u);
  EXPECT_EQ(collectives[0].record.channels, 12);
  EXPECT_EQ(collectives[0].algorithm, "AllReduce_AGxLL_R") << "the kernel's own name, not what is left of it";
  EXPECT_EQ(collectives[0].protocol, "");
  EXPECT_EQ(collectives[0].record.parent, records.Of(NcclEvent::kCollectiveApi)[0].record.id);
  EXPECT_EQ(collectives[1].algorithm, "TREE");
  EXPECT_EQ(collectives[1].protocol, "LL");
  EXPECT_EQ(records.Of(NcclEvent::kCollectiveApi)[0].record.stream, 0x98u);
  EXPECT_EQ(records.facts[0].rfind("nccl_plugin\tversion=7", 0), 0u);
}

class NcclPluginLayout : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, NcclPluginLayout, testing::Values(6, 7));

TEST_P(NcclPluginLayout, CopyEngineCollectivesByTheirOffsets) {
  probe::TestSegment segment;
  probe::ProbeChild child(segment.path(), {"layout", std::to_string(GetParam())},
                          {std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary}, kScenariosProgram);
  ASSERT_EQ(child.Wait(), 0);
  const NcclRecords records(segment);
  const auto copies = records.Of(NcclEvent::kCopyEngine);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].record.seq, 17u);
  EXPECT_EQ(copies[0].record.count, 555u);
  EXPECT_EQ(copies[0].record.stream, 0x99u);
  EXPECT_EQ(copies[0].record.buffer, 0x4000u);
  EXPECT_EQ(copies[0].record.dtype, static_cast<int>(DataType::kInt8));
  EXPECT_EQ(copies[0].record.function, static_cast<int>(CollectiveKind::kAllGather));
  const auto api = records.Of(NcclEvent::kCollectiveApi);
  ASSERT_EQ(api.size(), 1u);
  EXPECT_EQ(api[0].record.function, static_cast<int>(CollectiveKind::kBroadcast));
  EXPECT_EQ(api[0].record.count, 321u);
  EXPECT_EQ(api[0].record.peer, 5);
  EXPECT_EQ(api[0].record.stream, 0x98u);
  EXPECT_EQ(api[0].record.flags, kNcclCaptured);
  EXPECT_EQ(api[0].record.dtype, static_cast<int>(DataType::kFloat64));
}

TEST(NcclPluginState, InertWithoutASegmentOrWhenSwitchedOff) {
  for (const bool segment_gone : {false, true}) {
    probe::TestSegment segment;
    segment.header().gpu_options = kGpuOff;
    std::vector<std::string> env{std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary};
    if (segment_gone) env.emplace_back("LOCKSTEP_SEGMENT=");
    probe::ProbeChild child(segment.path(), {"nasty", "5"}, env, kScenariosProgram);
    EXPECT_EQ(child.Errors(), "");
    ASSERT_EQ(child.Wait(), 0);
    EXPECT_EQ(segment.header().processes_used, 0u);
  }
}

}  // namespace
}  // namespace lockstep::nccl
