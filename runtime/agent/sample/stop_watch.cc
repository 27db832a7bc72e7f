#include "runtime/agent/sample/stop_watch.h"

#include <algorithm>
#include <utility>

#include "core/process_stat.h"
#include "runtime/agent/rings/segment_entries.h"
#include "runtime/agent/sample/blocked_in.h"

namespace lockstep::agent {

std::string StopWatch::Look(const SegmentView& segment, std::int64_t now_ns, bool quiet) {
  std::string lines;
  for (const ProcessEntry& entry : UsedProcesses(segment)) {
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.pid <= 0) continue;
    const std::string stat = ProcessStatAfterName(static_cast<long>(entry.pid));
    if (stat.empty() || stat[0] == 'Z' || stat[0] == 'X') continue;  // What it did before it ended counts.
    const bool stopped = stat[0] == 'T' || stat[0] == 't';
    bool& before = stopped_[entry.pid];
    if (stopped != before)
      lines += "stopped." + std::to_string(entry.pid) + "\t" + (stopped ? std::to_string(now_ns) : "") + "\n";
    before = stopped;
    std::string& blocked_before = blocked_[entry.pid];
    std::string blocked = quiet && !stopped ? BlockedIn(static_cast<long>(entry.pid), blocked_before) : std::string();
    if (blocked != blocked_before) lines += "blocked." + std::to_string(entry.pid) + "\t" + blocked + "\n";
    blocked_before = std::move(blocked);
  }
  return lines;
}

bool StopWatch::blocked() const {
  return std::any_of(blocked_.begin(), blocked_.end(), [](const auto& process) { return !process.second.empty(); });
}

}  // namespace lockstep::agent
