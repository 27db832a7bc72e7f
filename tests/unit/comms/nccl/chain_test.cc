// The user's own profiler plugin beside ours.

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/unit/all_runs.h"
#include "tests/unit/comms/nccl/nccl_run.h"

namespace lockstep::nccl {
namespace {

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

// What the plugin sees must be what it sees alone. In the gate, a quarter of the pairs of scenario and case.
TEST(NcclChain, TheUsersPluginSeesWhatItWouldSeeAlone) {
  const int every = test::Runs(4, 1);
  int pair = 0;
  for (const char* scenario : {"all", "grouped", "init-all", "graph", "nonblocking", "split", "copies"}) {
    for (const ChainCase& each :
         {ChainCase{4, 4, "2"}, ChainCase{4, 4, "6"}, ChainCase{5, 5, "2"}, ChainCase{5, 5, "3590"},
          ChainCase{5, 5, "2048"}, ChainCase{6, 5, "6"}, ChainCase{5, 5, "1"}, ChainCase{5, 5, "512"},
          ChainCase{5, 5, "0"}, ChainCase{7, 4, "6"}, ChainCase{7, 5, "3590"}, ChainCase{7, 7, "7686"},
          ChainCase{7, 7, "4096"}}) {
      if (pair++ % every != 0) continue;
      const std::string plugin =
          std::string(kFakeDir) + "/libnccl-profiler-other" + std::to_string(each.plugin) + ".so";
      probe::TestSegment unused, segment;
      const std::string out = segment.path() + "-other", bare_out = unused.path() + "-other";
      const std::vector<std::string> common{"FAKE_NCCL_PROFILER=" + std::to_string(each.host),
                                            std::string("OTHER_PLUGIN_MASK=") + each.mask, "FAKE_NCCL_COPY_ENGINES=1"};
      auto bare = common, chained = common;
      bare.push_back("OTHER_PLUGIN_OUT=" + bare_out);
      bare.push_back("NCCL_PROFILER_PLUGIN=" + plugin);
      // Without the line for no plugin that Run adds: the last one counts.
      probe::ProbeChild child(
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
  probe::TestSegment segment;
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
    probe::TestSegmentOptions options;
    options.recording = false;
    probe::TestSegment segment(options);
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
    probe::TestSegment segment;
    const Output output = Traced(segment, kCalls, {"grouped"}, kBoth, {"LOCKSTEP_NCCL_PLUGIN_CHAINED=" + plugin});
    EXPECT_EQ(WEXITSTATUS(output.status), 3);
    EXPECT_EQ(output.errors.rfind("lockstep: the NCCL profiler plugin " + plugin + " is not called beside", 0), 0u)
        << output.errors;
    EXPECT_EQ(std::count(output.errors.begin(), output.errors.end(), '\n'), 1);
    EXPECT_EQ(NcclRecords(segment).Of(NcclEvent::kCollective).size(), 5u);
  }
}

}  // namespace
}  // namespace lockstep::nccl
