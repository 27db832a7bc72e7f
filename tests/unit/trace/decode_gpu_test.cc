// CUPTI's records -> tables.

#include <cstring>

#include "decode_fixture.h"
#include "gpu_thread_records.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

class DecodeGpuTest : public DecodeTest {
 protected:
  std::string_view Text(const schema::RankTables& t, std::uint32_t id) { return TextOf(t, id); }
};

TEST_F(DecodeGpuTest, KernelsInOrderOfTimeWithReadableNames) {
  GpuThread gpu;
  gpu.records.Add(GpuShapeRecord{{RecordKind::kGpuShape, 0, 2}, 1, {4, 2, 1}, {128, 1, 1}, 32, 64, 128, 0, 0, {}});
  gpu.records.Add(GpuShapeRecord{{RecordKind::kGpuShape, 0, 2}, 2, {4, 2, 1}, {128, 1, 1}, 32, 64, 128, 0, 0, {}});
  gpu.Add(GpuThread::Kernel{.name = "_Z4gemmIfEvPKT_S2_Pfi", .begin = 300, .end = 350, .correlation = 9, .shape = 2});
  gpu.Add(GpuThread::Kernel{.name = "plain_c_kernel", .begin = 100, .end = 250, .correlation = 8, .shape = 1});
  gpu.Add(GpuThread::Kernel{.name = "", .begin = 400, .end = 480, .graph = 12, .flags = kGpuWholeGraph});
  gpu.Add(GpuThread::Kernel{.name = "_ZN3foo3barE not mangled", .begin = 500, .end = 490, .shape = 77});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  ASSERT_EQ(t.kernels.rows(), 4u);
  EXPECT_EQ(Text(t, t.kernels.name[0]), "plain_c_kernel");
  EXPECT_EQ(Text(t, t.kernels.name[1]), "void gemm<float>(float const*, float const*, float*, int)");
  EXPECT_EQ(Text(t, t.kernels.name[2]), "CUDA graph 12");
  EXPECT_EQ(Text(t, t.kernels.name[3]), "_ZN3foo3barE not mangled");
  EXPECT_EQ(t.kernels.begin_ns[1], 300);
  EXPECT_EQ(t.kernels.duration_ns[1], 50);
  EXPECT_EQ(t.kernels.duration_ns[3], 0);
  EXPECT_EQ(t.kernels.correlation[1], 9u);
  // Equal geometry is one row.
  ASSERT_EQ(t.kernel_shapes.rows(), 1u);
  EXPECT_EQ(t.kernels.shape[0], 0u);
  EXPECT_EQ(t.kernels.shape[1], 0u);
  EXPECT_EQ(t.kernels.shape[3], kNone);
  EXPECT_EQ(t.kernel_shapes.grid_y[0], 2);
  EXPECT_EQ(t.kernel_shapes.dynamic_shared_bytes[0], 128u);
  EXPECT_EQ(t.kernel_shapes.occupancy_percent[0], -1);
}

TEST_F(DecodeGpuTest, CommunicationKernelsAreKnownByName) {
  GpuThread gpu;
  gpu.Add(GpuThread::Kernel{.name = "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LLv", .begin = 100, .end = 200});
  gpu.Add(GpuThread::Kernel{.name = "_Z4gemmv", .begin = 300, .end = 350});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  EXPECT_EQ(t.kernels.work, (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(t.kernels.work_rule, (std::vector<std::uint8_t>{2, 0}));
  EXPECT_EQ(LossCount(t, "NcclKernelUntied"), 1u);
}

TEST_F(DecodeGpuTest, ThreadsWithoutRingGetRows) {
  GpuThread gpu;
  gpu.Add(GpuThread::Api{.name = "cudaLaunchKernel", .begin = 500, .end = 520, .correlation = 2, .tid = 100});
  gpu.Add(GpuThread::Api{.name = "cudaLaunchKernel", .begin = 100, .end = 120, .correlation = 1, .tid = 777});
  gpu.Add(GpuThread::Api{
      .name = "cudaMemcpy", .begin = 700, .end = 900, .correlation = 3, .tid = 900, .kind = 2, .result = 700});
  gpu.records.Add(GpuOverheadRecord{{RecordKind::kGpuOverhead, 5, 1}, 777, 200, 260, 0});
  gpu.records.Add(GpuOverheadRecord{{RecordKind::kGpuOverhead, 2, 1}, 0, 300, 310, 0});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  ASSERT_EQ(t.threads.rows(), 3u);  // The probe's with a ring, then those CUPTI names.
  EXPECT_EQ(t.threads.tid, (std::vector<std::int64_t>{900, 100, 777}));
  EXPECT_EQ(t.threads.training, (std::vector<std::uint8_t>{0, 1, 0})) << "the main thread, though it has no ring";
  EXPECT_EQ(t.threads.begin_ns[2], 100);
  EXPECT_EQ(t.threads.end_ns[2], 260);
  EXPECT_EQ(t.api.thread, (std::vector<std::uint32_t>{2, 1, 0}));
  EXPECT_EQ(t.api.result, (std::vector<std::int32_t>{0, 0, 700}));
  EXPECT_EQ(t.api.kind[2], 2);
  EXPECT_EQ(t.overheads.thread, (std::vector<std::uint32_t>{2, kNone}));
  EXPECT_EQ(t.overheads.kind[0], 5);
}

TEST_F(DecodeGpuTest, AThreadIdThatIsUsedAgainIsTheThreadOfThatTime) {
  GpuThread gpu;
  gpu.Add(GpuThread::Api{.name = "cudaLaunchKernel", .begin = 150, .end = 160, .correlation = 1, .tid = 5});
  gpu.Add(GpuThread::Api{.name = "cudaLaunchKernel", .begin = 2'150, .end = 2'160, .correlation = 2, .tid = 5});
  SpoolBuilder spool = GpuProcess(gpu);
  spool.Thread(1, 5).Records(ThreadRecords().String(1, "a").Range(1, 100, 200, 0), 1);
  spool.Thread(2, 5).Records(ThreadRecords().String(1, "b").Range(1, 2'100, 2'200, 0), 2);
  const schema::RankTables t = Tables(spool);
  ASSERT_EQ(t.api.rows(), 2u);
  EXPECT_NE(t.api.thread[0], t.api.thread[1]);
  EXPECT_EQ(t.threads.begin_ns[t.api.thread[0]], 100);
  EXPECT_EQ(t.threads.begin_ns[t.api.thread[1]], 2'100);
}

TEST_F(DecodeGpuTest, CopiesDevicesAndSamples) {
  GpuThread gpu;
  GpuCopyRecord copy{};
  copy.head = {RecordKind::kGpuCopy, 1, 2};
  copy.kind = 1, copy.host_memory = 2, copy.device = 3, copy.begin_ticks = 10, copy.end_ticks = 40;
  copy.correlation = 5, copy.stream = 7, copy.bytes = 4096, copy.source_device = 65535, copy.destination_device = 3;
  gpu.records.Add(copy);
  GpuDeviceRecord device{};
  device.head = {RecordKind::kGpuDevice, 0, 3};
  device.name = gpu.Name("NVIDIA H200");
  device.memory_bytes = 150'000'000'000;
  std::memset(device.uuid, 0xab, sizeof device.uuid);
  device.sm_count = 132, device.device = 3, device.compute_major = 9, device.driver_version = 13000;
  device.cupti_version = 130001;
  gpu.records.Add(device);
  gpu.records.Add(device);
  SpoolBuilder spool = GpuProcess(gpu);
  GpuSample sample{500, 4, {}, 1980, 2619, 700'000, 61, kNone, 0};
  std::memset(sample.uuid, 0xab, sizeof sample.uuid);
  GpuSample other = sample;
  other.uuid[0] = 1;
  other.ticks = 400;
  const GpuSample samples[] = {sample, other};
  spool.Block(SpoolKind::kGpuSamples, samples, sizeof samples);
  const schema::RankTables t = Tables(spool);
  ASSERT_EQ(t.copies.rows(), 1u);
  EXPECT_EQ(t.copies.source_device[0], -1);
  EXPECT_EQ(t.copies.destination_device[0], 3);
  EXPECT_EQ(t.copies.asynchronous[0], 1);
  EXPECT_EQ(t.copies.bytes[0], 4096u);
  ASSERT_EQ(t.devices.rows(), 1u);
  EXPECT_EQ(Text(t, t.devices.name[0]), "NVIDIA H200");
  EXPECT_EQ(MetaOf(t, "cupti_version"), "130001");
  ASSERT_EQ(t.gpu_samples.rows(), 2u);
  EXPECT_EQ(t.gpu_samples.time_ns, (std::vector<std::int64_t>{400, 500}));
  EXPECT_EQ(t.gpu_samples.device, (std::vector<std::uint16_t>{65535, 3}));
  EXPECT_EQ(t.gpu_samples.power_mw[1], 700'000u);
  EXPECT_EQ(t.gpu_samples.utilization_percent[1], kNone);
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 0u);
  EXPECT_EQ(LossCount(t, "SpoolBlock"), 0u);
}

// A wait is for the last record before the call, whatever the GPU's times say.
TEST_F(DecodeGpuTest, WaitsReferToTheLastRecordByOrderOfCalls) {
  GpuThread gpu;
  using Sync = GpuThread::Sync;
  gpu.Add(Sync{.kind = 5, .begin = 900, .end = 900, .correlation = 10, .stream = 7, .event = 1});
  gpu.Add(Sync{.kind = 5, .begin = 950, .end = 950, .correlation = 30, .stream = 8, .event = 1});
  gpu.Add(Sync{.kind = 5, .begin = 960, .end = 960, .correlation = 15, .stream = 9, .event = 2});
  gpu.Add(Sync{.kind = 2, .begin = 200, .end = 200, .correlation = 20, .stream = 20, .event = 1});
  gpu.Add(Sync{.kind = 2, .begin = 210, .end = 210, .correlation = 40, .stream = 20, .event = 1});
  gpu.Add(Sync{.kind = 1, .begin = 220, .end = 990, .correlation = 16, .event = 2});
  gpu.Add(Sync{.kind = 2, .begin = 230, .end = 230, .correlation = 5, .stream = 20, .event = 1});
  gpu.Add(Sync{.kind = 3, .begin = 240, .end = 250, .correlation = 50, .stream = 7});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  ASSERT_EQ(t.sync.rows(), 8u);
  EXPECT_EQ(t.sync.record_correlation, (std::vector<std::uint64_t>{10, 30, 15, 0, 0, 0, 0, 0}));
  EXPECT_EQ(t.sync.record_stream, (std::vector<std::uint32_t>{7, 8, 9, kNone, kNone, kNone, kNone, kNone}));
}

TEST_F(DecodeGpuTest, SynchronisationsAreOnTheDeviceOfTheirContext) {
  GpuThread gpu;
  gpu.Add(
      GpuThread::Sync{.kind = 2, .begin = 1, .end = 1, .correlation = 40, .stream = 20, .event = 1, .device = 65535});
  const schema::RankTables alone = Tables(GpuProcess(gpu));
  EXPECT_EQ(alone.sync.device[0], 65535);  // Nothing says which.
  gpu.Add(GpuThread::Kernel{.name = "k", .begin = 5, .end = 9});
  EXPECT_EQ(Tables(GpuProcess(gpu)).sync.device[0], 0);
}

TEST_F(DecodeGpuTest, WaitsReferToTheRecordTheyNameWhereTheyDo) {
  GpuThread gpu;
  using Sync = GpuThread::Sync;
  gpu.Add(Sync{.kind = 5, .begin = 900, .end = 900, .correlation = 10, .stream = 7, .event = 1, .event_sync = 71});
  gpu.Add(Sync{.kind = 5, .begin = 950, .end = 950, .correlation = 30, .stream = 8, .event = 1, .event_sync = 72});
  gpu.Add(Sync{.kind = 2, .begin = 1, .end = 1, .correlation = 40, .stream = 20, .event = 1, .event_sync = 71});
  gpu.Add(Sync{.kind = 2, .begin = 2, .end = 2, .correlation = 41, .stream = 20, .event = 1, .event_sync = 3});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  EXPECT_EQ(t.sync.record_correlation, (std::vector<std::uint64_t>{10, 0, 0, 0}));
}

TEST_F(DecodeGpuTest, EventRecordsWithoutATimeHaveTheirCallsTime) {
  GpuThread gpu;
  gpu.Add(GpuThread::Sync{.kind = 5, .begin = 0, .end = 0, .correlation = 12, .stream = 7, .event = 1});
  gpu.Add(GpuThread::Sync{.kind = 5, .begin = 0, .end = 0, .correlation = 14, .stream = 8, .event = 2});
  gpu.Add(GpuThread::Sync{.kind = 2, .begin = 130, .end = 130, .correlation = 13, .stream = 20, .event = 1});
  gpu.Add(GpuThread::Api{.name = "cudaEventRecord", .begin = 120, .end = 121, .correlation = 12, .kind = 6});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  ASSERT_EQ(t.sync.rows(), 3u);
  EXPECT_EQ(t.sync.begin_ns, (std::vector<std::int64_t>{120, 120, 130}));
  EXPECT_EQ(t.sync.record_stream[2], 7u);
  ASSERT_EQ(t.windows.rows(), 1u);
  EXPECT_GT(t.windows.begin_ns[0], 0) << "no record at time 0";
}

TEST_F(DecodeGpuTest, WithoutCorrelationTheWaitsGoByTime) {
  GpuThread gpu;
  using Sync = GpuThread::Sync;
  gpu.Add(Sync{.kind = 5, .begin = 100, .end = 100, .stream = 7, .event = 1});
  gpu.Add(Sync{.kind = 5, .begin = 300, .end = 300, .stream = 8, .event = 1});
  gpu.Add(Sync{.kind = 2, .begin = 200, .end = 200, .correlation = 9, .stream = 20, .event = 1});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  ASSERT_EQ(t.sync.kind[1], 2);
  EXPECT_EQ(t.sync.record_stream[1], 7u);
}

TEST_F(DecodeGpuTest, LossesThatSourcesTellAddUp) {
  ThreadRecords records;
  records.String(1, "GpuRecordsDropped").String(2, "buffers").String(3, "NoSuchLoss");
  records.Add(LossRecord{{RecordKind::kLoss, 0, 2}, 1, 2, 0, 5, 100, 200, {}});
  records.Add(LossRecord{{RecordKind::kLoss, 0, 2}, 1, 2, 0, 7, 50, 0, {}});
  records.Add(LossRecord{{RecordKind::kLoss, 0, 2}, 3, 0, 0, 1, 0, 0, {}});
  records.Add(LossRecord{{RecordKind::kLoss, 0, 2}, 44, 0, 0, 1, 0, 0, {}});
  const schema::RankTables t = TablesOf(records);
  std::size_t rows = 0;
  for (std::size_t i = 0; i < t.losses.rows(); ++i) {
    if (TextOf(t, t.losses.name[i]) != "GpuRecordsDropped") continue;
    ++rows;
    EXPECT_EQ(t.losses.count[i], 12u);
    EXPECT_EQ(t.losses.first_ns[i], 50);
    EXPECT_EQ(t.losses.last_ns[i], 200);
    EXPECT_EQ(TextOf(t, t.losses.detail[i]), "buffers");
  }
  EXPECT_EQ(rows, 1u);
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 2u);
}

// Ends of processes.

SpoolBuilder Ended(std::uint64_t end_ticks, std::uint64_t flushed, std::uint32_t wanted, std::uint32_t done,
                   std::uint32_t state = 1, int signal = 0) {
  ProcessEntry entry{};
  entry.generation = 1;
  entry.pid = 100;
  entry.begin_ticks = 1;
  entry.end_ticks = end_ticks;
  entry.world_rank = -1;
  entry.cupti_used = 1;
  entry.cupti_state = state;
  entry.gpu_flush_wanted = wanted;
  entry.gpu_flush_done = done;
  entry.gpu_flushed_ticks = flushed;
  GpuThread gpu;
  gpu.Add(GpuThread::Kernel{.name = "k", .begin = 300, .end = 350});
  return SpoolBuilder()
      .Meta()
      .Block(SpoolKind::kProcess, &entry, sizeof entry, 0)
      .Thread(8, 900)
      .Records(gpu.records, 8)
      .End(5'000'000'000, 0, signal);
}

TEST_F(DecodeGpuTest, TheTailIsLostWhenNobodyFlushed) {
  EXPECT_EQ(LossCount(Tables(Ended(4'999'000'000, 4'998'000'000, 0, 0)), "GpuTailLost"), 0u) << "an orderly exit";
  EXPECT_EQ(LossCount(Tables(Ended(4'999'000'000, 0, 0, 0)), "GpuTailLost"), 1u) << "no flush at all";
  EXPECT_EQ(LossCount(Tables(Ended(0, 4'900'000'000, 0, 0, 1, 9)), "GpuTailLost"), 1u) << "killed";
  EXPECT_EQ(LossCount(Tables(Ended(0, 4'900'000'000, 0, 0)), "GpuTailLost"), 1u) << "_exit";
  EXPECT_EQ(LossCount(Tables(Ended(0, 4'990'000'000, 1, 1, 1, 15)), "GpuTailLost"), 0u) << "asked before the kill";
  EXPECT_EQ(LossCount(Tables(Ended(0, 4'990'000'000, 2, 1, 1, 15)), "GpuTailLost"), 1u) << "asked, not done";
  EXPECT_EQ(LossCount(Tables(Ended(0, 1'000'000'000, 1, 1, 1, 9)), "GpuTailLost"), 1u) << "asked long before";
  EXPECT_EQ(LossCount(Tables(Ended(0, 0, 0, 0, 0, 9)), "GpuTailLost"), 0u) << "never recorded";
}

TEST_F(DecodeGpuTest, RowsAreOfTheProcessesVendor) {
  for (const std::uint8_t vendor : {schema::Vendor::kNvidia, schema::Vendor::kAmd}) {
    GpuThread gpu;
    gpu.Add(GpuThread::Kernel{.name = "k", .begin = 300, .end = 350});
    const schema::RankTables t = Tables(GpuProcess(gpu, nullptr, "clock_mode\traw\nrank\t0\n", vendor));
    EXPECT_EQ(t.kernels.vendor, std::vector<std::uint8_t>{vendor});
  }
}

TEST_F(DecodeGpuTest, RcclWithoutKernelsIsNotCudasFault) {
  for (const std::uint8_t vendor : {std::uint8_t{0}, std::uint8_t{schema::Vendor::kAmd}}) {
    NcclThread nccl;
    nccl.Add(NcclThread::Call{
        .name = "ncclAllReduce", .begin = 100, .end = 200, .kind = CollectiveKind::kAllReduce, .count = 7});
    ProcessEntry entry{};
    entry.generation = 1;
    entry.pid = 100;
    entry.begin_ticks = 1;
    entry.end_ticks = 900'000;
    entry.world_rank = -1;
    entry.nccl_used = 1;
    entry.gpu_vendor = vendor;
    const schema::RankTables t = Tables(SpoolBuilder()
                                            .Meta()
                                            .Block(SpoolKind::kProcess, &entry, sizeof entry, 0)
                                            .Thread(0, 100)
                                            .Records(nccl.records, 0)
                                            .End(1'000'000));
    ASSERT_EQ(LossCount(t, "GpuNotCaptured"), 1u);
    for (std::size_t i = 0; i < t.losses.rows(); ++i)
      if (TextOf(t, t.losses.name[i]) == "GpuNotCaptured") {
        EXPECT_NE(TextOf(t, t.losses.detail[i]).find(vendor == 0 ? "CUDA never entered" : "AMD"), std::string::npos);
      }
  }
}

TEST_F(DecodeGpuTest, ARefusedSourceSaysWhy) {
  SpoolBuilder spool = Ended(4'999'000'000, 0, 0, 0, 2);
  spool.Thread(3, 100).Records(
      ThreadRecords().Text(RecordKind::kFact, 0, "cupti\tstate=refused\twhy=no driver\tremedy=\tversion=0"), 3);
  const schema::RankTables t = Tables(spool);
  EXPECT_EQ(LossCount(t, "GpuNotCaptured"), 1u);
  for (std::size_t i = 0; i < t.losses.rows(); ++i)
    if (TextOf(t, t.losses.name[i]) == "GpuNotCaptured") {
      EXPECT_EQ(TextOf(t, t.losses.detail[i]), "no driver");
    }
  EXPECT_EQ(LossCount(t, "GpuTailLost"), 0u);
}

// Any bytes are decoded without harm, and only into rows that make sense.
TEST_F(DecodeGpuTest, DamagedRecordsHarmNothing) {
  std::uint64_t state = 1;
  const auto random = [&] { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33; };
  for (int round = 0; round < 200; ++round) {
    ThreadRecords records;
    records.String(1, "_Z4gemmv").String(2, "ncclDevKernel_x").String(3, "ncclGroupEnd");
    for (int i = 0; i < 60; ++i) {
      const RecordKind kinds[] = {RecordKind::kGpuKernel,   RecordKind::kGpuShape,  RecordKind::kGpuCopy,
                                  RecordKind::kGpuSync,     RecordKind::kGpuApi,    RecordKind::kGpuDevice,
                                  RecordKind::kGpuOverhead, RecordKind::kGpuMemory, RecordKind::kNcclBegin,
                                  RecordKind::kNcclEnd,     RecordKind::kNcclCall,  RecordKind::kNcclComm,
                                  RecordKind::kLoss};
      struct Slots {
        RecordHead head;
        std::uint32_t words[23];
      } slots;
      for (std::uint32_t& word : slots.words)
        word = random() % 3 == 0 ? static_cast<std::uint32_t>(random()) : static_cast<std::uint32_t>(random() % 5);
      slots.head = {kinds[random() % std::size(kinds)], static_cast<std::uint8_t>(random() % 12), 3};
      records.Add(slots);
    }
    const schema::RankTables t = TablesOf(records);
    for (std::size_t i = 0; i < t.collectives.rows(); ++i) {
      EXPECT_TRUE(t.collectives.kernel[i] == kNone || t.collectives.kernel[i] < t.kernels.rows());
      EXPECT_LT(t.collectives.thread[i], t.threads.rows());
    }
    for (std::size_t i = 0; i < t.api.rows(); ++i) EXPECT_LT(t.api.thread[i], t.threads.rows());
    for (const std::int64_t duration : t.kernels.duration_ns) EXPECT_GE(duration, 0);
  }
}

TEST_F(DecodeGpuTest, CorrelationIdsThatBeginAgainStayApart) {
  GpuThread gpu;
  gpu.Add(GpuThread::Api{.name = "cudaLaunchKernel", .begin = 100, .end = 110, .correlation = 5});
  gpu.Add(GpuThread::Kernel{.name = "first", .begin = 120, .end = 130, .correlation = 5});
  // A process of many days: each step is less than half of the numbers.
  std::uint64_t at = 200;
  for (const std::uint32_t id : {0x70000000u, 0xe0000000u, 0xfffffff0u, 3u, 0xffffffffu, 5u, 6u}) {
    gpu.Add(GpuThread::Kernel{.name = "later", .begin = at + 20, .end = at + 30, .correlation = id});
    gpu.Add(GpuThread::Api{.name = "cudaLaunchKernel", .begin = at, .end = at + 10, .correlation = id});
    at += 100;
  }
  const schema::RankTables t = Tables(GpuProcess(gpu));
  ASSERT_EQ(t.kernels.rows(), 8u);
  EXPECT_EQ(t.kernels.correlation, (std::vector<std::uint64_t>{5, 0x70000000u, 0xe0000000u, 0xfffffff0u, 0x100000003u,
                                                               0xffffffffu, 0x100000005u, 0x100000006u}));
  EXPECT_EQ(t.api.correlation, t.kernels.correlation);
}

TEST_F(DecodeGpuTest, TheFirstKernelAfterAWindowIsTold) {
  GpuThread gpu;
  const auto after = [&](std::uint64_t launch, std::uint64_t start) {
    GpuKernelRecord record{};
    record.head = {RecordKind::kGpuKernel, kGpuAfterWindow, 2};
    record.begin_ticks = start, record.end_ticks = start + 10, record.launch_ticks = launch;
    gpu.records.Add(record);
  };
  gpu.Add(GpuThread::Kernel{.name = "in", .begin = 150, .end = 160, .correlation = 1});
  after(520, 900);
  after(510, 950);
  after(510, 940);
  const schema::RankTables t = Tables(GpuProcess(gpu));
  EXPECT_EQ(t.kernels.rows(), 1u);
  EXPECT_EQ(MetaOf(t, "window_next_kernel.0"), "510 940");
}

TEST_F(DecodeGpuTest, TheClocksBoundIsTold) {
  GpuThread gpu;
  gpu.Add(GpuThread::Api{.name = "cudaLaunchKernel", .begin = 100, .end = 110, .correlation = 1});
  gpu.Add(GpuThread::Kernel{.name = "early", .begin = 97, .end = 197, .correlation = 1});
  gpu.Add(GpuThread::Api{.name = "cudaStreamSynchronize", .begin = 120, .end = 210, .correlation = 2, .kind = 3});
  gpu.Add(GpuThread::Sync{.kind = 3, .begin = 121, .end = 209, .correlation = 2, .stream = 7});
  const schema::RankTables t = Tables(GpuProcess(gpu));
  // A nanosecond more each way for a drift between the two.
  EXPECT_EQ(MetaOf(t, "gpu_clock.0"), "-13 -2");
  EXPECT_EQ(MetaOf(t, "gpu_clock_error_ns"), "13");
  EXPECT_EQ(LossCount(t, "LaunchAfterStart"), 1u);
  EXPECT_EQ(LossCount(t, "SyncBeforeEnd"), 0u);
  for (std::size_t i = 0; i < t.losses.rows(); ++i)
    if (Text(t, t.losses.name[i]) == "LaunchAfterStart") {
      EXPECT_EQ(Text(t, t.losses.detail[i]), "GPU 0: by up to 3 ns");
    }
}

}  // namespace
}  // namespace lockstep::trace
