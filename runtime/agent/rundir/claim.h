#pragma once
// A slot's claim on its place in a run directory, ranks/.agent-NNNNN: made once, held (core/file_lock.h) as long as
// its agent lives, and its first word says what became of the slot: "running", "done" or "failed".

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
  std::string host, boot_id, parent;  // parent: the process that started the agent, as its number and start.
  std::int32_t world_size = -1;
  bool held = false;    // Its agent lives.
  bool proved = false;  // Its lock can be seen from here: not held, its agent has ended.
  // Nothing more will come of this slot.
  bool over() const {
    return state == ClaimState::kDone || state == ClaimState::kFailed ||
           (state == ClaimState::kRunning && proved && !held);
  }
};

std::string ClaimPath(const std::string& run_dir, std::int32_t slot);
Claim ReadClaim(const std::string& path);

enum class Claimed : std::uint8_t { kYes, kTaken, kNo };
// Makes the claim, and *held keeps it. kNo: *error is errno.
Claimed MakeClaim(const std::string& path, const launch::LaunchEnv& launch, std::shared_ptr<const OwnedFd>* held,
                  int* error);

// "done" or "failed". Through the claim's own descriptor: needs neither its name nor room on the disk.
void EndClaim(const OwnedFd& held, bool done);

// This process's parent, as Claim::parent.
std::string ParentProcess();

}  // namespace lockstep::agent
