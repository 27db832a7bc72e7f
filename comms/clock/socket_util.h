#pragma once
// Sockets of the clock service: addresses as text, waits with limits. Internal to
// comms/clock.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comms/clock/run_key.h"
#include "core/file_lock.h"

namespace lockstep::net {

using Fd = OwnedFd;

// Listening; the port in `port`. On all interfaces, IPv4 and (where the kernel has it) IPv6, or on 127.0.0.1 only.
// Not open on failure (errno).
Fd Listen(std::uint16_t* port, bool loopback_only);
// "127.0.0.1:port,10.0.0.3:port,[fd00::3]:port", at most `limit` characters. Those that other hosts are likely to
// reach come first; bridges of containers and virtual machines, which many hosts have with the same address, last.
std::string LocalAddresses(std::uint16_t port, std::size_t limit);
// The address of the other end of a connection, "10.0.0.3" or "fd00::3"; "" if that is this host, or cannot be found.
std::string OtherHostOf(int fd);
std::vector<std::string> SplitAddresses(std::string_view list);
// Sorts: the loopback first (on another host it is refused at once), then addresses in one of this host's networks,
// then the rest, and last those of this host itself, which belong to another host's bridge.
std::vector<std::string> SortedForThisHost(std::vector<std::string> addresses);
// Returns a blocking socket with TCP_NODELAY, connected within `timeout_ms`; not open on failure, or once `stopped`
// returns true (called every 20 ms).
Fd Connect(std::string_view address, int timeout_ms, const std::function<bool()>& stopped);
// The first of `addresses` that connects and whose descriptor `takes` accepts. Each has `timeout_ms`; while an address
// is silent the next one is tried beside it, so that unreachable addresses cost little.
Fd ConnectAny(const std::vector<std::string>& addresses, int timeout_ms, const std::function<bool()>& stopped,
              const std::function<bool(int fd)>& takes);
// Sets the time limit of later blocking calls.
void SetTimeouts(int fd, int timeout_ms);
// A host that does not answer for about this time, though nothing is said or what was said is not confirmed, is gone:
// calls on the socket then fail.
void NoticeSilence(int fd, int limit_ms);
bool SendAll(int fd, const void* data, std::size_t bytes);
// Receives all bytes within `limit_ms` in total; 0: each piece has the socket's own limit.
bool ReceiveAll(int fd, void* data, std::size_t bytes, int limit_ms = 0);

// The messages of both sides. Little-endian as in memory; all of one size, so that both directions of a ping cost the
// same.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
inline constexpr std::uint64_t kHelloMagic = 0x32304b4c43534cu;  // "LSCLK02"
inline constexpr std::uint64_t kPingMagic = 0x474e4950534cu;     // "LSPING"
// The first message from client to server, and the answer to it. Then both send a proof (comms/clock/run_key.h) over
// these two messages, the client first. A client without the key learns nothing but the server's rank.
struct Hello {
  std::uint64_t magic = kHelloMagic;
  std::int32_t rank = -1;   // Of the sender.
  std::uint32_t takes = 0;  // Of the server: what else it understands (kTakesPlaces); 0 from versions without it.
  std::uint8_t nonce[16] = {};
};
static_assert(sizeof(Hello) == 32);
struct Message {
  std::uint64_t magic;
  std::uint64_t a;  // Ping: number. Answer: number. Place: bytes of its text.
  std::int64_t b;   // Ping: pings still to come in this burst. Answer: t2.
  std::int64_t c;   // Answer: t3.
};
static_assert(sizeof(Message) == 32 && sizeof(Message) == clock::kProofBytes);
template <typename T>
std::span<const std::uint8_t> BytesOf(const T& message) {
  return {reinterpret_cast<const std::uint8_t*>(&message), sizeof message};
}
inline constexpr int kMaxBurstPings = 64;

// Before its first burst a client may tell where its host's files are: a message with kPlaceMagic, the text, and a
// proof over it (PlaceProof), so that nobody on the way can put another text in its place. It is not answered.
inline constexpr std::uint64_t kPlaceMagic = 0x4543414c50534cu;  // "LSPLACE"
inline constexpr std::uint32_t kTakesPlaces = 1, kTakesFiles = 2;
inline constexpr std::size_t kMostPlaceBytes = 8192;
// From this message on the connection belongs to files (comms/clock/agent_link.h). `a`: the protocol of what follows;
// `b`: 1 in haste.
inline constexpr std::uint64_t kFilesMagic = 0x53454c4946534cu;  // "LSFILES"
inline constexpr std::uint64_t kFilesProtocol = 2;
clock::Proof PlaceProof(const clock::RunKey& key, const Hello& hello, const Hello& challenge, std::string_view text);

}  // namespace lockstep::net
