#pragma once
// One file for one web page, on this machine only: HTTP on 127.0.0.1 for `lockstep open`.

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"

namespace lockstep::cli {

struct ServeOptions {
  std::string path;    // The file.
  std::string name;    // What it is called in the URL, without the slash.
  std::string origin;  // The one page that may have it: "https://ui.perfetto.dev".
  std::uint16_t port = 9001;
  bool stay = false;  // Go on after it was fetched.
  // Listening: the place to say where. Called once, from Serve.
  std::function<void()> ready;
};

struct Served {
  enum Why : std::uint8_t { kFetched, kInterrupted } why = kInterrupted;
  std::uint64_t fetched = 0;  // How often as a whole.
  std::uint64_t refused = 0;  // Requests and connections.
};

// Serves until the file has been fetched once as a whole, or SIGINT or SIGTERM. Everything but a GET, HEAD or CORS
// preflight of that name from that origin is refused: other pages can neither read the file nor learn of it. A client
// that does not finish its request, or does not take what it asked for, is dropped after some seconds, and an idle
// one makes room for a new one. kIo: no such file, or the port is taken.
Result<Served> Serve(const ServeOptions& options);

}  // namespace lockstep::cli
