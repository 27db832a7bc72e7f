#pragma once
// Serves one file to one web page, on this machine only: HTTP on 127.0.0.1 for `lockstep open`.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "core/file_lock.h"
#include "core/result.h"

namespace lockstep::cli {

// The file stays open while it is served, so a file that replaces it meanwhile is not served instead.
class ServedFile {
 public:
  // kIo: it cannot be read, is a link or not a regular file.
  static Result<ServedFile> Open(const std::string& path);
  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  ServedFile(OwnedFd fd, std::uint64_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  OwnedFd fd_;
  std::uint64_t bytes_;
};

// 128 random bits as 32 hexadecimal digits, for a path that cannot be guessed; "" if the system provides none.
std::string SecretPathPart();

struct ServeOptions {
  const ServedFile* file = nullptr;
  std::string path;           // Its path in the URL, without the first slash; contains SecretPathPart.
  std::string origin;         // The one page that may have it: "https://ui.perfetto.dev".
  std::uint16_t port = 9001;  // 0: any free one.
  bool stay = false;          // Continue after it was fetched.
  // Called once, from Serve, when the server listens, with its port: the time to print the address.
  std::function<void(std::uint16_t port)> ready;
};

struct Served {
  enum Why : std::uint8_t { kFetched, kInterrupted } why = kInterrupted;
  std::uint64_t fetched = 0;  // How often it was fetched completely.
  std::uint64_t refused = 0;  // Requests and connections.
};

// Serves until the file has been fetched once as a whole, or SIGINT or SIGTERM. Everything but a GET, HEAD or CORS
// preflight of that path (compared in constant time) from that origin is answered by 404 and nothing else: neither
// other pages nor other users of this machine can read the file or learn whether they guessed a part of it right. A
// client that does not finish its request, or does not take what it asked for, is dropped after some seconds, and an
// idle one makes room for a new one. kIo: the port is taken.
Result<Served> Serve(const ServeOptions& options);

}  // namespace lockstep::cli
