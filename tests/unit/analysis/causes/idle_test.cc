// A run whose GPU does nothing is never a healthy one, whatever it does nothing for.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "one_gpu.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kStep = OneGpu::kStep;
constexpr int kSteps = 20;

// Works for the whole step but for `gap` before its end; `fill` says what the host does in step i from `begin` to
// `end`.
OneGpu Idle(std::int64_t gap, const std::function<void(OneGpu&, int, std::int64_t begin, std::int64_t end)>& fill) {
  OneGpu rank;
  rank.Device();
  rank.Steps(kSteps);
  for (int i = 0; i < kSteps; ++i) {
    const std::int64_t at = i * kStep;
    rank.Launched("gemm", at + 2, at + kStep - gap, i == 0 ? 0 : at);
    fill(rank, i, at + kStep - gap, at + kStep);
  }
  return rank;
}

void ExpectAllIdleTimeIsTold(const analysis::Analysis& analysis, std::int64_t idle_ns) {
  std::int64_t told = 0;
  for (const analysis::IdleCause& cause : analysis.idle_causes) told += cause.ns;
  EXPECT_EQ(told, idle_ns);
  const auto whole = static_cast<double>(analysis.summary.terms.Sum());
  std::int64_t untold = 0;
  for (const analysis::IdleCause& cause : analysis.idle_causes)
    if (!cause.told) untold += cause.ns;
  constexpr std::size_t kMostFindings = 5;
  if (analysis.findings.size() == kMostFindings && FindIn(analysis, "idle.other") == nullptr) return;
  untold = std::min(untold, analysis.summary.terms.idle_ns);
  if (static_cast<double>(untold) >= 0.02 * whole) {
    ASSERT_NE(FindIn(analysis, "idle.other"), nullptr);
    EXPECT_EQ(FindIn(analysis, "idle.other")->saves_ns_per_step, untold);
  } else {
    EXPECT_EQ(FindIn(analysis, "idle.other"), nullptr);
  }
  if (static_cast<double>(idle_ns) >= 0.05 * whole) {
    EXPECT_EQ(analysis.verdict.find("othing found"), std::string::npos) << analysis.verdict;
  }
}

std::int64_t MeanIdle(const analysis::Analysis& analysis) {
  std::int64_t sum = 0, n = 0;
  for (const analysis::StepRow& step : analysis.steps)
    for (const analysis::StepCell& cell : step.ranks) sum += cell.terms.idle_ns, ++n;
  return sum / n;
}

// Each of the two causes is in half of the steps or fewer: the median of both is 0, and the GPU is idle for 40 %.
TEST(IdleTime, CausesThatTakeTurnsArePricedByTheMean) {
  const OneGpu rank = Idle(4'000, [](OneGpu& gpu, int i, std::int64_t begin, std::int64_t end) {
    if (i % 3 == 0)
      gpu.Op(0, "aten::sort", begin, end);
    else if (i % 3 == 1)
      gpu.Call("cudaDeviceSynchronize", begin - 500, end);
    else
      gpu.Call("cudaMalloc", begin, end);
  });
  const analysis::Analysis analysis = AnalyzeGpus({&rank});
  for (const char* id : {"host.work", "sync.host", "memory.limit"}) {
    const analysis::Finding* finding = FindIn(analysis, id);
    ASSERT_NE(finding, nullptr) << id;
    EXPECT_TRUE(finding->intermittent);
    EXPECT_NEAR(static_cast<double>(*finding->saves_ns_per_step), 4e6 / 3, 3e5) << id;
    EXPECT_NE(finding->headline.find("on average"), std::string::npos) << finding->headline;
  }
  ExpectAllIdleTimeIsTold(analysis, MeanIdle(analysis));
}

// One wild step of twenty has its share of the mean, and makes a steady cause no intermittent one.
TEST(IdleTime, AnOutlierHasItsShareOfTheMean) {
  const OneGpu rank = Idle(4'000, [](OneGpu& gpu, int i, std::int64_t begin, std::int64_t end) {
    gpu.Op(0, "aten::sort", begin, i == 7 ? end : begin + 1'000);
    if (i != 7) gpu.Call("cudaDeviceSynchronize", begin + 1'000, end);
  });
  const analysis::Analysis analysis = AnalyzeGpus({&rank});
  ASSERT_NE(FindIn(analysis, "host.work"), nullptr);
  EXPECT_FALSE(FindIn(analysis, "host.work")->intermittent);
  EXPECT_NEAR(static_cast<double>(*FindIn(analysis, "host.work")->saves_ns_per_step), (19 * 1e6 + 4e6) / 20, 1e4);
  ExpectAllIdleTimeIsTold(analysis, MeanIdle(analysis));
}

// Calls of MPI that are no collective and no message are in no term of the communication.
TEST(IdleTime, CommunicationOnTheCpuIsAFinding) {
  const OneGpu rank = Idle(6'200, [](OneGpu& gpu, int, std::int64_t begin, std::int64_t end) {
    gpu.Range(2, 0, "make_groups", begin, end);
    gpu.MpiCall(begin * 1'000, end * 1'000);
  });
  const analysis::Analysis analysis = AnalyzeGpus({&rank});
  const analysis::Finding* finding = FindIn(analysis, "idle.communication");
  ASSERT_NE(finding, nullptr) << analysis.verdict;
  EXPECT_NEAR(static_cast<double>(*finding->saves_ns_per_step), 6.2e6, 1e4);
  EXPECT_NE(finding->evidence.find("make_groups"), std::string::npos) << finding->evidence;
  EXPECT_EQ(analysis.verdict, finding->headline);
  ExpectAllIdleTimeIsTold(analysis, MeanIdle(analysis));
}

// What was recorded of it is exposed communication, and priced as that.
TEST(IdleTime, RecordedCommunicationIsNone) {
  const OneGpu rank = Idle(6'200, [](OneGpu& gpu, int i, std::int64_t begin, std::int64_t end) {
    if (i == 0) gpu.Comm("world", 1, 1, 1);
    gpu.MpiCall(begin * 1'000, end * 1'000);
    gpu.Collective(0, CollectiveKind::kAllReduce, begin * 1'000, end * 1'000, 1 << 20);
  });
  const analysis::Analysis analysis = AnalyzeGpus({&rank});
  EXPECT_EQ(FindIn(analysis, "idle.communication"), nullptr);
  for (const analysis::IdleCause& cause : analysis.idle_causes) EXPECT_NE(cause.cause, "communication");
}

// What ranges show of it, on whichever thread, as well; but not while an operator runs.
TEST(IdleTime, OperationsThatTheHostCarriesOutAreNone) {
  const OneGpu rank = Idle(6'200, [](OneGpu& gpu, int, std::int64_t begin, std::int64_t end) {
    gpu.Range(2, 5, "gloo:all_reduce", begin, end);
    gpu.InCategory(schema::Category::kCommunication);
    gpu.Op(0, "aten::sort", begin + 3'000, begin + 5'000);
  });
  const analysis::Analysis analysis = AnalyzeGpus({&rank});
  for (const analysis::IdleCause& cause : analysis.idle_causes) EXPECT_NE(cause.cause, "communication");
  const analysis::Finding* host = FindIn(analysis, "host.work");
  ASSERT_NE(host, nullptr) << analysis.verdict;
  EXPECT_NEAR(static_cast<double>(*host->saves_ns_per_step), 2e6, 2e5);
}

// Nothing takes much, and all of it together does.
TEST(IdleTime, ManySmallCausesAreOneFinding) {
  const OneGpu rank = Idle(900, [](OneGpu& gpu, int i, std::int64_t begin, std::int64_t end) {
    // Of seven kinds each is in one step of seven, for 9 %: rarer than what is priced by itself.
    switch (i % 7) {
      case 0:
        return void(gpu.Op(0, "aten::sort", begin, end));
      case 1:
        return void(gpu.Call("cudaDeviceSynchronize", begin - 100, end));
      case 2:
        return void(gpu.Call("cudaMalloc", begin, end));
      case 3:
        return gpu.MpiCall(begin * 1'000, end * 1'000);
      case 4:
        gpu.Range(2, 0, "load", begin, end);
        return gpu.InCategory(schema::Category::kInput);
      default:
        return;
    }
  });
  const analysis::Analysis analysis = AnalyzeGpus({&rank});
  EXPECT_NE(FindIn(analysis, "idle.other"), nullptr) << analysis.verdict;
  ExpectAllIdleTimeIsTold(analysis, MeanIdle(analysis));
}

// Whatever the host does when, what is told of the idle time and what is not sum to it.
TEST(IdleTime, OfAnyRunIsToldInFull) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const std::int64_t gap = 200 + random() % 9'000;
    std::vector<OneGpu> ranks;
    for (unsigned r = 0; r <= seed % 3; ++r)
      ranks.push_back(Idle(gap, [&](OneGpu& gpu, int i, std::int64_t begin, std::int64_t end) {
        std::int64_t at = begin;
        while (at < end) {
          const std::int64_t until = std::min<std::int64_t>(end, at + 20 + random() % 3'000);
          switch ((random() + (seed % 2 ? i : 0)) % 6) {
            case 0:
              gpu.Op(0, "aten::sort", at, until);
              break;
            case 1:
              gpu.Call("cudaDeviceSynchronize", at, until);
              break;
            case 2:
              gpu.Call("cudaMalloc", at, until);
              break;
            case 3:
              gpu.MpiCall(at * 1'000, until * 1'000);
              break;
            case 4:
              gpu.Range(2, 0, "load", at, until);
              gpu.InCategory(schema::Category::kInput);
              break;
            default:
              break;
          }
          at = until;
        }
      }));
    std::vector<const OneGpu*> all;
    for (const OneGpu& rank : ranks) all.push_back(&rank);
    SCOPED_TRACE(seed);
    const analysis::Analysis analysis = AnalyzeGpus(all);
    ExpectAllIdleTimeIsTold(analysis, MeanIdle(analysis));
  }
}

}  // namespace
}  // namespace lockstep::test
