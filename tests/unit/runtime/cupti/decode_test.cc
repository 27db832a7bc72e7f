// Hand-built buffers of every kind, through the real iterator and those of older versions.

#include "tests/unit/runtime/cupti/decode_fixture.h"

namespace lockstep::cupti {
namespace {

class Versions : public DecodeTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override {
    DecodeTest::SetUp();
    if (!Use(GetParam())) GTEST_SKIP() << "no libcupti on this machine";
  }
};
// 0 the real library; 12 = CUDA 10 (Kernel4), 13 = 11.0 (5), 14 = 11.1 (6), 17 = 11.6 (7), 18 = 11.8 (8), 24 = 12.6
// (9), 26 = 12.8, 130001 (10), 130200 as a stand-in for one that is not known yet.
INSTANTIATE_TEST_SUITE_P(Cupti, Versions, ::testing::Values(0u, 12u, 13u, 14u, 17u, 18u, 24u, 26u, 130001u, 130200u));

TEST_P(Versions, KernelsHaveTheirValues) {
  Add(AKernel());
  KernelRecord second = AKernel();
  second.correlation = 4712;
  second.start += 1'000'000;
  second.end += 1'000'000;
  Add(second);
  EXPECT_EQ(Decode(), 2u);
  const auto records = Records();
  ASSERT_EQ(records.size(), 3u);  // The geometry once.
  ASSERT_EQ(records[0].kind, RecordKind::kGpuShape);
  const auto shape = records[0].As<GpuShapeRecord>();
  EXPECT_EQ(shape.grid[0], 80);
  EXPECT_EQ(shape.grid[1], 2);
  EXPECT_EQ(shape.block[0], 256);
  EXPECT_EQ(shape.block[2], 4);
  EXPECT_EQ(shape.registers_per_thread, 48u);
  EXPECT_EQ(shape.static_shared_bytes, 1024u);
  EXPECT_EQ(shape.dynamic_shared_bytes, 4096u);
  EXPECT_EQ(shape.local_bytes_per_thread, 16u);
  EXPECT_EQ(shape.cluster_size, api_.version >= 18 ? 2u : 0u);
  ASSERT_EQ(records[1].kind, RecordKind::kGpuKernel);
  const auto kernel = records[1].As<GpuKernelRecord>();
  EXPECT_EQ(strings_[kernel.name], "_Z4gemmPKfPf");
  EXPECT_EQ(kernel.begin_ticks, 2'000'000u);
  EXPECT_EQ(kernel.end_ticks, 2'500'000u);
  EXPECT_EQ(kernel.device, 3);
  EXPECT_EQ(kernel.context, 1u);
  EXPECT_EQ(kernel.stream, 21u);
  EXPECT_EQ(kernel.correlation, 4711u);
  EXPECT_EQ(kernel.shape, shape.id);
  EXPECT_EQ(kernel.graph_node, api_.version >= 13 ? 0x500000007u : 0u);
  EXPECT_EQ(kernel.graph, api_.version >= 13 ? 9u : 0u);
  EXPECT_EQ(records[2].As<GpuKernelRecord>().shape, shape.id);
  EXPECT_EQ(records[2].As<GpuKernelRecord>().name, kernel.name);
}

TEST_P(Versions, CopiesAndMemsets) {
  CopyRecord copy{};
  copy.kind = kKindMemcpy;
  copy.copy_kind = 1;
  copy.source_kind = 2;
  copy.destination_kind = 3;
  copy.flags = 1;
  copy.bytes = 1 << 20;
  copy.start = 3'000'000;
  copy.end = 3'100'000;
  copy.device = 1;
  copy.context = 2;
  copy.stream = 7;
  copy.correlation = 5;
  copy.graph_node = 77;
  copy.graph = 8;
  Add(copy);
  copy.copy_kind = 2;
  copy.source_kind = 3;
  copy.destination_kind = 1;
  copy.flags = 0;
  Add(copy);
  copy.copy_kind = 8;
  Add(copy);
  PeerCopyRecord peer{};
  peer.kind = kKindMemcpyPeer;
  peer.copy_kind = 10;
  peer.bytes = 4096;
  peer.start = 4'000'000;
  peer.end = 4'100'000;
  peer.device = 1;
  peer.source_device = 1;
  peer.destination_device = 4;
  peer.correlation = 6;
  peer.graph_node = 78;
  Add(peer);
  MemsetRecord set{};
  set.kind = kKindMemset;
  set.bytes = 64;
  set.start = 5'000'000;
  set.end = 5'000'500;
  set.device = 2;
  set.correlation = 9;
  set.flags = 1;
  set.memory_kind = 3;
  set.graph_node = 79;
  Add(set);
  EXPECT_EQ(Decode(), 5u);
  const auto records = Records();
  ASSERT_EQ(records.size(), 5u);
  const auto up = records[0].As<GpuCopyRecord>(), down = records[1].As<GpuCopyRecord>(),
             within = records[2].As<GpuCopyRecord>(), across = records[3].As<GpuCopyRecord>(),
             zeroed = records[4].As<GpuCopyRecord>();
  EXPECT_EQ(up.kind, 1);
  EXPECT_EQ(up.host_memory, 2);
  EXPECT_EQ(up.head.flags, 1);
  EXPECT_EQ(up.bytes, 1u << 20);
  EXPECT_EQ(up.source_device, 65535);
  EXPECT_EQ(up.destination_device, 1);
  EXPECT_EQ(up.correlation, 5u);
  EXPECT_EQ(up.begin_ticks, 3'000'000u);
  EXPECT_EQ(up.graph_node, api_.version >= 13 ? 77u : 0u);
  EXPECT_EQ(up.graph, api_.version >= 14 ? 8u : 0u);
  EXPECT_EQ(down.kind, 2);
  EXPECT_EQ(down.host_memory, 1);
  EXPECT_EQ(down.head.flags, 0);
  EXPECT_EQ(down.source_device, 1);
  EXPECT_EQ(down.destination_device, 65535);
  EXPECT_EQ(within.kind, 3);
  EXPECT_EQ(within.source_device, 1);
  EXPECT_EQ(within.destination_device, 1);
  EXPECT_EQ(across.kind, 4);
  EXPECT_EQ(across.source_device, 1);
  EXPECT_EQ(across.destination_device, 4);
  EXPECT_EQ(across.graph_node, api_.version >= 13 ? 78u : 0u);
  EXPECT_EQ(zeroed.kind, 6);
  EXPECT_EQ(zeroed.bytes, 64u);
  EXPECT_EQ(zeroed.device, 2);
  EXPECT_EQ(zeroed.graph_node, api_.version >= 13 ? 79u : 0u);
}

TEST_P(Versions, SynchronisationsAndEvents) {
  SyncRecord sync{};
  sync.kind = kKindSynchronization;
  sync.type = 3;
  sync.start = 6'000'000;
  sync.end = 6'700'000;
  sync.correlation = 31;
  sync.context = 1;
  sync.stream = 21;
  sync.event = 0xffffffffu;
  Add(sync);
  sync.type = 2;  // A stream waits: an edge, kept without times of its own.
  sync.start = sync.end = 0;
  sync.event = 12;
  sync.event_sync = 99;
  Add(sync);
  EventRecord event{};
  event.kind = kKindCudaEvent;
  event.correlation = 33;
  event.context = 1;
  event.stream = 20;
  event.event = 12;
  event.device = 2;
  event.device_timestamp = 6'100'000;
  event.event_sync = 99;
  Add(event);
  event.device_timestamp = 17;  // Not of this clock: the time is its call's.
  Add(event);
  EXPECT_EQ(Decode(), 4u);
  const auto records = Records();
  ASSERT_EQ(records.size(), 4u);
  const auto waited = records[0].As<GpuSyncRecord>(), edge = records[1].As<GpuSyncRecord>(),
             recorded = records[2].As<GpuSyncRecord>(), strange = records[3].As<GpuSyncRecord>();
  EXPECT_EQ(waited.head.flags, 3);
  EXPECT_EQ(waited.begin_ticks, 6'000'000u);
  EXPECT_EQ(waited.end_ticks, 6'700'000u);
  EXPECT_EQ(waited.event, 0u);
  EXPECT_EQ(waited.stream, 21u);
  EXPECT_EQ(waited.correlation, 31u);
  EXPECT_EQ(edge.head.flags, 2);
  EXPECT_EQ(edge.begin_ticks, 0u);
  EXPECT_EQ(edge.event, 12u);
  EXPECT_EQ(edge.event_sync, api_.version >= 26 ? 99u : 0u);
  EXPECT_EQ(recorded.head.flags, 5);
  EXPECT_EQ(recorded.event, 12u);
  EXPECT_EQ(recorded.stream, 20u);
  EXPECT_EQ(recorded.begin_ticks, api_.version >= 26 ? 6'100'000u : 0u);
  EXPECT_EQ(recorded.end_ticks, recorded.begin_ticks);
  EXPECT_EQ(recorded.event_sync, api_.version >= 26 ? 99u : 0u);
  EXPECT_EQ(recorded.device, api_.version >= 26 ? 2 : 65535);
  EXPECT_EQ(strange.begin_ticks, 0u);
}

TEST_P(Versions, CallsOverheadsDevicesGraphsMemory) {
  ApiRecord call{};
  call.kind = kKindRuntime;
  call.callback = 211;
  call.start = 1'900'000;
  call.end = 1'910'000;
  call.process = 1;
  call.thread = 4242;
  call.correlation = 4711;
  Add(call);
  call.callback = 13;  // cudaGetDevice: nobody wants it.
  Add(call);
  call.kind = kKindDriver;
  call.callback = 307;
  call.result = 700;
  Add(call);
  OverheadRecord overhead{};
  overhead.kind = kKindOverhead;
  overhead.overhead = 5u << 16;
  overhead.object_kind = kObjectThread;
  overhead.object[1] = 4243;
  overhead.start = 1'950'000;
  overhead.end = 1'960'000;
  Add(overhead);
  DeviceRecord device{};
  device.kind = kKindDevice;
  device.memory_bytes = 1000;
  device.memory_bandwidth = 2;
  device.threads_per_warp = 32;
  device.max_warps_per_multiprocessor = 64;
  device.multiprocessors = 132;
  device.core_clock_khz = 1'980'000;
  device.compute_major = 9;
  device.id = 3;
  device.uuid[15] = 0xab;
  device.name = "GPU";
  Add(device);
  ContextRecord context{};
  context.kind = kKindContext;
  context.device = 3;
  Add(context);
  GraphRecord graph{};
  graph.kind = kKindGraphTrace;
  graph.correlation = 50;
  graph.start = 7'000'000;
  graph.end = 7'900'000;
  graph.graph = 5;
  graph.stream = 7;
  Add(graph);
  MemoryRecord2 memory{};
  memory.kind = kKindMemory2;
  memory.operation = 1;
  memory.memory_kind = 3;
  memory.address = 0x7f00;
  memory.bytes = 512;
  memory.timestamp = 8'000'000;
  memory.device = 3;
  memory.pool_type = 1;
  memory.pool_bytes = 1024;
  memory.pool_used_bytes = 600;
  Add(memory);
  Decode();
  const auto records = Records();
  ASSERT_EQ(records.size(), 6u);
  ASSERT_EQ(records[0].kind, RecordKind::kGpuApi);
  const auto launch = records[0].As<GpuApiRecord>(), failed = records[1].As<GpuApiRecord>();
  EXPECT_EQ(launch.head.flags, 1);
  EXPECT_EQ(launch.head.slots, 1);
  EXPECT_EQ(strings_[launch.name], "cudaLaunchKernel");
  EXPECT_EQ(launch.tid, 4242u);
  EXPECT_EQ(launch.correlation, 4711u);
  EXPECT_EQ(failed.head.flags, 1 | 128);
  EXPECT_EQ(failed.head.slots, 2);
  EXPECT_EQ(strings_[failed.name], "cuLaunchKernel");
  GpuApiResult result;
  std::memcpy(static_cast<void*>(&result), records[1].bytes.data() + sizeof failed, sizeof result);
  EXPECT_EQ(result.result, 700);
  const auto lazy = records[2].As<GpuOverheadRecord>();
  EXPECT_EQ(lazy.head.flags, 5);
  EXPECT_EQ(lazy.tid, 4243u);
  EXPECT_EQ(lazy.begin_ticks, 1'950'000u);
  const auto gpu = records[3].As<GpuDeviceRecord>();
  EXPECT_EQ(strings_[gpu.name], "GPU");
  EXPECT_EQ(gpu.sm_count, 132u);
  EXPECT_EQ(gpu.max_threads_per_sm, 2048u);
  EXPECT_EQ(gpu.uuid[15], 0xab);
  EXPECT_EQ(gpu.memory_bandwidth_bytes_per_second, 2000u);
  EXPECT_EQ(gpu.device, 3);
  EXPECT_EQ(gpu.compute_major, 9);
  EXPECT_EQ(decoder_->used_devices().used, 1u);
  EXPECT_EQ(decoder_->used_devices().uuid[0][15], 0xab);
  const auto whole = records[4].As<GpuKernelRecord>();
  EXPECT_EQ(whole.head.flags, kGpuWholeGraph);
  EXPECT_EQ(whole.graph, 5u);
  EXPECT_EQ(whole.end_ticks, 7'900'000u);
  const auto allocated = records[5].As<GpuMemoryRecord>();
  EXPECT_EQ(allocated.head.flags, 1);
  EXPECT_EQ(allocated.bytes, 512u);
  EXPECT_EQ(allocated.pool_reserved_bytes, 1024u);
  EXPECT_EQ(allocated.pool_used_bytes, api_.version >= 18 ? 600u : 0u);
}

TEST_P(Versions, DoubtfulRecordsAreCounted) {
  KernelRecord kernel = AKernel();
  Add(kernel);
  kernel.start = kernel.end = 0;
  Add(kernel);
  kernel.start = 1'770'000'000'000'000'000;  // CLOCK_REALTIME: somebody changed the clock.
  kernel.end = kernel.start + 1000;
  Add(kernel);
  kernel = AKernel();
  kernel.end = kernel.start - 1;
  Add(kernel);
  struct {
    std::uint32_t kind = 11;
    std::uint8_t rest[28] = {};
  } other;
  Add(other);
  Add(AKernel());
  EXPECT_EQ(Decode(), 6u);
  const auto records = Records();
  EXPECT_EQ(records.size(), 1 + 2 + 4u);
  const auto losses = Losses(records);
  EXPECT_EQ(losses.at("GpuTimesMissing: kernels"), 1u);
  EXPECT_EQ(losses.at("GpuClockTaken: kernels"), 1u);
  EXPECT_EQ(losses.at("GpuTimesReversed: kernels"), 1u);  // Nobody's clock: CUPTI does not order all times.
  EXPECT_EQ(losses.at("GpuRecordUnknown: kind 11"), 1u);
}

TEST_P(Versions, CutBuffersGiveWhatIsWhole) {
  Add(AKernel());
  Add(AKernel());
  const std::size_t whole = buffer_.size();
  const std::vector<std::uint8_t> all = buffer_;
  for (std::size_t bytes = 0; bytes <= whole; bytes += bytes % 8 == 0 ? 1 : 7) {
    buffer_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(bytes));
    const std::uint64_t expected = bytes / (whole / 2);
    EXPECT_EQ(Decode(), expected) << bytes;
    const auto losses = Losses(Records());
    EXPECT_EQ(losses.contains("GpuBufferCut"), bytes % (whole / 2) != 0) << bytes;
  }
}

TEST_P(Versions, KindsThatNobodyKnowsEndTheBuffer) {
  Add(AKernel());
  buffer_.resize(buffer_.size() + 64);
  buffer_[buffer_.size() - 64] = 63;
  EXPECT_EQ(Decode(), 1u);
  EXPECT_EQ(Losses(Records()).at("GpuRecordUnknown: kind 63"), 1u);
}

TEST_F(DecodeTest, ManySwitchesAreRemembered) {
  Windows windows;
  ProcessWindow& own = Own();
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    own.switches.Note(i % 2 == 0, i * 10);
    if (i % 50 == 0) windows.Follow(own);
  }
  windows.Follow(own);
  for (std::uint64_t i = 19'000; i < 20'000; ++i) {
    EXPECT_EQ(windows.On(i * 10), i % 2 == 0) << i;
    EXPECT_EQ(windows.On(i * 10 + 9), i % 2 == 0) << i;
  }
  // More than the history holds between two looks: what is not known counts as recorded.
  for (std::uint64_t i = 1; i <= 200; ++i) own.switches.Note(i % 2 != 0, 300'000 + i * 10);
  windows.Follow(own);
  EXPECT_TRUE(windows.On(300'500));
  EXPECT_FALSE(windows.On(302'000));
}

TEST_F(DecodeTest, TimesOfCuptisOwnClockAreConverted) {
  ASSERT_TRUE(Use(13));
  TimeScale scale;
  scale.foreign = true;
  scale.from = 1'770'000'000'000'000'000;
  scale.ticks = 500'000'000;
  scale.ticks_per_unit = 2.5;
  decoder_->Scale(scale);
  KernelRecord kernel = AKernel();
  kernel.start = scale.from - 1'000'000;
  kernel.end = scale.from + 2'000;
  Add(kernel);
  Decode();
  const auto records = Records();
  const auto written = records.back().As<GpuKernelRecord>();
  EXPECT_EQ(written.begin_ticks, 497'500'000u);
  EXPECT_EQ(written.end_ticks, 500'005'000u);
}

TEST_F(DecodeTest, NamesAreComparedNotTrusted) {
  ASSERT_TRUE(Use(130001));
  char name[64] = "_Z5firstv";
  KernelRecord kernel = AKernel();
  kernel.name = name;
  Add(kernel);
  Decode();
  std::strcpy(name, "_Z6secondv");  // A module was unloaded, another has the address.
  Add(kernel);
  kernel.name = nullptr;
  Add(kernel);
  Decode();
  std::vector<std::string> names;
  for (const probe::TestRecord& record : Records())
    if (record.kind == RecordKind::kGpuKernel) names.push_back(strings_[record.As<GpuKernelRecord>().name]);
  EXPECT_EQ(names, (std::vector<std::string>{"_Z5firstv", "_Z6secondv", ""}));
}

TEST_F(DecodeTest, ThousandsOfNamesAndShapesStayRight) {
  ASSERT_TRUE(Use(130001));
  std::vector<std::string> texts;
  for (int i = 0; i < 6000; ++i) texts.push_back("_Z6kernel" + std::to_string(i) + std::string(900, 'x'));
  std::size_t right = 0, seen = 0;
  std::map<std::uint32_t, std::int32_t> shapes;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 6000; ++i) {
      KernelRecord kernel = AKernel();
      kernel.name = texts[static_cast<std::size_t>(i)].c_str();
      kernel.grid[0] = i;
      Add(kernel);
      Decode();
      for (const probe::TestRecord& record : Records()) {
        if (record.kind == RecordKind::kGpuShape)
          shapes[record.As<GpuShapeRecord>().id] = record.As<GpuShapeRecord>().grid[0];
        if (record.kind != RecordKind::kGpuKernel) continue;
        const auto written = record.As<GpuKernelRecord>();
        seen += 1;
        right += strings_[written.name] == texts[static_cast<std::size_t>(i)] && shapes[written.shape] == i;
      }
    }
  EXPECT_EQ(seen, 12'000u);
  EXPECT_EQ(right, seen);
}

TEST(Callbacks, KindsFollowNames) {
  EXPECT_EQ(KindOfFunction("cudaLaunchKernelExC_ptsz_v11060"), 1);
  EXPECT_EQ(KindOfFunction("cuLaunchCooperativeKernel"), 1);
  EXPECT_EQ(KindOfFunction("cudaMemcpy2DAsync_v3020"), 2);
  EXPECT_EQ(KindOfFunction("cuMemsetD32Async"), 2);
  EXPECT_EQ(KindOfFunction("cudaStreamSynchronize_v3020"), 3);
  EXPECT_EQ(KindOfFunction("cuCtxSynchronize"), 3);
  EXPECT_EQ(KindOfFunction("cudaGraphLaunch_v10000"), 4);
  EXPECT_EQ(KindOfFunction("cuGraphLaunch_ptsz"), 4);
  EXPECT_EQ(KindOfFunction("cudaMallocAsync_v11020"), 5);
  EXPECT_EQ(KindOfFunction("cuMemFree_v2"), 5);
  EXPECT_EQ(KindOfFunction("cudaEventRecord_v3020"), 6);
  EXPECT_EQ(KindOfFunction("cuStreamWaitEvent"), 6);
  for (const char* name : {"cudaGetDevice_v3020", "cudaEventQuery_v3020", "cudaGraphAddMemcpyNode_v10000",
                           "cuLaunchHostFunc", "cudaGraphAddKernelNode_v10000", "cuCtxGetCurrent", "INVALID"})
    EXPECT_EQ(KindOfFunction(name), 0) << name;
  char plain[64];
  ASSERT_TRUE(PlainName("cudaLaunchKernel_ptsz_v7000", plain, sizeof plain));
  EXPECT_STREQ(plain, "cudaLaunchKernel_ptsz");
  ASSERT_TRUE(PlainName("cuMemcpyHtoDAsync_v2", plain, sizeof plain));
  EXPECT_STREQ(plain, "cuMemcpyHtoDAsync");
  ASSERT_TRUE(PlainName("cuMemsetD32", plain, sizeof plain));
  EXPECT_STREQ(plain, "cuMemsetD32");
}

}  // namespace
}  // namespace lockstep::cupti
