#pragma once
// Communication and devices that a run used and no source recorded. Figures without them look correct and are wrong, so
// every part that assesses a run, or predicts the effect of a change, asks here first.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "analysis/words/clause.h"
#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

struct Unrecorded {
  std::string mpi_library;          // An MPI library whose calls are not recorded, or what keeps them from it.
  std::string mpi_reason;           // "": there are no wrappers for it.
  std::set<std::string> backends;   // Backends of torch.distributed on which steps depend.
  bool in_ranges = false;           // The operations of all of them are known from ranges.
  bool gradients = false;           // DDP reduces its gradients through one of them.
  Value what;                       // What they transfer, as a phrase.
  std::vector<std::string> beside;  // Backends whose operations all lie in ranges and take little time.
  double share = 0;                 // Largest share over ranks of the window in their calls and operations.

  bool gpus = false;                    // The work of devices was recorded on no rank.
  std::set<std::int32_t> without_gpus;  // The ranks that used a device whose work was not recorded.

  bool any() const { return !mpi_library.empty() || !backends.empty() || gpus; }
};

// Found from the facts of the hooks (core/fact.h) or of the importer, and from ranges. A backend that was only used for
// set-up before the steps is left out; one where that is not known is included.
Unrecorded FindUnrecorded(const merge::Timeline& timeline);

}  // namespace lockstep::analysis
