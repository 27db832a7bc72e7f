#pragma once
// Waits for the files of a job's other ranks.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/agent/slot/agent.h"

namespace lockstep::cli {

enum class SlotEnd : std::uint8_t {
  kPending,
  kUnclaimed,  // No agent has claimed the slot in this directory, and nothing is there of it.
  kFile,
  kFailed,
};
// What a run directory shows of a slot. It is over when its rank file exists, or when its claim shows why it does not.
SlotEnd LookAt(const std::string& run_dir, std::int32_t slot);

struct Waited {
  std::int32_t files = 0, failed = 0;
  std::vector<std::int32_t> missing;
  std::vector<std::int32_t> running;  // Of these, those whose claims in this directory say no end.
  bool connected = false;             // Agents of others are, so that their programs run.
};

// Waits `wait_ms` for all slots; longer only while files arrive from other hosts. `one_host`: all slots are on this
// one.
Waited WaitForSlots(const std::string& run_dir, std::int32_t slots, std::int64_t wait_ms,
                    const agent::OtherHosts& others, bool one_host);

}  // namespace lockstep::cli
