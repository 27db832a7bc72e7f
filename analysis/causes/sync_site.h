#pragma once
// Where the host waits for the GPU: the call, and what is around it.

#include <compare>
#include <string>

#include "analysis/causes/rank_events.h"

namespace lockstep::analysis {

struct SyncSite {
  std::string call, op, range;  // "" none.
  friend auto operator<=>(const SyncSite&, const SyncSite&) = default;
};

// The operator that the program wrote (aten::item, not what that calls), and the innermost range of the application.
SyncSite SiteOf(const RankEvents& events, const gpu::BlockingCall& call);
// "aten::item (cudaStreamSynchronize) in "log_loss"".
std::string Where(const SyncSite& site);

}  // namespace lockstep::analysis
