#pragma once
// Rank 0's agent's side, and whoever calls it, for tests of files that are sent.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <thread>

#include "comms/clock/clock_service.h"
#include "comms/clock/digest.h"
#include "comms/launch/launch_env.h"
#include "core/rank_name.h"
#include "runtime/agent/rundir/claim.h"
#include "runtime/agent/rundir/places.h"
#include "runtime/agent/send/file_receiver.h"
#include "runtime/agent/send/file_sender.h"
#include "tests/unit/eventually.h"
#include "tests/unit/runtime/agent/temp_dir.h"

namespace lockstep::agent {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using test::Eventually;

inline clock::RunKey SecretOf(std::uint8_t number) {
  clock::RunKey key{};
  key.fill(number);
  return key;
}

inline std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// No compressor makes less of it.
inline std::string Noise(std::size_t bytes) {
  std::mt19937_64 random(bytes);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

inline std::string Digested(const std::string& text) {
  clock::Digest digest;
  digest.Add(text);
  const auto value = digest.Take();
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

// Passes bytes between a client and the server, until told otherwise.
class Between {
 public:
  // What becomes of the client's bytes from the `from`-th on, once.
  enum class Harm { kNone, kCut, kFlip };
  Between(const std::string& server, Harm harm, std::uint64_t from) : server_(server), harm_(harm), from_(from) {
    listener_ = net::Listen(&port_, true);
    thread_ = std::thread([this] { Run(); });
  }
  ~Between() {
    stop_ = true;
    thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::uint64_t passed() const { return passed_; }
  int connections() const { return connections_; }

 private:
  void Run() {
    while (!stop_) {
      net::Fd client(::accept(listener_.get(), nullptr, nullptr));
      if (!client.open()) {
        std::this_thread::sleep_for(milliseconds(5));
        continue;
      }
      ++connections_;
      net::Fd server = net::Connect(server_, 5000, [] { return false; });
      net::SetTimeouts(client.get(), 20);
      net::SetTimeouts(server.get(), 20);
      for (bool open = true; open && !stop_;) {
        pollfd ready[2] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
        (void)::poll(ready, 2, 20);
        open = (ready[0].revents == 0 || Pass(client.get(), server.get(), true)) &&
               (ready[1].revents == 0 || Pass(server.get(), client.get(), false));
      }
    }
  }
  bool Pass(int from, int to, bool by_client) {
    char bytes[16384];
    const ssize_t n = ::recv(from, bytes, sizeof bytes, 0);
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (n == 0) return false;
    if (by_client) {
      const std::uint64_t before = passed_;
      passed_ += static_cast<std::uint64_t>(n);
      if (harm_ != Harm::kNone && passed_ > from_) {
        const Harm harm = std::exchange(harm_, Harm::kNone);
        if (harm == Harm::kCut) return false;
        bytes[from_ > before ? from_ - before : 0] ^= 1;
      }
    }
    for (ssize_t at = 0; at < n && !stop_;) {
      const ssize_t sent = ::send(to, bytes + at, static_cast<std::size_t>(n - at), MSG_NOSIGNAL);
      if (sent > 0) at += sent;
      if (sent <= 0 && errno != EAGAIN && errno != EINTR) return false;
    }
    return true;
  }

  std::string server_;
  std::atomic<bool> stop_{false};
  Harm harm_;
  std::uint64_t from_;
  std::atomic<std::uint64_t> passed_{0};
  std::atomic<int> connections_{0};
  std::uint16_t port_ = 0;
  net::Fd listener_;
  std::thread thread_;
};

class Send : public testing::Test {
 protected:
  static constexpr std::int32_t kSlots = 40;

  void SetUp() override {
    there_ = dir_.path() + "/there";
    here_ = dir_.path() + "/here";
    fs::create_directories(there_ + "/ranks");
    fs::create_directories(here_);
    Serve(60'000);
  }
  void TearDown() override {
    server_.reset();
    receiver_.reset();
    so_far_.reset();
  }

  void Serve(std::int64_t stall_ms) {
    server_.reset();
    receiver_.reset();
    FileReceiver::Setup setup{.run_dir = there_,
                              .slots = kSlots,
                              .version = "1.0",
                              .stall_ms = stall_ms,
                              .tell_ms = 50,
                              .back_ns = 500'000'000};
    setup.so_far = true;
    setup.hang_is_said = [this] { return said_.load(); };
    so_far_ = std::make_unique<FileReceiver>(setup);
    setup.so_far = false;
    setup.hang_is_said = nullptr;
    setup.before = so_far_.get();
    receiver_ = std::make_unique<FileReceiver>(setup);
    clock::ClockServiceConfig config{.rank = 0, .key = SecretOf(42), .clock = {}, .loopback_only = true, .place = ""};
    config.take_files = [this](clock::FilesPeer peer) {
      (peer.why == clock::FilesWhy::kQuiet ? so_far_ : receiver_)->Take(std::move(peer));
    };
    auto started = clock::ClockServer::Start(config);
    ASSERT_TRUE(started.ok());
    server_ = std::move(started).value();
  }

  FileSender::Setup From(std::int32_t slot, const std::string& version = "1.0") const {
    return {.addresses = server_->address(),
            .key = SecretOf(42),
            .slot = slot,
            .caller = {.place = PlaceText("node" + std::to_string(slot / 2), "/run", 2),
                       .version = version,
                       .boot_id = "boot" + std::to_string(slot / 2)},
            .stall_ms = 60'000,
            .reach_ms = reach_ms_};
  }
  FileToSend Made(const std::string& name, const std::string& contents) const {
    const std::string path = here_ + "/" + name;
    std::ofstream(path, std::ios::binary) << contents;
    return {name, path};
  }
  void Begin() const {
    receiver_->ProgramEnded();
    receiver_->Begin();
  }
  std::size_t FilesThere() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(there_ + "/ranks"), {}));
  }
  std::string There(const std::string& name) const { return Contents(there_ + "/ranks/" + name); }

  // A peer that holds the secret, and says what it likes.
  std::unique_ptr<clock::AgentLink> Peer(std::int32_t slot, bool opens = true,
                                         clock::FilesWhy why = clock::FilesWhy::kEnd) const {
    clock::AgentCall call = clock::CallForFiles(server_->address(), SecretOf(42), slot, why, [] { return false; });
    EXPECT_EQ(call.end, clock::CallEnd::kReached);
    if (call.link && opens) {
      EXPECT_TRUE(Tell(*call.link, FileWord::kOpen, 1, 10,
                       OpenText({.place = PlaceText("evil", "/run", 1), .version = "1.0", .boot_id = ""})));
      EXPECT_EQ(Answer(*call.link), FileWord::kGo);
    }
    return std::move(call.link);
  }
  static bool Tell(clock::AgentLink& link, FileWord word, std::uint64_t a, std::uint64_t b, const std::string& text) {
    return link.Send(static_cast<std::uint32_t>(word), a, b, text);
  }
  // What is answered; 0 if the connection was ended.
  static FileWord Answer(clock::AgentLink& link, std::string* text = nullptr) {
    clock::Frame frame;
    do {
      if (link.Receive(frame, kMostWordBytes, 60'000) != clock::AgentLink::Got::kFrame) return FileWord{};
    } while (frame.kind == static_cast<std::uint32_t>(FileWord::kWait));
    if (text != nullptr) *text = frame.text;
    return static_cast<FileWord>(frame.kind);
  }

  TempDir dir_;
  std::string there_, here_;
  std::int64_t reach_ms_ = 60'000;  // For From.
  std::atomic<bool> said_{false};   // A hang, on rank 0's host.
  std::unique_ptr<FileReceiver> so_far_, receiver_;
  std::unique_ptr<clock::ClockServer> server_;
};

}  // namespace lockstep::agent
