#pragma once
// `lockstep run --live SECONDS` and `--metrics FILE`: while the job runs, rank 0 prints every few seconds how long a
// step takes, which part of it is exposed communication, and which rank arrives last. All agents write a small file at
// each full period of the wall clock; a quarter of a period later rank 0's agent reads them all. The application is not
// involved: its records are read when the agent takes them anyway.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/event_clock.h"
#include "runtime/agent/live/clock_line.h"
#include "runtime/agent/live/live_figures.h"
#include "runtime/agent/live/live_file.h"
#include "runtime/agent/live/live_steps.h"

namespace lockstep::agent {

class Live {
 public:
  struct Setup {
    std::string directory;  // The directory of the files, the same for all slots.
    std::int32_t rank = 0, ranks = 1;
    std::uint64_t domain = 0;  // Clock domain.
    std::int64_t period_ns = 0;
    bool prints = false;  // Whether it prints a line per period (rank 0).
    std::string metrics;  // The file to keep up to date (rank 0); "" if none.
    EventClock clock;
    std::function<void(const std::string&)> say;
  };
  struct State {
    std::uint64_t records = 0, dropped = 0;
    bool recording = true;
    ClockLine clock;
  };

  explicit Live(const Setup& setup);
  // Takes records on their way to the spool. If there is no memory for them, the live figures end, and nothing else
  // changes.
  void Take(std::uint32_t ring, const RingEntry& entry, std::span<const iovec> parts) noexcept;
  // Called after each pass over the rings. `state` is called once a period. Thread: the agent's main loop.
  void Tick(const std::function<State()>& state) noexcept;
  // The application has ended: removes its file.
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
  std::int64_t not_before_ns_ = 0;  // Rank 0: until then its share of a processor is used up.
  std::int64_t last_gather_ns_ = 0;
  bool over_ = false, metrics_failed_ = false, stretched_said_ = false;
};

}  // namespace lockstep::agent
