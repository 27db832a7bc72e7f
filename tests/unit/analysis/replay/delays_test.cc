#include "analysis/replay/questions/delays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "analysis/replay/host/host_run.h"

namespace lockstep::replay {
namespace {

constexpr std::int64_t kMs = 1'000'000;

// Ranks as threads of work, collectives of everybody and messages, by hand.
class Program {
 public:
  explicit Program(std::uint32_t ranks) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      run_.ranks.push_back(static_cast<std::int32_t>(r));
      lanes_.push_back(job_.graph.AddLane());
      job_.starts.push_back(Add(r, {}, Role::kOther));
    }
    run_.steps = {0};
    job_.step_ends.assign(1, std::vector<std::uint32_t>(ranks, kNone));
  }
  std::uint32_t Work(std::uint32_t r, std::int64_t ms) { return Add(r, {.duration_ns = ms * kMs}, Role::kWork); }
  void Collective(const std::vector<std::uint32_t>& ranks, std::int64_t transfer_ms = 1) {
    const std::uint32_t c = job_.graph.AddCollective();
    run_.collectives.push_back({c, 1, CollectiveKind::kAllReduce, 8, static_cast<std::uint32_t>(ranks.size())});
    for (const std::uint32_t r : ranks)
      Add(r, {.duration_ns = transfer_ms * kMs, .collective = c}, Role::kMember,
          static_cast<std::uint32_t>(run_.collectives.size() - 1));
  }
  // A blocking receive: returns `ms` after both it and the send have begun.
  void Message(std::uint32_t from, std::uint32_t to, std::int64_t ms = 0) {
    const std::uint32_t sent = Add(from, {}, Role::kOther);
    job_.graph.Needs(Add(to, {.duration_ns = ms * kMs}, Role::kMessage), sent);
  }
  // Posted now; the member takes its turn beside the thread, what is returned has to wait for it.
  std::uint32_t Post(std::uint32_t r, std::uint32_t collective, std::int64_t transfer_ms) {
    const std::uint32_t lane = job_.graph.AddLane(true);
    const std::uint32_t member = static_cast<std::uint32_t>(job_.operations.size()) + 1;
    Add(r, {.enqueues = member}, Role::kPost, collective);
    job_.operations.push_back({Role::kMember, r, 0, 0, collective});
    return job_.graph.Add({.duration_ns = transfer_ms * kMs,
                           .lane = lane,
                           .collective = collective,
                           .rank = static_cast<std::int32_t>(r)});
  }
  void Wait(std::uint32_t r, std::uint32_t member) { job_.graph.Needs(Add(r, {}, Role::kWait), member); }
  std::uint32_t Posted(std::uint32_t members) {
    run_.collectives.push_back({0, 1, CollectiveKind::kAllReduce, 8, members});
    return job_.graph.AddCollective();
  }

  Delays Find() {
    for (std::uint32_t r = 0; r < lanes_.size(); ++r) job_.step_ends[0][r] = Add(r, {}, Role::kStepEnd);
    const Result<Schedule> schedule = Simulator(job_.graph).Run();
    EXPECT_TRUE(schedule.ok());
    return FindDelays(run_, job_, schedule.value());
  }
  // [rank]: short, long.
  std::map<std::uint32_t, std::pair<double, double>> PerRank(const Delays& delays) const {
    std::map<std::uint32_t, std::pair<double, double>> ranks;
    for (const DelayCost& cost : delays.costs) {
      ranks[job_.operations[cost.operation].rank].first += cost.short_term_ns / kMs;
      ranks[job_.operations[cost.operation].rank].second += cost.long_term_ns / kMs;
    }
    return ranks;
  }

 private:
  std::uint32_t Add(std::uint32_t r, Operation operation, Role role, std::uint32_t collective = kNone) {
    operation.lane = lanes_[r];
    operation.rank = static_cast<std::int32_t>(r);
    job_.operations.push_back({role, r, 0, 0, collective});
    return job_.graph.Add(operation);
  }

  HostRun run_;
  Job job_;
  std::vector<std::uint32_t> lanes_;
};

double Waiting(const Delays& delays) {
  double ns = 0;
  for (const WaitState& wait : delays.waits) ns += static_cast<double>(wait.end_ns - wait.begin_ns);
  return ns / kMs;
}

TEST(Delays, ALateRankPaysForAllWhoWait) {
  Program program(4);
  for (std::uint32_t r = 0; r < 4; ++r) program.Work(r, r == 2 ? 13 : 10);
  program.Collective({0, 1, 2, 3});
  const Delays delays = program.Find();
  EXPECT_EQ(delays.waits.size(), 3u);
  EXPECT_DOUBLE_EQ(Waiting(delays), 9);
  const auto ranks = program.PerRank(delays);
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(ranks.at(2).first, 9);
  EXPECT_DOUBLE_EQ(ranks.at(2).second, 0);
}

// Rank 0 is late; 1 waits for it and is late for 2; 2 for 3: only 0 did more than others.
TEST(Delays, MessengersAreChargedNothing) {
  Program program(4);
  program.Collective({0, 1, 2, 3});
  program.Work(0, 5);
  for (std::uint32_t r = 0; r < 4; ++r) program.Work(r, 10);
  for (std::uint32_t r = 0; r + 1 < 4; ++r) program.Message(r, r + 1);
  const Delays delays = program.Find();
  EXPECT_DOUBLE_EQ(Waiting(delays), 15);
  const auto ranks = program.PerRank(delays);
  ASSERT_EQ(ranks.size(), 1u) << "ranks 1 and 2 only waited";
  EXPECT_DOUBLE_EQ(ranks.at(0).first, 5);
  EXPECT_DOUBLE_EQ(ranks.at(0).second, 10);
}

// What is late through another and by itself is charged for its own part.
TEST(Delays, SharesFollowTheLengths) {
  Program program(3);
  program.Collective({0, 1, 2});
  program.Work(0, 14);
  program.Work(1, 10);
  program.Work(2, 10);
  program.Message(0, 1);
  program.Work(1, 2);
  program.Message(1, 2);
  const Delays delays = program.Find();
  EXPECT_DOUBLE_EQ(Waiting(delays), 4 + 6);
  const auto ranks = program.PerRank(delays);
  EXPECT_DOUBLE_EQ(ranks.at(0).first, 4);
  EXPECT_NEAR(ranks.at(0).second, 4, 1e-6);
  EXPECT_NEAR(ranks.at(1).first, 2, 1e-6);
  EXPECT_NEAR(ranks.at(1).second, 0, 1e-6);
}

TEST(Delays, WaitsForWhatWasPostedCount) {
  Program program(2);
  const std::uint32_t c = program.Posted(2);
  program.Work(0, 10);
  program.Work(1, 16);
  const std::uint32_t a = program.Post(0, c, 1), b = program.Post(1, c, 1);
  program.Work(0, 2);
  program.Work(1, 2);
  program.Wait(0, a);
  program.Wait(1, b);
  const Delays delays = program.Find();
  ASSERT_EQ(delays.waits.size(), 1u);
  EXPECT_DOUBLE_EQ(Waiting(delays), 4) << "of 6 ms lateness 2 are hidden under work, the transfer is nobody's";
  EXPECT_DOUBLE_EQ(program.PerRank(delays).at(1).first, 4);
}

// Of any program: what is charged at once is what the waits say that work explains, and all together is no more than
// there was waiting.
TEST(Delays, ChargesNeverExceedTheWaiting) {
  std::uint64_t state = 7;
  const auto next = [&](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 50; ++round) {
    Program program(5);
    for (int k = 0; k < 30; ++k) {
      for (std::uint32_t r = 0; r < 5; ++r) program.Work(r, static_cast<std::int64_t>(1 + next(9)));
      switch (next(3)) {
        case 0:
          program.Collective({0, 1, 2, 3, 4}, static_cast<std::int64_t>(next(3)));
          break;
        case 1:
          program.Collective({1, 3}, 1);
          break;
        default: {
          const auto from = static_cast<std::uint32_t>(next(5));
          program.Message(from, (from + 1 + static_cast<std::uint32_t>(next(4))) % 5,
                          static_cast<std::int64_t>(next(2)));
        }
      }
    }
    const Delays delays = program.Find();
    double charged = 0, at_once = 0, explained = 0;
    for (const DelayCost& cost : delays.costs) {
      EXPECT_GE(cost.short_term_ns, 0);
      EXPECT_GE(cost.long_term_ns, 0);
      charged += (cost.short_term_ns + cost.long_term_ns) / kMs;
      at_once += cost.short_term_ns / kMs;
    }
    for (const WaitState& wait : delays.waits)
      explained += wait.explained * static_cast<double>(wait.end_ns - wait.begin_ns) / kMs;
    EXPECT_LE(charged, Waiting(delays) * (1 + 1e-9));
    EXPECT_LE(at_once, explained * (1 + 1e-9));
    EXPECT_GT(charged, 0.5 * Waiting(delays)) << "most waiting has a cause";
  }
}

}  // namespace
}  // namespace lockstep::replay
