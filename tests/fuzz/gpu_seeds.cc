// Seeds record by record as the probe writes them: spools of two ranks that train with NCCL, which needs a GPU, and the
// run directory that they make; a spool of a rank that uses MPI.
//
//   gpu_seeds SEEDS

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "gpu_thread_records.h"
#include "trace/decode/decode.h"
#include "trace/file/table_file.h"

namespace lockstep::fuzz {
namespace {

using Begin = trace::NcclThread::Begin;

class Rank {
 public:
  explicit Rank(std::int32_t rank) : rank_(rank) {
    GpuDeviceRecord device{};
    device.head = {RecordKind::kGpuDevice, 0, 3};
    device.name = gpu_.Name("NVIDIA H200");
    device.memory_bytes = 141'000'000'000, device.sm_count = 132, device.max_threads_per_sm = 2048;
    std::memset(device.uuid, 7 + rank, sizeof device.uuid);
    device.compute_major = 9, device.driver_version = 13000, device.cupti_version = 130001;
    gpu_.records.Add(device);
    gpu_.records.Add(GpuShapeRecord{{RecordKind::kGpuShape, 0, 2}, 1, {132, 1, 1}, {256, 1, 1}, 64, 0, 1024, 2, 0, {}});
    host_.Add(trace::NcclThread::Comm{.id = 0xabc, .ticks = 10, .size = 2, .rank = rank, .name = "world"});
    host_.Add(trace::NcclThread::Comm{.id = 0xdef + static_cast<std::uint64_t>(rank),
                                      .ticks = 11,
                                      .size = 1,
                                      .rank = 0,
                                      .comm = kNcclCommBit | 2,
                                      .source = NcclSource::kInterposed});
  }

  trace::SpoolBuilder Train(int steps) {
    for (int step = 0; step < steps; ++step) {
      host_.records.Step(step, now_, static_cast<std::int64_t>(now_ / 2));
      Forward();
      Group();
      Messages();
      Alone();
      Waits();
    }
    host_.Add(trace::NcclThread::Comm{.id = 0, .ticks = now_, .flags = 64});
    gpu_.records.Add(GpuOverheadRecord{{RecordKind::kGpuOverhead, 5, 1}, 100, 300, 900, 0});
    GpuMemoryRecord memory{};
    memory.head = {RecordKind::kGpuMemory, 1, 2};
    memory.name = gpu_.Name("device"), memory.ticks = 500, memory.address = 0x7f0000, memory.bytes = 1 << 20;
    gpu_.records.Add(memory);
    const std::uint32_t name = gpu_.Name("GpuRecordsDropped"), detail = gpu_.Name("context 1");
    gpu_.records.Add(LossRecord{{RecordKind::kLoss, 0, 2}, name, detail, 0, 3, 400, 600, {}});
    const std::string meta = "clock_mode\traw\nrank\t" + std::to_string(rank_) +
                             "\nworld_size\t2\nexit_code\t0\nclock_domain\tone\nrun_id\tgpu\n";
    trace::SpoolBuilder spool = trace::GpuProcess(gpu_, &host_, meta);
    GpuSample samples[4]{};
    for (int i = 0; i < 4; ++i) {
      samples[i] = {static_cast<std::uint64_t>(100 + 100 * i), 4, {}, 1980, 2619, 650'000, 60, 97, 0};
      std::memset(samples[i].uuid, 7 + rank_, sizeof samples[i].uuid);
    }
    spool.Block(SpoolKind::kGpuSamples, samples, sizeof samples);
    return spool;
  }

 private:
  std::uint64_t Tick(std::uint64_t by = 10) { return now_ += by; }
  std::uint64_t Launch(std::string_view name, std::uint32_t stream, std::uint64_t duration) {
    const std::uint64_t begin = Tick(), end = Tick();
    gpu_.Add(
        trace::GpuThread::Api{.name = "cuLaunchKernelEx", .begin = begin, .end = end, .correlation = ++correlation_});
    const std::uint64_t start = end + 40 + static_cast<std::uint64_t>(rank_) * 15;
    gpu_.Add(trace::GpuThread::Kernel{.name = name,
                                      .begin = start,
                                      .end = start + duration,
                                      .correlation = correlation_,
                                      .stream = stream,
                                      .shape = 1});
    return start;
  }
  void Forward() {
    Launch("_Z4gemmIfEvPKT_S2_Pfi", 7, 80);
    GpuCopyRecord copy{};
    copy.head = {RecordKind::kGpuCopy, 1, 2};
    copy.kind = 1, copy.host_memory = 2, copy.begin_ticks = now_, copy.end_ticks = now_ + 30, copy.bytes = 4096;
    copy.correlation = ++correlation_, copy.stream = 7, copy.source_device = 65535;
    gpu_.records.Add(copy);
  }
  void Carried(std::uint64_t group, std::string_view kernel, std::uint64_t duration) {
    const std::uint64_t id = ++id_;
    host_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = id, .ticks = Tick(), .parent = group});
    Launch(kernel, 20, duration);
    host_.End(NcclEvent::kKernelLaunch, id, Tick());
  }
  void Group() {
    const std::uint64_t group = ++id_, begin = Tick();
    host_.Add(Begin{NcclEvent::kGroupApi, group, begin});
    const CollectiveKind kinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather};
    std::uint64_t api[2];
    for (int i = 0; i < 2; ++i)
      host_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                      .id = api[i] = ++id_,
                      .ticks = Tick(),
                      .parent = group,
                      .kind = kinds[i],
                      .count = 1000});
    Carried(group, "ncclDevKernel_Generic", 200);
    for (int i = 0; i < 2; ++i)
      host_.Add(Begin{.event = NcclEvent::kCollective,
                      .id = ++id_,
                      .ticks = Tick(),
                      .parent = api[i],
                      .kind = kinds[i],
                      .count = i == 0 ? 1000u : 4000u,
                      .dtype = i == 0 ? DataType::kFloat32 : DataType::kInt8,
                      .seq = seq_,
                      .buffer = 0x7f0000,
                      .algorithm = "RING"});
    ++seq_;
    host_.End(NcclEvent::kGroupApi, group, Tick());
  }
  void Messages() {
    const std::uint64_t group = ++id_, api = ++id_;
    host_.Add(Begin{NcclEvent::kGroupApi, group, Tick()});
    host_.Add(Begin{
        .event = NcclEvent::kP2pApi, .id = api, .ticks = Tick(), .parent = group, .count = 64, .receive = rank_ == 1});
    Carried(group, "ncclDevKernel_SendRecv", 50);
    host_.Add(Begin{.event = NcclEvent::kP2p,
                    .id = ++id_,
                    .ticks = Tick(),
                    .parent = api,
                    .count = 64,
                    .peer = 1 - rank_,
                    .receive = rank_ == 1});
  }
  void Alone() {
    const std::uint64_t begin = Tick();
    host_.Add(trace::NcclThread::Call{.name = "ncclReduceScatter",
                                      .begin = begin,
                                      .end = Tick(),
                                      .kind = CollectiveKind::kReduceScatter,
                                      .count = 8,
                                      .seq = seq_,
                                      .comm = kNcclCommBit | 2});
  }
  void Waits() {
    gpu_.Add(trace::GpuThread::Sync{
        .kind = 5, .begin = Tick(), .end = now_, .correlation = ++correlation_, .stream = 20, .event = 3});
    gpu_.Add(trace::GpuThread::Sync{
        .kind = 2, .begin = Tick(), .end = now_, .correlation = ++correlation_, .stream = 7, .event = 3});
    gpu_.Add(
        trace::GpuThread::Sync{.kind = 3, .begin = Tick(), .end = Tick(), .correlation = ++correlation_, .stream = 7});
  }

  const std::int32_t rank_;
  trace::GpuThread gpu_;
  trace::NcclThread host_;
  std::uint64_t now_ = 1000, id_ = 0, seq_ = 0;
  std::uint32_t correlation_ = 0;
};

trace::SpoolBuilder Mpi() {
  trace::ThreadRecords r;
  r.World(0, 77, 4, 2).String(1, "forward");
  for (std::uint64_t step = 0, at = 100; step < 6; ++step, at += 1000) {
    const std::uint64_t request = 0x5000 + 0x100 * step;
    const auto seq = static_cast<std::uint32_t>(2 * step);
    r.Step(static_cast<std::int64_t>(step), at, static_cast<std::int64_t>(at / 2)).Range(1, at + 10, at + 90, 0);
    r.Mpi({.op = MpiOp::kAllreduce, .begin = at + 100, .end = at + 150, .bytes = 4096, .count = 1024, .seq = seq});
    r.Mpi({.op = MpiOp::kIallreduce, .begin = at + 200, .end = at + 210, .request = request, .seq = seq + 1});
    r.Mpi({.op = MpiOp::kIrecv,
           .begin = at + 220,
           .end = at + 225,
           .request = request + 8,
           .bytes = 64,
           .peer = 1,
           .tag = 7});
    r.Poll(MpiOp::kTest, request, at + 300, at + 350, 7)
        .Mpi({.op = MpiOp::kSend, .begin = at + 360, .end = at + 380, .bytes = 64, .peer = 3, .tag = 7});
    r.Wait(at + 400, at + 500, {request})
        .Mpi({.op = MpiOp::kWait, .begin = at + 510, .end = at + 550})
        .Completion(request + 8, 0, 1, 7, 64);
    r.Add(BlockedRecord{
        {RecordKind::kBlocked, 5 | kBlockedTimedOut, 2}, 2, 0, at + 560'000, at + 590'000, 77, 0, -1, 0, 1, 1, 1});
    r.Add(BlockedRecord{
        {RecordKind::kBlocked, 3, 2}, 1, 0, at + 600'000, at + 900'000, 78, at + 890'000, 12, 100, 1, 0, 0});
  }
  trace::SpoolBuilder spool;
  spool.Meta().Process().Thread().Records(r.Gap(6200, 6300, 5)).End(7000);
  return spool;
}

int Main(const std::filesystem::path& seeds) {
  std::filesystem::create_directories(seeds / "gpu_nccl" / "ranks");
  Mpi().Write(seeds / "mpi.spool");
  for (std::int32_t r = 0; r < 2; ++r) {
    const std::string spool = seeds / ("gpu-" + std::to_string(r) + ".spool");
    Rank(r).Train(6).Write(spool);
    const auto decoded = trace::DecodeSpool({spool, ""});
    const std::string file = seeds / "gpu_nccl" / "ranks" / ("rank-0000" + std::to_string(r) + ".h5");
    if (!decoded.ok() || !trace::WriteRankFile(file, decoded.value().processes.at(0).tables).ok()) {
      std::fprintf(stderr, "error: %s was not made\n", file.c_str());
      return 1;
    }
    const schema::RankTables& t = decoded.value().processes[0].tables;
    if (t.collectives.rows() != 18 || t.p2p.rows() != 6 || t.kernels.rows() != 18) {
      std::fprintf(stderr, "error: the seed's operations were not found\n");
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) { return argc == 2 ? lockstep::fuzz::Main(argv[1]) : 2; }
