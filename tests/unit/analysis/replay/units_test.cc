// Units of sharded parameters: which collectives they are, and what fewer and larger ones would gain. The truth is the
// same job made with these.

#include "analysis/replay/graph/units.h"

#include <gtest/gtest.h>

#include <vector>

#include "analysis/replay/host/host_interference.h"
#include "analysis/replay/host/host_run.h"
#include "analysis/replay/questions/larger_units.h"
#include "analysis/replay/questions/prefetch.h"
#include "analysis/replay/questions/smaller_units.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::replay {
namespace {

constexpr std::int64_t kUs = 1000, kLatency = 100 * kUs;
constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::size_t kSteps = 10;

// 1 GiB/s behind the latency; a reduction goes there and back.
std::int64_t TransferNs(CollectiveKind kind, std::uint64_t bytes) {
  return (kind == CollectiveKind::kAllReduce ? 2 : 1) * (kLatency + static_cast<std::int64_t>(bytes));
}

// Two ranks that always do the same at the same time.
class Builder {
 public:
  explicit Builder(bool by_library) : by_library_(by_library) {
    run_.ranks = {0, 1};
    run_.stretches.resize(2);
    if (by_library)
      for (RankStretches& rank : run_.stretches) rank.others.push_back({1, {}, {}});
  }

  void Compute(std::int64_t ns) { now_ += ns; }

  // The training thread waits for it, whether it carries it itself or a thread of a library does.
  void Collective(CollectiveKind kind, std::uint64_t bytes) {
    const auto c = static_cast<std::uint32_t>(run_.collectives.size());
    run_.collectives.push_back({c, 7, kind, bytes, 2});
    const std::int64_t end = now_ + TransferNs(kind, bytes);
    for (RankStretches& rank : run_.stretches) {
      const auto i = static_cast<std::uint32_t>(rank.collectives.size());
      rank.collectives.push_back({c, c, by_library_ ? 1u : 0u, false, false, now_, now_, end, end});
      if (by_library_) {
        rank.others[0].collectives.push_back(i);
        rank.others[0].fed.push_back(true);
        rank.training.push_back({Stretch::kFeed, now_, now_, {i}, 0});
      }
      rank.training.push_back({by_library_ ? Stretch::kWait : Stretch::kBlocking, now_, end, {i}, 0});
    }
    now_ = end;
  }

  void EndStep() {
    const auto step = static_cast<std::uint32_t>(run_.steps.size());
    for (RankStretches& rank : run_.stretches) rank.training.push_back({Stretch::kStepEnd, now_, now_, {}, step});
    run_.steps.push_back(step);
    run_.measured_step_ns.push_back(now_ - began_);
    began_ = now_;
  }

  HostRun Take() { return std::move(run_); }

 private:
  const bool by_library_;
  HostRun run_;
  std::int64_t now_ = 0, began_ = 0;
};

struct Spec {
  std::uint64_t units = 32, bytes = 16 * kKiB;
  bool by_library = true, loss = false, latency_known = true;
  CollectiveKind reduction = CollectiveKind::kAllReduce;
};

// Gathered for the forward pass, freed, gathered for the backward pass, reduced: 32 layers of 100 us forward, in units.
HostRun Sharded(const Spec& spec) {
  Builder job(spec.by_library);
  const std::int64_t layers_ns = 3200 * kUs / static_cast<std::int64_t>(spec.units);
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (std::uint64_t unit = 0; unit < spec.units; ++unit) {
      job.Collective(CollectiveKind::kAllGather, spec.bytes);
      job.Compute(layers_ns);
    }
    for (std::uint64_t unit = 0; unit < spec.units; ++unit) {
      job.Collective(CollectiveKind::kAllGather, spec.bytes);
      job.Compute(2 * layers_ns);
      job.Collective(spec.reduction, spec.bytes);
    }
    if (spec.loss) job.Collective(CollectiveKind::kAllReduce, 4);
    job.Compute(500 * kUs);
    job.EndStep();
  }
  HostRun run = job.Take();
  if (spec.latency_known) run.beside.push_back({7, CollectiveKind::kBarrier, 0, kLatency});
  return run;
}

WhatIf Asked(const Spec& spec) {
  Result<WhatIf> what_if = WhatIf::Make(std::make_unique<HostRun>(Sharded(spec)));
  EXPECT_TRUE(what_if.ok()) << what_if.error().what;
  return std::move(what_if).value();
}

std::optional<LargerUnits> LargerOf(const WhatIf& what_if) {
  return FindLargerUnits(what_if, what_if.run().MakeJob(), what_if.replayed_step_ns() / 100);
}

TEST(Units, TheirReductionsAreNoBuckets) {
  for (const bool loss : {false, true}) {
    EXPECT_FALSE(Sharded({.loss = loss}).FindBuckets().has_value());
    EXPECT_FALSE(Sharded({.loss = loss, .reduction = CollectiveKind::kReduceScatter}).FindBuckets().has_value());
  }
  // DDP with what a SyncBatchNorm gathers.
  Builder ddp(true);
  for (std::size_t step = 0; step < kSteps; ++step) {
    ddp.Collective(CollectiveKind::kAllGather, 2 * kKiB);
    ddp.Compute(1000 * kUs);
    for (int bucket = 0; bucket < 4; ++bucket) ddp.Collective(CollectiveKind::kAllReduce, 512 * kKiB);
    ddp.EndStep();
  }
  const auto buckets = ddp.Take().FindBuckets();
  ASSERT_TRUE(buckets.has_value());
  EXPECT_EQ(buckets->bytes.size(), 4u);
}

// As ZeRO's first stage: gradients reduced, then the parameters that each rank has updated are gathered.
TEST(Units, WhatIsGatheredAfterTheReductionIsNone) {
  Builder zero(true);
  for (std::size_t step = 0; step < kSteps; ++step) {
    zero.Compute(1000 * kUs);
    for (int bucket = 0; bucket < 4; ++bucket) zero.Collective(CollectiveKind::kAllReduce, 512 * kKiB);
    for (int bucket = 0; bucket < 4; ++bucket) zero.Collective(CollectiveKind::kAllGather, 512 * kKiB);
    zero.EndStep();
  }
  const HostRun run = zero.Take();
  EXPECT_EQ(FindUnits(run).reduced_bytes, 0u);
  EXPECT_TRUE(run.FindBuckets().has_value());
}

TEST(Buckets, ALossBesideThemIsNone) {
  for (const std::size_t every : {1, 4}) {
    Builder ddp(true);
    for (std::size_t step = 0; step < kSteps; ++step) {
      for (int bucket = 0; bucket < 4; ++bucket) ddp.Collective(CollectiveKind::kAllReduce, 512 * kKiB);
      if (step % every == 0) ddp.Collective(CollectiveKind::kAllReduce, 4);
      ddp.EndStep();
    }
    HostRun run = ddp.Take();
    const auto buckets = run.FindBuckets();
    ASSERT_TRUE(buckets.has_value()) << every;
    EXPECT_EQ(buckets->bytes.size(), every == 1 ? 5u : 4u) << "nobody says that the fifth is no gradient";
    run.gradients = {std::vector<Gradient>(8, {256 * kKiB})};
    EXPECT_EQ(run.FindBuckets()->bytes.size(), 4u);
  }
}

// As while a device works, or a disk: the thread lacks CPU time while transfers are in flight, and no core.
TEST(Interference, AThreadThatSleepsInItsWorkIsNotSlowed) {
  for (const std::int64_t without_core_us : {-1, 0, 400}) {
    HostRun run = Sharded({.units = 2});
    for (RankStretches& rank : run.stretches) {
      std::erase_if(rank.training, [](const Stretch& stretch) { return stretch.kind == Stretch::kWait; });
      for (const std::int64_t step_ns : run.measured_step_ns) {
        rank.step_cpu_ns.push_back(step_ns - 400 * kUs);
        rank.step_without_core_ns.push_back(without_core_us < 0 ? -1 : without_core_us * kUs);
      }
    }
    run.overlap = OverlapOf(run);
    const double slowdown = run.EstimateInterference().value.compute_slowdown;
    EXPECT_EQ(slowdown > 0.05, without_core_us != 0) << without_core_us;
  }
}

TEST(Units, GradientsOfAnotherTypeThanTheParameters) {
  Builder mixed(true);
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (const std::uint64_t bytes : {32, 8}) mixed.Collective(CollectiveKind::kAllGather, bytes * kKiB);
    for (const std::uint64_t bytes : {16, 64}) mixed.Collective(CollectiveKind::kAllReduce, bytes * kKiB);
    mixed.EndStep();
  }
  EXPECT_EQ(FindUnits(mixed.Take()).reduced_bytes, kSteps * 80 * kKiB);
}

TEST(Units, LargerOnesArePredicted) {
  for (const bool by_library : {false, true})
    for (const CollectiveKind reduction : {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter}) {
      const Spec spec{.by_library = by_library, .reduction = reduction};
      const WhatIf what_if = Asked(spec);
      EXPECT_EQ(what_if.self_error(), 0);
      const std::optional<LargerUnits> larger = LargerOf(what_if);
      ASSERT_TRUE(larger.has_value());
      EXPECT_EQ(larger->units, 32u);
      EXPECT_EQ(larger->together, 16u) << "two remain";
      Spec then = spec;
      then.units /= larger->together;
      then.bytes *= larger->together;
      const auto now_ns = static_cast<double>(Sharded(spec).measured_step_ns[5]),
                 then_ns = static_cast<double>(Sharded(then).measured_step_ns[5]);
      EXPECT_NEAR(static_cast<double>(larger->gain_ns) / (now_ns - then_ns), 1, 0.01);
      ASSERT_TRUE(larger->gain_interval_ns.has_value());
      EXPECT_GT(larger->gain_interval_ns->first, 0);
      EXPECT_LT(larger->gain_interval_ns->first, larger->gain_ns);
      EXPECT_TRUE(larger->extrapolated);
      EXPECT_NEAR(static_cast<double>(larger->transfers_ns - larger->transfers_then_ns) / (now_ns - then_ns), 1, 0.01);
    }
}

TEST(Units, LargeOnesStayAndSoDoThoseOfUnknownCost) {
  EXPECT_FALSE(LargerOf(Asked({.units = 8, .bytes = 16384 * kKiB})).has_value());
  const std::optional<LargerUnits> unknown = LargerOf(Asked({.latency_known = false}));
  EXPECT_TRUE(!unknown || unknown->gain_interval_ns->first <= 0) << "one size: latency or bandwidth, who knows";
}

// Nobody knows what larger ones take, but no less than one does now; told where a network moves so few bytes faster.
TEST(Units, FewerOfOneSizeHaveABound) {
  const auto most = [](const Spec& spec, double bytes_per_ns) {
    const WhatIf what_if = Asked(spec);
    return FewerUnitsAtMost(what_if, what_if.run().MakeJob(), bytes_per_ns);
  };
  const Spec spec{.latency_known = false};
  const std::optional<LargerUnits> fewer = most(spec, 1);
  ASSERT_TRUE(fewer.has_value());
  EXPECT_EQ(fewer->units, 32u);
  EXPECT_EQ(fewer->together, 16u);
  Spec then = spec;
  then.units /= fewer->together;
  then.bytes *= fewer->together;
  const std::int64_t gain_ns = Sharded(spec).measured_step_ns[5] - Sharded(then).measured_step_ns[5];
  EXPECT_GE(fewer->gain_ns, gain_ns);
  EXPECT_LE(fewer->gain_ns, gain_ns * 5 / 4);
  EXPECT_GT(fewer->transfers_ns - fewer->transfers_then_ns, gain_ns);
  EXPECT_FALSE(most(spec, 0.2).has_value()) << "a slow network needs so long for the bytes";
  EXPECT_FALSE(most({.units = 8, .bytes = 16384 * kKiB, .latency_known = false}, 1).has_value());
  EXPECT_FALSE(most({.units = 2, .latency_known = false}, 1).has_value()) << "one unit is no sharding";
}

// PyTorch waits for gloo where it begins a gather, whatever its settings of prefetching are.
TEST(Units, GathersOfALibraryThatWaitsAreNotPrefetched) {
  EXPECT_TRUE(WithPrefetch(Sharded({.by_library = false}), 1).has_value());
  const HostRun run = Sharded({.by_library = true});
  EXPECT_FALSE(WithPrefetch(run, 1).has_value());
  // What waits for one is the training thread, and not the gather before it.
  const Job job = run.MakeJob();
  const Gathers gathers = FindGathers(run, job, FindUnits(run).gathers);
  ASSERT_EQ(gathers.size(), 2u);
  ASSERT_EQ(gathers[0][0].size(), 64u);
  for (const Gather& gather : gathers[0][0])
    EXPECT_NE(job.graph.operations()[gather.member].lane, job.graph.operations()[gather.consumer].lane);
}

// The same job with smaller units is longer, by a latency for each: whoever waits for each part hides none.
TEST(Units, LargeOnesThatAThreadWaitsForStay) {
  for (const bool by_library : {false, true}) {
    const Spec large{.units = 1, .bytes = 32 * 1024 * kKiB, .by_library = by_library};
    const Spec smaller{.units = 32, .bytes = 1024 * kKiB, .by_library = by_library};
    EXPECT_GT(Sharded(smaller).measured_step_ns[5], Sharded(large).measured_step_ns[5]);
    const WhatIf what_if = Asked(large);
    const Job job = what_if.run().MakeJob();
    const Result<Schedule> schedule = Simulator(job.graph).Run();
    ASSERT_TRUE(schedule.ok());
    EXPECT_FALSE(FindSmallerUnits(what_if, job, schedule.value(), 1).has_value());
  }
}

}  // namespace
}  // namespace lockstep::replay
