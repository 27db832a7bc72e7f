#pragma once
// A thread that calls NCCL on a communicator of four ranks, and what CUPTI tells meanwhile.

#include <cstdint>
#include <string_view>

#include "decode_fixture.h"
#include "gpu_thread_records.h"

namespace lockstep::trace {

using Begin = NcclThread::Begin;
using Call = NcclThread::Call;
using Comm = NcclThread::Comm;
using Kernel = GpuThread::Kernel;
using Api = GpuThread::Api;
using Copy = GpuThread::Copy;

inline constexpr std::uint32_t kComm1 = kNcclCommBit | 1, kComm2 = kNcclCommBit | 2;
inline constexpr std::string_view kAllReduceKernel =
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

class DecodeNcclTest : public DecodeTest {
 protected:
  DecodeNcclTest() { nccl_.Add(Comm{.id = 0xabc, .ticks = 5, .size = 4, .rank = 2}); }
  // A launch on `tid` and its kernel.
  void Launch(std::uint64_t at, std::uint32_t correlation, std::uint64_t begin, std::uint64_t end,
              std::string_view name = kAllReduceKernel, std::uint32_t tid = 100, std::uint32_t stream = 20) {
    gpu_.Add(Api{.name = "cuLaunchKernelEx", .begin = at, .end = at + 2, .correlation = correlation, .tid = tid});
    gpu_.Add(Kernel{.name = name, .begin = begin, .end = end, .correlation = correlation, .stream = stream});
  }
  schema::RankTables Run() { return Tables(GpuProcess(gpu_, &nccl_)); }
  std::int64_t KernelBegin(const schema::RankTables& t, std::uint32_t kernel) {
    return kernel < t.kernels.rows() ? t.kernels.begin_ns[kernel] : -1;
  }
  GpuThread gpu_;
  NcclThread nccl_;
};

}  // namespace lockstep::trace
