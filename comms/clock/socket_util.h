#pragma once
// Sockets of the clock service: addresses as text, waits with limits. Internal to
// comms/clock.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::net {

// Owns a descriptor.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Close(); }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release();
  void Close();

 private:
  int fd_;
};

// Listening on all interfaces, IPv4 and (where the kernel has it) IPv6; the port in `port`. Not open on failure
// (errno).
Fd Listen(std::uint16_t* port);
// "127.0.0.1:port,10.0.0.3:port,[fd00::3]:port", at most `limit` characters.
std::string LocalAddresses(std::uint16_t port, std::size_t limit);
std::vector<std::string> SplitAddresses(std::string_view list);
// Blocking socket with TCP_NODELAY, connected within `timeout_ms`; not open on
// failure, or once `stopped` says so (asked every 20 ms).
Fd Connect(std::string_view address, int timeout_ms, const std::function<bool()>& stopped);
// Limits of later blocking calls.
void SetTimeouts(int fd, int timeout_ms);
bool SendAll(int fd, const void* data, std::size_t bytes);
bool ReceiveAll(int fd, void* data, std::size_t bytes);

// What the two sides say. Little-endian as in memory; all messages of one size, so
// that both directions of a ping cost the same.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
inline constexpr std::uint64_t kHelloMagic = 0x31304b4c43534cu;  // "LSCLK01"
inline constexpr std::uint64_t kPingMagic = 0x474e4950534cu;     // "LSPING"
struct Message {
  std::uint64_t magic;
  std::uint64_t a;  // Hello: token. Ping: number. Answer: number.
  std::int64_t b;   // Hello: rank. Ping: pings still to come in this burst. Answer: t2.
  std::int64_t c;   // Answer: t3.
};
static_assert(sizeof(Message) == 32);
inline constexpr int kMaxBurstPings = 64;

}  // namespace lockstep::net
