#pragma once
// Finds where the host waits for the GPU: the call, and the operator and range around it.

#include <compare>
#include <string>

#include "analysis/causes/rank_events.h"
#include "analysis/words/clause.h"

namespace lockstep::analysis {

struct SyncSite {
  std::string call, op, range;  // "" if there is none.
  friend auto operator<=>(const SyncSite&, const SyncSite&) = default;
};

// Finds the operator that the program called (aten::item, not the ones that it calls), and the innermost range of the
// application.
SyncSite SiteOf(const RankEvents& events, const gpu::BlockingCall& call);
// "aten::item (cudaStreamSynchronize) in "log_loss"".
Clause Where(const SyncSite& site);

}  // namespace lockstep::analysis
