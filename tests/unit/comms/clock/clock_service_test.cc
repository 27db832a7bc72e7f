// Real sockets on the loopback, two clocks in one process. Waits are for events
// with generous limits; no result depends on how long anything took.
#include "comms/clock/clock_service.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "comms/clock/clock_coordinator.h"
#include "comms/clock/socket_util.h"
#include "merge/clock/align.h"
#include "tests/unit/eventually.h"

namespace lockstep::clock {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

EventClock Distorted(std::int64_t offset_ns, double ppm) {
  EventClock clock;
  clock.distortion.offset_ns = offset_ns;
  clock.distortion.ppm = ppm;
  clock.distortion.origin_raw_ns = RawNs();
  return clock;
}

RunKey Key(std::uint8_t number) {
  RunKey key{};
  key.fill(number);
  return key;
}

ClockServiceConfig With(std::int32_t rank, std::uint8_t key, const EventClock& clock) {
  return {.rank = rank, .key = Key(key), .clock = clock};
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
  std::vector<merge::AlignRank> ranks(2);
  ranks[0].rank = 0;
  ranks[0].domain = "a";
  ranks[1].rank = 1;
  ranks[1].domain = "b";
  ranks[1].bursts = &table;
  const auto result = merge::AlignClocks(ranks, merge::ClockChoice::kAuto);
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
  const auto server = ClockServer::Start(With(0, 42, {}));
  ASSERT_TRUE(server.ok());
  const EventClock clock = Distorted(-1'000'000'000'000, 50);
  Rows rows;
  {
    const auto client = ClockClient::Start(With(1, 42, clock), 0, server.value()->address(), rows.Sink(), 100);
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

TEST(ClockService, WrongKeyWrongRankAndNobody) {
  const auto server = ClockServer::Start(With(0, 42, {}));
  ASSERT_TRUE(server.ok());
  Rows rows;
  const auto stranger = ClockClient::Start(With(1, 43, {}), 0, server.value()->address(), rows.Sink(), 0);
  const auto mistaken = ClockClient::Start(With(1, 42, {}), 7, server.value()->address(), rows.Sink(), 0);
  const auto lonely = ClockClient::Start(With(1, 42, {}), 0, "127.0.0.1:1,nonsense,[::1]:1", rows.Sink(), 0);
  ASSERT_TRUE(stranger.ok() && mistaken.ok() && lonely.ok());
  EXPECT_TRUE(test::Eventually([&] { return server.value()->refused() >= 1 && stranger.value()->unproven() >= 1; }));
  EXPECT_FALSE(stranger.value()->FinalBurst(1));
  EXPECT_FALSE(mistaken.value()->FinalBurst(300));
  EXPECT_FALSE(lonely.value()->FinalBurst(300));
  EXPECT_TRUE(rows.Table().rows() == 0);
  EXPECT_EQ(mistaken.value()->unproven(), 0u);  // Another rank of ours is no stranger.
  EXPECT_FALSE(ClockClient::Start(With(1, 42, {}), 0, "", rows.Sink(), 0).ok());
}

// The client's part by hand. `said` gets what was sent, `heard` what came.
bool ShakeHands(int fd, const RunKey& key, std::vector<std::string>* said = nullptr) {
  net::SetTimeouts(fd, 20'000);
  net::Hello hello, challenge;
  hello.rank = 5;
  hello.nonce[3] = 7;
  if (!net::SendAll(fd, &hello, sizeof hello) || !net::ReceiveAll(fd, &challenge, sizeof challenge)) return false;
  const Proof own = Prove(key, ProofOf::kClient, net::BytesOf(hello), net::BytesOf(challenge));
  Proof theirs{};
  if (said != nullptr)
    *said = {std::string(reinterpret_cast<const char*>(&hello), sizeof hello),
             std::string(reinterpret_cast<const char*>(own.data()), own.size())};
  return net::SendAll(fd, own.data(), own.size()) && net::ReceiveAll(fd, theirs.data(), theirs.size()) &&
         SameSecret(theirs, Prove(key, ProofOf::kServer, net::BytesOf(hello), net::BytesOf(challenge)));
}

// Hostile and half-dead connections must not keep an honest client from its bursts.
TEST(ClockService, ServerSurvivesGarbage) {
  const auto server = ClockServer::Start(With(0, 42, {}));
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
  // Holds the key, then asks for a burst and stops in the middle of a ping.
  net::Fd slow = net::Connect(address, 1000, never);
  net::Message reply{};
  ASSERT_TRUE(ShakeHands(slow.get(), Key(42)));
  const net::Message ping{net::kPingMagic, 1, 20, 0};
  ASSERT_TRUE(net::SendAll(slow.get(), &ping, sizeof ping));
  ASSERT_TRUE(net::SendAll(slow.get(), &ping, 7));
  // Claims more pings than a burst may have.
  net::Fd greedy = net::Connect(address, 1000, never);
  ASSERT_TRUE(ShakeHands(greedy.get(), Key(42)));
  const net::Message many{net::kPingMagic, 1, 1 << 30, 0};
  ASSERT_TRUE(net::SendAll(greedy.get(), &many, sizeof many));
  net::SetTimeouts(greedy.get(), 20'000);
  EXPECT_FALSE(net::ReceiveAll(greedy.get(), &reply, sizeof reply));  // Dropped.

  const EventClock clock = Distorted(5'000'000, -20);
  Rows rows;
  const auto client = ClockClient::Start(With(1, 42, clock), 0, server.value()->address(), rows.Sink(), 0);
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

std::size_t OpenDescriptors() {
  std::error_code ignored;
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd", ignored), {}));
}

// Of one listening here that says what `answer` makes of each message; a stranger on the reference's address.
class Impostor {
 public:
  explicit Impostor(std::function<bool(int fd, int which, const net::Message&)> answer) : answer_(std::move(answer)) {
    listener_ = net::Listen(&port_, true);
    thread_ = std::thread([this] { Run(); });
  }
  ~Impostor() {
    stop_ = true;
    thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int calls() const { return calls_; }

 private:
  void Run() {
    while (!stop_) {
      pollfd ready{listener_.get(), POLLIN, 0};
      if (poll(&ready, 1, 20) <= 0) continue;
      net::Fd fd(accept(listener_.get(), nullptr, nullptr));
      if (!fd.open()) continue;
      ++calls_;
      net::SetTimeouts(fd.get(), 2000);
      net::Message message{};
      for (int which = 0; net::ReceiveAll(fd.get(), &message, sizeof message) && answer_(fd.get(), which, message);)
        ++which;
    }
  }
  std::function<bool(int fd, int which, const net::Message&)> answer_;
  net::Fd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::thread thread_;
};

// Who cannot prove that he holds the key is not believed, whatever he answers to pings.
TEST(ClockService, ImpostorIsNotBelieved) {
  const net::Hello hello = [] {
    net::Hello one;
    one.rank = 0;
    return one;
  }();
  const auto ping = [](int fd, const net::Message& asked) {
    const net::Message answer{net::kPingMagic, asked.a, 1, 2};
    return net::SendAll(fd, &answer, sizeof answer);
  };
  Impostor guesses([&](int fd, int which, const net::Message& message) {
    if (which == 0) return net::SendAll(fd, &hello, sizeof hello);
    if (which == 1) return net::SendAll(fd, &message, sizeof message);  // The client's own proof, sent back.
    return ping(fd, message);
  });
  Impostor skips([&](int fd, int, const net::Message& message) { return ping(fd, message); });
  Impostor echoes([](int fd, int, const net::Message& message) { return net::SendAll(fd, &message, sizeof message); });
  Impostor mute([](int, int, const net::Message&) { return true; });
  Rows rows;
  for (Impostor* impostor : {&guesses, &skips, &echoes, &mute}) {
    const auto client = ClockClient::Start(With(1, 42, {}), 0, impostor->address(), rows.Sink(), 0);
    ASSERT_TRUE(client.ok());
    // Who calls again had no answer that it believed.
    EXPECT_TRUE(test::Eventually([&] { return impostor->calls() >= 2; }));
    EXPECT_EQ(client.value()->bursts(), 0u);
    EXPECT_GE(client.value()->unproven(), impostor == &guesses ? 1u : 0u);
  }
  EXPECT_EQ(rows.Table().rows(), 0u);
}

// What was heard in one handshake opens no other one.
TEST(ClockService, ReplayedHandshakeIsRefused) {
  const auto server = ClockServer::Start(With(0, 42, {}));
  ASSERT_TRUE(server.ok());
  const std::string address = net::SplitAddresses(server.value()->address())[0];
  const auto never = [] { return false; };
  std::vector<std::string> said;
  net::Fd honest = net::Connect(address, 5000, never);
  ASSERT_TRUE(ShakeHands(honest.get(), Key(42), &said));
  EXPECT_EQ(server.value()->refused(), 0u);
  net::Fd replay = net::Connect(address, 5000, never);
  net::SetTimeouts(replay.get(), 20'000);
  net::Message reply{};
  ASSERT_TRUE(net::SendAll(replay.get(), said[0].data(), said[0].size()));
  ASSERT_TRUE(net::ReceiveAll(replay.get(), &reply, sizeof reply));
  ASSERT_TRUE(net::SendAll(replay.get(), said[1].data(), said[1].size()));
  EXPECT_FALSE(net::ReceiveAll(replay.get(), &reply, sizeof reply));
  // Nor does a ping before the handshake, or the key of another run.
  net::Fd hasty = net::Connect(address, 5000, never);
  const net::Message ping{net::kPingMagic, 1, 0, 0};
  net::SetTimeouts(hasty.get(), 20'000);
  ASSERT_TRUE(net::SendAll(hasty.get(), &ping, sizeof ping));
  EXPECT_FALSE(net::ReceiveAll(hasty.get(), &reply, sizeof reply));
  net::Fd other = net::Connect(address, 5000, never);
  EXPECT_FALSE(ShakeHands(other.get(), Key(41)));
  EXPECT_TRUE(test::Eventually([&] { return server.value()->refused() >= 3; }));
  EXPECT_EQ(server.value()->refused(), 3u);
}

// A thousand that say nothing, or a byte now and then: descriptors stay few, and an honest one is served meanwhile.
TEST(ClockService, ThousandStrangersHoldNobodyUp) {
  const auto server = ClockServer::Start(With(0, 42, {}));
  ASSERT_TRUE(server.ok());
  const std::string address = net::SplitAddresses(server.value()->address())[0];
  const std::size_t before = OpenDescriptors();
  std::atomic<bool> stop{false};
  std::thread crowd([&] {
    std::vector<net::Fd> strangers;
    for (int i = 0; i < 1000 && !stop; ++i) {
      strangers.push_back(net::Connect(address, 1000, [] { return false; }));
      const char byte = static_cast<char>(i);
      if (i % 3 == 0 && strangers.back().open()) (void)!send(strangers.back().get(), &byte, 1, MSG_NOSIGNAL);
      if (strangers.size() > 200) strangers.erase(strangers.begin());
    }
  });
  Rows rows;
  const auto client = ClockClient::Start(With(1, 42, {}), 0, server.value()->address(), rows.Sink(), 0);
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(rows.WaitForBursts(2));
  // The crowd's own 200, the server's 64 and the client's one.
  EXPECT_LE(OpenDescriptors(), before + 200 + 64 + 8);
  stop = true;
  crowd.join();
  EXPECT_TRUE(test::Eventually([&] { return OpenDescriptors() <= before + 3; }));
  EXPECT_GE(server.value()->refused(), 1u);
}

TEST(ClockService, ListensOnTheLoopbackOnlyIfToldSo) {
  ClockServiceConfig config = With(0, 42, {});
  config.loopback_only = true;
  const auto server = ClockServer::Start(config);
  ASSERT_TRUE(server.ok());
  const std::string& address = server.value()->address();
  ASSERT_EQ(address.rfind("127.0.0.1:", 0), 0u);
  EXPECT_EQ(address.find(','), std::string::npos);
  const std::string port = address.substr(10);
  std::uint16_t ignored = 0;
  net::Fd everywhere = net::Listen(&ignored, false);  // What else this host is called.
  for (const std::string& own : net::SplitAddresses(net::LocalAddresses(1, 4096))) {
    if (own == "127.0.0.1:1") continue;
    const std::string there = own.substr(0, own.rfind(':') + 1) + port;
    EXPECT_FALSE(net::Connect(there, 1000, [] { return false; }).open()) << there;
  }
  EXPECT_TRUE(net::Connect(address, 5000, [] { return false; }).open());
  EXPECT_FALSE(ClockServer::Start({.rank = 0}).ok());  // Without a key nobody could be told apart.
}

TEST(ClockService, ListensOnlyWhereOtherHostsMayBe) {
  EXPECT_EQ(WhereToListen(0, 1, 1), ClockListen::kNowhere);   // Nobody else.
  EXPECT_EQ(WhereToListen(3, 8, 4), ClockListen::kNowhere);   // Only rank 0 is called.
  EXPECT_EQ(WhereToListen(0, 4, 4), ClockListen::kLoopback);  // All here.
  EXPECT_EQ(WhereToListen(0, 8, 4), ClockListen::kEverywhere);
  EXPECT_EQ(WhereToListen(0, 8, -1), ClockListen::kEverywhere);  // The launcher did not say.
  EXPECT_EQ(WhereToListen(0, -1, -1), ClockListen::kEverywhere);
}

// Addresses that lead nowhere cost no time each, and the one that leads somewhere is found.
TEST(ClockService, ManyAddresses) {
  const auto server = ClockServer::Start(With(0, 42, {}));
  ASSERT_TRUE(server.ok());
  // This host's own name for itself comes last of all, if it has one beside the loopback.
  const std::string own = net::SplitAddresses(server.value()->address()).back();
  std::string many;
  for (int i = 1; i <= 60; ++i) many += "192.0.2." + std::to_string(i) + own.substr(own.rfind(':')) + ",";  // RFC 5737
  Rows rows;
  const auto client = ClockClient::Start(With(1, 42, {}), 0, many + own, rows.Sink(), 0);
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(rows.WaitForBursts(1));
}

TEST(ClockService, ClientSurvivesTheServersDeath) {
  auto first = ClockServer::Start(With(0, 42, {}));
  ASSERT_TRUE(first.ok());
  auto second = ClockServer::Start(With(0, 42, {}));
  ASSERT_TRUE(second.ok());
  const std::string both =
      net::SplitAddresses(first.value()->address())[0] + "," + net::SplitAddresses(second.value()->address())[0];
  Rows rows;
  const auto client = ClockClient::Start(With(1, 42, {}), 0, both, rows.Sink(), 0);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(rows.WaitForBursts(1));
  { auto gone = std::move(first).value(); }
  ASSERT_TRUE(rows.WaitForBursts(3));
}

// Of a job of so many ranks that meets in this directory.
ClockCoordinatorConfig RankZero(const std::string& meeting_dir, std::int32_t ranks, Rows& rows) {
  ClockCoordinatorConfig zero;
  zero.service = With(0, 42, {});
  zero.world_size = ranks;
  zero.domain = 1;
  zero.mode = ClockService::kTcp;
  zero.meeting_dir = meeting_dir;
  zero.sink = rows.Sink();
  return zero;
}

// On another host, which reaches rank 0 and is reached by nobody.
ClockCoordinatorConfig RankOne(const ClockCoordinatorConfig& zero, std::uint8_t key, Rows& rows) {
  ClockCoordinatorConfig one = zero;
  one.service = With(1, key, {});
  one.domain = 2;
  one.sink = rows.Sink();
  one.listen = ClockListen::kNowhere;
  return one;
}

TEST(ClockCoordinator, MeetsThroughTheRunDirectory) {
  char pattern[] = "/tmp/lockstep-coordinator-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::string dir = pattern;
  Rows unused, rows, follower;
  const EventClock clock = Distorted(1'000'000'000'000, 10);
  {
    const ClockCoordinatorConfig zero = RankZero(dir, 3, unused);
    ClockCoordinatorConfig one = zero, two = zero;
    one.service = With(1, 42, clock);
    one.domain = two.domain = 2;
    one.sink = rows.Sink();
    two.service = With(2, 42, clock);
    two.sink = follower.Sink();
    auto a = ClockCoordinator::Start(zero), b = ClockCoordinator::Start(one), c = ClockCoordinator::Start(two);
    ASSERT_TRUE(a.ok() && b.ok() && c.ok());
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

// It takes the file that led to it away; who has measured with it has nothing to complain of.
TEST(ClockCoordinator, RankZerosAgentMayEndFirst) {
  char pattern[] = "/tmp/lockstep-coordinator-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  Rows unused, rows;
  const ClockCoordinatorConfig zero = RankZero(pattern, 2, unused);
  const ClockCoordinatorConfig one = RankOne(zero, 42, rows);
  auto a = ClockCoordinator::Start(zero), b = ClockCoordinator::Start(one);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(rows.WaitForBursts(1)) << b.value()->Describe();
  a = Error{ErrorCode::kInternal, "", "", ""};  // Ends it.
  // Who comes now complains after two seconds, and within two seconds the other one looks for the file again.
  ClockCoordinatorConfig late = RankOne(zero, 42, rows);
  late.service.rank = 2, late.domain = 3;
  auto c = ClockCoordinator::Start(late);
  ASSERT_TRUE(c.ok());
  EXPECT_TRUE(test::Eventually([&] { return !c.value()->Trouble().empty(); }));
  EXPECT_EQ(b.value()->Trouble(), "");
  b.value()->Finish(100);
  EXPECT_EQ(b.value()->Trouble(), "");
  std::filesystem::remove_all(pattern);
}

// The directories are not shared, or cannot be: no exchange, and a reason for it.
TEST(ClockCoordinator, WithoutAKeyNothingIsBelieved) {
  char pattern[] = "/tmp/lockstep-coordinator-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::string dir = pattern;
  Rows unused, rows;
  ClockCoordinatorConfig zero = RankZero(dir, 2, unused);
  for (const std::uint8_t key : {std::uint8_t{0}, std::uint8_t{43}}) {
    const ClockCoordinatorConfig one = RankOne(zero, key, rows);
    auto a = ClockCoordinator::Start(zero), b = ClockCoordinator::Start(one);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(b.value()->address(), "");
    EXPECT_TRUE(test::Eventually([&] { return b.value()->Trouble().find("key") != std::string::npos; }))
        << b.value()->Trouble();
    b.value()->Finish(100);
    EXPECT_NE(b.value()->Trouble().find("key"), std::string::npos);
    EXPECT_EQ(a.value()->Trouble(), "");
  }
  EXPECT_EQ(rows.Table().rows(), 0u);
  // A server without a key is none.
  zero.service = With(0, 0, {});
  auto a = ClockCoordinator::Start(zero);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a.value()->address(), "");
  a = Error{ErrorCode::kInternal, "", "", ""};  // Ends it.
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
}  // namespace lockstep::clock
