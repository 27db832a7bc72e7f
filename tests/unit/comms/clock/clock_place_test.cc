// What agents of other hosts tell rank 0's: where their files are.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "comms/clock/clock_service.h"
#include "comms/clock/socket_util.h"
#include "tests/unit/eventually.h"

namespace lockstep::clock {
namespace {

RunKey KeyOf(std::uint8_t number) {
  RunKey key{};
  key.fill(number);
  return key;
}

ClockServiceConfig Telling(std::int32_t rank, const std::string& place) {
  return {.rank = rank, .key = KeyOf(42), .clock = {}, .place = place};
}

const ClockClient::Sink kNowhere = [](std::span<const BurstRow>) {};

net::Fd Connected(const ClockServer& server) {
  net::Fd fd = net::Connect(net::SplitAddresses(server.address())[0], 5000, [] { return false; });
  net::SetTimeouts(fd.get(), 20'000);
  return fd;
}

// A client's part of the handshake.
bool Introduced(int fd, net::Hello& hello, net::Hello& challenge) {
  hello.rank = 5;
  Proof theirs{};
  if (!net::SendAll(fd, &hello, sizeof hello) || !net::ReceiveAll(fd, &challenge, sizeof challenge)) return false;
  const Proof own = Prove(KeyOf(42), ProofOf::kClient, net::BytesOf(hello), net::BytesOf(challenge));
  return net::SendAll(fd, own.data(), own.size()) && net::ReceiveAll(fd, theirs.data(), theirs.size());
}

bool Tell(int fd, std::uint64_t bytes, const std::string& text, const Proof& proof) {
  const net::Message head{net::kPlaceMagic, bytes, 0, 0};
  return net::SendAll(fd, &head, sizeof head) && net::SendAll(fd, text.data(), text.size()) &&
         net::SendAll(fd, proof.data(), proof.size());
}

TEST(ClockPlace, EveryClientIsHeardAndStillMeasures) {
  const auto server = ClockServer::Start(Telling(0, "not told by servers"));
  ASSERT_TRUE(server.ok());
  const std::string odd = std::string("node\0/a dir\n\xff'", 14), longest(net::kMostPlaceBytes, 'x');
  const auto first = ClockClient::Start(Telling(7, odd), 0, server.value()->address(), kNowhere, 0);
  const auto second = ClockClient::Start(Telling(3, longest), 0, server.value()->address(), kNowhere, 0);
  const auto silent = ClockClient::Start(Telling(4, ""), 0, server.value()->address(), kNowhere, 0);
  const auto too_long = ClockClient::Start(Telling(5, longest + "x"), 0, server.value()->address(), kNowhere, 0);
  ASSERT_TRUE(first.ok() && second.ok() && silent.ok() && too_long.ok());
  for (const auto* client : {&first, &second, &silent, &too_long})
    EXPECT_TRUE(test::Eventually([&] { return client->value()->bursts() >= 1; }));
  EXPECT_TRUE(test::Eventually([&] { return first.value()->told() && second.value()->told(); }));
  EXPECT_FALSE(silent.value()->told());
  EXPECT_FALSE(too_long.value()->told());
  const std::vector<ToldPlace> places = server.value()->places();
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].rank, 3);
  EXPECT_EQ(places[0].text, longest);
  EXPECT_EQ(places[1].rank, 7);
  EXPECT_EQ(places[1].text, odd);
  EXPECT_EQ(server.value()->refused(), 0u);
}

TEST(ClockPlace, OnlyWhatTheClientSignedIsTaken) {
  const auto server = ClockServer::Start(Telling(0, ""));
  ASSERT_TRUE(server.ok());
  char byte = 0;
  for (const std::string said : {"node2", "node9"}) {
    net::Hello hello, challenge;
    const net::Fd fd = Connected(*server.value());
    ASSERT_TRUE(Introduced(fd.get(), hello, challenge));
    // Somebody on the way puts another text in the place of "node2", which has the same length.
    ASSERT_TRUE(Tell(fd.get(), said.size(), said, net::PlaceProof(KeyOf(42), hello, challenge, "node2")));
    if (said == "node9") {
      EXPECT_FALSE(net::ReceiveAll(fd.get(), &byte, 1));
    } else {
      EXPECT_TRUE(test::Eventually([&] { return server.value()->places().size() == 1; }));
    }
  }
  {  // The proof of another connection.
    net::Hello hello, challenge, heard;
    const net::Fd fd = Connected(*server.value());
    ASSERT_TRUE(Introduced(fd.get(), hello, challenge));
    heard = challenge;
    heard.nonce[0] ^= 1;
    ASSERT_TRUE(Tell(fd.get(), 5, "node8", net::PlaceProof(KeyOf(42), hello, heard, "node8")));
    EXPECT_FALSE(net::ReceiveAll(fd.get(), &byte, 1));
  }
  {  // More than is kept.
    net::Hello hello, challenge;
    const net::Fd fd = Connected(*server.value());
    ASSERT_TRUE(Introduced(fd.get(), hello, challenge));
    const net::Message head{net::kPlaceMagic, UINT64_MAX, 0, 0};
    ASSERT_TRUE(net::SendAll(fd.get(), &head, sizeof head));
    EXPECT_FALSE(net::ReceiveAll(fd.get(), &byte, 1));
  }
  const std::vector<ToldPlace> places = server.value()->places();
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].text, "node2");
}

// A server of a version that takes none gets pings and nothing else.
TEST(ClockPlace, NothingIsToldToAServerThatTakesNothing) {
  std::uint16_t port = 0;
  const net::Fd listener = net::Listen(&port, true);
  std::uint64_t magic = 0;
  std::thread old([&] {
    net::Fd fd;
    (void)test::Eventually([&] {
      fd = net::Fd(::accept(listener.get(), nullptr, nullptr));
      return fd.open();
    });
    net::SetTimeouts(fd.get(), 20'000);
    net::Hello hello, challenge;
    challenge.rank = 0;
    net::Message message{};
    if (!net::ReceiveAll(fd.get(), &hello, sizeof hello) || !net::SendAll(fd.get(), &challenge, sizeof challenge) ||
        !net::ReceiveAll(fd.get(), &message, sizeof message))
      return;
    const Proof proof = Prove(KeyOf(42), ProofOf::kServer, net::BytesOf(hello), net::BytesOf(challenge));
    if (net::SendAll(fd.get(), proof.data(), proof.size()) && net::ReceiveAll(fd.get(), &message, sizeof message))
      magic = message.magic;
  });
  const auto client = ClockClient::Start(Telling(1, "node2"), 0, "127.0.0.1:" + std::to_string(port), kNowhere, 0);
  ASSERT_TRUE(client.ok());
  old.join();
  EXPECT_EQ(magic, net::kPingMagic);
  EXPECT_FALSE(client.value()->told());
}

}  // namespace
}  // namespace lockstep::clock
