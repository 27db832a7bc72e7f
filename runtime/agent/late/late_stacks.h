#pragma once
// `lockstep run --stacks late`: what a rank does that the others wait for. While this rank is late (late_judge.h), or
// another one asks for its stacks for comparison, its main thread is looked at some ten times a second, at irregular
// moments: its stack is taken from outside (stacks/stack_reader.h) and goes to the spool. A thread that is inside an
// MPI call is not stopped, and that is noted in place of a stack. While nobody is late nothing is taken.

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/event_clock.h"
#include "core/ring_layout.h"
#include "core/spool_layout.h"
#include "runtime/agent/late/late_judge.h"
#include "runtime/agent/late/stack_plan.h"
#include "runtime/agent/late/stack_tree.h"
#include "runtime/agent/late/wait_cells.h"
#include "runtime/agent/late/wait_sums.h"
#include "runtime/agent/spool/spool_writer.h"
#include "runtime/agent/stacks/stack_reader.h"

namespace lockstep::agent {

class LateStacks {
 public:
  struct Setup {
    StackPlan plan;
    std::string directory;  // The same for all ranks.
    std::int32_t rank = 0, ranks = 1;
    SegmentView segment;
    EventClock clock;
    StackTree& tree;  // Of the slot's spool.
    StackReader::Setup reader;
    std::function<void(const std::string&)> say;
    std::function<void(std::uint64_t rows)> unwritten;   // So many are not in the spool.
    std::function<void(std::uint64_t samples)> unnamed;  // So many were taken, but their names were not found in time.
  };
  explicit LateStacks(Setup setup);

  // Takes records on their way to the spool.
  void Take(const RingEntry& entry, std::span<const iovec> parts) noexcept;
  // After each pass over the rings. Thread: the agent's main loop.
  void Tick(std::int64_t now_ns, SpoolWriter& spool) noexcept;
  // When it must be called next; INT64_MAX: at any time.
  std::int64_t due_ns() const { return next_sample_ns_; }
  // The application has ended.
  void Finish(SpoolWriter& spool) noexcept;

 private:
  void Look(std::int64_t now_ns, SpoolWriter& spool);
  void Sample(std::int64_t now_ns);
  void Write(SpoolWriter& spool, bool last);
  std::int64_t PauseNs();
  double NsPerTick() const;

  Setup setup_;
  WaitSums sums_;
  LateJudge judge_;
  WaitCells cells_;
  std::optional<StackReader> reader_;  // From the first sample on.
  const ClockSnapshot first_;
  std::int64_t next_look_ns_ = 0, next_sample_ns_ = INT64_MAX;
  std::int32_t compared_with_ = -1;
  std::uint64_t beat_ = 0, samples_ = 0, random_;
  double stop_ns_ = 0;                              // What a stop takes: a mean of the last ones.
  std::map<std::int64_t, std::uint64_t> taken_at_;  // Ticks, of samples that have no names yet.
  std::vector<SpoolStackSample> rows_;
  bool joined_ = false, said_ = false, over_ = false;
};

}  // namespace lockstep::agent
