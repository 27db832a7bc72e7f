#include "runtime/agent/sample/stop_watch.h"

#include "core/process_stat.h"
#include "runtime/agent/rings/segment_entries.h"

namespace lockstep::agent {

std::string StopWatch::Look(const SegmentView& segment, std::int64_t now_ns) {
  std::string lines;
  for (const ProcessEntry& entry : UsedProcesses(segment)) {
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.pid <= 0) continue;
    const std::string stat = ProcessStatAfterName(static_cast<long>(entry.pid));
    if (stat.empty()) continue;
    const bool stopped = stat[0] == 'T' || stat[0] == 't';
    bool& before = stopped_[entry.pid];
    if (stopped != before)
      lines += "stopped." + std::to_string(entry.pid) + "\t" + (stopped ? std::to_string(now_ns) : "") + "\n";
    before = stopped;
  }
  return lines;
}

}  // namespace lockstep::agent
