#include "runtime/agent/sample/stop_watch.h"

#include <algorithm>
#include <utility>

#include "core/process_stat.h"
#include "runtime/agent/rings/segment_entries.h"
#include "runtime/agent/sample/blocked_in.h"

namespace lockstep::agent {
namespace {
constexpr int kMostStops = 64;
}

std::string StopWatch::Look(const SegmentView& segment, std::int64_t now_ns, bool quiet) {
  std::string lines;
  for (const ProcessEntry& entry : UsedProcesses(segment)) {
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.pid <= 0) continue;
    const std::string stat = ProcessStatAfterName(static_cast<long>(entry.pid));
    if (stat.empty() || stat[0] == 'Z' || stat[0] == 'X') continue;  // What it did before it ended counts.
    const bool stopped = stat[0] == 'T' || stat[0] == 't';
    Stops& stops = stopped_[entry.pid];
    if (stopped != (stops.since_ns != 0)) {
      const std::string key = "stopped." + std::to_string(entry.pid) + "\t";
      lines += key + (stopped ? std::to_string(now_ns) : "") + "\n";
      if (!stopped && stops.count++ < kMostStops) {
        stops.ended += std::to_string(stops.since_ns) + " " + std::to_string(now_ns) + ";";
        lines += "was_" + key + stops.ended + "\n";
      }
      stops.since_ns = stopped ? now_ns : 0;
    }
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
