// Real sockets on the loopback, two clocks in one process. Waits are for events
// with generous limits; no result depends on how long anything took.
#include "comms/clock/clock_service.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "comms/clock/clock_coordinator.h"
#include "comms/clock/socket_util.h"
#include "merge/clock/align.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
constexpr auto kPatience = std::chrono::seconds(20);

EventClock Distorted(std::int64_t offset_ns, double ppm) {
  EventClock clock;
  clock.distortion.offset_ns = offset_ns;
  clock.distortion.ppm = ppm;
  clock.distortion.origin_raw_ns = RawNs();
  return clock;
}

struct Rows {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<BurstRow> rows;
  std::set<std::uint32_t> bursts;
  ClockClient::Sink Sink() {
    return [this](std::span<const BurstRow> burst) {
      std::lock_guard lock(mutex);
      for (const BurstRow& row : burst) {
        rows.push_back(row);
        bursts.insert(row.burst);
      }
      changed.notify_all();
    };
  }
  bool WaitForBursts(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return bursts.size() >= count; });
  }
  schema::ClockBursts Table() {
    std::lock_guard lock(mutex);
    schema::ClockBursts table;
    for (const BurstRow& r : rows)
      table.Append({r.burst, r.peer_rank, static_cast<std::uint8_t>(r.transport), static_cast<std::uint8_t>(r.purpose),
                    r.t1, r.t2, r.t3, r.t4});
    return table;
  }
};

// Truth from the two clocks' definitions; the fit from the rows alone.
void ExpectAligned(const EventClock& clock, const schema::ClockBursts& table) {
  std::vector<AlignRank> ranks(2);
  ranks[0].rank = 0;
  ranks[0].domain = "a";
  ranks[1].rank = 1;
  ranks[1].domain = "b";
  ranks[1].bursts = &table;
  const auto result = AlignClocks(ranks, ClockChoice::kAuto);
  ASSERT_TRUE(result.ok());
  const schema::Clock& fitted = result.value().clock;
  int knots = 0;
  for (std::size_t i = 0; i < fitted.rows(); ++i) {
    if (fitted.rank[i] != 1 || fitted.method[i] != 2) continue;
    // Inverse of the distortion at the knot, by bisection on raw time.
    std::int64_t low = fitted.local_ns[i] - clock.distortion.offset_ns - 1'000'000'000, high = low + 2'000'000'000;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (Distort(clock.distortion, middle) < fitted.local_ns[i])
        low = middle + 1;
      else
        high = middle;
    }
    const std::int64_t error = fitted.local_ns[i] + fitted.offset_ns[i] - low;
    EXPECT_LE(std::llabs(error), fitted.base_error_ns[i] + 2) << "knot " << i;
    ++knots;
  }
  EXPECT_GE(knots, 1);
}

TEST(ClockService, MeasuresADistortedClockWithinItsBound) {
  const auto server = ClockServer::Start({0, 42, {}});
  ASSERT_TRUE(server.ok());
  const EventClock clock = Distorted(-1'000'000'000'000, 50);
  Rows rows;
  {
    const auto client = ClockClient::Start({1, 42, clock}, 0, server.value()->address(), rows.Sink(), 100);
    ASSERT_TRUE(client.ok());
    ASSERT_TRUE(rows.WaitForBursts(2));
    EXPECT_TRUE(client.value()->FinalBurst(5000));
    EXPECT_GE(client.value()->bursts(), 3u);
  }
  const schema::ClockBursts table = rows.Table();
  EXPECT_EQ(table.burst[0], 100u);
  EXPECT_EQ(table.peer_rank[0], 0);
  EXPECT_EQ(table.transport[0], 2);
  EXPECT_GE(table.rows(), 60u);
  EXPECT_EQ(server.value()->refused(), 0u);
  ExpectAligned(clock, table);
}

TEST(ClockService, WrongTokenWrongRankAndNobody) {
  const auto server = ClockServer::Start({0, 42, {}});
  ASSERT_TRUE(server.ok());
  Rows rows;
  const auto stranger = ClockClient::Start({1, 43, {}}, 0, server.value()->address(), rows.Sink(), 0);
  const auto mistaken = ClockClient::Start({1, 42, {}}, 7, server.value()->address(), rows.Sink(), 0);
  const auto lonely = ClockClient::Start({1, 42, {}}, 0, "127.0.0.1:1,nonsense,[::1]:1", rows.Sink(), 0);
  ASSERT_TRUE(stranger.ok() && mistaken.ok() && lonely.ok());
  EXPECT_FALSE(stranger.value()->FinalBurst(300));
  EXPECT_FALSE(mistaken.value()->FinalBurst(300));
  EXPECT_FALSE(lonely.value()->FinalBurst(300));
  EXPECT_TRUE(rows.Table().rows() == 0);
  EXPECT_GE(server.value()->refused(), 1u);
  EXPECT_FALSE(ClockClient::Start({1, 42, {}}, 0, "", rows.Sink(), 0).ok());
}

// Hostile and half-dead connections must not keep an honest client from its bursts.
TEST(ClockService, ServerSurvivesGarbage) {
  const auto server = ClockServer::Start({0, 42, {}});
  ASSERT_TRUE(server.ok());
  const std::string address = net::SplitAddresses(server.value()->address())[0];
  const auto never = [] { return false; };
  std::vector<net::Fd> mute;
  for (int i = 0; i < 40; ++i) mute.push_back(net::Connect(address, 1000, never));  // Say nothing.
  for (int i = 0; i < 20; ++i) {
    net::Fd fd = net::Connect(address, 1000, never);
    ASSERT_TRUE(fd.open());
    const std::string noise = i % 2 == 0 ? std::string(10'000, 'x') : std::string("GET / HTTP/1.1\r\n");
    (void)net::SendAll(fd.get(), noise.data(), noise.size());
  }
  // Holds the token, then asks for a burst and stops in the middle of a ping.
  net::Fd slow = net::Connect(address, 1000, never);
  const net::Message hello{net::kHelloMagic, 42, 5, 0};
  net::Message reply{};
  ASSERT_TRUE(net::SendAll(slow.get(), &hello, sizeof hello));
  ASSERT_TRUE(net::ReceiveAll(slow.get(), &reply, sizeof reply));
  const net::Message ping{net::kPingMagic, 1, 20, 0};
  ASSERT_TRUE(net::SendAll(slow.get(), &ping, sizeof ping));
  ASSERT_TRUE(net::SendAll(slow.get(), &ping, 7));
  // Claims more pings than a burst may have.
  net::Fd greedy = net::Connect(address, 1000, never);
  ASSERT_TRUE(net::SendAll(greedy.get(), &hello, sizeof hello));
  ASSERT_TRUE(net::ReceiveAll(greedy.get(), &reply, sizeof reply));
  const net::Message many{net::kPingMagic, 1, 1 << 30, 0};
  ASSERT_TRUE(net::SendAll(greedy.get(), &many, sizeof many));
  net::SetTimeouts(greedy.get(), 20'000);
  EXPECT_FALSE(net::ReceiveAll(greedy.get(), &reply, sizeof reply));  // Dropped.

  const EventClock clock = Distorted(5'000'000, -20);
  Rows rows;
  const auto client = ClockClient::Start({1, 42, clock}, 0, server.value()->address(), rows.Sink(), 0);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(rows.WaitForBursts(2));
  ExpectAligned(clock, rows.Table());
  // The slow one is still served where it left off.
  net::SetTimeouts(slow.get(), 20'000);
  ASSERT_TRUE(net::ReceiveAll(slow.get(), &reply, sizeof reply));
  ASSERT_TRUE(net::SendAll(slow.get(), reinterpret_cast<const char*>(&ping) + 7, sizeof ping - 7));
  EXPECT_TRUE(net::ReceiveAll(slow.get(), &reply, sizeof reply));
  EXPECT_EQ(reply.magic, net::kPingMagic);
}

TEST(ClockService, ClientSurvivesTheServersDeath) {
  auto first = ClockServer::Start({0, 42, {}});
  ASSERT_TRUE(first.ok());
  auto second = ClockServer::Start({0, 42, {}});
  ASSERT_TRUE(second.ok());
  const std::string both =
      net::SplitAddresses(first.value()->address())[0] + "," + net::SplitAddresses(second.value()->address())[0];
  Rows rows;
  const auto client = ClockClient::Start({1, 42, {}}, 0, both, rows.Sink(), 0);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(rows.WaitForBursts(1));
  { auto gone = std::move(first).value(); }
  ASSERT_TRUE(rows.WaitForBursts(3));
}

TEST(ClockService, CostsNothingBetweenBursts) {
  const auto server = ClockServer::Start({0, 42, {}});
  ASSERT_TRUE(server.ok());
  Rows rows;
  const auto client = ClockClient::Start({1, 42, {}}, 0, server.value()->address(), rows.Sink(), 0);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(rows.WaitForBursts(1));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  ASSERT_TRUE(rows.WaitForBursts(3));  // At least two pauses of 1 s.
  getrusage(RUSAGE_SELF, &after);
  const auto us = [](const timeval& t) { return t.tv_sec * 1'000'000 + t.tv_usec; };
  const auto used = us(after.ru_utime) + us(after.ru_stime) - us(before.ru_utime) - us(before.ru_stime);
  EXPECT_LT(used, 500'000);  // A side that spins uses 2,000,000.
}

TEST(ClockCoordinator, MeetsThroughTheRunDirectory) {
  char pattern[] = "/tmp/lockstep-coordinator-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::string dir = pattern;
  Rows unused, rows, follower;
  const EventClock clock = Distorted(1'000'000'000'000, 10);
  {
    ClockCoordinatorConfig zero;
    zero.service = {0, 42, {}};
    zero.world_size = 3;
    zero.domain = 1;
    zero.mode = ClockService::kTcp;
    zero.meeting_dir = dir;
    zero.sink = unused.Sink();
    ClockCoordinatorConfig one = zero, two = zero;
    one.service = {1, 42, clock};
    one.domain = two.domain = 2;
    one.meeting_dir = "";  // Learns it later.
    one.sink = rows.Sink();
    two.service = {2, 42, clock};
    two.sink = follower.Sink();
    auto a = ClockCoordinator::Start(zero), b = ClockCoordinator::Start(one), c = ClockCoordinator::Start(two);
    ASSERT_TRUE(a.ok() && b.ok() && c.ok());
    b.value()->SetMeetingDir(dir);
    ASSERT_TRUE(rows.WaitForBursts(2)) << b.value()->Describe();
    b.value()->Finish(5000);
    EXPECT_NE(b.value()->Describe().find("tcp to rank 0"), std::string::npos) << b.value()->Describe();
    EXPECT_EQ(a.value()->Describe(), "reference of all clocks");
    c.value()->Abandon();
  }
  EXPECT_EQ(follower.Table().rows(), 0u);  // Rank 1 measures for the domain.
  EXPECT_EQ(unused.Table().rows(), 0u);
  ExpectAligned(clock, rows.Table());
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  std::filesystem::remove_all(dir);
}

TEST(ClockCoordinator, OffListensNowhere) {
  ClockCoordinatorConfig config;
  config.mode = ClockService::kOff;
  const auto off = ClockCoordinator::Start(config);
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(off.value()->address(), "");
  off.value()->Finish(10);
}

}  // namespace
}  // namespace lockstep
