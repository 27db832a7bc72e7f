// The terms: rules one by one, then random traces against an oracle that
// looks at every nanosecond.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "activity_sets.h"
#include "fixture.h"
#include "merge/timeline/kernel_class.h"

namespace lockstep::test {
namespace {

using Kind = CollectiveKind;

std::int64_t SumOfTerms(const schema::TlRankTotals::Row& t) {
  return t.compute_ns + t.blocked_ns + t.exposed_wait_ns + t.exposed_transfer_ns + t.exposed_unsplit_ns +
         t.exposed_copy_ns + t.idle_ns;
}

TEST(Breakdown, CpuRankBlocking) {
  Merged m(2);
  m[0].Step(0, 0, 1000, true, 640);
  m[0].Input(50, 150);
  m[0].Collective(Kind::kAllReduce, 400, 700);
  m[0].Call(MpiOp::kOther, 800, 850);
  m[1].Step(0, 0, 1000, true, 900);
  m[1].Collective(Kind::kAllReduce, 600, 700);
  m.Run();
  const auto& t = m.terms[0];
  EXPECT_EQ(t.compute_ns, 1000 - 100 - 300 - 50);
  EXPECT_EQ(t.exposed_wait_ns, 200);
  EXPECT_EQ(t.exposed_transfer_ns, 100);
  EXPECT_EQ(t.exposed_unsplit_ns, 0);
  EXPECT_EQ(t.idle_ns, 150);
  EXPECT_EQ(t.input_ns, 100);
  EXPECT_EQ(t.mpi_other_ns, 50);
  EXPECT_EQ(t.comm_ns, 300);
  EXPECT_EQ(t.overlap_ns, 0);
  EXPECT_EQ(t.cpu_ns, 640);
  EXPECT_EQ(t.offcpu_ns, -1);
}

// A wait of its own hides communication as compute does; one for another thread's collective exposes it, and is blocked
// where nothing is in flight.
TEST(Breakdown, BlockedOnACpuRank) {
  merge::RankActivity a;
  a.busy = {{0, 10}};
  a.blocked = {{5, 30}, {60, 70}};
  a.awaited = {{40, 55}};
  merge::AddOps({{20, 20, 45, 50, true}}, a);
  const merge::Terms t = merge::BreakDown(a, {{0, 100}})[0];
  EXPECT_EQ(t.blocked_ns, 20 + 10 + 5);
  EXPECT_EQ(t.awaited_apart_ns, 5);
  EXPECT_EQ(t.overlap_ns, 10 + 10);  // Beside the wait of its own, and beside compute.
  EXPECT_EQ(t.exposed_unsplit_ns, 5);
  EXPECT_EQ(t.exposed_transfer_ns, 5);
  EXPECT_EQ(t.helper_wait_ns, 10);
  EXPECT_EQ(t.idle_ns, 10);
  EXPECT_EQ(t.compute_ns, 100 - 10 - 35 - 10);
  merge::RankActivity gpu = a;
  gpu.gpu = true;
  EXPECT_EQ(merge::BreakDown(gpu, {{0, 100}})[0].blocked_ns, 0);
}

// What a call waits for the other half of a message is exposed wait, whether the sender or the receiver is late.
TEST(Breakdown, WaitingForMessages) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) m[r].Step(0, 0, 1000);
  m[0].Message(true, 1, 0, 100, 350);
  m[1].Message(false, 0, 0, 300, 350);
  m[0].Message(false, 1, 0, 500, 800);
  m[1].Message(true, 0, 0, 700, 800);
  m.Run();
  const auto& t = m.terms[0];
  EXPECT_EQ(t.exposed_wait_ns, 200 + 200);
  EXPECT_EQ(t.message_wait_ns, 400);
  EXPECT_EQ(t.exposed_unsplit_ns, 50 + 100);
  EXPECT_EQ(t.comm_ns, 250 + 300);
  EXPECT_EQ(t.overlap_ns, 0);
  EXPECT_EQ(t.idle_ns, 0);
  EXPECT_EQ(t.late_sender_ns, 200);
  EXPECT_EQ(t.late_receiver_ns, 200);
  EXPECT_EQ(m.terms[1].message_wait_ns, 0);
  EXPECT_EQ(m.terms[1].compute_ns, 1000 - 50 - 100);
}

// A thread that only listens is no waiting of the rank's, but where the training thread waits for it.
TEST(Breakdown, OtherThreadsThatListenDelayNobody) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) m[r].Step(0, 0, 1000);
  m[0].Message(true, 1, 0, 100, 350);
  m[0].t.p2p.thread[0] = m[0].t.mpi_calls.thread[0] = 7;
  m[1].Message(false, 0, 0, 300, 350);
  m.Run();
  EXPECT_EQ(m.terms[0].exposed_wait_ns, 0);
  EXPECT_EQ(m.terms[0].compute_ns, 1000);
  EXPECT_EQ(m.terms[0].late_sender_ns, 200);

  const merge::RankP2pWaits waits{{{{100, 300}, 0, 1, true}}};
  EXPECT_TRUE(merge::MessageWaits(waits, m[0].t.p2p, 0, {}).empty());
  const auto part = merge::MessageWaits(waits, m[0].t.p2p, 0, {{50, 150}, {250, 400}});
  ASSERT_EQ(part.size(), 2u);
  EXPECT_EQ(part[0].at, (Interval{100, 150}));
  EXPECT_EQ(part[1].at, (Interval{250, 300}));
  EXPECT_EQ(merge::MessageWaits(waits, m[0].t.p2p, 7, {}).size(), 1u);
}

TEST(Breakdown, PostedEarlyMovedOnlyInWaitIsCensored) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) {
    m[r].Step(0, 0, 1000);
    m[r].Posted(Kind::kAllReduce, 100 + 10 * r, 101 + 10 * r, 800, 900);
  }
  m.Run();
  EXPECT_EQ(m.collectives().censored[0], 1);
  EXPECT_EQ(m.collectives().transfer_ns[0], -1);
  EXPECT_EQ(m.members().end_low_ns[0], 800);
  EXPECT_EQ(m.members().end_high_ns[0], 900);
  EXPECT_EQ(m.members().wait_ns[0], 10);
  EXPECT_EQ(m.terms[0].exposed_unsplit_ns, 100);
  EXPECT_EQ(m.terms[0].exposed_transfer_ns, 0);
  EXPECT_EQ(m.terms[0].overlap_ns, 0) << "nothing proves that anything moved under compute";
  EXPECT_EQ(m.terms[0].overlap_high_ns, 699);
}

TEST(Breakdown, ProgressThreadHidesIt) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) {
    m[r].Step(0, 0, 1000);
    m[r].Call(MpiOp::kTestsome, 101, 795, 1);  // The helper is inside MPI all the time.
    m[r].Posted(Kind::kAllReduce, 100, 101, 798, 800, 1024, 795);
  }
  m.Run();
  EXPECT_EQ(m.collectives().censored[0], 0);
  EXPECT_EQ(m.collectives().transfer_ns[0], 700);
  EXPECT_EQ(m.terms[0].exposed_transfer_ns, 3);
  EXPECT_EQ(m.terms[0].overlap_ns, 694);
  EXPECT_EQ(m.terms[0].overlap_high_ns, 697);
}

// Queries that move data last: a run is time in MPI whether its calls are many or long.
TEST(Breakdown, RunsOfQueriesAreTimeInMpi) {
  for (const std::uint32_t calls : {2u, 16u, 8000u}) {
    Merged m(1);
    m[0].Step(0, 0, 10'000'000);
    m[0].Call(MpiOp::kTest, 1'000'000, 9'000'000, 0, calls);
    m.Run();
    EXPECT_EQ(m.terms[0].compute_ns, 2'000'000);
  }
}

TEST(Breakdown, NeverCompletedReachesTheLastSignOfLife) {
  Merged m(2);
  m[0].Posted(Kind::kAllReduce, 100, 110, schema::kNoTime, schema::kNoTime);
  m[0].Call(MpiOp::kWait, 400, 500);
  m[1].Posted(Kind::kAllReduce, 150, 160, 300, 350);
  m.Run();
  EXPECT_EQ(m.members().end_high_ns[0], 500);
  EXPECT_EQ(m.members().wait_ns[0], 50);
  EXPECT_EQ(m.members().censored[0], 1);
  EXPECT_EQ(m.terms[0].exposed_unsplit_ns, 100);
}

TEST(Breakdown, ADeadRanksLastMomentIsNoClockViolation) {
  Merged m(2);
  m[0].Posted(Kind::kAllReduce, 100, 110, schema::kNoTime, schema::kNoTime);  // Died at 110.
  m[1].Posted(Kind::kAllReduce, 150, 160, schema::kNoTime, schema::kNoTime);
  m.Run();
  EXPECT_EQ(m.checks.violations, 0u);
}

TEST(Breakdown, TransferBeatsWaitAtTheSameInstant) {
  merge::RankActivity a;
  a.busy = {{0, 100}};
  merge::AddOps({{0, 60, 60, 80, true}, {10, 10, 20, 40, true}}, a);
  const merge::Terms t = merge::BreakDown(a, {{0, 100}})[0];
  EXPECT_EQ(t.exposed_transfer_ns, 20 + 20);
  EXPECT_EQ(t.exposed_wait_ns, 60 - 20);
  EXPECT_EQ(t.idle_ns, 20);
}

TEST(Breakdown, GpuWindowsFollowTheLaunches) {
  Merged m(1);
  m[0].Step(0, 0, 100), m[0].Step(1, 100, 200);
  m[0].Kernel("gemm", 50, 120, 10);
  m[0].Kernel("gemm", 130, 180, 60);
  m[0].Kernel("gemm", 200, 260, 110);  // First launched in step 1.
  m[0].Kernel("ncclDevKernel_AllReduce", 250, 300, 150);
  m.Run();
  const auto& steps = m.passed[0].steps;
  EXPECT_EQ(steps[0].window, (Interval{0, 200})) << "the GPU was idle when the first step began";
  EXPECT_EQ(steps[1].window, (Interval{200, 300}));
  const auto row = m.passed[0].step_ranks.Get(0);
  EXPECT_EQ(row.compute_ns, 120);
  EXPECT_EQ(row.idle_ns, 50 + 30);
  const auto next = m.passed[0].step_ranks.Get(1);
  EXPECT_EQ(next.compute_ns, 60);
  EXPECT_EQ(next.exposed_unsplit_ns, 40) << "a kernel by its name, with no collective recorded";
  EXPECT_EQ(next.overlap_ns, 10);
  EXPECT_TRUE(m.passed[0].gpu);
}

TEST(Breakdown, GpuCollectivesAreTheirKernels) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) {
    m[r].Kernel("gemm", 0, 100 + 40 * r, 0);
    const std::uint32_t kernel = m[r].Kernel("ncclDevKernel_AllReduce", 100 + 40 * r, 200, 5, 1);
    const std::uint32_t row = m[r].Collective(Kind::kAllReduce, 100 + 40 * r, 200);
    m[r].t.mpi_calls = {};
    m[r].t.collectives.mode[row] = 3;
    m[r].t.collectives.kernel[row] = kernel;
  }
  m.Run();
  EXPECT_EQ(m.terms[0].exposed_wait_ns, 40);
  EXPECT_EQ(m.terms[0].exposed_transfer_ns, 60);
  EXPECT_EQ(m.terms[1].exposed_wait_ns, 0);
  EXPECT_EQ(m.terms[1].compute_ns, 140);
  EXPECT_EQ(m.terms[0].comm_ns, 100);
}

TEST(KernelClass, NamesAsLibrariesAndHtaSeeThem) {
  // One of each library and style; names from their sources (core/comm_kernels.cc).
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_f32",
        "ncclKernel_SendRecv",
        "ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)",
        "ncclCeAllGather",
        "rcclDevKernel",
        "rccl_AllReduce_MSCCLpp(void*)",
        "mscclKernel_Sum_half_Simple(mscclWork*)",
        "void deep_ep::internode::dispatch<1>",
        "void deep_ep::intranode::notify_dispatch<8>(int const*)",
        "void dpsk::ep::combine<4>(void*)",
        "void hybrid_ep::dispatch_kernel<hybrid_ep::NVLinkDomain>(void*)",
        "void pplx::dispatchKernel<true, 8>(int*)",
        "void mori::moe::EpCombineIntraNodeKernel<half>(mori::moe::Args)",
        "nvshmemi_transfer",
        "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int)",
        "void vllm::cross_device_reduce_1stage<float>",
        "void aiter::reduce_scatter_cross_device_store<half, 8>()",
        "void aiter::local_device_load_rmsnorm<half, 8>(aiter::RankSignals)",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half, 8>>(half const*)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, false>(AllReduceParams)",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(DispatchParams)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(Pattern)1, half>(Params)",
        "void flashinfer::trtllm_alltoall::moeAllToAllKernel(flashinfer::trtllm_alltoall::MoeCommWorkspace)",
        "void userbuffers_fp16_sum_inplace_gpu_rw<4>(int)",
        "userbuffers_pushsend(int*, int*, int4*, int4*, int)",
        "void c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int)",
        "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void c10d::intra_node_comm::oneShotAllReduce<8u, false>(__nv_bfloat16*)",
        "kernel_all_gather_push_1d_intra_node",
        "void allreduce7<half>(half*, mscclpp::DeviceHandle<mscclpp::MemoryChannel>*)"})
    EXPECT_TRUE(IsCommKernelName(name)) << name;
  // Words of communication in compute: of its arguments, within a GPU, and what torch.compile fused beside it.
  for (const char* name :
       {"gemm", "SyncBatchNorm", "vectorized_elementwise_kernel", "void at::native::reduce_kernel",
        "void at::native::elementwise_kernel<128, 2, all_reduce_scale(float)::{lambda()#1}>(int)",
        "triton_poi_fused_all_reduce_wait_tensor_3", "triton_red_fused_all_gather_into_tensor_mean_0",
        "void fastertransformer::blockAllReduceSum<float>(float*)", "void softmax_warp_all_reduce<float, 32>(float*)",
        "void flash::flash_fwd_splitkv_combine_kernel<Traits, 4>(Params)", "void vllm::moe::dispatch_topk<8>(float*)",
        "void tensorrt_llm::kernels::mha_combine<half>(half*)", "void bytedance::flux::ag_gemm_all_gather<1>(int)",
        "void cub::DeviceReduceKernel<int>(int*)", "void flashinfer::norm::FusedAddRMSNormKernel<8, half>(half*)"})
    EXPECT_FALSE(IsCommKernelName(name)) << name;
  EXPECT_EQ(merge::HtaClass("ncclKernel"), merge::KernelClass::kComm);
  EXPECT_EQ(merge::HtaClass("hipLaunch"), merge::KernelClass::kComm);
  EXPECT_EQ(merge::HtaClass("Memcpy HtoD"), merge::KernelClass::kMemory);
  EXPECT_EQ(merge::HtaClass("SyncBatchNorm_fwd"), merge::KernelClass::kNone);
  EXPECT_EQ(merge::HtaClass("void deep_ep::dispatch"), merge::KernelClass::kCompute);
}

// Every nanosecond on its own, straight from the definitions.
merge::Terms PerNanosecond(const merge::RankActivity& a, Interval w) {
  const auto in = [](const IntervalSet& set, std::int64_t t) {
    return std::any_of(set.begin(), set.end(), [t](const Interval& i) { return i.begin <= t && t < i.end; });
  };
  merge::Terms out;
  for (std::int64_t t = w.begin; t < w.end; ++t) {
    const bool awaits = !a.gpu && in(a.awaited, t) && !in(a.busy, t);
    const bool sleeps = !a.gpu && in(a.blocked, t) && !in(a.busy, t) && !awaits;
    const bool compute = a.gpu ? in(a.busy, t) : !in(a.busy, t) && !awaits && !sleeps;
    const bool own = compute || sleeps;
    const bool message = in(a.message, t) && !own;
    const bool flight = in(a.certain, t) || in(a.possible, t) || message;
    const bool moving = in(a.certain, t) || (in(a.possible, t) && (in(a.inside_mpi, t) || !own)) || message;
    out.compute_ns += compute;
    out.comm_high_ns += flight, out.comm_ns += moving;
    out.overlap_high_ns += flight && own, out.overlap_ns += moving && own;
    out.blocked_ns += sleeps || (awaits && !flight), out.awaited_apart_ns += awaits && !flight;
    out.copy_ns += in(a.copy, t);
    const bool exposed = flight && !own;
    out.helper_wait_ns += exposed && in(a.awaited, t);
    out.exposed_transfer_ns += exposed && in(a.transfer, t);
    out.exposed_wait_ns += exposed && !in(a.transfer, t) && (in(a.wait, t) || message);
    out.message_wait_ns += exposed && !in(a.transfer, t) && !in(a.wait, t) && message;
    out.exposed_unsplit_ns += exposed && !in(a.transfer, t) && !in(a.wait, t) && !message;
    out.exposed_copy_ns += in(a.copy, t) && !own && !awaits && !flight;
    const bool idle = !own && !awaits && !flight && !in(a.copy, t);
    out.idle_ns += idle, out.mpi_other_ns += idle && in(a.mpi_other, t), out.input_ns += idle && in(a.input, t);
    out.mpi_io_ns += idle && in(a.mpi_io, t), out.mpi_rma_ns += idle && in(a.mpi_rma, t) && !in(a.mpi_io, t);
    out.mpi_setup_ns += idle && in(a.mpi_setup, t) && !in(a.mpi_io, t) && !in(a.mpi_rma, t);
  }
  return out;
}

void ExpectSame(const merge::Terms& got, const merge::Terms& want) {
  EXPECT_EQ(got.compute_ns, want.compute_ns);
  EXPECT_EQ(got.blocked_ns, want.blocked_ns);
  EXPECT_EQ(got.awaited_apart_ns, want.awaited_apart_ns);
  EXPECT_EQ(got.helper_wait_ns, want.helper_wait_ns);
  EXPECT_EQ(got.message_wait_ns, want.message_wait_ns);
  EXPECT_EQ(got.exposed_wait_ns, want.exposed_wait_ns);
  EXPECT_EQ(got.exposed_transfer_ns, want.exposed_transfer_ns);
  EXPECT_EQ(got.exposed_unsplit_ns, want.exposed_unsplit_ns);
  EXPECT_EQ(got.exposed_copy_ns, want.exposed_copy_ns);
  EXPECT_EQ(got.idle_ns, want.idle_ns);
  EXPECT_EQ(got.comm_ns, want.comm_ns);
  EXPECT_EQ(got.overlap_ns, want.overlap_ns);
  EXPECT_EQ(got.comm_high_ns, want.comm_high_ns);
  EXPECT_EQ(got.overlap_high_ns, want.overlap_high_ns);
  EXPECT_EQ(got.copy_ns, want.copy_ns);
  EXPECT_EQ(got.mpi_other_ns, want.mpi_other_ns);
  EXPECT_EQ(got.mpi_io_ns, want.mpi_io_ns);
  EXPECT_EQ(got.mpi_rma_ns, want.mpi_rma_ns);
  EXPECT_EQ(got.mpi_setup_ns, want.mpi_setup_ns);
  EXPECT_EQ(got.input_ns, want.input_ns);
}

// The same sets in pieces: several sources of one activity, members cut, doubled and out of order within a stretch
// of time that was not advanced to.
std::vector<merge::Terms> Streamed(const merge::RankActivity& a, const std::vector<Interval>& windows,
                                   std::mt19937& random) {
  const auto any = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  merge::Breakdown breakdown(a.gpu, windows);
  struct Piece {
    merge::Breakdown::Source source;
    Interval interval;
  };
  std::vector<Piece> pieces;
  const std::pair<merge::Activity, const IntervalSet*> sets[] = {
      {merge::Activity::kBusy, &a.busy},         {merge::Activity::kCertain, &a.certain},
      {merge::Activity::kPossible, &a.possible}, {merge::Activity::kTransfer, &a.transfer},
      {merge::Activity::kWait, &a.wait},         {merge::Activity::kInsideMpi, &a.inside_mpi},
      {merge::Activity::kCopy, &a.copy},         {merge::Activity::kMpiOther, &a.mpi_other},
      {merge::Activity::kInput, &a.input},       {merge::Activity::kMpiIo, &a.mpi_io},
      {merge::Activity::kMpiRma, &a.mpi_rma},    {merge::Activity::kMpiSetup, &a.mpi_setup},
      {merge::Activity::kBlocked, &a.blocked},   {merge::Activity::kAwaited, &a.awaited},
      {merge::Activity::kMessage, &a.message}};
  for (const auto& [activity, set] : sets) {
    const merge::Breakdown::Source one = breakdown.AddSource(activity), other = breakdown.AddSource(activity);
    for (const Interval& member : *set) {
      const std::int64_t middle = any(member.begin, member.end);
      pieces.push_back({any(0, 1) ? one : other, {member.begin, middle}});
      pieces.push_back({any(0, 1) ? one : other, {any(member.begin, middle), member.end}});
      if (any(0, 3) == 0) pieces.push_back({any(0, 1) ? one : other, member});
    }
  }
  std::int64_t advanced = -1000;
  while (!pieces.empty()) {
    const std::int64_t until = advanced + any(1, 80);
    std::shuffle(pieces.begin(), pieces.end(), random);
    std::erase_if(pieces, [&](const Piece& piece) {
      if (piece.interval.begin >= until) return false;
      breakdown.Add(piece.source, piece.interval);
      return true;
    });
    breakdown.Advance(until);
    advanced = until;
  }
  EXPECT_FALSE(breakdown.came_late());
  return breakdown.Finish();
}

TEST(Breakdown, SaysWhatCameTooLate) {
  merge::Breakdown breakdown(true, {{0, 100}});
  const merge::Breakdown::Source busy = breakdown.AddSource(merge::Activity::kBusy);
  breakdown.Add(busy, {10, 20});
  breakdown.Advance(50);
  breakdown.Add(busy, {50, 60});
  EXPECT_FALSE(breakdown.came_late());
  breakdown.Add(busy, {49, 60});
  EXPECT_TRUE(breakdown.came_late());
}

TEST(Breakdown, EqualsTheOracleOnRandomTraces) {
  std::mt19937 random(7);
  const auto some = [&](int most) {
    std::vector<Interval> set;
    for (int n = std::uniform_int_distribution(0, most)(random); n > 0; --n) {
      const std::int64_t begin = std::uniform_int_distribution(-20, 320)(random);
      set.push_back({begin, begin + std::uniform_int_distribution(0, 60)(random)});
    }
    return Normalize(std::move(set));
  };
  for (int round = 0; round < 400; ++round) {
    merge::RankActivity a;
    a.gpu = round % 2 == 1;
    a.busy = some(8), a.inside_mpi = some(6), a.copy = some(4), a.mpi_other = some(3), a.input = some(3);
    a.mpi_io = some(2), a.mpi_rma = some(2), a.mpi_setup = some(2);
    a.blocked = some(4), a.awaited = some(3), a.message = some(4);
    std::vector<merge::CommOp> ops;
    for (int n = std::uniform_int_distribution(0, 8)(random); n > 0; --n) {
      std::int64_t at[4];
      for (std::int64_t& t : at) t = std::uniform_int_distribution(-20, 320)(random);
      std::sort(at, at + 4);
      ops.push_back({at[0], at[1], at[2], at[3], n % 3 != 0});
    }
    merge::AddOps(ops, a);
    std::vector<Interval> windows = {{0, 300}};
    for (std::int64_t t = 0; t < 300;) {
      const std::int64_t end = t + std::uniform_int_distribution(1, 90)(random);
      windows.push_back({t, end});
      t = end + std::uniform_int_distribution(0, 5)(random);
    }
    windows.push_back({40, 40});
    const std::vector<merge::Terms> got = merge::BreakDown(a, windows);
    const std::vector<merge::Terms> streamed = Streamed(a, windows, random);
    for (std::size_t w = 0; w < windows.size(); ++w) ExpectSame(streamed[w], got[w]);
    for (std::size_t w = 0; w < windows.size(); ++w) {
      ExpectSame(got[w], PerNanosecond(a, windows[w]));
      const merge::Terms& t = got[w];
      EXPECT_EQ(t.compute_ns + t.blocked_ns + t.exposed_wait_ns + t.exposed_transfer_ns + t.exposed_unsplit_ns +
                    t.exposed_copy_ns + t.idle_ns,
                windows[w].end - windows[w].begin);
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Breakdown, IdentityHoldsOnRandomRuns) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    Merged m(3);
    for (int r = 0; r < 3; ++r) {
      m.offset_ns[static_cast<std::size_t>(r)] = std::uniform_int_distribution(-40, 40)(random);
      std::int64_t t = 0;
      for (std::int64_t step = 0; step < 5; ++step) {
        const std::int64_t begin = t;
        t += std::uniform_int_distribution(1, 50)(random);
        m[r].Collective(Kind::kAllReduce, t, t + 30), t += 30;
        m[r].Posted(Kind::kAllGather, t, t + 2, t + 40, t + 60), t += 60;
        m[r].Input(t, t + 7), t += 10;
        m[r].Step(step, begin, t);
      }
    }
    m.Run();
    for (int r = 0; r < 3; ++r) {
      const auto& total = m.terms[static_cast<std::size_t>(r)];
      EXPECT_EQ(SumOfTerms(total), total.end_ns - total.begin_ns);
      std::int64_t compute = 0;
      for (std::size_t i = 0; i < m.passed[static_cast<std::size_t>(r)].step_ranks.rows(); ++i)
        compute += m.passed[static_cast<std::size_t>(r)].step_ranks.compute_ns[i];
      EXPECT_EQ(compute, total.compute_ns);
    }
  }
}

// Rows in another order; what refers to them by number is not in these runs.
template <typename Table>
void Shuffle(Table& table, std::mt19937& random) {
  std::vector<std::size_t> order(table.rows());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  Table moved;
  for (const std::size_t row : order) moved.Append(table.Get(row));
  table = std::move(moved);
}

void ExpectSameRows(const schema::TlStepRanks& a, const schema::TlStepRanks& b) {
  std::vector<std::vector<std::int64_t>> columns;
  a.ForEachColumn(
      [&](const schema::ColumnInfo&, const auto& column) { columns.emplace_back(column.begin(), column.end()); });
  std::size_t at = 0;
  b.ForEachColumn([&](const schema::ColumnInfo& info, const auto& column) {
    EXPECT_EQ(columns[at++], std::vector<std::int64_t>(column.begin(), column.end())) << info.name;
  });
}

// Tables of several pieces: in order of time they go through a piece at a time, in
// any other they are held. Both ways give the same, and the sum of what was put in.
TEST(Breakdown, LongTablesInOrderAndOutOfOrder) {
  constexpr std::int64_t kCalls = 150'000, kStep = 30'000 * 40;
  const auto build = [](RankBuilder& rank) {
    for (std::int64_t i = 0; i < kCalls; ++i) {
      const std::int64_t t = i * 40;
      if (i % 7 == 0)
        rank.Posted(CollectiveKind::kAllReduce, t, t + 3, t + 12, t + 30);
      else
        rank.Call(i % 5 == 0 ? MpiOp::kWin_fence : MpiOp::kSend, t + 5, t + 9 + i % 20, i % 11 == 0 ? 1 : 0);
      if (i % 3 == 0) rank.Input(t + 20, t + 33);
      if (i % 30'000 == 29'999) rank.Step(i / 30'000, i / 30'000 * kStep, (i / 30'000 + 1) * kStep);
    }
  };
  std::mt19937 random(3);
  Merged sorted(1), shuffled(1);
  build(sorted[0]), build(shuffled[0]);
  Shuffle(shuffled[0].t.mpi_calls, random);
  Shuffle(shuffled[0].t.ranges, random);
  ASSERT_GT(sorted[0].t.mpi_calls.rows(), 2 * ingest::kPieceRows);
  sorted.Run(), shuffled.Run();
  ExpectSameRows(sorted.passed[0].step_ranks, shuffled.passed[0].step_ranks);
  EXPECT_EQ(sorted.passed[0].step_ranks.rows(), 5u);
  EXPECT_EQ(SumOfTerms(sorted.terms[0]), kCalls * 40);
  EXPECT_GT(sorted.terms[0].comm_ns, 0);
  EXPECT_GT(sorted.terms[0].mpi_rma_ns, 0);
  EXPECT_EQ(sorted.members().censored, shuffled.members().censored);
}

TEST(Breakdown, LongGpuTablesInOrderAndOutOfOrder) {
  constexpr std::int64_t kKernels = 200'000, kStep = 50'000 * 30;
  const auto build = [](RankBuilder& rank) {
    for (std::int64_t i = 0; i < kKernels; ++i) {
      const std::int64_t t = i * 30;
      rank.Kernel(i % 9 == 0 ? "ncclDevKernel_AllReduce" : "gemm", t + 8, t + 20 + i % 25, t);
      if (i % 4 == 0) rank.t.copies.Append({.begin_ns = t + 22, .duration_ns = 9});
      if (i % 50'000 == 49'999) rank.Step(i / 50'000, i / 50'000 * kStep, (i / 50'000 + 1) * kStep);
    }
  };
  std::mt19937 random(4);
  Merged sorted(1), shuffled(1);
  build(sorted[0]), build(shuffled[0]);
  Shuffle(shuffled[0].t.kernels, random);
  Shuffle(shuffled[0].t.copies, random);
  Shuffle(shuffled[0].t.api, random);
  sorted.Run(), shuffled.Run();
  ExpectSameRows(sorted.passed[0].step_ranks, shuffled.passed[0].step_ranks);
  ASSERT_EQ(sorted.passed[0].steps.size(), 4u);
  EXPECT_EQ(sorted.passed[0].steps[1].window, (Interval{kStep + 8, 2 * kStep + 8}));
  const auto& total = sorted.terms[0];
  EXPECT_EQ(SumOfTerms(total), total.span_ns);
  EXPECT_GT(total.overlap_ns, 0);
  EXPECT_GT(total.exposed_copy_ns, 0);
}

// Holistic Trace Analysis drops what was launched in the last of several steps.
TEST(Breakdown, HtaWindow) {
  Merged m(1);
  m[0].Step(0, 0, 100), m[0].Step(1, 100, 200);
  m[0].Kernel("gemm", 50, 120, 10);
  m[0].Kernel("ncclKernel_AllReduce", 100, 150, 90);
  m[0].Kernel("gemm", 160, 180, 99);
  m[0].Kernel("gemm", 170, 260, 100);  // Launched in the last step.
  m[0].t.sync.Append({.begin_ns = 180, .duration_ns = 10, .stream = 7, .correlation = 3});
  m[0].t.sync.Append({.begin_ns = 180, .duration_ns = 500, .stream = schema::kNone, .correlation = 3});
  m.hta = true;
  m.Run();
  merge::RankPassInput input;
  input.clock = &m.clocks()[0];
  input.p2p = &m.p2p;
  input.steps = &m.steps.ranks[0];
  input.hta = input.hta_window = true;
  input.hta_until_ns = 100;
  auto totals = merge::PassEvents(input, m[0].t, *ingest::ReadFromMemory(m[0].t), m.matched).totals.Get(0);
  EXPECT_EQ(totals.begin_ns, 50);
  EXPECT_EQ(totals.end_ns, 190);
  EXPECT_EQ(totals.compute_ns, 70 + 20);
  EXPECT_EQ(totals.comm_ns, 50);
  EXPECT_EQ(totals.overlap_ns, 20);
  EXPECT_EQ(totals.idle_ns, 10);
  input.hta_until_ns = schema::kNoTime;  // A single step: everything counts.
  totals = merge::PassEvents(input, m[0].t, *ingest::ReadFromMemory(m[0].t), m.matched).totals.Get(0);
  EXPECT_EQ(totals.end_ns, 260);
  EXPECT_EQ(totals.compute_ns, 70 + 100);
}

}  // namespace
}  // namespace lockstep::test
