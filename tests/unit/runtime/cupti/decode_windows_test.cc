// Which window GPU work belongs to: the one in which it was launched, whenever it ran and whenever CUPTI tells it.

#include <algorithm>
#include <random>
#include <set>

#include "tests/unit/runtime/cupti/decode_fixture.h"

namespace lockstep::cupti {
namespace {

class DecodeWindows : public DecodeTest {
 protected:
  // On from 3 to 5 and from 7 to 8 million ticks.
  void SetUp() override {
    DecodeTest::SetUp();
    Own().recording = 0;
    ASSERT_TRUE(Use(130001));
    SwitchHistory& switches = Own().switches;
    switches.Note(true, 3'000'000);
    switches.Note(false, 5'000'000);
    switches.Note(true, 7'000'000);
    switches.Note(false, 8'000'000);
    decoder_->windows().Follow(Own());
  }
  static bool On(std::uint64_t ticks) {
    return (ticks >= 3'000'000 && ticks < 5'000'000) || (ticks >= 7'000'000 && ticks < 8'000'000);
  }
  static ApiRecord Launch(std::uint32_t correlation, std::uint64_t at, std::uint32_t callback = 211) {
    ApiRecord call{};
    call.kind = kKindRuntime;
    call.callback = callback;
    call.start = at;
    call.end = at + 1000;
    call.correlation = correlation;
    return call;
  }
  static KernelRecord Kernel(std::uint32_t correlation, std::uint64_t begin) {
    KernelRecord kernel = AKernel();
    kernel.correlation = correlation;
    kernel.start = begin;
    kernel.end = begin + 1000;
    return kernel;
  }
  struct Written {
    std::multiset<std::uint32_t> kernels, copies, events;
    std::vector<GpuKernelRecord> after;
    std::map<std::string, std::uint64_t> losses;
  };
  Written Take() {
    output_->WriteLosses();
    const auto records = Records();
    Written written;
    for (const probe::TestRecord& record : records) {
      if (record.kind == RecordKind::kGpuKernel && (record.flags & kGpuAfterWindow) != 0)
        written.after.push_back(record.As<GpuKernelRecord>());
      else if (record.kind == RecordKind::kGpuKernel)
        written.kernels.insert(record.As<GpuKernelRecord>().correlation);
      if (record.kind == RecordKind::kGpuCopy) written.copies.insert(record.As<GpuCopyRecord>().correlation);
      if (record.kind == RecordKind::kGpuSync) written.events.insert(record.As<GpuSyncRecord>().correlation);
    }
    written.losses = Losses(records);
    return written;
  }
};
using Ids = std::multiset<std::uint32_t>;

TEST_F(DecodeWindows, WorkBelongsToTheWindowOfItsLaunch) {
  Add(Launch(1, 2'900'000));
  Add(Launch(2, 3'100'000));
  Add(Launch(3, 4'900'000));
  Add(Launch(4, 5'100'000));
  Add(Launch(5, 7'500'000, 41));
  Add(Kernel(1, 3'500'000));   // Launched before, ran within.
  Add(Kernel(2, 60'000'000));  // Launched within, ran long after.
  Add(Kernel(3, 7'100'000));   // Ran in the next window.
  Add(Kernel(4, 7'200'000));
  CopyRecord copy{};
  copy.kind = kKindMemcpy;
  copy.start = 9'000'000;
  copy.end = 9'500'000;
  copy.correlation = 5;
  Add(copy);
  EventRecord event{};
  event.kind = kKindCudaEvent;
  event.event = 1;
  event.correlation = 3;
  event.device_timestamp = 5'500'000;
  Add(event);
  event.correlation = 4;
  event.device_timestamp = 7'500'000;
  Add(event);
  Decode();
  const Written written = Take();
  EXPECT_EQ(written.kernels, (Ids{2, 3}));
  EXPECT_EQ(written.copies, Ids{5});
  EXPECT_EQ(written.events, Ids{3});
  EXPECT_EQ(written.losses,
            (std::map<std::string, std::uint64_t>{
                {"GpuOutOfWindow: calls", 2}, {"GpuOutOfWindow: kernels", 2}, {"GpuOutOfWindow: event records", 1}}));
}

TEST_F(DecodeWindows, LaunchesMayBeToldAfterTheirWork) {
  Add(Kernel(1, 3'500'000));
  Add(Kernel(2, 60'000'000));
  Decode();
  EXPECT_EQ(Take().kernels, Ids{});
  EXPECT_EQ(decoder_->HeldSince(), 3'500'000u);
  decoder_->Round(false);
  Add(Launch(1, 2'900'000));
  Add(Launch(2, 3'100'000));
  Decode();
  const Written written = Take();
  EXPECT_EQ(written.kernels, Ids{2});
  EXPECT_EQ(decoder_->HeldSince(), ~std::uint64_t{0});
  EXPECT_EQ(written.losses.count("GpuLaunchUnknown: kernels"), 0u);
}

TEST_F(DecodeWindows, AGraphsKernelsHaveOneLaunch) {
  Add(Launch(1, 4'000'000, 311));
  Add(Launch(2, 6'000'000, 311));
  for (std::uint64_t i = 0; i < 100; ++i) {
    Add(Kernel(1, 7'000'000 + i * 10'000));
    Add(Kernel(2, 7'000'000 + i * 10'000 + 5000));
  }
  GraphRecord graph{};
  graph.kind = kKindGraphTrace;
  graph.start = 6'500'000;
  graph.end = 6'600'000;
  graph.correlation = 1;
  Add(graph);
  Decode();
  EXPECT_EQ(Take().kernels.count(1), 101u);
}

TEST_F(DecodeWindows, LaunchesThatAreNeverToldAreCountedAndPlacedByTime) {
  Add(Kernel(1, 3'500'000));
  Add(Kernel(2, 6'500'000));
  Decode();
  for (int i = 0; i < 3; ++i) decoder_->Round(false);
  EXPECT_EQ(Take().kernels, Ids{});
  for (int i = 0; i < 3; ++i) decoder_->Round(false);
  Written written = Take();
  EXPECT_EQ(written.kernels, Ids{1});
  EXPECT_EQ(written.losses.at("GpuLaunchUnknown: kernels"), 2u);
  EXPECT_EQ(written.losses.at("GpuOutOfWindow: kernels"), 1u);
  // At the end nothing more can come.
  Add(Kernel(3, 3'500'000));
  Decode();
  decoder_->Round(true);
  written = Take();
  EXPECT_EQ(written.kernels, Ids{3});
  EXPECT_EQ(written.losses.at("GpuLaunchUnknown: kernels"), 1u);
  // The GPU launched it: there is no call to wait for.
  DeviceGraphRecord graph{};
  graph.kind = kKindDeviceGraphTrace;
  graph.start = 3'600'000;
  graph.end = 3'700'000;
  decoder_->Record(&graph, sizeof graph);
  written = Take();
  EXPECT_EQ(written.kernels, Ids{0});
  EXPECT_EQ(written.losses.at("GpuLaunchUnknown: graphs that the GPU launched"), 1u);
}

TEST_F(DecodeWindows, WhatWaitsIsBounded) {
  constexpr std::uint32_t kKernels = 200'000;
  std::uint64_t kept = 0, unknown = 0;
  const auto take = [&] {
    const Written written = Take();
    kept += written.kernels.size();
    if (const auto at = written.losses.find("GpuLaunchUnknown: kernels"); at != written.losses.end())
      unknown += at->second;
  };
  for (std::uint32_t i = 1; i <= kKernels; ++i) {
    Add(Kernel(i, 3'500'000));
    if (i % 1000 == 0) Decode(), take();
  }
  EXPECT_EQ(kept, unknown);
  EXPECT_EQ(kKernels - kept, 1u << 16);
  for (std::uint32_t i = 1; i <= kKernels; ++i) {
    Add(Launch(i, 3'400'000));
    if (i % 1000 == 0) Decode(), take();
  }
  EXPECT_EQ(kept, kKernels);
}

TEST_F(DecodeWindows, IdsBeginAgain) {
  for (std::uint32_t i = 0xffffff00u; i != 0x100u; ++i) {
    Add(Launch(i, i % 2 != 0 ? 4'000'000 : 6'000'000));
    if (i % 64 == 0) Decode();
  }
  Decode();
  for (std::uint32_t i = 0xffffff00u; i != 0x100u; ++i)
    if (i != 0) Add(Kernel(i, 6'000'000));
  Decode();
  const Written written = Take();
  EXPECT_EQ(written.kernels.size(), 256u);
  for (const std::uint32_t id : written.kernels) EXPECT_EQ(id % 2, 1u);
}

// The runtime's call and the driver's within it have one id, and the inner one is told first.
TEST_F(DecodeWindows, TheOuterCallCounts) {
  ApiRecord inner = Launch(1, 3'000'100, 307);
  inner.kind = kKindDriver;
  Add(inner);
  Add(Launch(1, 2'999'900));
  Add(Kernel(1, 4'000'000));
  Decode();
  EXPECT_EQ(Take().kernels, Ids{});
}

TEST_F(DecodeWindows, TheFirstKernelAfterAWindowEndsItsLastStep) {
  Add(Launch(1, 4'900'000));
  Add(Launch(3, 5'300'000));
  Add(Launch(2, 5'200'000));  // Another thread's buffer.
  Add(Launch(4, 8'100'000, 311));
  Add(Kernel(1, 20'000'000));
  Add(Kernel(3, 22'000'000));
  Add(Kernel(2, 23'000'000));
  Add(Kernel(4, 26'000'000));
  Add(Kernel(4, 25'000'000));
  Decode();
  const Written written = Take();
  EXPECT_EQ(written.kernels, Ids{1});
  ASSERT_EQ(written.after.size(), 3u);
  EXPECT_EQ(written.after[0].launch_ticks, 5'200'000u);
  EXPECT_EQ(written.after[0].begin_ticks, 23'000'000u);
  EXPECT_EQ(written.after[1].launch_ticks, 8'100'000u);
  EXPECT_EQ(written.after[2].begin_ticks, 25'000'000u);
}

// Any order of buffers, any lag of the GPU: what is kept is what was launched while recording was on.
TEST_F(DecodeWindows, AnyOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> launches;
    Ids expected;
    const std::uint32_t first = 1'000'000u * static_cast<std::uint32_t>(round) + 1;
    for (std::uint32_t i = 0; i < 2000; ++i) {
      launches.emplace_back(first + i, 2'000'000 + random() % 8'000'000);
      if (On(launches.back().second)) expected.insert(first + i);
    }
    std::vector<int> order;
    for (int i = 0; i < 4000; ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) {
      const auto& [id, at] = launches[static_cast<std::size_t>(i / 2)];
      if (i % 2 == 0)
        Add(Launch(id, at));
      else
        Add(Kernel(id, at + random() % 100'000'000));
      if (random() % 200 == 0) Decode();
    }
    Decode();
    EXPECT_EQ(Take().kernels, expected);
  }
}

}  // namespace
}  // namespace lockstep::cupti
