// The agent's part of the GPU sources: flush requests, NVML samples.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/env.h"
#include "runtime/agent/sample/gpu_sampler.h"
#include "runtime/agent/sample/nvml.h"
#include "runtime/agent/window/gpu_flush.h"
#include "tests/unit/eventually.h"

namespace lockstep::agent {
namespace {

class GpuTest : public testing::Test {
 protected:
  GpuTest() {
    void* base = ::mmap(nullptr, kArenaOffset, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    view_ = {static_cast<std::byte*>(base), kArenaOffset};
    new (base) SegmentHeader{};
    ::setenv(env::kNvml, LOCKSTEP_BUILD_DIR "/tests/libfake_nvml.so", 1);
    ::unsetenv("LOCKSTEP_FAKE_NVML");
  }
  ~GpuTest() override {
    ::unsetenv(env::kNvml);
    ::unsetenv("LOCKSTEP_FAKE_NVML");
    ::munmap(view_.base, view_.bytes);
  }
  ProcessEntry& Add(std::uint32_t cupti_state) {
    const std::uint32_t index = view_.header().processes_used.fetch_add(1);
    ProcessEntry& entry = view_.processes()[index];
    entry.generation = 1;
    entry.pid = ::getpid();
    entry.cupti_state.store(cupti_state);
    entry.state.store(SlotState::kActive);
    return entry;
  }
  void Record() {
    for (std::uint32_t i = 0; i <= kMaxProcesses; ++i) TurnState(view_.windows()[i], true);
  }
  static void Name(ProcessEntry& entry, std::uint8_t first) {
    std::memset(entry.gpu_uuids[entry.gpu_count], 0x11, 16);
    entry.gpu_uuids[entry.gpu_count][0] = first;
    entry.gpu_count.fetch_add(1);
  }
  // Up to `count` samples, or what came within a minute.
  std::vector<GpuSample> Collect(GpuSampler& sampler, std::size_t count) {
    std::vector<GpuSample> samples;
    (void)test::Eventually([&] {
      sampler.Follow(view_);
      for (const GpuSample& sample : sampler.Take()) samples.push_back(sample);
      if (trouble_.empty()) trouble_ = sampler.TakeTrouble();
      return samples.size() >= count || (!trouble_.empty() && samples.empty() && count == 1);
    });
    return samples;
  }

  SegmentView view_;
  std::string trouble_;
};

TEST_F(GpuTest, OnlyProcessesThatRecordAreAskedAndAnswersCount) {
  GpuFlush flush(view_);
  EXPECT_FALSE(flush.Ask());
  EXPECT_TRUE(flush.Answered());
  ProcessEntry& idle = Add(0);
  ProcessEntry& refused = Add(2);
  EXPECT_FALSE(flush.Ask());
  ProcessEntry& recording = Add(1);
  recording.gpu_flush_wanted.store(0xffffffffu);  // Numbers wrap.
  recording.gpu_flush_done.store(0xffffffffu);
  ASSERT_TRUE(flush.Ask());
  EXPECT_EQ(recording.gpu_flush_wanted.load(), 0u);
  EXPECT_EQ(idle.gpu_flush_wanted.load() + refused.gpu_flush_wanted.load(), 0u);
  EXPECT_FALSE(flush.Answered());
  recording.gpu_flush_done.store(0);
  EXPECT_TRUE(flush.Answered());
  ASSERT_TRUE(flush.Ask());
  EXPECT_FALSE(flush.Answered());
  recording.cupti_state.store(3);  // Another profiler took CUPTI: nobody will answer.
  EXPECT_TRUE(flush.Answered());
  recording.cupti_state.store(1);
  EXPECT_FALSE(flush.Answered());
  recording.generation = 2;  // The place has another process now.
  EXPECT_TRUE(flush.Answered());
  recording.generation = 1;
  recording.pid = 0x3fffffff;  // Nobody: killed.
  EXPECT_TRUE(flush.Answered());
}

TEST_F(GpuTest, SamplesOfTheDevicesInUseWhileRecording) {
  GpuSampler unused({}), off({}), sampler({});
  ProcessEntry& first = Add(1);
  unused.Follow(view_);  // Nobody uses a GPU.
  Name(first, 7);
  Name(Add(1), 7);    // Two processes on one device: it is read once.
  off.Follow(view_);  // Recording is off.
  Record();
  const std::vector<GpuSample> samples = Collect(sampler, 3);
  ASSERT_GE(samples.size(), 3u);
  EXPECT_TRUE(unused.Take().empty());
  EXPECT_TRUE(off.Take().empty());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].uuid[0], 7);
    EXPECT_EQ(samples[i].sm_clock_mhz, 1007 - i);
    EXPECT_EQ(samples[i].memory_clock_mhz, 2619u);
    EXPECT_EQ(samples[i].power_mw, 300'007u);
    EXPECT_EQ(samples[i].temperature_c, 40u);
    EXPECT_EQ(samples[i].utilization_percent, 97u);
    EXPECT_EQ(samples[i].throttle_reasons, 4u);
    if (i > 0) {
      EXPECT_GT(samples[i].ticks, samples[i - 1].ticks);
      EXPECT_GE(samples[i].ticks - samples[i - 1].ticks, 90'000'000u);  // At most ten a second.
    }
  }
  EXPECT_EQ(trouble_, "");
}

TEST_F(GpuTest, WhatADeviceDoesNotTellIsUnknown) {
  ::setenv("LOCKSTEP_FAKE_NVML", "mute", 1);
  GpuSampler sampler({});
  Name(Add(1), 9);
  Record();
  const std::vector<GpuSample> samples = Collect(sampler, 1);
  ASSERT_FALSE(samples.empty());
  EXPECT_EQ(samples[0].utilization_percent, 0xffffffffu);
  EXPECT_EQ(samples[0].throttle_reasons, 0u);
  EXPECT_EQ(samples[0].temperature_c, 40u);
}

TEST_F(GpuTest, FailuresAreToldOnceAndHurtNobody) {
  const auto trouble = [&](const char* mode, const char* library) {
    ::setenv("LOCKSTEP_FAKE_NVML", mode, 1);
    if (library != nullptr) ::setenv(env::kNvml, library, 1);
    GpuSampler sampler({});
    Record();
    trouble_.clear();
    EXPECT_TRUE(Collect(sampler, 1).empty());
    EXPECT_EQ(sampler.TakeTrouble(), "");
    return trouble_;
  };
  Name(Add(1), 5);
  EXPECT_NE(trouble("refuse", nullptr).find("Insufficient Permissions (4)"), std::string::npos);
  EXPECT_NE(trouble("lose:0", nullptr).find("gives no readings"), std::string::npos);
  EXPECT_NE(trouble("", "/no/such/libnvidia-ml.so.1").find("/no/such/libnvidia-ml.so.1"), std::string::npos);
  EXPECT_NE(trouble("", "libm.so.6").find("lacks"), std::string::npos);
}

// Whoever waited for it would wait for ever.
TEST_F(GpuTest, AHangingDriverHoldsNobodyUp) {
  ::setenv("LOCKSTEP_FAKE_NVML", "hang", 1);
  Name(Add(1), 5);
  Record();
  void* const library = ::dlopen(std::getenv(env::kNvml), RTLD_NOW);
  const auto& hanging = *static_cast<std::atomic<int>*>(::dlsym(library, "fake_nvml_hanging"));
  GpuSampler sampler({});
  EXPECT_TRUE(test::Eventually([&] {
    sampler.Follow(view_);
    return hanging > 0;
  }));
  EXPECT_TRUE(sampler.Take().empty());
}

TEST(Nvml, UuidsAreWrittenAsNvidiaSmiDoes) {
  GpuUuid uuid;
  for (std::uint8_t i = 0; i < 16; ++i) uuid[i] = static_cast<std::uint8_t>(i * 17);
  EXPECT_EQ(UuidText(uuid, "GPU"), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

}  // namespace
}  // namespace lockstep::agent
