#include "analysis/replay/questions/what_if.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/replay/host/host_run.h"
#include "analysis/replay/questions/like_work.h"

namespace lockstep::replay {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::uint64_t kMiB = 1 << 20;

// Two ranks: 10 ms forward, then gradients of 8 MiB over a backward pass of 8 ms, each bucket posted when it is
// ready and taking 1 ms + 0.5 ms a MiB one after the other, a wait, 2 ms of optimizer. Rank 1's work takes `slow` times
// as long.
HostRun MakeRun(const std::vector<std::uint64_t>& bucket_mib, double slow = 1, std::size_t steps = 10) {
  HostRun run;
  run.ranks = {0, 1};
  run.stretches.resize(2);
  std::vector<std::int64_t> now(2, 0);
  for (std::size_t step = 0; step < steps; ++step) {
    run.steps.push_back(static_cast<std::int64_t>(step));
    std::vector<std::vector<std::int64_t>> posts(2);
    const std::vector<std::int64_t> began = now;
    for (std::size_t r = 0; r < 2; ++r) {
      const double factor = r == 1 ? slow : 1;
      double at = static_cast<double>(now[r]) + 10 * kMs * factor;
      for (const std::uint64_t mib : bucket_mib)
        posts[r].push_back(std::llround(at += kMs * factor * static_cast<double>(mib)));
    }
    std::int64_t turn = 0;
    std::vector<std::uint32_t> made[2];
    for (std::size_t k = 0; k < bucket_mib.size(); ++k) {
      turn = std::max({turn, posts[0][k], posts[1][k]}) + kMs + kMs / 2 * static_cast<std::int64_t>(bucket_mib[k]);
      const auto c = static_cast<std::uint32_t>(run.collectives.size());
      run.collectives.push_back({c, 7, CollectiveKind::kAllReduce, bucket_mib[k] * kMiB, 2});
      for (std::size_t r = 0; r < 2; ++r) {
        RankStretches& rank = run.stretches[r];
        made[r].push_back(static_cast<std::uint32_t>(rank.collectives.size()));
        rank.collectives.push_back({c, c, 0, true, false, posts[r][k], 0, turn, turn});
        rank.training.push_back({Stretch::kPost, posts[r][k], posts[r][k], {made[r].back()}, 0});
      }
    }
    for (std::size_t r = 0; r < 2; ++r) {
      RankStretches& rank = run.stretches[r];
      const std::int64_t entry = posts[r].back(), leave = std::max(entry, turn);
      rank.training.push_back({Stretch::kWait, entry, leave, made[r], 0});
      now[r] = leave + std::llround(2 * kMs * (r == 1 ? slow : 1));
      rank.training.push_back({Stretch::kStepEnd, now[r], now[r], {}, static_cast<std::uint32_t>(step)});
    }
    run.measured_step_ns.push_back((now[0] - began[0] + now[1] - began[1]) / 2);
  }
  return run;
}

Question Cap(double mib, double first_mib) {
  Question question;
  question.kind = Question::kBucketCap;
  question.first_bytes = static_cast<std::uint64_t>(first_mib * kMiB);
  question.cap_bytes = static_cast<std::uint64_t>(mib * kMiB);
  return question;
}
Question Of(Question::Kind kind) {
  Question question;
  question.kind = kind;
  return question;
}

Answer Ask(const WhatIf& what_if, const Question& question) {
  const Result<Answer> answer = what_if.Ask(question);
  EXPECT_TRUE(answer.ok()) << answer.error().what;
  return answer.ok() ? answer.value() : Answer{};
}
WhatIf Make(HostRun run, const std::vector<HostRun>& calibration = {}) {
  std::vector<std::unique_ptr<RecordedRun>> others;
  for (const HostRun& other : calibration) others.push_back(std::make_unique<HostRun>(other));
  Result<WhatIf> what_if = WhatIf::Make(std::make_unique<HostRun>(std::move(run)), std::move(others));
  EXPECT_TRUE(what_if.ok()) << what_if.error().what;
  return std::move(what_if).value();
}

TEST(WhatIf, NothingChangedGivesTheMeasuredSteps) {
  for (const double slow : {1.0, 1.3}) {
    const WhatIf what_if = Make(MakeRun({2, 2, 4}, slow));
    EXPECT_EQ(what_if.self_error(), 0);
    EXPECT_EQ(what_if.replayed_step_ns(), what_if.measured_step_ns());
  }
}

// The truth is the same job made with the other buckets.
TEST(WhatIf, AnotherBucketingIsPredicted) {
  const std::vector<std::uint64_t> truths[] = {{8}, {4, 4}, {2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}};
  const WhatIf what_if = Make(MakeRun({2, 2, 4}), {MakeRun({1, 1, 1, 1, 1, 1, 1, 1}), MakeRun({8})});
  const WhatIf slowed = Make(MakeRun({2, 2, 4}, 1.5), {MakeRun({1, 1, 1, 1, 1, 1, 1, 1}), MakeRun({8})});
  for (const auto& truth : truths) {
    const auto mib = static_cast<double>(truth[0]);
    const Answer answer = Ask(what_if, Cap(mib, mib));
    const auto expected = static_cast<double>(MakeRun(truth).measured_step_ns[5]);
    EXPECT_NEAR(static_cast<double>(answer.step_ns) / expected, 1, 0.005) << mib;
    EXPECT_LE(answer.step_interval_ns.value().first, answer.step_ns);
    EXPECT_GE(answer.step_interval_ns.value().second, answer.step_ns);
    EXPECT_NEAR(static_cast<double>(Ask(slowed, Cap(mib, mib)).step_ns) /
                    static_cast<double>(MakeRun(truth, 1.5).measured_step_ns[5]),
                1, 0.005)
        << mib;
  }
  EXPECT_EQ(Ask(what_if, Cap(4, 4)).step_ns, Ask(what_if, Cap(4, 3.5)).step_ns)
      << "a bucket that ends where one of the run's did needs no interpolation";
}

struct Carried {
  std::int64_t ready_ns = 0, alone_ns = 0;
  std::uint32_t thread = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};
// Each of the threads takes the next one when it is free; those under way share one network evenly.
void Carry(std::vector<Carried>& all, std::size_t threads) {
  std::vector<Carried*> under_way(threads, nullptr);
  std::vector<double> left_ns(threads, 0);
  double now = 0;
  for (std::size_t next = 0, done = 0; done < all.size();) {
    double until = 1e18;
    std::size_t busy = 0;
    for (std::size_t t = 0; t < threads; ++t) {
      if (under_way[t] == nullptr && next < all.size() && static_cast<double>(all[next].ready_ns) <= now) {
        under_way[t] = &all[next++];
        under_way[t]->begin_ns = std::llround(now);
        under_way[t]->thread = static_cast<std::uint32_t>(t);
        left_ns[t] = static_cast<double>(under_way[t]->alone_ns);
      }
      busy += under_way[t] != nullptr;
    }
    const double share = 1 / std::max(1.0, static_cast<double>(busy));
    for (std::size_t t = 0; t < threads; ++t)
      if (under_way[t] != nullptr) until = std::min(until, now + left_ns[t] / share);
    if (next < all.size() && busy < threads) until = std::min(until, static_cast<double>(all[next].ready_ns));
    for (std::size_t t = 0; t < threads; ++t) {
      if (under_way[t] == nullptr) continue;
      left_ns[t] -= (until - now) * share;
      if (left_ns[t] > 0.5) continue;
      under_way[t]->end_ns = std::llround(until);
      under_way[t] = nullptr;
      ++done;
    }
    now = until;
  }
}

// Two ranks whose gradients other threads reduce (gloo), which before that broadcast buffers in each step: 1 ms, then
// the same work, buckets and costs as above.
HostRun MakeRunOfThread(const std::vector<std::uint64_t>& bucket_mib, std::size_t steps = 10,
                        std::uint32_t threads = 1) {
  HostRun run;
  run.ranks = {0, 1};
  run.stretches.resize(2);
  for (RankStretches& rank : run.stretches)
    for (std::uint32_t t = 0; t < threads; ++t) rank.others.push_back({1 + t, {}, {}});
  std::int64_t now = 0;
  const auto add = [&](CollectiveKind kind, std::uint64_t bytes, std::int64_t ready, std::int64_t begin,
                       std::int64_t end, std::uint32_t step, std::uint32_t thread = 0) {
    const auto c = static_cast<std::uint32_t>(run.collectives.size());
    run.collectives.push_back({c, 7, kind, bytes, 2});
    for (RankStretches& rank : run.stretches) {
      const auto i = static_cast<std::uint32_t>(rank.collectives.size());
      rank.collectives.push_back({c, c, 1 + thread, false, false, begin, begin, end, end, ready});
      rank.others[thread].collectives.push_back(i);
      rank.others[thread].fed.push_back(true);
      rank.training.push_back({Stretch::kFeed, ready, ready, {i}, step});
    }
    return c;
  };
  for (std::uint32_t step = 0; step < steps; ++step) {
    run.steps.push_back(step);
    const std::int64_t began = now;
    const std::uint32_t buffers = add(CollectiveKind::kBroadcast, kMiB, now, now, now + kMs, step);
    for (RankStretches& rank : run.stretches) rank.training.push_back({Stretch::kWait, now, now + kMs, {buffers}, 0});
    std::int64_t ready = now + 11 * kMs, turn = 0;
    std::vector<std::uint32_t> made;
    std::vector<Carried> buckets;
    for (const std::uint64_t mib : bucket_mib) {
      ready += kMs * static_cast<std::int64_t>(mib);
      buckets.push_back({ready, kMs + kMs / 2 * static_cast<std::int64_t>(mib)});
    }
    Carry(buckets, threads);
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      const Carried& b = buckets[k];
      turn = std::max(turn, b.end_ns);
      made.push_back(
          add(CollectiveKind::kAllReduce, bucket_mib[k] * kMiB, b.ready_ns, b.begin_ns, b.end_ns, step, b.thread));
    }
    now = turn + 2 * kMs;
    for (RankStretches& rank : run.stretches) {
      rank.training.push_back({Stretch::kWait, ready, turn, made, 0});
      rank.training.push_back({Stretch::kStepEnd, now, now, {}, step});
    }
    run.measured_step_ns.push_back(now - began);
  }
  return run;
}

// The thread has something else to carry in each step, which keeps its place between the new reductions.
TEST(WhatIf, BucketsOfAThreadThatCarriesOtherThings) {
  HostRun run = MakeRunOfThread({1, 1, 1, 1, 1, 1, 1, 1});
  for (const std::int64_t mib : {2, 4, 8})
    run.beside.push_back({7, CollectiveKind::kAllReduce, static_cast<std::uint64_t>(mib) * kMiB, kMs + kMs / 2 * mib});
  const WhatIf what_if = Make(std::move(run));
  EXPECT_EQ(what_if.self_error(), 0);
  for (const auto& truth : std::vector<std::vector<std::uint64_t>>{{8}, {4, 4}, {2, 2, 2, 2}}) {
    const auto mib = static_cast<double>(truth[0]);
    EXPECT_NEAR(static_cast<double>(Ask(what_if, Cap(mib, mib)).step_ns) /
                    static_cast<double>(MakeRunOfThread(truth).measured_step_ns[5]),
                1, 0.005)
        << mib;
  }
}

// What threads carry beside each other takes longer, and not because of its size: as many bytes take as long together.
TEST(WhatIf, BucketsOfThreadsThatShareANetwork) {
  for (const std::uint32_t threads : {2U, 3U}) {
    HostRun run = MakeRunOfThread({1, 1, 1, 1, 1, 1, 1, 1}, 10, threads);
    for (const std::int64_t mib : {2, 4, 8})
      run.beside.push_back(
          {7, CollectiveKind::kAllReduce, static_cast<std::uint64_t>(mib) * kMiB, kMs + kMs / 2 * mib});
    const WhatIf what_if = Make(std::move(run));
    EXPECT_EQ(what_if.self_error(), 0);
    for (const auto& truth : std::vector<std::vector<std::uint64_t>>{{8}, {4, 4}, {2, 2, 2, 2}}) {
      const auto mib = static_cast<double>(truth[0]);
      EXPECT_NEAR(static_cast<double>(Ask(what_if, Cap(mib, mib)).step_ns) /
                      static_cast<double>(MakeRunOfThread(truth, 10, threads).measured_step_ns[5]),
                  1, 0.01)
          << mib << " MiB, " << threads << " threads";
    }
  }
}

// Buckets of one size alone know nothing of other sizes. What the run saw beside them does.
TEST(WhatIf, WhatWasSeenBesideTheStepsCounts) {
  HostRun fine = MakeRun({1, 1, 1, 1, 1, 1, 1, 1}), whole = MakeRun({8});
  fine.beside = {{7, CollectiveKind::kAllReduce, 8 * kMiB, 5 * kMs},
                 {8, CollectiveKind::kAllReduce, 4 * kMiB, 90 * kMs}};
  const Answer one = Ask(Make(fine), Cap(8, 8));
  EXPECT_NEAR(static_cast<double>(one.step_ns) / static_cast<double>(MakeRun({8}).measured_step_ns[5]), 1, 0.005);
  EXPECT_FALSE(one.extrapolated);
  // A first time may be slow. A reduction costs no more than two broadcasts (DDP's of the parameters).
  fine.beside = {{7, CollectiveKind::kAllReduce, 8 * kMiB, 60 * kMs},
                 {7, CollectiveKind::kBroadcast, 8 * kMiB, 5 * kMs / 2}};
  EXPECT_EQ(Ask(Make(fine), Cap(8, 8)).step_ns, one.step_ns);
  for (const std::int64_t ns : {kMs / 4, kMs / 2, kMs}) whole.beside.push_back({7, CollectiveKind::kAllGather, 16, ns});
  const Answer four = Ask(Make(whole), Cap(2, 2));
  EXPECT_NEAR(static_cast<double>(four.step_ns) / static_cast<double>(MakeRun({2, 2, 2, 2}).measured_step_ns[5]), 1,
              0.005);
  EXPECT_TRUE(four.extrapolated);
  ASSERT_TRUE(four.gain_interval_ns.has_value());
  EXPECT_GT(four.gain_interval_ns->first, 0);
  EXPECT_LE(Ask(Make(MakeRun({8})), Cap(2, 2)).gain_interval_ns.value().first, 0) << "nothing to go by";
}

// Gradients that were reduced after the work show nothing of what they would take from it.
TEST(WhatIf, WithoutAFreeCoreSmallerBucketsMayGainNothing) {
  HostRun whole = MakeRun({8});
  for (const std::int64_t ns : {kMs / 4, kMs / 2, kMs}) whole.beside.push_back({7, CollectiveKind::kAllGather, 16, ns});
  for (RankStretches& rank : whole.stretches) rank.step_cpu_ns = whole.measured_step_ns;
  whole.cores_of_rank = 2;
  const Answer free = Ask(Make(whole), Cap(2, 2));
  whole.cores_of_rank = 1;
  const Answer shared = Ask(Make(whole), Cap(2, 2));
  EXPECT_EQ(shared.gain_ns, free.gain_ns);
  EXPECT_GT(free.gain_interval_ns.value().first, free.gain_ns / 2);
  EXPECT_LE(shared.gain_interval_ns.value().first, 0);
}

TEST(WhatIf, ASlowRankIsPriced) {
  const WhatIf what_if = Make(MakeRun({2, 2, 4}, 1.3));
  Question question = Of(Question::kWithoutRanks);
  question.ranks = {1};
  const Answer answer = Ask(what_if, question);
  EXPECT_EQ(answer.step_ns, MakeRun({2, 2, 4}).measured_step_ns[5]);
  EXPECT_NE(answer.limit.find("%"), std::string::npos);
  question.ranks = {0};
  EXPECT_LE(Ask(what_if, question).gain_ns, 0) << "rank 0 slows nobody";
  question.ranks = {5};
  EXPECT_EQ(what_if.Ask(question).error().code, ErrorCode::kUsage);
  question.ranks = {0, 1};
  EXPECT_EQ(what_if.Ask(question).error().code, ErrorCode::kUsage);
}

TEST(WhatIf, EqualWorkIsSpreadNotTakenAway) {
  // Rank 1 takes 1.3 times as long for 20 ms of work: evened out both take 1.15 times as long.
  const WhatIf what_if = Make(MakeRun({2, 2, 4}, 1.3));
  const Answer even = Ask(what_if, Of(Question::kEqualRanks));
  const std::int64_t fast = MakeRun({2, 2, 4}).measured_step_ns[5], slow = MakeRun({2, 2, 4}, 1.3).measured_step_ns[5];
  EXPECT_NEAR(static_cast<double>(even.step_ns), static_cast<double>(fast + slow) / 2, 0.1 * kMs);
  EXPECT_EQ(Ask(Make(MakeRun({2, 2, 4})), Of(Question::kEqualRanks)).gain_ns, 0);
}

// Steps of 20 ms of work, an all-reduce of 1 ms, 10 ms of work and another one, on two ranks that poll after every 6 ms
// of work in its first part. Rank 1 takes `first_ms` for that part.
HostRun Polling(std::int64_t first_ms) {
  HostRun run;
  run.ranks = {0, 1};
  run.stretches.resize(2);
  std::int64_t now = 0;
  for (std::uint32_t step = 0; step < 6; ++step) {
    run.steps.push_back(step);
    const std::int64_t began = now;
    for (const bool first : {true, false}) {
      const auto c = static_cast<std::uint32_t>(run.collectives.size());
      run.collectives.push_back({c, 7, CollectiveKind::kAllReduce, kMiB, 2});
      const std::int64_t work[2] = {(first ? 20 : 10) * kMs, (first ? first_ms : 10) * kMs};
      const std::int64_t end = now + std::max(work[0], work[1]) + kMs;
      for (std::size_t r = 0; r < 2; ++r) {
        RankStretches& rank = run.stretches[r];
        for (std::int64_t at = 6 * kMs; first && at < work[r]; at += 6 * kMs)
          rank.training.push_back({Stretch::kCall, now + at, now + at, {}, 0});
        const std::int64_t entry = now + work[r];
        rank.collectives.push_back({c, c, 0, false, false, entry, entry, end, end});
        rank.training.push_back({Stretch::kBlocking, entry, end, {c}, 0});
      }
      now = end;
    }
    for (RankStretches& rank : run.stretches) rank.training.push_back({Stretch::kStepEnd, now, now, {}, step});
    run.measured_step_ns.push_back(now - began);
  }
  return run;
}

// A slower rank polls more often, and is slower only where it is.
TEST(WhatIf, WorkThatPollingCutsIsOnePiece) {
  const std::int64_t healthy = Polling(20).measured_step_ns[0], slow = Polling(26).measured_step_ns[0];
  ASSERT_EQ(slow - healthy, 6 * kMs);
  const WhatIf what_if = Make(Polling(26));
  ASSERT_EQ(what_if.replayed_step_ns(), slow);
  Question question = Of(Question::kWithoutRanks);
  question.ranks = {1};
  // A piece's parts are rounded each.
  EXPECT_NEAR(static_cast<double>(Ask(what_if, question).step_ns), static_cast<double>(healthy), 10);
  EXPECT_NEAR(static_cast<double>(Ask(what_if, Of(Question::kEqualRanks)).step_ns),
              static_cast<double>(healthy + slow) / 2, 10);
}

// The same reductions by a thread of the rank's own, to which the training thread hands them over.
HostRun ByAnotherThread(HostRun run) {
  for (RankStretches& rank : run.stretches) {
    rank.others.push_back({1, {}, {}});
    std::vector<Stretch> training;
    for (Stretch& stretch : rank.training) {
      if (stretch.kind == Stretch::kBlocking) {
        const std::uint32_t c = stretch.collectives[0];
        rank.collectives[c].thread = 1;
        rank.collectives[c].ready_ns = stretch.begin_ns;
        rank.others[0].collectives.push_back(c);
        rank.others[0].fed.push_back(true);
        training.push_back({Stretch::kFeed, stretch.begin_ns, stretch.begin_ns, {c}, 0});
        stretch.kind = Stretch::kWait;
      }
      training.push_back(std::move(stretch));
    }
    rank.training = std::move(training);
  }
  return run;
}

// Rank 0 waits for something else within the work of its second part, so that the two divide their steps differently.
HostRun CutDifferently(HostRun run) {
  std::vector<Stretch> training;
  bool first = true;
  for (const Stretch& stretch : run.stretches[0].training) {
    if (stretch.kind == Stretch::kBlocking || stretch.kind == Stretch::kFeed) {
      if (!first) training.push_back({Stretch::kWait, stretch.begin_ns - 4 * kMs, stretch.begin_ns - 4 * kMs, {}, 0});
      first = !first;
    }
    training.push_back(stretch);
  }
  run.stretches[0].training = std::move(training);
  return run;
}

// A factor for the whole step would leave some of the 6 ms in front of the first reduction, and take it away behind it.
TEST(WhatIf, WhatARankDoesTooMuchIsTakenFromWhereItIs) {
  const std::int64_t healthy = Polling(20).measured_step_ns[0], slow = Polling(26).measured_step_ns[0];
  for (const bool thread : {false, true}) {
    const HostRun run = CutDifferently(thread ? ByAnotherThread(Polling(26)) : Polling(26));
    const WhatIf what_if = Make(run);
    ASSERT_EQ(what_if.replayed_step_ns(), slow) << thread;
    Question question = Of(Question::kWithoutRanks);
    question.ranks = {1};
    EXPECT_NEAR(static_cast<double>(Ask(what_if, question).step_ns), static_cast<double>(healthy), 10) << thread;
    question.ranks = {0};
    EXPECT_LE(Ask(what_if, question).gain_ns, 0) << thread;
  }
}

// All that was recorded of two ranks in a run without steps: 300 all-reduces of 100 us, before the k-th of which rank 0
// works 1 ms or 0.8 ms by turns, and rank 1 more_ns(k) longer.
template <typename More>
HostRun WithoutSteps(More&& more_ns) {
  HostRun run;
  run.ranks = {0, 1};
  run.stretches.resize(2);
  run.steps = {0};
  run.whole_window = true;
  std::int64_t now = 0;
  for (std::uint32_t k = 0; k < 300; ++k) {
    run.collectives.push_back({k, 7, CollectiveKind::kAllReduce, kMiB, 2});
    const std::int64_t work = k % 2 == 0 ? kMs : kMs / 10 * 8, end = now + work + more_ns(k) + kMs / 10;
    for (std::size_t r = 0; r < 2; ++r) {
      const std::int64_t entry = now + work + (r == 1 ? more_ns(k) : 0);
      run.stretches[r].collectives.push_back({k, k, 0, false, false, entry, entry, end, end});
      run.stretches[r].training.push_back({Stretch::kBlocking, entry, end, {k}, 0});
    }
    now = end;
  }
  for (RankStretches& rank : run.stretches) rank.training.push_back({Stretch::kStepEnd, now, now, {}, 0});
  run.measured_step_ns = {now};
  return run;
}

// However its pieces differ from the others': all as long again, one kind of them, or one in ten that lost its core.
TEST(WhatIf, ARunWithoutStepsIsPricedPieceByPiece) {
  const std::int64_t healthy = WithoutSteps([](std::uint32_t) { return std::int64_t{0}; }).measured_step_ns[0];
  const auto expect = [&](const HostRun& run) {
    const WhatIf what_if = Make(run);
    ASSERT_EQ(what_if.replayed_step_ns(), run.measured_step_ns[0]);
    Question question = Of(Question::kWithoutRanks);
    question.ranks = {1};
    EXPECT_NEAR(static_cast<double>(Ask(what_if, question).step_ns), static_cast<double>(healthy), 1e-3 * kMs);
    question.ranks = {0};
    EXPECT_LE(Ask(what_if, question).gain_ns, 0);
  };
  expect(WithoutSteps([](std::uint32_t k) { return k % 2 == 0 ? kMs : kMs / 10 * 8; }));
  expect(WithoutSteps([](std::uint32_t k) { return k % 2 == 0 ? std::int64_t{0} : kMs; }));
  expect(WithoutSteps([](std::uint32_t k) { return k % 10 == 3 ? 4 * kMs : 0; }));
}

// A rank works twice as long, and one message later: as many pieces, but others.
TEST(LikeWork, PiecesAtOtherPlacesAreScaled) {
  const std::vector<std::int64_t> own_ns = {120, 0, 8000, 120, 0, 8000}, theirs_ns = {60, 4000, 0, 60, 4000, 0};
  EXPECT_FALSE(LieAtSamePlaces(own_ns, theirs_ns));
  const TypicalWork typical = TypicalOf(
      {theirs_ns}, [](std::size_t) { return std::uint64_t{0}; }, LowerMedianOf);
  EXPECT_EQ(LikeTheirs(typical, own_ns), (std::vector<std::int64_t>{60, 0, 4000, 60, 0, 4000}));
  EXPECT_TRUE(LieAtSamePlaces(own_ns, {60, 0, 4000, 60, 0, 4000}));
  // At the same places, of like length: in its own order.
  const TypicalWork like = TypicalOf(
      {{100, 110, 900}}, [](std::size_t) { return std::uint64_t{0}; }, LowerMedianOf);
  EXPECT_EQ(LikeTheirs(like, {250, 200, 1800}), (std::vector<std::int64_t>{110, 100, 900}));
}

// The run of one rank, of a job of `job_ranks`.
HostRun OneRank(std::size_t job_ranks) {
  HostRun run = MakeRun({2, 2, 4});
  run.ranks = {1};
  run.job_ranks = job_ranks;
  run.stretches.erase(run.stretches.begin());
  for (RunCollective& collective : run.collectives) collective.members = 1;
  return run;
}

TEST(WhatIf, OneRankCannotTellOfOthers) {
  for (const std::size_t job_ranks : {std::size_t{1}, std::size_t{8}}) {
    const WhatIf what_if = Make(OneRank(job_ranks));
    Question faster = Of(Question::kNetwork), slows = Of(Question::kWithoutRanks);
    faster.bandwidth = 2;
    slows.ranks = {1};
    for (const Question& question :
         {slows, Of(Question::kFreeCommunication), faster, Of(Question::kNoOverlap), Of(Question::kPerfectSchedule),
          Of(Question::kEqualRanks), Of(Question::kProgress), Of(Question::kSendsGo), Cap(1, 1)}) {
      const Result<Answer> answer = what_if.Ask(question);
      ASSERT_FALSE(answer.ok()) << what_if.Name(question);
      EXPECT_EQ(answer.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(answer.error().what.find(job_ranks == 1 ? "the job has one rank" : "of 8 ranks only rank 1"),
                std::string::npos)
          << answer.error().what;
      EXPECT_FALSE(answer.error().hint.empty());
    }
  }
}

TEST(WhatIf, NothingIsSaidOfANetworkThatWasNotMeasured) {
  // All transfers have one size: what of them is latency is not known.
  const WhatIf one_size = Make(MakeRun({4, 4}));
  Question latency = Of(Question::kNetwork), bandwidth = Of(Question::kNetwork);
  latency.latency = 0.5;
  bandwidth.bandwidth = 2;
  EXPECT_FALSE(one_size.Ask(latency).ok());
  const Answer answer = Ask(one_size, bandwidth);
  EXPECT_GT(answer.gain_ns, 0);
  ASSERT_TRUE(answer.gain_interval_ns.has_value());
  EXPECT_LE(answer.gain_interval_ns->first, 0) << "all of it may be latency";
  EXPECT_FALSE(answer.caveats.empty());
}

TEST(WhatIf, FewStepsHaveNoInterval) {
  EXPECT_FALSE(Ask(Make(MakeRun({2, 2, 4}, 1.3, 4)), Of(Question::kFreeCommunication)).step_interval_ns.has_value());
  EXPECT_TRUE(Ask(Make(MakeRun({2, 2, 4}, 1.3, 10)), Of(Question::kFreeCommunication)).step_interval_ns.has_value());
}

TEST(WhatIf, AdviceOfBucketsActs) {
  HostRun torch = MakeRun({1, 1, 1, 1, 1, 1, 1, 1});
  torch.torch = true;
  // Others with larger buckets: what these cost is known.
  const std::vector<HostRun> others{MakeRun({4, 4}), MakeRun({8})};
  const WhatIf what_if = Make(std::move(torch), others);
  const auto try_it = [&](const Question& question) { return Ask(what_if, question).try_it; };
  EXPECT_EQ(try_it(Cap(4, 1)), "DistributedDataParallel(..., bucket_cap_mb=4)");
  // The first bucket's limit is another setting.
  EXPECT_NE(try_it(Cap(4, 4)).find("_DEFAULT_FIRST_BUCKET_BYTES = 4194304"), std::string::npos) << try_it(Cap(4, 4));
  EXPECT_EQ(try_it(Cap(1, 1)), "") << "that is what the job does";
  EXPECT_EQ(try_it(Cap(0.5, 0.5)), "") << "it would be slower";
  // Of a job without PyTorch nothing of PyTorch.
  EXPECT_EQ(Ask(Make(MakeRun({1, 1, 1, 1, 1, 1, 1, 1}), others), Cap(4, 4)).try_it,
            "reduce gradients in buckets of 4 MiB");
}

TEST(WhatIf, CommunicationFreeFasterAndWithoutOverlap) {
  const WhatIf what_if = Make(MakeRun({2, 2, 4}));
  EXPECT_EQ(Ask(what_if, Of(Question::kFreeCommunication)).step_ns, 20 * kMs);
  // 2 + 2 + 3 ms after the backward pass instead of 3 ms.
  EXPECT_EQ(Ask(what_if, Of(Question::kNoOverlap)).step_ns, 27 * kMs);
  Question twice = Of(Question::kNetwork);
  twice.bandwidth = 2;
  // The last bucket: 1 ms + 2 ms becomes 1 ms + 1 ms.
  EXPECT_NEAR(static_cast<double>(Ask(what_if, twice).step_ns), 22 * kMs, 0.02 * kMs);
}

TEST(WhatIf, JobsWithoutEqualStepsHaveNoBuckets) {
  HostRun run = MakeRun({2, 2, 4});
  run.collectives[1].bytes = kMiB;
  const WhatIf what_if = Make(std::move(run));
  EXPECT_FALSE(what_if.buckets().has_value());
  EXPECT_EQ(what_if.Ask(Cap(4, 1)).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(Ask(what_if, Of(Question::kFreeCommunication)).step_ns, 20 * kMs);
}

// Two causes that hide behind each other, mended together: the same job made without both.
TEST(WhatIf, ChangesAreMadeTogether) {
  const WhatIf what_if = Make(MakeRun({2, 2, 4}, 1.5), {MakeRun({1, 1, 1, 1, 1, 1, 1, 1})});
  Question without = Of(Question::kWithoutRanks), both = Of(Question::kTogether);
  without.ranks = {1};
  both.together = {without, Cap(2, 2)};
  const Answer answer = Ask(what_if, both);
  EXPECT_NEAR(static_cast<double>(answer.step_ns) / static_cast<double>(MakeRun({2, 2, 2, 2}).measured_step_ns[5]), 1,
              0.005);
  EXPECT_NE(answer.question.find(" + "), std::string::npos);
  both.together.push_back(Cap(4, 4));
  EXPECT_FALSE(what_if.Ask(both).ok()) << "one bucketing at a time";
}

}  // namespace
}  // namespace lockstep::replay
