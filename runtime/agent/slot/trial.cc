#include "runtime/agent/slot/trial.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/env.h"
#include "core/own_file.h"
#include "runtime/agent/rings/segment_entries.h"

namespace lockstep::agent {
namespace {

// A program may write something down when it is asked to end. Nobody reads that.
constexpr std::int64_t kKilledAfterNs = 5'000'000'000;

// Of a process in this process's pid namespace; 0: none, or not known.
pid_t ParentOf(pid_t pid) {
  const OwnedFd file = OpenPlain("/proc/" + std::to_string(pid) + "/stat", O_RDONLY);
  const std::string stat = file.open() ? ReadUpTo(file.get(), 0, 4096) : "";
  const std::size_t name_end = stat.rfind(')');  // The name before it may hold anything.
  if (name_end == std::string::npos || name_end + 4 > stat.size()) return 0;
  return static_cast<pid_t>(std::atol(stat.c_str() + name_end + 4));  // ") S PARENT"
}

// A number that a process in a container calls itself may be a stranger's here.
bool IsBelow(pid_t pid, pid_t ancestor) {
  for (int depth = 0; depth < 64 && pid > 1; ++depth, pid = ParentOf(pid))
    if (pid == ancestor) return true;
  return false;
}

}  // namespace

std::string AssignmentText(const Assignments& assignments) {
  std::string text;
  for (const auto& [name, value] : assignments) text += (text.empty() ? "" : ",") + name + "=" + value;
  return text;
}

Assignments ParseAssignments(std::string_view text) {
  Assignments assignments;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    assignments.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  return assignments;
}

Trial ReadTrial() {
  Trial trial;
  if (const char* text = std::getenv(env::kTrialVariables); text != nullptr) trial.variables = ParseAssignments(text);
  if (const char* text = std::getenv(env::kTrialSteps); text != nullptr) {
    std::int64_t steps = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), steps);
    if (error == std::errc() && *end == '\0' && steps > 0) trial.steps = steps;
  }
  return trial;
}

void TrialEnd::Tick(std::int64_t next_step, std::int64_t now_ns, const SegmentView& segment, const Child& child) {
  // `next_step` - 1 steps have ended.
  if (steps_ <= 0 || (asked_ns_ == 0 && next_step - 1 < steps_ + 1)) return;
  if (killed_ || (asked_ns_ != 0 && now_ns < asked_ns_ + kKilledAfterNs)) return;
  killed_ = asked_ns_ != 0;
  if (asked_ns_ == 0) asked_ns_ = now_ns;
  const int signal = killed_ ? SIGKILL : SIGTERM;
  // The program may stand behind a script, which would end without it.
  for (const ProcessEntry& entry : UsedProcesses(segment))
    if (entry.state.load(std::memory_order_acquire) == SlotState::kActive && entry.end_ticks.load() == 0 &&
        entry.pid != child.pid() && IsBelow(static_cast<pid_t>(entry.pid), child.pid()))
      ::kill(static_cast<pid_t>(entry.pid), signal);
  child.Signal(signal);
}

}  // namespace lockstep::agent
