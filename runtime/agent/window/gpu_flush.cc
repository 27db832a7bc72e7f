#include "runtime/agent/window/gpu_flush.h"

#include <signal.h>

#include <cerrno>

#include "runtime/agent/rings/segment_entries.h"

namespace lockstep::agent {
namespace {

constexpr std::uint32_t kRecording = 1;  // ProcessEntry::cupti_state

bool Records(const ProcessEntry& entry) {
  return entry.state.load(std::memory_order_acquire) == SlotState::kActive &&
         entry.end_ticks.load(std::memory_order_relaxed) == 0 &&
         entry.cupti_state.load(std::memory_order_acquire) == kRecording;
}

bool Alive(std::int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH; }

}  // namespace

bool GpuFlush::Ask() {
  asked_.clear();
  const std::span<ProcessEntry> used = UsedProcesses(segment_);
  for (std::uint32_t i = 0; i < used.size(); ++i) {
    ProcessEntry& entry = used[i];
    if (!Records(entry)) continue;
    asked_.push_back({i, entry.generation, entry.gpu_flush_wanted.fetch_add(1, std::memory_order_acq_rel) + 1});
  }
  return !asked_.empty();
}

bool GpuFlush::Answered() const {
  for (const Asked& asked : asked_) {
    const ProcessEntry& entry = segment_.processes()[asked.process];
    if (entry.generation != asked.generation || !Records(entry) || !Alive(entry.pid)) continue;
    const std::uint32_t done = entry.gpu_flush_done.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(done - asked.number) < 0) return false;
  }
  return true;
}

}  // namespace lockstep::agent
