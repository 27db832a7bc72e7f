#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "comms/clock/burst_pacer.h"
#include "comms/clock/clock_service.h"
#include "comms/clock/handshake.h"
#include "comms/clock/quiet_thread.h"
#include "comms/clock/socket_util.h"
#include "core/schema_enums.h"

namespace lockstep::clock {
namespace {

constexpr int kPings = 25;
constexpr int kConnectMs = 500, kHandshakeMs = 1000, kExchangeMs = 1000;
constexpr auto kRetryFirst = std::chrono::milliseconds(200), kRetryMost = std::chrono::milliseconds(5000);

}  // namespace

struct ClockClient::Impl {
  ClockServiceConfig config;
  std::int32_t reference_rank = -1;
  std::vector<std::string> addresses;
  Sink sink;

  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::uint64_t wanted = 0;  // The number of final bursts requested.
  std::uint64_t tried = 0;   // Attempts that ended after the request, successful or not.
  bool tried_ok = false;
  int fd = -1;  // Of the connection in use: shut down by the destructor.
  std::atomic<std::uint64_t> bursts{0}, unproven{0};
  std::atomic<bool> told{false};
  bool telling = false;  // On this connection; the answer to a later ping shows that the server has taken it.
  std::uint32_t next_burst = 0;
  BurstPacer pacer;
  std::thread thread;

  void Run();
  net::Fd Open();
  bool Handshake(int socket);
  bool TellPlace(int socket, const net::Hello& hello, const net::Hello& challenge) const;
  bool Burst(int socket, std::vector<BurstRow>* rows);
  bool Pause(std::chrono::nanoseconds time);  // Returns false if the thread must stop.
  bool Stopped() {
    std::lock_guard lock(mutex);
    return stop;
  }
  void Use(int descriptor) {
    std::lock_guard lock(mutex);
    fd = descriptor;
  }
};

Result<std::unique_ptr<ClockClient>> ClockClient::Start(const ClockServiceConfig& config, std::int32_t reference_rank,
                                                        const std::string& address, Sink sink,
                                                        std::uint32_t first_burst) {
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  impl->reference_rank = reference_rank;
  impl->addresses = net::SortedForThisHost(net::SplitAddresses(address));
  impl->sink = std::move(sink);
  impl->next_burst = first_burst;
  if (impl->addresses.empty()) {
    return Error{ErrorCode::kUsage, "no address of the reference rank's clock service",
                 "rank " + std::to_string(reference_rank), "start every rank with lockstep run"};
  }
  if (IsEmpty(config.key))
    return Error{ErrorCode::kUsage, "the agent has no key of the run, so it trusts no clock service",
                 "rank " + std::to_string(reference_rank), "use a run directory that all nodes see"};
  impl->thread = QuietThread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<ClockClient>(new ClockClient(std::move(impl)));
}

ClockClient::ClockClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClockClient::~ClockClient() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    if (impl_->fd >= 0) shutdown(impl_->fd, SHUT_RDWR);
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

bool ClockClient::FinalBurst(int limit_ms) {
  std::unique_lock lock(impl_->mutex);
  const std::uint64_t mine = ++impl_->wanted;
  impl_->changed.notify_all();
  impl_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] { return impl_->tried >= mine; });
  return impl_->tried >= mine && impl_->tried_ok;
}

std::uint64_t ClockClient::bursts() const { return impl_->bursts.load(std::memory_order_relaxed); }
std::uint64_t ClockClient::unproven() const { return impl_->unproven.load(std::memory_order_relaxed); }
bool ClockClient::told() const { return impl_->told.load(std::memory_order_relaxed); }

bool ClockClient::Impl::Pause(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, time, [&] { return stop || wanted > tried; });
  return !stop;
}

void ClockClient::Impl::Run() {
  net::Fd connection;
  auto retry = kRetryFirst;
  std::vector<BurstRow> rows;
  for (;;) {
    std::uint64_t asked;
    {
      std::lock_guard lock(mutex);
      if (stop) return;
      asked = wanted;
    }
    if (!connection.open()) connection = Open();
    const bool done = connection.open() && Burst(connection.get(), &rows);
    if (!done && connection.open()) {
      Use(-1);
      connection.Reset();
    }
    if (done) {
      sink(rows);
      bursts.fetch_add(1, std::memory_order_relaxed);
      if (telling) told.store(true, std::memory_order_relaxed);
    }
    {
      std::lock_guard lock(mutex);
      tried = std::max(tried, asked);
      tried_ok = done;
    }
    changed.notify_all();
    std::chrono::nanoseconds pause = retry;
    if (done) {
      const auto& best = *std::min_element(rows.begin(), rows.end(), [](const BurstRow& a, const BurstRow& b) {
        return (a.t4 - a.t1) - (a.t3 - a.t2) < (b.t4 - b.t1) - (b.t3 - b.t2);
      });
      // The difference is halved first: the sum of two offsets of 1,000 s would fit, but that of two epochs might
      // overflow.
      const std::int64_t offset = (best.t2 - best.t1) / 2 + (best.t3 - best.t4) / 2;
      pause = std::chrono::nanoseconds(pacer.Next(best.t1, offset, (best.t4 - best.t1) - (best.t3 - best.t2)));
      retry = kRetryFirst;
    } else {
      retry = std::min(retry * 2, kRetryMost);
    }
    if (!Pause(pause)) return;
  }
}

net::Fd ClockClient::Impl::Open() {
  net::Fd connection = net::ConnectAny(
      addresses, kConnectMs, [this] { return Stopped(); },
      [this](int socket) {
        // The destructor interrupts a wait for an answer.
        Use(socket);
        const bool known = Handshake(socket);
        if (!known) Use(-1);
        return known;
      });
  return connection;
}

bool ClockClient::Impl::Handshake(int socket) {
  net::Hello hello, challenge;
  const net::Meeting met =
      net::MeetServer(socket, config.key, config.rank, reference_rank, kHandshakeMs, hello, challenge);
  if (met == net::Meeting::kUnproven) unproven.fetch_add(1, std::memory_order_relaxed);
  if (met != net::Meeting::kProven) return false;
  net::SetTimeouts(socket, kExchangeMs);
  telling = (challenge.takes & net::kTakesPlaces) != 0 && !config.place.empty() &&
            config.place.size() <= net::kMostPlaceBytes;
  return !telling || TellPlace(socket, hello, challenge);
}

bool ClockClient::Impl::TellPlace(int socket, const net::Hello& hello, const net::Hello& challenge) const {
  const net::Message head{net::kPlaceMagic, config.place.size(), 0, 0};
  const Proof proof = net::PlaceProof(config.key, hello, challenge, config.place);
  std::string all(reinterpret_cast<const char*>(&head), sizeof head);
  all += config.place;
  all.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  return net::SendAll(socket, all.data(), all.size());
}

bool ClockClient::Impl::Burst(int socket, std::vector<BurstRow>* rows) {
  rows->clear();
  for (int left = kPings - 1; left >= 0; --left) {
    net::Message ping{net::kPingMagic, static_cast<std::uint64_t>(left), left, 0}, reply{};
    const std::int64_t sent = config.clock.RankNs();
    if (!net::SendAll(socket, &ping, sizeof ping) || !net::ReceiveAll(socket, &reply, sizeof reply)) return false;
    const std::int64_t received = config.clock.RankNs();
    if (reply.magic != net::kPingMagic || reply.a != ping.a) return false;
    rows->push_back({next_burst, reference_rank, schema::Transport::kTcpAgents, 0, sent, reply.b, reply.c, received});
  }
  ++next_burst;
  return true;
}

}  // namespace lockstep::clock
