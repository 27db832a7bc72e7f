#include "comms/clock/socket_util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace lockstep::net {

namespace {

// Limits the number of descriptors.
constexpr std::size_t kConnectAtOnce = 16;
// After this time without an answer the next address is tried beside the first (as RFC 8305 recommends; an address one
// network away answers within a millisecond).
constexpr std::chrono::milliseconds kConnectStagger{50};

Fd ListenFamily(int family, bool loopback_only, std::uint16_t* port) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.open()) return fd;
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    const int both = 0;
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    address->sin6_family = AF_INET6;
    address->sin6_addr = in6addr_any;
    length = sizeof(sockaddr_in6);
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 || listen(fd.get(), 1024) != 0) return Fd();
  length = sizeof storage;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return Fd();
  *port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                   : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  return fd;
}

// Bridges, pairs and tunnels of containers and virtual machines: many hosts have the same such address, and no other
// host can reach it.
bool IsForGuests(const char* interface) {
  for (const std::string_view name : {"docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "lxc", "lxd",
                                      "podman", "vmnet", "vboxnet", "cilium", "kube"})
    if (std::string_view(interface).starts_with(name)) return true;
  return access((std::string("/sys/class/net/") + interface + "/bridge").c_str(), F_OK) == 0;
}

struct LocalAddress {
  int family;
  std::uint8_t bytes[16];  // 4 of them are used for AF_INET.
  std::uint8_t mask[16];
  bool for_guests;
  std::string text;  // As written before ":port".
};

int LengthOf(int family) { return family == AF_INET ? 4 : 16; }

// Without the loopback and without addresses that need the client's interface name.
std::vector<LocalAddress> LocalInterfaces() {
  std::vector<LocalAddress> all;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return all;
  for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto bytes = [family](const sockaddr* address) -> const void* {
      if (family == AF_INET) return &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
      return &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    };
    LocalAddress one{.family = family, .for_guests = IsForGuests(i->ifa_name)};
    memcpy(one.bytes, bytes(i->ifa_addr), static_cast<std::size_t>(LengthOf(family)));
    if (i->ifa_netmask != nullptr) memcpy(one.mask, bytes(i->ifa_netmask), static_cast<std::size_t>(LengthOf(family)));
    if (family == AF_INET6 && one.bytes[0] == 0xfe && (one.bytes[1] & 0xc0) == 0x80) continue;  // Link-local.
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(family, one.bytes, text, sizeof text);
    one.text = family == AF_INET ? std::string(text) : "[" + std::string(text) + "]";
    all.push_back(std::move(one));
  }
  freeifaddrs(interfaces);
  return all;
}

// Splits "10.0.0.3:40123" or "[fd00::3]:40123" into host and port; empty if the text is malformed.
struct HostPort {
  std::string host, port;
};
std::optional<HostPort> Parse(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  HostPort parsed{std::string(address.substr(0, colon)), std::string(address.substr(colon + 1))};
  if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']')
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  return parsed;
}

// 0 the loopback, 1 in one of this host's networks, 2 elsewhere, 3 this host's own address.
int Distance(std::string_view address, const std::vector<LocalAddress>& own) {
  const auto parsed = Parse(address);
  if (!parsed) return 3;
  std::uint8_t bytes[16];
  const int family = parsed->host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (inet_pton(family, parsed->host.c_str(), bytes) != 1) return 3;
  if (family == AF_INET ? bytes[0] == 127 : parsed->host == "::1") return 0;
  int distance = 2;
  for (const LocalAddress& one : own) {
    if (one.family != family) continue;
    if (memcmp(one.bytes, bytes, static_cast<std::size_t>(LengthOf(family))) == 0) return 3;
    bool same = !one.for_guests;
    for (int i = 0; i < LengthOf(family); ++i) same = same && ((one.bytes[i] ^ bytes[i]) & one.mask[i]) == 0;
    if (same) distance = 1;
  }
  return distance;
}

// Begins to connect; the descriptor is not open if that failed at once.
Fd BeginConnect(std::string_view address) {
  const auto parsed = Parse(address);
  if (!parsed) return Fd();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(parsed->host.c_str(), parsed->port.c_str(), &hints, &found) != 0) return Fd();
  Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int rc = fd.open() ? connect(fd.get(), found->ai_addr, found->ai_addrlen) : -1;
  const int error = errno;
  freeaddrinfo(found);
  return rc == 0 || error == EINPROGRESS ? std::move(fd) : Fd();
}

// The socket is writable, so it is either connected or failed. Returns true if it is connected, and makes it blocking.
bool EndConnect(int fd) {
  int failed = 0;
  socklen_t length = sizeof failed;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length) != 0 || failed != 0) return false;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return true;
}

}  // namespace

Fd Listen(std::uint16_t* port, bool loopback_only) {
  if (loopback_only) return ListenFamily(AF_INET, true, port);
  Fd both = ListenFamily(AF_INET6, false, port);
  return both.open() ? std::move(both) : ListenFamily(AF_INET, false, port);
}

std::string LocalAddresses(std::uint16_t port, std::size_t limit) {
  std::string list = "127.0.0.1:" + std::to_string(port);
  const std::vector<LocalAddress> own = LocalInterfaces();
  for (const bool for_guests : {false, true})
    for (const int family : {AF_INET, AF_INET6})
      for (const LocalAddress& one : own) {
        if (one.family != family || one.for_guests != for_guests) continue;
        const std::string entry = "," + one.text + ":" + std::to_string(port);
        if (list.size() + entry.size() <= limit) list += entry;
      }
  return list;
}

std::string OtherHostOf(int fd) {
  const auto text = [fd](auto* of) -> std::string {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    char host[NI_MAXHOST] = "";
    if (of(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
        getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST) != 0)
      return "";
    // How a socket of both kinds sees IPv4.
    constexpr std::string_view kMapped = "::ffff:";
    const std::string_view seen = host;
    return std::string(
        seen.starts_with(kMapped) && seen.find('.') != std::string_view::npos ? seen.substr(kMapped.size()) : seen);
  };
  const std::string other = text(getpeername);
  return other == text(getsockname) ? "" : other;
}

std::vector<std::string> SplitAddresses(std::string_view list) {
  std::vector<std::string> result;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (comma != 0) result.emplace_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
  }
  return result;
}

std::vector<std::string> SortedForThisHost(std::vector<std::string> addresses) {
  const std::vector<LocalAddress> own = LocalInterfaces();
  std::vector<std::pair<int, std::string>> ranked;
  for (std::string& address : addresses) {
    const int distance = Distance(address, own);
    ranked.emplace_back(distance, std::move(address));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  addresses.clear();
  for (auto& [distance, address] : ranked) addresses.push_back(std::move(address));
  return addresses;
}

Fd Connect(std::string_view address, int timeout_ms, const std::function<bool()>& stopped) {
  return ConnectAny({std::string(address)}, timeout_ms, stopped, [](int) { return true; });
}

Fd ConnectAny(const std::vector<std::string>& addresses, int timeout_ms, const std::function<bool()>& stopped,
              const std::function<bool(int fd)>& takes) {
  using std::chrono::steady_clock;
  struct Attempt {
    Fd fd;
    steady_clock::time_point deadline;
  };
  std::vector<Attempt> attempts;
  auto next_at = steady_clock::now();
  std::size_t next = 0;
  while ((next < addresses.size() || !attempts.empty()) && !stopped()) {
    const auto now = steady_clock::now();
    std::erase_if(attempts, [&](const Attempt& attempt) { return now >= attempt.deadline; });
    if (next < addresses.size() && attempts.size() < kConnectAtOnce && (attempts.empty() || now >= next_at)) {
      next_at = now + kConnectStagger;
      if (Fd fd = BeginConnect(addresses[next++]); fd.open())
        attempts.push_back({std::move(fd), now + std::chrono::milliseconds(timeout_ms)});
      if (attempts.empty()) continue;
    }
    std::vector<pollfd> polls;
    for (const Attempt& attempt : attempts) polls.push_back({attempt.fd.get(), POLLOUT, 0});
    if (poll(polls.data(), polls.size(), 10) <= 0) continue;
    std::vector<Attempt> left;
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      if (polls[i].revents == 0) {
        left.push_back(std::move(attempts[i]));
      } else if (EndConnect(attempts[i].fd.get()) && takes(attempts[i].fd.get())) {
        return std::move(attempts[i].fd);
      }
    }
    attempts = std::move(left);
  }
  return Fd();
}

void SetTimeouts(int fd, int timeout_ms) {
  const timeval limit{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void NoticeSilence(int fd, int limit_ms) {
  const auto milliseconds = static_cast<unsigned>(limit_ms);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  const int on = 1, seconds = std::max(1, limit_ms / 3000), probes = 2;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

bool SendAll(int fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

clock::Proof PlaceProof(const clock::RunKey& key, const Hello& hello, const Hello& challenge, std::string_view text) {
  return clock::Prove(key, clock::ProofOf::kPlace, BytesOf(hello), BytesOf(challenge),
                      {{reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}});
}

bool ReceiveAll(int fd, void* data, std::size_t bytes, int limit_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
    if (bytes > 0 && limit_ms > 0 && std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

}  // namespace lockstep::net
