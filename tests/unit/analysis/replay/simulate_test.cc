#include "analysis/replay/graph/simulate.h"

#include <gtest/gtest.h>

#include <random>

#include "analysis/replay/graph/structure.h"

namespace lockstep::replay {
namespace {

Operation Work(std::int64_t duration_ns, std::uint32_t lane, std::int32_t rank = 0) {
  return {.duration_ns = duration_ns, .lane = lane, .rank = rank, .activity = Activity::kCompute};
}

Schedule Play(const Graph& graph, const Interference& interference = {}) {
  const Simulator simulator(graph);
  Result<Schedule> schedule = simulator.Run(interference);
  EXPECT_TRUE(schedule.ok()) << schedule.error().what;
  return schedule.ok() ? std::move(schedule).value() : Schedule{};
}

TEST(Replay, LanesAreInOrderAndNeedsAddLags) {
  Graph graph;
  const auto host = graph.AddLane(), other = graph.AddLane();
  const auto a = graph.Add(Work(10, host)), b = graph.Add(Work(5, host)), c = graph.Add(Work(3, other));
  graph.Needs(c, a, 4);
  graph.operations()[b].delay_ns = 2;
  const Schedule s = Play(graph);
  EXPECT_EQ(s.begin_ns[b], 12);
  EXPECT_EQ(s.end_ns[b], 17);
  EXPECT_EQ(s.begin_ns[c], 14);
  EXPECT_EQ(s.cause[b], a);
  EXPECT_EQ(s.cause[c], a);
  EXPECT_EQ(s.length_ns, 17);
}

// launch -> kernel, and a thread that synchronises with whatever is on the stream when it asks.
TEST(Replay, SynchronisingWaitsForWhatIsEnqueuedByThen) {
  Graph graph;
  const auto first = graph.AddLane(), second = graph.AddLane(), stream = graph.AddLane(true);
  const auto kernel = graph.Add(Work(100, stream)), late = graph.Add(Work(50, stream)),
             marker = graph.Add({.lane = stream, .rank = 0});
  const auto launch = graph.Add({.duration_ns = 5, .lane = first, .enqueues = kernel, .enqueue_lag_ns = 7});
  const auto ask = graph.Add({.duration_ns = 1, .lane = first, .enqueues = marker});
  const auto wait = graph.Add({.duration_ns = 2, .lane = first});
  graph.Needs(wait, marker);
  const auto delay = graph.Add(Work(20, second));
  const auto launch_late = graph.Add({.duration_ns = 5, .lane = second, .enqueues = late});
  Schedule s = Play(graph);
  EXPECT_EQ(s.begin_ns[kernel], 7);
  EXPECT_EQ(s.begin_ns[late], 107);
  EXPECT_EQ(s.begin_ns[wait], 107) << "the kernel that came after it was asked is not waited for";
  EXPECT_EQ(s.cause[wait], marker);
  // The other thread is faster now: its kernel is on the stream before the marker.
  graph.operations()[delay].duration_ns = 1;
  graph.operations()[launch].duration_ns = 10;
  s = Play(graph);
  EXPECT_EQ(s.begin_ns[late], 107);
  EXPECT_EQ(s.begin_ns[wait], 157);
  EXPECT_EQ(s.cause[late], kernel);
  (void)ask;
  (void)launch_late;
}

// One that gives nothing comes last and holds nobody up; one that takes nothing waits for nobody. Played in any order
// and in order of time.
TEST(Replay, WhoIsNotAwaitedHoldsNobodyUp) {
  for (const bool in_order_of_time : {false, true}) {
    Graph graph;
    const auto collective = graph.AddCollective();
    std::uint32_t members[4], after[4];
    for (int r = 0; r < 4; ++r) {
      const auto lane = graph.AddLane();
      graph.Add(Work(10 * (r + 1), lane, r));
      members[r] = graph.Add({.duration_ns = 5,
                              .lane = lane,
                              .collective = collective,
                              .rank = r,
                              .activity = Activity::kTransfer,
                              .waits = r != 0,
                              .awaited = r != 3});
      after[r] = graph.Add(Work(1, lane, r));
    }
    const Schedule s = Play(graph, in_order_of_time ? Interference{.transfer_slowdown = 1e-9} : Interference{});
    EXPECT_EQ(s.end_ns[members[0]], 15) << "takes nothing";
    EXPECT_EQ(s.end_ns[members[1]], 35);
    EXPECT_EQ(s.end_ns[members[2]], 35);
    EXPECT_EQ(s.end_ns[members[3]], 45) << "gives nothing, and comes after all others";
    EXPECT_EQ(s.last_arrival[collective], members[2]);
    EXPECT_EQ(WaitedFor(graph, s, members[0]), members[0]);
    EXPECT_EQ(WaitedFor(graph, s, members[1]), members[2]);
    EXPECT_EQ(WaitedFor(graph, s, members[3]), members[3]);
    EXPECT_EQ(s.begin_ns[after[1]], 35);
    EXPECT_EQ(CriticalChain(graph, s, after[1])[1], members[2]);
  }
}

// Rank 0 hands data to 1 and 2, and 1 to 3, each of which waits for those that it takes it from and hands it on to: 3
// comes last and holds up 1 alone.
TEST(Replay, AMemberWaitsForItsPeersOnly) {
  for (const bool in_order_of_time : {false, true})
    for (const bool late_first : {false, true}) {
      Graph graph;
      const auto collective = graph.AddCollective();
      std::uint32_t members[4], after[4];
      for (int r = 0; r < 4; ++r) {
        const auto lane = graph.AddLane();
        const int arrival = r == 3 ? 100 : 10 * (r + 1);
        graph.Add(Work(late_first && r == 0 ? 50 : arrival, lane, r));
        members[r] = graph.Add(
            {.duration_ns = 5, .lane = lane, .collective = collective, .rank = r, .activity = Activity::kTransfer});
        after[r] = graph.Add(Work(1, lane, r));
      }
      graph.WaitsFor(members[0], graph.AddPeers(std::vector{members[1], members[2]}));
      graph.WaitsFor(members[1], graph.AddPeers(std::vector{members[0], members[3]}));
      graph.WaitsFor(members[2], graph.AddPeers(std::vector{members[0]}));
      graph.WaitsFor(members[3], graph.AddPeers(std::vector{members[1], members[0]}));
      const Schedule s = Play(graph, in_order_of_time ? Interference{.transfer_slowdown = 1e-9} : Interference{});
      EXPECT_EQ(s.end_ns[members[0]], late_first ? 55 : 35);
      EXPECT_EQ(s.end_ns[members[1]], 105);
      EXPECT_EQ(s.end_ns[members[2]], late_first ? 55 : 35);
      EXPECT_EQ(s.end_ns[members[3]], 105);
      EXPECT_EQ(s.begin_ns[after[2]], late_first ? 55 : 35);
      EXPECT_EQ(WaitedFor(graph, s, members[0]), late_first ? members[0] : members[2]);
      EXPECT_EQ(WaitedFor(graph, s, members[1]), members[3]);
      EXPECT_EQ(WaitedFor(graph, s, members[2]), late_first ? members[0] : members[2]);
      EXPECT_EQ(CriticalChain(graph, s, after[1])[1], members[3]);
    }
}

// Members of a chain of sets wait for all behind them; of one that is no member any more nobody waits.
TEST(Replay, SetsOfPeersContainOthers) {
  for (const bool in_order_of_time : {false, true})
    for (const bool left : {false, true}) {
      Graph graph;
      const auto collective = graph.AddCollective();
      std::uint32_t members[5];
      const int arrivals[5] = {10, 20, 90, 60, left ? 500 : 70};
      for (int r = 0; r < 5; ++r) {
        const auto lane = graph.AddLane();
        graph.Add(Work(arrivals[r], lane, r));
        members[r] = graph.Add({.duration_ns = 5,
                                .lane = lane,
                                .collective = left && r == 4 ? kNone : collective,
                                .rank = r,
                                .activity = Activity::kTransfer});
      }
      const auto last = graph.AddPeers(std::vector{members[4]});
      const auto third = graph.AddPeers(std::vector{members[3]}, last);
      const auto second = graph.AddPeers(std::vector{members[2]}, third);
      graph.WaitsFor(members[0], second);
      graph.WaitsFor(members[1], third);
      graph.WaitsFor(members[3], last);
      const Schedule s = Play(graph, in_order_of_time ? Interference{.transfer_slowdown = 1e-9} : Interference{});
      EXPECT_EQ(s.end_ns[members[0]], 95);
      EXPECT_EQ(s.end_ns[members[1]], left ? 65 : 75);
      EXPECT_EQ(s.end_ns[members[2]], 95) << "waits for all";
      EXPECT_EQ(s.end_ns[members[3]], left ? 65 : 75);
      EXPECT_EQ(WaitedFor(graph, s, members[0]), members[2]);
      EXPECT_EQ(WaitedFor(graph, s, members[1]), left ? members[3] : members[4]);
      EXPECT_EQ(WaitedFor(graph, s, members[3]), left ? members[3] : members[4]);
    }
}

TEST(Replay, WhereNobodyIsAwaitedEachGoesOn) {
  for (const bool in_order_of_time : {false, true}) {
    Graph graph;
    const auto collective = graph.AddCollective();
    std::uint32_t members[2];
    for (int r = 0; r < 2; ++r) {
      const auto lane = graph.AddLane();
      graph.Add(Work(10 * (r + 1), lane, r));
      members[r] = graph.Add({.duration_ns = 5,
                              .lane = lane,
                              .collective = collective,
                              .rank = r,
                              .activity = Activity::kTransfer,
                              .waits = true,
                              .awaited = false});
    }
    const Schedule s = Play(graph, in_order_of_time ? Interference{.transfer_slowdown = 1e-9} : Interference{});
    EXPECT_EQ(s.end_ns[members[0]], 15);
    EXPECT_EQ(s.end_ns[members[1]], 25);
  }
}

TEST(Replay, MembersOfACollectiveEndAfterTheLastArrival) {
  Graph graph;
  const auto collective = graph.AddCollective();
  std::uint32_t members[3], before[3];
  for (int r = 0; r < 3; ++r) {
    const auto lane = graph.AddLane();
    before[r] = graph.Add(Work(10 * (r + 1), lane, r));
    members[r] = graph.Add(
        {.duration_ns = 4 + r, .lane = lane, .collective = collective, .rank = r, .activity = Activity::kTransfer});
  }
  const Schedule s = Play(graph);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(s.begin_ns[members[r]], 10 * (r + 1));
    EXPECT_EQ(s.end_ns[members[r]], 30 + 4 + r);
  }
  EXPECT_EQ(s.last_arrival[collective], members[2]);
  EXPECT_EQ(CriticalChain(graph, s, members[0]), (std::vector<std::uint32_t>{before[2], members[2]}));
}

TEST(Replay, AnEmptyGraphAndCirclesAreAnswered) {
  EXPECT_EQ(Play(Graph()).length_ns, 0);
  Graph graph;
  const auto lane = graph.AddLane();
  const auto a = graph.Add(Work(1, lane)), b = graph.Add(Work(1, lane));
  graph.Needs(a, b);
  const Result<Schedule> stuck = Simulator(graph).Run();
  ASSERT_FALSE(stuck.ok());
  EXPECT_EQ(stuck.error().code, ErrorCode::kMalformed);
  EXPECT_NE(stuck.error().what.find("2 operations"), std::string::npos) << stuck.error().what;
}

// Two ranks: a transfer of 100 beside compute. By hand: rank 0 computes 60 and then nothing,
// rank 1 computes 200.
TEST(Replay, InterferenceSlowsWhatRunsTogether) {
  Graph graph;
  const auto collective = graph.AddCollective();
  std::uint32_t members[2], compute[2];
  for (int r = 0; r < 2; ++r) {
    compute[r] = graph.Add(Work(r == 0 ? 60 : 200, graph.AddLane(), r));
    members[r] = graph.Add({.duration_ns = 100,
                            .lane = graph.AddLane(),
                            .collective = collective,
                            .rank = r,
                            .activity = Activity::kTransfer});
  }
  Schedule s = Play(graph, {.compute_slowdown = 0.5, .transfer_slowdown = 0});
  EXPECT_EQ(s.end_ns[members[0]], 100);
  EXPECT_EQ(s.end_ns[compute[0]], 90);   // 60 * 1.5
  EXPECT_EQ(s.end_ns[compute[1]], 233);  // 100 / 1.5 done by 100, 133.3 left
  s = Play(graph, {.compute_slowdown = 0, .transfer_slowdown = 0.5});
  EXPECT_EQ(s.end_ns[compute[0]], 60);
  // Until 60 both compute: speed 1/1.5, 40 done; then half of the members: 1/1.25, 60 left take 75.
  EXPECT_EQ(s.end_ns[members[0]], 135);
  EXPECT_EQ(s.end_ns[members[1]], 135);
  s = Play(graph, {.compute_slowdown = 0.5, .transfer_slowdown = 0.5});
  // Until 90 both compute (60 at 1/1.5): the transfer has done 60, 40 left at 1/1.25: 140.
  EXPECT_EQ(s.end_ns[members[0]], 140);
  EXPECT_EQ(s.end_ns[compute[1]], 247);  // 140 / 1.5 = 93.3 done, 106.7 left
}

// Any graph without interference is the longest path; checked against a plain recursion.
TEST(Replay, AgreesWithTheLongestPathOnRandomGraphs) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    Graph graph;
    const std::size_t lanes = 1 + random() % 6, n = 5 + random() % 60;
    for (std::size_t i = 0; i < lanes; ++i) graph.AddLane();
    std::vector<std::int64_t> end(n), lane_end(lanes, 0);
    std::vector<std::vector<std::pair<std::uint32_t, std::int64_t>>> needs(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      Operation operation = Work(random() % 50, static_cast<std::uint32_t>(random() % lanes));
      operation.delay_ns = random() % 5;
      graph.Add(operation);
      for (int k = 0; i > 0 && k < 3; ++k)
        if (random() % 2 != 0) needs[i].push_back({static_cast<std::uint32_t>(random() % i), random() % 4});
      for (const auto& [earlier, lag] : needs[i]) graph.Needs(i, earlier, lag);
    }
    const Schedule s = Play(graph);
    for (std::uint32_t i = 0; i < n; ++i) {
      const Operation& operation = graph.operations()[i];
      std::int64_t begin = lane_end[operation.lane];
      for (const auto& [earlier, lag] : needs[i]) begin = std::max(begin, end[earlier] + lag);
      begin += operation.delay_ns;
      end[i] = lane_end[operation.lane] = begin + operation.duration_ns;
      ASSERT_EQ(s.begin_ns[i], begin) << trial << " " << i;
      ASSERT_EQ(s.end_ns[i], end[i]);
    }
    // With interference of nothing but one kind of work nothing changes.
    const Schedule rated = Play(graph, {.compute_slowdown = 0.3, .transfer_slowdown = 0.3});
    ASSERT_EQ(rated.end_ns, s.end_ns);
  }
}

// Ranks with a thread, another thread, a stream that the first feeds (and the second, if `fixed` is false), and
// collectives of all ranks on threads and streams. Operations that nothing slows: kOther.
Graph RandomJob(std::mt19937& random, bool fixed) {
  Graph graph;
  const std::uint32_t ranks = 1 + random() % 4;
  struct Rank {
    std::uint32_t thread, other, stream;
    std::vector<std::uint32_t> done;
  };
  std::vector<Rank> all;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const auto thread = graph.AddLane(), other = graph.AddLane(), stream = graph.AddLane(true);
    all.push_back({thread, other, stream, {}});
  }
  const auto some = [&](const Rank& rank, std::uint32_t operation) {
    if (!rank.done.empty() && random() % 2 != 0)
      graph.Needs(operation, rank.done[random() % rank.done.size()], random() % 3);
  };
  for (int round = 0; round < 12; ++round) {
    const std::uint32_t kind = random() % 4, collective = kind == 3 ? graph.AddCollective() : kNone;
    const bool on_stream = random() % 2 != 0;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      Rank& rank = all[r];
      // Few different lengths, so that many things happen at one time.
      const auto make = [&](std::uint32_t lane, std::uint32_t of = kNone) {
        const std::uint32_t made = graph.Add({.duration_ns = static_cast<std::int64_t>(random() % 4) * 10,
                                              .delay_ns = static_cast<std::int64_t>(random() % 3),
                                              .lane = lane,
                                              .collective = of,
                                              .rank = static_cast<std::int32_t>(r)});
        some(rank, made);
        return made;
      };
      std::uint32_t made = make(kind == 0 ? kNone : kind == 1 ? rank.other : rank.thread);
      if (kind >= 2) {
        const std::uint32_t target = make(on_stream || kind == 2 ? rank.stream : rank.thread, collective);
        if (on_stream || kind == 2) {
          const std::uint32_t launch = fixed || random() % 2 != 0 ? made : make(rank.other);
          graph.operations()[launch].enqueues = target;
          graph.operations()[launch].enqueue_lag_ns = static_cast<std::int64_t>(random() % 3);
        }
        rank.done.push_back(made);
        made = target;
      }
      rank.done.push_back(made);
    }
  }
  return graph;
}

// In order of time, and looked at in whatever order: the same, causes among equals included.
TEST(Replay, WithAndWithoutEventsIsTheSame) {
  std::mt19937 random(11);
  int fixed = 0, played = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const Graph graph = RandomJob(random, trial % 4 != 0);
    const Structure structure(graph);
    fixed += structure.fixed_order;
    ASSERT_TRUE(structure.fixed_order || trial % 4 == 0);
    // Interference makes it follow events; nothing here is slowed by it.
    const Result<Schedule> events = Simulator(graph).Run({.compute_slowdown = 1, .transfer_slowdown = 1});
    const Result<Schedule> any = Simulator(graph).Run();
    ASSERT_EQ(any.ok(), events.ok()) << trial;
    if (!any.ok()) continue;
    ++played;
    ASSERT_EQ(any.value().begin_ns, events.value().begin_ns) << trial;
    ASSERT_EQ(any.value().end_ns, events.value().end_ns) << trial;
    ASSERT_EQ(any.value().length_ns, events.value().length_ns) << trial;
    ASSERT_EQ(any.value().last_arrival, events.value().last_arrival) << trial;
    ASSERT_EQ(any.value().cause, events.value().cause) << trial;
  }
  EXPECT_GT(fixed, 1500);
  EXPECT_LT(fixed, 2000);
  EXPECT_GT(played, 1000);
}

}  // namespace
}  // namespace lockstep::replay
