#pragma once
// The agent's whole clock side behind one object: listens, announces this slot in
// the run directory, learns the reference (from the application through the
// mailbox, or from the announcements), and bursts with it if the clock domains
// differ: over TCP, or over MPI with --clock agent.
//
// Files in `meeting_dir`, each written under another name and renamed:
//   .clock-00005     "rank world_size domain can_mpi address": one per slot
//   .clock-key       the run's key: comms/clock/run_key.h
//   .clock-reference where rank 0's agent is, if it sees another directory: by the first slot of the host that was told
//   .clock-plan      by rank 0's agent, --clock agent only: "mpi" or "none"

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comms/clock/clock_service.h"
#include "core/result.h"
#include "core/ring_layout.h"

namespace lockstep::clock {

enum class ClockService : std::uint8_t {
  kAuto,   // The application's MPI and TCP between agents; TCP alone if it has no MPI.
  kAgent,  // --clock agent: no rank uses MPI, so lockstep-clock may; bursts over MPI (and TCP).
  kTcp,    // TCP between agents only.
  kOff,
};

// Where this slot's agent must be reachable. Other agents connect to the reference rank only.
enum class ClockListen : std::uint8_t {
  kNowhere,
  kLoopback,    // All ranks are on this host (with clocks of their own: time namespaces, tests).
  kEverywhere,  // Other hosts are part of the job, or may be.
};
// `world_size` and `local_size` as the launcher reported them; -1 if it did not.
ClockListen WhereToListen(std::int32_t slot, std::int32_t world_size, std::int32_t local_size);

struct ClockCoordinatorConfig {
  ClockServiceConfig service;  // Its key is used towards the service that the announcements name.
  ClockListen listen = ClockListen::kEverywhere;
  std::int32_t world_size = -1;
  std::uint64_t domain = 0;  // ClockDomainHash(): SegmentHeader.clock_domain.
  ClockService mode = ClockService::kAuto;
  SegmentView segment;        // Its mailbox is read (kAuto); base may be null.
  std::string meeting_dir;    // Shared by all slots; "" if there is none.
  std::string clock_program;  // Path of lockstep-clock (kAgent).
  // Called every few ms while Finish waits for lockstep-clock; true: the agent must end (SIGTERM). May be
  // empty.
  std::function<bool()> interrupted;
  ClockClient::Sink sink;  // Receives rows for the spool. Called from the coordinator's threads, one at a time.
};

// Thread: one owner. All methods return quickly; the work is done on other threads.
class ClockCoordinator {
 public:
  static Result<std::unique_ptr<ClockCoordinator>> Start(ClockCoordinatorConfig config);
  ~ClockCoordinator();
  ClockCoordinator(const ClockCoordinator&) = delete;
  ClockCoordinator& operator=(const ClockCoordinator&) = delete;

  // Of the TCP server: goes into SegmentHeader.agent_address. "" when off.
  const std::string& address() const;

  // The application ended in good order: makes the last burst, then closes everything in
  // order. lockstep-clock calls MPI_Finalize, which waits for the other ranks for as long as
  // they take; if it were killed before, mpirun would report a failed job (Open MPI 4.1.4,
  // "exiting improperly"). The server runs until destruction for ranks that end later: keep
  // this object as long as the agent has other work. Blocks up to `limit_ms` without
  // lockstep-clock.
  void Finish(int limit_ms);
  // The job is failing: stops at once and kills lockstep-clock. Blocks < 50 ms.
  void Abandon();

  // What happened, as one line for the log ("tcp to rank 0 at 10.0.0.3:40123, 12 bursts").
  std::string Describe() const;
  // The reason why this slot, which had to measure with the reference's clock service, has no result so far; "" if it
  // has one, or if it did not have to measure.
  std::string Trouble() const;
  // On the reference rank: what the leaders of other clock domains told (ClockServiceConfig::place).
  std::vector<ToldPlace> places() const;
  // On the reference rank: how many agents of other clock domains are connected now.
  std::size_t clients() const;
  // The reference rank has what this slot had to tell.
  bool told() const;

 private:
  struct Impl;
  explicit ClockCoordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::clock
