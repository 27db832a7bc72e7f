#pragma once
// lockstep-clock: the slot's own MPI process for --clock agent (the application
// uses no MPI). The agent, which links no MPI, starts it and reads its rows.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comms/clock/clock_service.h"
#include "core/event_clock.h"
#include "core/result.h"

namespace lockstep::clock {

inline constexpr std::uint64_t kClockProcessMagic = 0x31434f525043534cu;  // "LSCPROC1"

// What lockstep-clock reads from its standard input first. The input stays open:
// its end means "last burst, MPI_Finalize, exit". Rows (BurstRow) go to its
// standard output, first one with kClockReadyBurst once MPI_Init has returned.
inline constexpr std::uint32_t kClockReadyBurst = 0xffffffffu;
struct ClockProcessSetup {
  std::uint64_t magic = kClockProcessMagic;
  std::uint64_t domain = 0;
  EventClock clock;
  std::int32_t period_ms = 1000;
  std::uint32_t first_burst = 0;
};

class ClockProcess {
 public:
  // Starts `program`; rows are passed to `sink` on another thread.
  static Result<std::unique_ptr<ClockProcess>> Start(const std::string& program, const ClockProcessSetup& setup,
                                                     ClockClient::Sink sink);
  ~ClockProcess();  // Kills it if it still runs.
  ClockProcess(const ClockProcess&) = delete;
  ClockProcess& operator=(const ClockProcess&) = delete;

  // Closes its input and waits for its end, however long that takes (but only 30 s if it never returned from MPI_Init,
  // because then some rank has none). Returns false if it ended badly or was killed, also because `interrupted` (called
  // every 2 ms; may be empty) returned true.
  bool Finish(const std::function<bool()>& interrupted);
  void Kill();
  std::uint64_t rows() const;

 private:
  struct Impl;
  explicit ClockProcess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::clock
