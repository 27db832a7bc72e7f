#include "runtime/doctor/check.h"

namespace lockstep::doctor {
namespace {

constexpr Check kChecks[] = {
    {"lockstep", LookAtLibraries},
    {"probe", TestProbe},
    {"program", LookAtProgram},
    {"preload", LookAtPreload},
    {"mpi", LookAtMpi},
    {"mpi_records", TestMpi},
    {"mpi_tools", LookAtMpiTools},
    {"nvtx", LookAtNvtx},
    {"gpu_driver", LookAtDriver},
    {"cupti", LookAtCupti},
    {"cupti_slot", LookAtCuptiSlot},
    {"nccl", LookAtNccl},
    {"nccl_plugin", LookAtNcclPlugin},
    {"hdf5", TestHdf5},
    {"shared_memory", LookAtSharedMemory},
    {"stale_memory", LookForStaleMemory},
    {"scratch", TestScratch},
    {"clock", LookAtClock},
    {"clock_sync", LookAtClockSync},
    {"limits", LookAtLimits},
    {"cores", LookAtCores},
};

}  // namespace

std::span<const Check> Checks() { return kChecks; }

std::string_view Name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kWarning:
      return "warning";
    case Status::kBlocker:
      return "blocker";
    case Status::kNotHere:
      break;
  }
  return "not here";
}

}  // namespace lockstep::doctor
