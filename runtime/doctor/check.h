#pragma once
// The checks of `lockstep doctor`, one line each: what can prevent a run from being recorded well. The list is
// checks.cc.

#include <span>
#include <string>
#include <string_view>

#include "runtime/doctor/machine.h"

namespace lockstep::doctor {

enum class Status : std::uint8_t {
  kOk,
  kWarning,  // Something will be missing, slow or inexact.
  kBlocker,  // Nothing can be recorded, or nothing of a source that exists.
  kNotHere,  // There is nothing to check.
};
std::string_view Name(Status status);  // "not here"

struct Finding {
  Status status = Status::kOk;
  std::string text;    // One sentence, no newline.
  std::string remedy;  // Of warnings and blockers.
};

struct Check {
  std::string_view name;  // The name in JSON: stable.
  Finding (*look)(const Machine& machine);
};
std::span<const Check> Checks();

// software.cc: the parts of Lockstep, and whether they are loaded into programs.
Finding LookAtLibraries(const Machine& machine);
Finding TestProbe(const Machine& machine);
Finding LookAtProgram(const Machine& machine);
Finding LookAtPreload(const Machine& machine);
Finding LookAtMpi(const Machine& machine);
Finding TestMpi(const Machine& machine);
Finding LookAtMpiTools(const Machine& machine);
Finding LookAtNvtx(const Machine& machine);
Finding TestHdf5(const Machine& machine);
// gpu.cc
Finding LookAtDriver(const Machine& machine);
Finding LookAtCupti(const Machine& machine);
Finding LookAtCuptiSlot(const Machine& machine);
Finding LookAtNccl(const Machine& machine);
Finding LookAtNcclPlugin(const Machine& machine);
// system.cc: memory, disks, clocks, limits.
Finding LookAtSharedMemory(const Machine& machine);
Finding LookForStaleMemory(const Machine& machine);
Finding TestScratch(const Machine& machine);
Finding LookAtClock(const Machine& machine);
Finding LookAtClockSync(const Machine& machine);
Finding LookAtLimits(const Machine& machine);
Finding LookAtCores(const Machine& machine);

// Runs inside the self-tests: makes marks and, with `mpi`, calls the MPI found in the process. Returns its exit code.
int RunSelfTestChild(bool mpi);

}  // namespace lockstep::doctor
