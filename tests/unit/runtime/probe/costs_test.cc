// What recording costs: instructions, which do not depend on the load of the machine as times do, and CPU time.

#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "comms/clock/clock_service.h"
#include "tests/unit/comms/nccl/nccl_records.h"
#include "tests/unit/runtime/probe/probe_child.h"

namespace lockstep::probe {
namespace {

class Instructions : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(LOCKSTEP_SANITIZERS) != "") GTEST_SKIP() << "not of an instrumented library";
    ASSERT_EQ(std::system("command -v valgrind >/dev/null 2>&1"), 0) << "valgrind is not installed";
    options_.bytes = std::uint64_t{64} << 20;
    options_.main_ring_slots = 1 << 17;
  }
  // Of a whole program under valgrind; 0 if it failed.
  static double Of(const std::string& program, TestSegment& segment, const std::string& arguments) {
    const std::string file = segment.path() + "-callgrind";
    const std::string command = "LOCKSTEP_SEGMENT=" + segment.path() + " LD_PRELOAD=" + kProbe +
                                " NVTX_INJECTION64_PATH=" + kProbe + " NCCL_PROFILER_PLUGIN=" + nccl::kGpuLibrary +
                                " valgrind --tool=callgrind --callgrind-out-file=" + file + " " + program + " " +
                                arguments + " >/dev/null 2>&1; sed -n 's/^totals: //p' " + file;
    FILE* pipe = popen(command.c_str(), "r");
    double instructions = 0;
    if (std::fscanf(pipe, "%lf", &instructions) != 1) instructions = 0;
    pclose(pipe);
    unlink(file.c_str());
    return instructions;
  }
  // Of one of `count` that `arguments` make more than `none` does.
  double Each(const std::string& program, const std::string& none, const std::string& arguments, int count) {
    TestSegment few(options_);
    segment_ = std::make_unique<TestSegment>(options_);
    const double base = Of(program, few, none), all = Of(program, *segment_, arguments);
    EXPECT_GT(base, 0);
    const double each = (all - base) / count;
    std::printf("%s: %.1f instructions each\n", arguments.c_str(), each);
    EXPECT_GE(each, 30) << "did nothing?";
    return each;
  }

  TestSegmentOptions options_;
  std::unique_ptr<TestSegment> segment_;  // Of what Each ran.
};

TEST_F(Instructions, OfAPairOfRanges) {
  EXPECT_LE(Each(kScenarios, "ranges 100", "ranges 20100", 20000), 62) << "the caller's, about 15, included";
  EXPECT_EQ(RangesOf(*segment_).size(), 20100u);
}

// NVTX's own part, in the application, is about 9 of a pair.
TEST_F(Instructions, OfAPairOfNvtxRanges) {
  std::vector<std::string> hosts{LOCKSTEP_BUILD_DIR "/tests/nvtx_scenarios_host"};
#ifdef LOCKSTEP_REAL_NVTX
  hosts.emplace_back(LOCKSTEP_BUILD_DIR "/tests/nvtx_scenarios_real");
#endif
  for (const std::string& host : hosts)
    for (const auto& [kind, most] :
         std::map<std::string, double>{{"literal", 95}, {"registered", 140}, {"dynamic", 195}})
      EXPECT_LE(Each(host, "loop " + kind + " 0", "loop " + kind + " 20000", 20000), most) << host << ", " << kind;
}

TEST_F(Instructions, OfAnNcclCallback) {
  // Measured 243, a begin's 96 bytes and four looked-up texts included: 37 to 50 ns.
  EXPECT_LE(Each(LOCKSTEP_BUILD_DIR "/tests/nccl_plugin_scenarios", "loop 5 0", "loop 5 2000", 2000 * 10), 280);
  EXPECT_EQ(nccl::NcclRecords(*segment_).Of(NcclEvent::kCollective).size(), 2010u);
}

TEST(ClockService, CostsNothingBetweenBursts) {
  clock::ClockServiceConfig config{.rank = 0};
  config.key.fill(42);
  const auto server = clock::ClockServer::Start(config);
  ASSERT_TRUE(server.ok());
  config.rank = 1;
  const auto client = clock::ClockClient::Start(
      config, 0, server.value()->address(), [](auto) {}, 0);
  ASSERT_TRUE(client.ok());
  const auto wait_for = [&](std::uint64_t bursts) {
    while (client.value()->bursts() < bursts) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  wait_for(1);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  wait_for(3);  // At least two pauses of 1 s.
  getrusage(RUSAGE_SELF, &after);
  const auto us = [](const timeval& t) { return t.tv_sec * 1'000'000 + t.tv_usec; };
  const auto used = us(after.ru_utime) + us(after.ru_stime) - us(before.ru_utime) - us(before.ru_stime);
  EXPECT_LT(used, 500'000);  // A side that spins uses 2,000,000.
}

}  // namespace
}  // namespace lockstep::probe
