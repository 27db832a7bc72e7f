#pragma once
// `lockstep run --live SECONDS` and `--metrics FILE`: while the job runs, rank 0 says
// every few seconds how long a step takes, what of it is exposed communication, and
// who comes last. All agents write a small file at each full period of the wall
// clock; a quarter of a period later rank 0's reads them all. The application does
// not notice: its records are looked at when the agent takes them anyway.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/event_clock.h"
#include "core/spool_layout.h"
#include "runtime/agent/live/live_figures.h"
#include "runtime/agent/live/live_file.h"
#include "runtime/agent/live/live_steps.h"

namespace lockstep::agent {

class Live {
 public:
  struct Setup {
    std::string directory;  // Of the files; all slots' the same.
    std::int32_t rank = 0, ranks = 1;
    std::uint64_t domain = 0;  // Clock domain.
    std::int64_t period_ns = 0;
    bool prints = false;  // With a line per period (rank 0).
    std::string metrics;  // File to keep up to date (rank 0); "" none.
    EventClock clock;
    std::function<void(const std::string&)> say;
  };
  struct State {
    std::uint64_t records = 0, dropped = 0;
    bool recording = true;
    std::int64_t offset_ns = 0, error_ns = -1;  // As LiveRank's.
  };

  explicit Live(const Setup& setup);
  // Records on their way to the spool. Without memory for them there are no figures any more, and nothing else changes.
  void Take(std::uint32_t ring, const RingEntry& entry, std::span<const iovec> parts) noexcept;
  // How long threads had no core. Thread: as Take.
  void Sampled(std::span<const SpoolCpu> threads) noexcept;
  // After each look at the rings. `state` is asked for once a period. Thread: the agent's main loop.
  void Tick(const std::function<State()>& state) noexcept;
  // The application has ended: its file goes.
  void Finish();

 private:
  void Look(const std::function<State()>& state);
  void Publish(std::int64_t epoch, const State& state);
  void Gather(std::int64_t epoch);
  std::int64_t Ns(std::uint64_t ticks) const;

  Setup setup_;
  LiveSteps steps_;
  LiveHearing hearing_;
  ClockSnapshot first_, now_;
  std::uint64_t last_tick_ticks_ = 0, before_ticks_ = 0;
  std::int64_t published_epoch_ = 0, gathered_epoch_ = 0;
  std::int64_t not_before_ns_ = 0;  // Rank 0: its share of a processor is used up until then.
  std::int64_t last_gather_ns_ = 0;
  bool over_ = false, metrics_failed_ = false, stretched_said_ = false;
};

}  // namespace lockstep::agent
