#pragma once
// A slot's claim on its entry in a run directory, the file ranks/.agent-NNNNN. It is made once and locked
// (core/file_lock.h) as long as its agent runs. Its first word says what became of the slot: "running", "done" or
// "failed".

#include <cstdint>
#include <memory>
#include <string>

#include "core/file_lock.h"

namespace lockstep::launch {
struct LaunchEnv;
}

namespace lockstep::agent {

enum class ClaimState : std::uint8_t { kAbsent, kRunning, kDone, kFailed };

struct Claim {
  ClaimState state = ClaimState::kAbsent;
  std::string host, boot_id, parent;  // `parent`: the process that started the agent, as its pid and start time.
  std::int32_t world_size = -1;
  bool held = false;    // The agent still runs.
  bool proved = false;  // The state of its lock can be seen from here: if it is not held, the agent has ended.
  // The slot is over: nothing will be added to it.
  bool over() const {
    return state == ClaimState::kDone || state == ClaimState::kFailed ||
           (state == ClaimState::kRunning && proved && !held);
  }
};

std::string ClaimPath(const std::string& run_dir, std::int32_t slot);
Claim ReadClaim(const std::string& path);

enum class Claimed : std::uint8_t { kYes, kTaken, kNo };
// Makes the claim; *held keeps it locked. On kNo *error is errno.
Claimed MakeClaim(const std::string& path, const launch::LaunchEnv& launch, std::shared_ptr<const OwnedFd>* held,
                  int* error);

// Writes "done" or "failed" through the claim's own descriptor: neither its name nor space on the disk is needed.
void EndClaim(const OwnedFd& held, bool done);

// The process that started this slot, as Claim::parent.
std::string ParentProcess(const launch::LaunchEnv& launch);

}  // namespace lockstep::agent
