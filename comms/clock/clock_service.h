#pragma once
// Clock exchanges between agents over TCP: the server answers pings with its
// rank clock, the client sends bursts of them and hands out the raw rows. No
// estimate is made here: merge/clock fits the rows later, and can do it again.
//
// Both sides sleep between bursts (no spinning) and survive each other's death.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comms/clock/agent_link.h"
#include "comms/clock/run_key.h"
#include "core/event_clock.h"
#include "core/result.h"
#include "core/ring_layout.h"

namespace lockstep::clock {

struct ClockServiceConfig {
  std::int32_t rank = -1;      // Of this slot, -1 unknown.
  RunKey key{};                // Both sides prove that they hold it. All 0: there is none, and no peer is accepted.
  EventClock clock;            // What bursts are stamped with.
  bool loopback_only = false;  // All ranks are on this host, so the server listens on the loopback only.
  // What a client tells the server, once both have proved themselves; "" nothing. More than 8 KiB is not told.
  std::string place;
  // A server gives this a client that has proved itself and wants to send files, with the connection; empty: it takes
  // none. Called on the server's thread, so it returns at once.
  std::function<void(FilesPeer)> take_files;
};

// What a client told.
struct ToldPlace {
  std::int32_t rank = -1;
  std::string text;
  std::string address;  // At which its host has called; "" of this host, or not known.
};

// Answers any number of clients, one burst at a time, from one thread.
class ClockServer {
 public:
  // Listens. kIo if the system refuses; kUsage without a key.
  static Result<std::unique_ptr<ClockServer>> Start(const ClockServiceConfig& config);
  ~ClockServer();  // Returns within 100 ms.
  ClockServer(const ClockServer&) = delete;
  ClockServer& operator=(const ClockServer&) = delete;

  // "10.0.0.3:40123,127.0.0.1:40123": every address it can be reached at, best
  // first; fits SegmentHeader.agent_address.
  const std::string& address() const;
  // Connections dropped because they did not follow the protocol or did not prove that they hold the key.
  std::uint64_t refused() const;
  // Clients that have proved themselves and are connected.
  std::size_t clients() const;
  // What clients have told so far, by rank; the last word of each.
  std::vector<ToldPlace> places() const;

 private:
  struct Impl;
  explicit ClockServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Makes bursts with one server until destroyed: 1 s apart for the first minute, then 0.5-60 s apart depending on the
// clock's steadiness. Reconnects.
class ClockClient {
 public:
  using Sink = std::function<void(std::span<const BurstRow>)>;

  // `sink` gets the rows of one burst at a time, on the client's thread. Burst
  // numbers start at `first_burst`. An unreachable server is no error: it is tried
  // again, from 0.2 s up to every 5 s.
  static Result<std::unique_ptr<ClockClient>> Start(const ClockServiceConfig& config, std::int32_t reference_rank,
                                                    const std::string& address, Sink sink, std::uint32_t first_burst);
  ~ClockClient();  // Returns within 100 ms plus one exchange.
  ClockClient(const ClockClient&) = delete;
  ClockClient& operator=(const ClockClient&) = delete;

  // One more burst, now (the application has ended), at most `limit_ms` long. Its
  // rows are in the sink when it returns true.
  bool FinalBurst(int limit_ms = 200);
  std::uint64_t bursts() const;  // Completed so far.
  // Answers from the reference's addresses that did not prove that they hold the key; they were discarded.
  std::uint64_t unproven() const;
  // The server has taken what it was told (ClockServiceConfig::place).
  bool told() const;

 private:
  struct Impl;
  explicit ClockClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::clock
