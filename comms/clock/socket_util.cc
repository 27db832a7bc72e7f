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
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace lockstep::net {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = other.Release();
  }
  return *this;
}
int Fd::Release() { return std::exchange(fd_, -1); }
void Fd::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

namespace {

Fd ListenFamily(int family, std::uint16_t* port) {
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
    address->sin_addr.s_addr = htonl(INADDR_ANY);
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 || listen(fd.get(), 1024) != 0) return Fd();
  length = sizeof storage;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return Fd();
  *port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                   : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  return fd;
}

}  // namespace

Fd Listen(std::uint16_t* port) {
  Fd both = ListenFamily(AF_INET6, port);
  return both.open() ? std::move(both) : ListenFamily(AF_INET, port);
}

std::string LocalAddresses(std::uint16_t port, std::size_t limit) {
  // Loopback first: on another node it is refused at once (or answers as the wrong rank), on this one it is the
  // fastest.
  std::string list = "127.0.0.1:" + std::to_string(port);
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return list;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
      if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
      char text[INET6_ADDRSTRLEN] = "";
      if (family == AF_INET) {
        inet_ntop(family, &reinterpret_cast<sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
      } else {
        const in6_addr& address = reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;  // Needs the client's interface name.
        inet_ntop(family, &address, text, sizeof text);
      }
      const std::string host = family == AF_INET ? std::string(text) : "[" + std::string(text) + "]";
      const std::string entry = "," + host + ":" + std::to_string(port);
      if (list.size() + entry.size() <= limit) list += entry;
    }
  }
  freeifaddrs(interfaces);
  return list;
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

Fd Connect(std::string_view address, int timeout_ms, const std::function<bool()>& stopped) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return Fd();
  std::string host(address.substr(0, colon));
  const std::string port(address.substr(colon + 1));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return Fd();
  Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int rc = fd.open() ? connect(fd.get(), found->ai_addr, found->ai_addrlen) : -1;
  const int error = errno;
  freeaddrinfo(found);
  if (!fd.open() || (rc != 0 && error != EINPROGRESS)) return Fd();
  if (rc != 0) {
    pollfd wait{fd.get(), POLLOUT, 0};
    int failed = 0;
    socklen_t length = sizeof failed;
    int ready = 0;
    for (int waited = 0; ready == 0 && waited < timeout_ms && !stopped(); waited += 20) ready = poll(&wait, 1, 20);
    if (ready != 1) return Fd();
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failed, &length) != 0 || failed != 0) return Fd();
  }
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

void SetTimeouts(int fd, int timeout_ms) {
  const timeval limit{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
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

bool ReceiveAll(int fd, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace lockstep::net
