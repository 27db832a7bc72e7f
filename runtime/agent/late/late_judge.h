#pragma once
// Who is late, as one rank's agent sees it from how long all ranks wait.
//
// In one communicator a rank that waits little while the others wait long comes last. In several, a rank may come late
// to one because it waited in another: what it waits counts against what others wait for it. A rank is late if that
// holds for some time and is a part of its time that matters; a single slow step, noise of a busy machine, and what a
// transfer takes longer here than there do not count.

#include <cstdint>
#include <map>
#include <span>

#include "runtime/agent/late/wait_cells.h"

namespace lockstep::agent {

class LateJudge {
 public:
  // `own`: this rank's cell now; `others`: all that it may be compared with. Thread: one.
  void Look(std::int64_t now_ns, const WaitCell& own, std::span<const WaitCell> others);

  bool late() const { return late_; }
  // While it is late: the rank that waits longest for it; -1: it is not late.
  std::int32_t compare_with() const { return late_ ? healthy_ : -1; }
  // Whether another rank asks for this one's stacks, for comparison.
  bool asked_for() const { return asked_for_; }
  // The part of the last window for which the others waited for this rank rather than it for them, for tests.
  double share() const { return share_; }

 private:
  struct Judged {
    double late_ns = 0;
    std::int32_t waits_longest = -1;
    bool compared = false;
  };
  Judged Compare(const WaitCell& own, std::span<const WaitCell> others) const;
  void Judge(std::int64_t now_ns, const Judged& judged, std::span<const WaitCell> others);

  WaitCell own_base_;
  std::map<std::int32_t, WaitCell> base_;  // The others' cells at the begin of the window.
  struct Heard {
    std::uint64_t beat = 0;
    int silent = 0;  // Looks since it changed.
  };
  std::map<std::int32_t, Heard> heard_;
  std::int64_t begin_ns_ = 0;  // Of the window; 0: there is none yet.
  std::int32_t healthy_ = -1;
  int windows_ = 0;  // In which it was late, without a break.
  double share_ = 0;
  bool late_ = false, asked_for_ = false;
};

}  // namespace lockstep::agent
