#pragma once
// A trial: one run of a job by `lockstep tune`, whose settings it changes and which it ends after some steps. What it
// wants travels in variables (core/env.h), which reach the agents of all hosts as any variable of Lockstep's does.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ring_layout.h"
#include "runtime/agent/slot/child.h"

namespace lockstep::agent {

using Assignments = std::vector<std::pair<std::string, std::string>>;  // Name, value.

// "NAME=VALUE,NAME=VALUE", and back. Neither names nor values may contain a comma. What has no name is left out.
std::string AssignmentText(const Assignments& assignments);
Assignments ParseAssignments(std::string_view text);

struct Trial {
  Assignments variables;   // For the application; what the launcher or the user set under these names is replaced.
  std::int64_t steps = 0;  // 0: the application runs to its own end.
};
// Of this process's environment.
Trial ReadTrial();

// Ends the application of a slot once it has made enough steps.
//
// A rank that has ended step N has what it needs from all others for the steps before, so in a job whose ranks meet in
// every step all of them have ended step N-1 by then: each rank is ended after one step more than was asked for, and
// needs to know nothing of the others. Where ranks do not meet, some may be ended early, and the reader sees that their
// steps are missing.
class TrialEnd {
 public:
  explicit TrialEnd(std::int64_t steps) : steps_(steps) {}
  // Asks the processes that were recorded, and `child`, to end (SIGTERM), and kills them some seconds later.
  // `next_step`: the number of the first step that has not begun. Thread: the agent's main loop.
  void Tick(std::int64_t next_step, std::int64_t now_ns, const SegmentView& segment, const Child& child);
  // Whether it was asked to end: the signal that it ended with is then no failure.
  bool asked() const { return asked_ns_ != 0; }

 private:
  std::int64_t steps_, asked_ns_ = 0;
  bool killed_ = false;
};

}  // namespace lockstep::agent
