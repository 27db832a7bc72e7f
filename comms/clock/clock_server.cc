#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comms/clock/clock_service.h"
#include "comms/clock/quiet_thread.h"
#include "comms/clock/socket_util.h"

namespace lockstep::clock {
namespace {

FilesWhy WhyOf(std::int64_t number) {
  if (number == static_cast<std::int64_t>(FilesWhy::kHaste)) return FilesWhy::kHaste;
  return number == static_cast<std::int64_t>(FilesWhy::kQuiet) ? FilesWhy::kQuiet : FilesWhy::kEnd;
}

constexpr std::size_t kAddressLimit = sizeof(SegmentHeader::agent_address) - 1;
constexpr std::size_t kMaxConnections = 4096, kMaxStrangers = 64;
// Connections accepted before the known ones are served again.
constexpr int kAcceptAtOnce = 32;
constexpr std::int64_t kHandshakeLimitNs = 2'000'000'000;
constexpr int kPingLimitMs = 20;  // If a ping within a burst takes longer, other connections are served.
constexpr std::int64_t kBurstLimitNs = 100'000'000;

struct Connection {
  net::Fd fd;
  enum class State { kHello, kProof, kKnown, kPlace } state = State::kHello;
  bool left = false;  // Closed by the other side before it sent anything.
  bool known() const { return state == State::kKnown || state == State::kPlace; }
  net::Hello hello, challenge;
  std::size_t filled = 0;  // Bytes of `message` received; of `place` in that state.
  net::Message message{};
  std::string place;  // The text and its proof.
  std::int64_t since_ns = 0;
};

}  // namespace

struct ClockServer::Impl {
  ClockServiceConfig config;
  net::Fd listener, wake;
  std::string address;
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::size_t> clients{0};
  std::vector<Connection> connections;
  mutable std::mutex mutex;  // Protects `places`.
  std::map<std::int32_t, ToldPlace> places;
  std::thread thread;

  void Run();
  void Accept();
  bool Serve(Connection& connection);
  bool Challenge(Connection& connection);
  bool Check(Connection& connection);
  bool Answer(Connection& connection);
  bool ExpectPlace(Connection& connection) const;
  bool TakePlace(Connection& connection);
  void GiveAway(Connection& connection) const;
};

Result<std::unique_ptr<ClockServer>> ClockServer::Start(const ClockServiceConfig& config) {
  if (IsEmpty(config.key))
    return Error{ErrorCode::kUsage, "the clock service has no key, so it cannot check its clients", "",
                 "run with --clock off"};
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  std::uint16_t port = 0;
  impl->listener = net::Listen(&port, config.loopback_only);
  impl->wake = net::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!impl->listener.open() || !impl->wake.open()) {
    return Error{ErrorCode::kIo, std::string("the clock service cannot listen: ") + strerror(errno), "",
                 "allow local TCP sockets, or run with --clock off"};
  }
  impl->address = config.loopback_only ? "127.0.0.1:" + std::to_string(port) : net::LocalAddresses(port, kAddressLimit);
  impl->thread = QuietThread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<ClockServer>(new ClockServer(std::move(impl)));
}

ClockServer::ClockServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClockServer::~ClockServer() {
  const std::uint64_t one = 1;
  (void)!write(impl_->wake.get(), &one, sizeof one);
  impl_->thread.join();
}

const std::string& ClockServer::address() const { return impl_->address; }
std::uint64_t ClockServer::refused() const { return impl_->refused.load(std::memory_order_relaxed); }

std::size_t ClockServer::clients() const { return impl_->clients.load(std::memory_order_relaxed); }

std::vector<ToldPlace> ClockServer::places() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<ToldPlace> all;
  for (const auto& [rank, place] : impl_->places) all.push_back(place);
  return all;
}

void ClockServer::Impl::Run() {
  std::vector<pollfd> polls;
  for (;;) {
    polls.assign({pollfd{wake.get(), POLLIN, 0}, pollfd{listener.get(), POLLIN, 0}});
    bool strangers = false;
    for (const Connection& connection : connections) {
      polls.push_back({connection.fd.get(), POLLIN, 0});
      strangers |= !connection.known();
    }
    if (poll(polls.data(), polls.size(), strangers ? 250 : -1) < 0 && errno != EINTR) return;
    if (polls[0].revents != 0) return;
    const std::int64_t now = RawNs();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < connections.size(); ++i) {
      Connection& connection = connections[i];
      bool keep = polls[i + 2].revents == 0 || Serve(connection);
      if (keep && !connection.known() && now - connection.since_ns > kHandshakeLimitNs) keep = false;
      if (!keep) {
        // Closed without a message: an agent of this run that reached another address first.
        if (!connection.known() && !connection.left) refused.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      if (kept != i) connections[kept] = std::move(connection);
      ++kept;
    }
    connections.resize(kept);
    std::size_t known = 0;
    for (const Connection& connection : connections) known += connection.known() ? 1 : 0;
    clients.store(known, std::memory_order_relaxed);
    if (polls[1].revents != 0) Accept();
  }
}

void ClockServer::Impl::Accept() {
  for (int accepted = 0; accepted < kAcceptAtOnce; ++accepted) {
    Connection connection;
    connection.fd = net::Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.fd.open()) {
      // There are no descriptors left: poll would report the listener again at once.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return;
    }
    std::size_t strangers = 0;
    auto oldest = connections.end();
    for (auto other = connections.begin(); other != connections.end(); ++other)
      if (!other->known() && ++strangers == 1) oldest = other;
    if (connections.size() >= kMaxConnections && strangers == 0) {
      refused.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    // An agent proves within a round trip that it holds the key. The connection that has been unproven longest is
    // closed, so that many idle ones cannot keep agents out.
    if (connections.size() >= kMaxConnections || strangers >= kMaxStrangers) {
      connections.erase(oldest);
      refused.fetch_add(1, std::memory_order_relaxed);
    }
    const int on = 1;
    setsockopt(connection.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    net::SetTimeouts(connection.fd.get(), kPingLimitMs);
    connection.since_ns = RawNs();
    connections.push_back(std::move(connection));
  }
}

// Reads what has arrived. Returns false if the connection is to be dropped.
bool ClockServer::Impl::Serve(Connection& connection) {
  const bool place = connection.state == Connection::State::kPlace;
  char* into = place ? connection.place.data() : reinterpret_cast<char*>(&connection.message);
  const std::size_t bytes = place ? connection.place.size() : sizeof(net::Message);
  const ssize_t n = recv(connection.fd.get(), into + connection.filled, bytes - connection.filled, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) {
    connection.left = connection.state == Connection::State::kHello && connection.filled == 0;
    return false;
  }
  connection.filled += static_cast<std::size_t>(n);
  if (connection.filled < bytes) return true;
  connection.filled = 0;
  switch (connection.state) {
    case Connection::State::kHello:
      return Challenge(connection);
    case Connection::State::kProof:
      return Check(connection);
    case Connection::State::kPlace:
      return TakePlace(connection);
    case Connection::State::kKnown:
      break;
  }
  if (connection.message.magic == net::kFilesMagic && config.take_files) {
    GiveAway(connection);
    return false;
  }
  return connection.message.magic == net::kPlaceMagic ? ExpectPlace(connection) : Answer(connection);
}

// Files come over this connection from now on; what they need of time is not this thread's.
void ClockServer::Impl::GiveAway(Connection& connection) const {
  std::string address = net::OtherHostOf(connection.fd.get());
  config.take_files({std::make_unique<AgentLink>(AgentLink::Side::kServer, std::move(connection.fd), config.key,
                                                 connection.hello, connection.challenge),
                     connection.message.a, WhyOf(connection.message.b), std::move(address)});
}

bool ClockServer::Impl::ExpectPlace(Connection& connection) const {
  if (connection.message.a > net::kMostPlaceBytes) return false;
  connection.place.resize(connection.message.a + kProofBytes);
  connection.state = Connection::State::kPlace;
  return true;
}

bool ClockServer::Impl::TakePlace(Connection& connection) {
  const std::string all = std::exchange(connection.place, {});
  const std::string_view text = std::string_view(all).substr(0, all.size() - kProofBytes);
  connection.state = Connection::State::kKnown;
  const Proof proof = net::PlaceProof(config.key, connection.hello, connection.challenge, text);
  if (!SameSecret({reinterpret_cast<const std::uint8_t*>(all.data()) + text.size(), kProofBytes}, proof)) return false;
  const std::int32_t rank = connection.hello.rank;
  ToldPlace place{rank, std::string(text), net::OtherHostOf(connection.fd.get())};
  const std::lock_guard lock(mutex);
  // As many ranks as connections; a client that names another rank each time it connects is not kept for ever.
  if (places.size() < kMaxConnections || places.contains(rank)) places[rank] = std::move(place);
  return true;
}

bool ClockServer::Impl::Challenge(Connection& connection) {
  memcpy(static_cast<void*>(&connection.hello), &connection.message, sizeof connection.hello);
  if (connection.hello.magic != net::kHelloMagic) return false;
  connection.challenge.rank = config.rank;
  connection.challenge.takes = net::kTakesPlaces | (config.take_files ? net::kTakesFiles : 0);
  if (!RandomBytes(connection.challenge.nonce)) return false;
  connection.state = Connection::State::kProof;
  return net::SendAll(connection.fd.get(), &connection.challenge, sizeof connection.challenge);
}

bool ClockServer::Impl::Check(Connection& connection) {
  const auto hello = net::BytesOf(connection.hello), challenge = net::BytesOf(connection.challenge);
  if (!SameSecret(net::BytesOf(connection.message), Prove(config.key, ProofOf::kClient, hello, challenge)))
    return false;
  const Proof own = Prove(config.key, ProofOf::kServer, hello, challenge);
  connection.state = Connection::State::kKnown;
  return net::SendAll(connection.fd.get(), own.data(), own.size());
}

// The first ping of a burst has been read. The others are awaited here: both ends then sleep in one recv each, so that
// the two directions cost the same (a poll before the recv on one side only would shift the offset by half of its
// cost).
bool ClockServer::Impl::Answer(Connection& connection) {
  net::Message ping = connection.message;
  const std::int64_t begin = RawNs();
  std::int64_t received = config.clock.RankNs();
  for (int served = 1;; ++served) {
    if (ping.magic != net::kPingMagic || ping.b < 0 || ping.b >= net::kMaxBurstPings) return false;
    net::Message reply{net::kPingMagic, ping.a, received, 0};
    reply.c = config.clock.RankNs();
    if (!net::SendAll(connection.fd.get(), &reply, sizeof reply)) return false;
    if (ping.b == 0 || served >= net::kMaxBurstPings || RawNs() - begin > kBurstLimitNs) return true;
    std::size_t filled = 0;
    while (filled < sizeof ping) {
      const ssize_t n = recv(connection.fd.get(), reinterpret_cast<char*>(&ping) + filled, sizeof ping - filled, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {  // Too slow: continue with poll, keeping what has arrived so far.
        connection.message = ping;
        connection.filled = filled;
        return true;
      }
      if (n <= 0) return false;
      filled += static_cast<std::size_t>(n);
    }
    received = config.clock.RankNs();
  }
}

}  // namespace lockstep::clock
