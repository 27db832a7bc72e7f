#pragma once
// Breaks the time of a rank's window down into the terms of the identity, to the nanosecond, on the rank's own
// clock. Definitions: docs/definitions.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "merge/saturated.h"

namespace lockstep::merge {

// One operation that communicates, rank clock: [begin, end) is in flight, of
// which [begin, wait_end) only waits for another rank and [transfer_begin, end)
// transfers; what is neither cannot be split.
struct CommOp {
  std::int64_t begin_ns, wait_end_ns, transfer_begin_ns, end_ns;
  bool certain;  // Blocking or on a GPU: in flight means moving or waiting. Else only while a thread is inside MPI.
};

// The columns of LS_TERMS that come from intervals, and what else is measured with them.
struct Terms {
  std::int64_t compute_ns = 0, blocked_ns = 0, exposed_wait_ns = 0, exposed_transfer_ns = 0, exposed_unsplit_ns = 0;
  std::int64_t exposed_copy_ns = 0, idle_ns = 0;
  std::int64_t comm_ns = 0, overlap_ns = 0, comm_high_ns = 0, overlap_high_ns = 0;
  std::int64_t copy_ns = 0, mpi_other_ns = 0, mpi_io_ns = 0, mpi_rma_ns = 0, mpi_setup_ns = 0, input_ns = 0;
  std::int64_t helper_wait_ns = 0, message_wait_ns = 0, blocked_unplaced_ns = 0;
  std::int64_t awaited_apart_ns = 0;  // Of blocked, in waits for what was not in flight; in no column by itself.
  std::int64_t inside_mpi_ns = 0;     // Counted whatever else happens meanwhile; in no column.

  void Add(const Terms& other);
};

// The meaning of an interval for the time it covers.
enum class Activity : std::uint8_t {
  kBusy,     // GPU ranks: compute kernels. CPU ranks: the training thread in MPI or input; the rest computes.
  kCertain,  // Operations in flight, by CommOp::certain.
  kPossible,
  kTransfer,
  kWait,
  kInsideMpi,  // Any thread.
  kCopy,
  kMpiOther,  // The training thread in management, MPI-IO, RMA and the like.
  kInput,
  kMpiIo,  // Part of it, waits for non-blocking MPI-IO included.
  kMpiRma,
  kMpiSetup,
  kBlocked,  // CPU ranks: the training thread in waits of its own.
  kAwaited,  // CPU ranks: the training thread in waits that another thread's collective ended.
  kMessage,  // In a call that waits for the other half of a message; counts outside the rank's own work.
  kBeside,   // Operations in flight while the host runs operators; counts within the rank's own work.
};
inline constexpr std::size_t kActivities = static_cast<std::size_t>(Activity::kBeside) + 1;

// Computes the terms of some windows while the intervals stream by, roughly in order of time: only those that begin
// after the last Advance are kept.
class Breakdown {
 public:
  // Windows may overlap and come in any order.
  Breakdown(bool gpu, const std::vector<Interval>& windows);
  // Intervals may overlap, also between sources of one activity; it is fastest if the intervals of each source come in
  // order of their begin.
  using Source = std::size_t;
  Source AddSource(Activity activity);
  void Add(Source source, Interval interval);
  void Add(Source source, const IntervalSet& set);
  // All later intervals begin at `until_ns` or later. May only grow.
  void Advance(std::int64_t until_ns);
  // An interval was added that began before that, so the terms are wrong.
  bool came_late() const { return came_late_; }
  // The terms of each window; adds nothing afterwards.
  std::vector<Terms> Finish();

 private:
  struct Queue {
    unsigned bit = 0;
    bool on = false;                // The sweep is inside the first member.
    std::size_t head = 0;           // First member not passed.
    std::vector<Interval> members;  // Normal from `head` on.
    std::vector<Interval> unsorted;
  };
  // Time by combination of activities, with a list of those that occurred, because few of them do.
  class StateTimes {
   public:
    void Add(unsigned state, std::int64_t ns) {
      if (ns_[state] == 0) seen_.push_back(state);
      ns_[state] += ns;
    }
    Terms Take(bool gpu);

   private:
    std::vector<std::int64_t> ns_ = std::vector<std::int64_t>(1u << kActivities);
    std::vector<unsigned> seen_;
  };

  void Settle(Queue& queue);
  std::int64_t NextEdge(const Queue& queue) const;
  void Step(std::int64_t to, bool count);
  void Toggle(std::size_t source);
  void OpenWindows();
  void ClosePiece();

  bool gpu_, came_late_ = false;
  std::vector<Interval> windows_;
  std::vector<Terms> terms_;
  std::vector<std::int64_t> cuts_;  // Time is cut at each window's edges: a piece is wholly in or out of each window.
  std::vector<std::size_t> order_;  // Windows by begin.
  std::size_t cut_ = 0, next_window_ = 0;
  std::vector<std::size_t> open_;  // Windows that cover the piece between cut_ - 1 and cut_.
  std::vector<Queue> queues_;
  std::vector<std::int64_t> next_;     // Next edge of each source.
  std::vector<std::uint32_t> active_;  // Sources that have an edge ahead.
  std::array<std::uint32_t, kActivities> depth_{};
  unsigned state_ = 0;
  std::int64_t now_ = INT64_MIN;
  StateTimes by_state_;
};

// |set and window| for many windows of one set: O(log n) each, however they overlap.
class Measure {
 public:
  Measure() = default;
  explicit Measure(const IntervalSet& set);  // Keeps a pointer to `set`.
  std::int64_t Within(Interval window) const { return Before(window.end) - Before(window.begin); }

 private:
  std::int64_t Before(std::int64_t time_ns) const;
  const IntervalSet* set_ = nullptr;
  std::vector<std::int64_t> total_;  // Of the members before each.
};

}  // namespace lockstep::merge
