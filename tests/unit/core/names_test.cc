// Small texts that several parts need alike: sizes, names of ranks' files, and the kernel's line about a process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "core/byte_text.h"
#include "core/comm_kernels.h"
#include "core/data_type_name.h"
#include "core/own_file.h"
#include "core/process_stat.h"
#include "core/rank_name.h"

namespace lockstep {
namespace {

TEST(ByteText, OneDecimalFromAThousandOn) {
  EXPECT_EQ(ByteText(0), "0 B");
  EXPECT_EQ(ByteText(999), "999 B");
  EXPECT_EQ(ByteText(1000), "1.0 kB");
  EXPECT_EQ(ByteText(1.44e6), "1.4 MB");
  EXPECT_EQ(ByteText(2.5e12), "2500.0 GB");
}

TEST(DataType, WhatIsUnknownHasNoSize) {
  EXPECT_EQ(ElementBytes(DataType::kUnknown), 0u);
  EXPECT_EQ(ElementBytes(DataType::kDerived), 0u);
  EXPECT_EQ(TextOfDataType(999).bytes, 0u);
  EXPECT_EQ(ElementBytes(DataType::kByte), 1u);
  EXPECT_EQ(ElementBytes(DataType::kBfloat16), 2u);
  EXPECT_EQ(ElementBytes(DataType::kFloat64), 8u);
}

TEST(DataType, Named) {
  for (std::uint16_t code = 1; code <= static_cast<std::uint16_t>(DataType::kDerived); ++code)
    EXPECT_EQ(DataTypeNamed(TextOfDataType(code).name), static_cast<DataType>(code));
  EXPECT_EQ(DataTypeNamed("float8_e4m3fn"), DataType::kFloat8e4m3);
  for (const char* other : {"", "float3", "float32x", "complex64"})
    EXPECT_EQ(DataTypeNamed(other), DataType::kUnknown) << other;
}

TEST(RankName, FiveDigitsAndMore) {
  EXPECT_EQ(RankName(0), "rank-00000");
  EXPECT_EQ(RankName(99999), "rank-99999");
  EXPECT_EQ(RankName(1 << 20), "rank-1048576");
}

// A process may call itself anything, also like the line's own end, and with a line break.
TEST(ProcessStat, NamesMayHoldAnything) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) Z 1\n2 (b");
    (void)!::write(pipe_fds[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char ready = 0;
  ASSERT_EQ(::read(pipe_fds[0], &ready, 1), 1);
  const std::string stat = ProcessStatAfterName(child);
  EXPECT_EQ(stat.substr(1, 1 + std::to_string(::getpid()).size()), " " + std::to_string(::getpid())) << stat;
  EXPECT_TRUE(stat.starts_with("S") || stat.starts_with("R")) << stat;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  EXPECT_EQ(ProcessStatAfterName(child), "");
}

TEST(CommKernels, AreNamedAfterWhatTheyDo) {
  using enum CollectiveKind;
  const std::pair<const char*, CollectiveKind> names[] = {
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", kAllReduce},
      {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kAllGather},
      {"ncclDevKernel_AllGatherV_RING_LL(ncclDevKernelArgsStorage<4096ul>)", kBroadcast},
      {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", kReduceScatter},
      {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", kSendRecv},
      {"ncclDevKernel_Reduce_Sum_f32_RING_LL", kReduce},
      {"ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)", kAllGather},
      {"ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", kNone},
      {"ncclDevKernel_Generic_2(ncclDevKernelArgsStorage<4096ul>) [clone .kd]", kNone},
      {"mscclKernel_Sum_half_Simple(ncclDevComm*, mscclAlgo*)", kNone},
      {"void mscclpp::allreduceAllPairs<(mscclpp::Op)0, __half>(__half*)", kAllReduce},
      {"void deep_ep::intranode::notify_dispatch<8>(int const*, int*)", kNotify},
      {"void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)", kDispatch},
      {"void deep_ep::internode::combine<false, 8, __nv_bfloat16>(int4*)", kCombine},
      {"void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", kNone},
      {"void mori::moe::EpCombineIntraNodeKernel<__hip_bfloat16>(mori::moe::Args)", kCombine},
      {"void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(Params)", kDispatch},
      {"void flashinfer::trtllm_alltoall::moeAllToAllKernel(MoeCommWorkspace)", kAllToAll},
      {"void vllm::cross_device_reduce_2stage<__half, 4>(vllm::RankData*)", kAllReduce},
      {"void aiter::reduce_scatter_cross_device_store<half, 8>()", kReduceScatter},
      {"void userbuffers_fp16_sum_inplace_gpu_rw<4>(int)", kAllReduce},
      {"void userbuffers_fp16_sum_inplace_gpu_rr_rs<2>(int)", kReduceScatter},
      {"userbuffers_pushsend(int*, int*, int4*, int4*, int)", kSendRecv},
      {"void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)", kAllGather},
      {"void c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int)", kBarrier},
      {"nvshmemx_quiet_kernel()", kNone}};
  for (const auto& [name, kind] : names) {
    EXPECT_TRUE(IsCommKernelName(name)) << name;
    EXPECT_EQ(Name(CommKernelKind(name)), Name(kind)) << name;
  }
}

TEST(ReadUpTo, LessAtTheEndAndOnErrors) {
  const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ReadUpTo(fd, 1, 3), "ELF");
  EXPECT_EQ(ReadUpTo(fd, std::uint64_t{1} << 40, 3), "");
  ::close(fd);
  int error = 0;
  EXPECT_EQ(ReadUpTo(-1, 0, 3, &error), "");
  EXPECT_EQ(error, EBADF);
}

}  // namespace
}  // namespace lockstep
