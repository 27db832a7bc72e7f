#pragma once
// Communication and devices that a run had and no source recorded. Figures without it look fine and mean nothing, so
// whoever judges a run, or says what a change would do to it, asks here first.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

struct Unrecorded {
  std::string mpi_library;          // Of another MPI than the one that is recorded.
  std::set<std::string> backends;   // Of torch.distributed, which steps depend on.
  bool gradients = false;           // DDP reduces its gradients through one of them.
  std::string what;                 // What they carry, as a phrase.
  std::vector<std::string> beside;  // Backends whose every operation lies in ranges, and takes little.
  double share = 0;                 // Largest share over ranks of the window in calls of such backends.

  bool gpus = false;                    // Work of devices, on every rank.
  std::set<std::int32_t> without_gpus;  // The ranks that used a device whose work was not recorded.

  bool any() const { return !mpi_library.empty() || !backends.empty() || gpus; }
};

// From the facts of the hooks (core/fact.h) or of the importer, and from ranges. A backend that only set things up
// before the steps is not in it; one of which that is not known is.
Unrecorded FindUnrecorded(const merge::Timeline& timeline);

}  // namespace lockstep::analysis
