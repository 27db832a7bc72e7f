#include "cli/output/serve_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <list>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "comms/clock/run_key.h"
#include "core/hex.h"

namespace lockstep::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kConnections = 32;
constexpr std::uint32_t kHeaderBytes = 8 << 10;  // Browsers send about one kilobyte.
constexpr std::size_t kPiece = 256 << 10;
constexpr auto kForRequest = std::chrono::seconds(5);  // The limit for receiving all of it.
constexpr auto kForPiece = std::chrono::seconds(30);   // The limit for sending a piece: 9 kB/s through a slow tunnel.
constexpr auto kForGoodbye = std::chrono::seconds(5);

// Compares in constant time, because other users of this machine can connect and measure.
bool Same(std::string_view a, std::string_view b) {
  const auto bytes = [](std::string_view text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  return clock::SameSecret(bytes(a), bytes(b));
}

class Server;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Server& server) : stream_(std::move(socket)), server_(server) {
    parser_.header_limit(kHeaderBytes);
    parser_.body_limit(0);
  }
  void Start();
  void Drop() {
    error_code ignored;
    stream_.socket().close(ignored);
  }
  // It has sent no valid request yet, so it may be closed for another connection.
  bool expendable() const { return !served_; }

 private:
  void OnRequest(error_code error);
  void Refuse(http::status status);
  void Answer(http::response<http::empty_body> response);
  void SendPiece();
  void Goodbye(bool fetched);

  beast::tcp_stream stream_;
  Server& server_;
  beast::flat_buffer buffer_{kHeaderBytes + 1024};
  http::request_parser<http::empty_body> parser_;
  std::unique_ptr<http::response<http::empty_body>> response_;
  std::unique_ptr<http::response_serializer<http::empty_body>> serializer_;
  std::vector<char> piece_;
  std::uint64_t sent_ = 0;
  bool served_ = false;  // It requested the right path from the right page.
};

class Server {
 public:
  explicit Server(const ServeOptions& options) : options_(options), acceptor_(io_), signals_(io_, SIGINT, SIGTERM) {}

  Status Listen() {
    const tcp::endpoint here(asio::ip::address_v4::loopback(), options_.port);
    error_code error;
    acceptor_.open(here.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(here, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) options_.port = acceptor_.local_endpoint(error).port();
    if (!error) return Ok();
    return Error{ErrorCode::kIo, "cannot listen on 127.0.0.1:" + std::to_string(options_.port) + ": " + error.message(),
                 "Perfetto's page may read from that port only",
                 "end what uses it (another lockstep open, trace_processor): ss -ltnp 'sport = :" +
                     std::to_string(options_.port) + "'"};
  }

  Served Run() {
    signals_.async_wait([this](error_code error, int) {
      if (!error) io_.stop();
    });
    Accept();
    if (options_.ready) options_.ready(options_.port);
    io_.run();
    served_.why = served_.fetched > 0 && !options_.stay ? Served::kFetched : Served::kInterrupted;
    return served_;
  }

  void Forget(const Connection* connection) {
    connections_.remove_if([&](const std::weak_ptr<Connection>& other) {
      const auto held = other.lock();
      return held == nullptr || held.get() == connection;
    });
  }
  void Fetched() {
    ++served_.fetched;
    if (!options_.stay) io_.stop();
  }
  void Refused() { ++served_.refused; }

  const ServeOptions& options() const { return options_; }
  int file() const { return options_.file->fd(); }
  std::uint64_t bytes() const { return options_.file->bytes(); }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        // Most likely there are no descriptors left: some come back when connections end.
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](error_code) { Accept(); });
        return;
      }
      if (MakeRoom()) {
        auto connection = std::make_shared<Connection>(std::move(socket), *this);
        connections_.push_back(connection);
        connection->Start();
      } else {
        Refused();
      }
      Accept();
    });
  }

  // Closes the oldest of the connections that are not being served; returns false if all are.
  bool MakeRoom() {
    Forget(nullptr);
    if (connections_.size() < kConnections) return true;
    for (const std::weak_ptr<Connection>& other : connections_) {
      const auto held = other.lock();
      if (held == nullptr || !held->expendable()) continue;
      held->Drop();
      Refused();
      Forget(held.get());
      return true;
    }
    return false;
  }

  ServeOptions options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer retry_{io_};
  std::list<std::weak_ptr<Connection>> connections_;  // In order of arrival.
  Served served_;
};

void Connection::Start() {
  stream_.expires_after(kForRequest);
  http::async_read_header(stream_, buffer_, parser_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->OnRequest(error); });
}

void Connection::OnRequest(error_code error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return Refuse(http::status::request_header_fields_too_large);
  if (error && (error == beast::error::timeout || error == http::error::end_of_stream ||
                error == http::error::partial_message || error.category() == boost::system::system_category())) {
    server_.Refused();
    return Goodbye(false);
  }
  if (error) return Refuse(http::status::bad_request);
  const auto& request = parser_.get();
  const ServeOptions& options = server_.options();
  const auto text = [](boost::string_view view) { return std::string_view(view.data(), view.size()); };
  // A request with another name for this address comes from another page (DNS rebinding).
  const std::string port = ":" + std::to_string(options.port);
  const std::string_view host = text(request[http::field::host]);
  const bool here = host == "127.0.0.1" + port || host == "localhost" + port;
  const bool page = text(request[http::field::origin]) == options.origin && request.count(http::field::origin) == 1;
  const bool get = request.method() == http::verb::get, preflight = request.method() == http::verb::options;
  const bool method = get || preflight || request.method() == http::verb::head;
  if (!Same(text(request.target()), "/" + options.path) || !here || !page || !method)
    return Refuse(http::status::not_found);
  served_ = true;

  http::response<http::empty_body> response(preflight ? http::status::no_content : http::status::ok, 11);
  response.set(http::field::access_control_allow_origin, options.origin);
  response.set(http::field::vary, "Origin");
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  if (preflight) {
    response.set(http::field::access_control_allow_methods, "GET, HEAD");
    // Chromium asks before a public page may reach this machine (Private Network Access).
    if (request.count("Access-Control-Request-Private-Network") > 0)
      response.set("Access-Control-Allow-Private-Network", "true");
  } else {
    response.set(http::field::content_type, "application/octet-stream");
    response.content_length(server_.bytes());
  }
  if (get) piece_.resize(kPiece);
  Answer(std::move(response));
}

void Connection::Refuse(http::status status) {
  server_.Refused();
  http::response<http::empty_body> response(status, 11);
  response.content_length(0);
  Answer(std::move(response));
}

void Connection::Answer(http::response<http::empty_body> response) {
  response.keep_alive(false);
  response_ = std::make_unique<http::response<http::empty_body>>(std::move(response));
  serializer_ = std::make_unique<http::response_serializer<http::empty_body>>(*response_);
  stream_.expires_after(kForPiece);
  http::async_write_header(stream_, *serializer_, [self = shared_from_this()](error_code error, std::size_t) {
    if (error || self->piece_.empty()) return self->Goodbye(false);
    self->SendPiece();
  });
}

void Connection::SendPiece() {
  const std::uint64_t left = server_.bytes() - sent_;
  if (left == 0) return Goodbye(true);
  const ssize_t got =
      ::pread(server_.file(), piece_.data(), std::min<std::uint64_t>(left, piece_.size()), static_cast<off_t>(sent_));
  // The file was cut while it was served: the receiver notices that bytes are missing, because the length was sent
  // before.
  if (got <= 0) return Goodbye(false);
  sent_ += static_cast<std::uint64_t>(got);
  stream_.expires_after(kForPiece);
  asio::async_write(stream_, asio::buffer(piece_.data(), static_cast<std::size_t>(got)),
                    [self = shared_from_this()](error_code error, std::size_t) {
                      if (error) return self->Goodbye(false);
                      self->SendPiece();
                    });
}

// Everything sent must have arrived before the process ends: the other side closes when it has it.
void Connection::Goodbye(bool fetched) {
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(kForGoodbye);
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(1024), [self = shared_from_this(), fetched](error_code error, std::size_t) {
    // Further data from the client is ignored.
    self->Drop();
    self->server_.Forget(self.get());
    if (fetched && (error == asio::error::eof || !error)) self->server_.Fetched();
  });
}

}  // namespace

Result<ServedFile> ServedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening does not block if a pipe is in its place.
  OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat about {};
  if (fd.open() && ::fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode))
    return ServedFile(std::move(fd), static_cast<std::uint64_t>(about.st_size));
  const std::string reason = !fd.open() ? std::generic_category().message(errno) : "not a regular file";
  return Error{ErrorCode::kIo, "cannot read the timeline: " + reason, path, "lockstep export RUN"};
}

std::string SecretPathPart() {
  std::uint64_t bits[2];
  if (!clock::RandomBytes({reinterpret_cast<std::uint8_t*>(bits), sizeof bits})) return "";
  return Hex(bits[0]) + Hex(bits[1]);
}

Result<Served> Serve(const ServeOptions& options) {
  Server server(options);
  LS_CHECK(server.Listen());
  // A client that disconnects must not end this process.
  std::signal(SIGPIPE, SIG_IGN);
  return server.Run();
}

}  // namespace lockstep::cli
