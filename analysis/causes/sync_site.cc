#include "analysis/causes/sync_site.h"

#include <cstdint>
#include <string_view>

#include "analysis/core/step_names.h"

namespace lockstep::analysis {

SyncSite SiteOf(const RankEvents& events, const gpu::BlockingCall& call) {
  constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp, kTorch = schema::RangeSource::kTorch;
  SyncSite site{gpu::BlockingName(events.view(), call), {}, {}};
  if (call.thread == schema::kNone) return site;
  const auto& ranges = events.view().tables.ranges;
  for (std::uint32_t range = events.nest().At(call.thread, call.begin_ns); range != schema::kNone;
       range = events.nest().Parent(range)) {
    const std::uint8_t source = ranges.source[range];
    if (source == kCpuOp) {
      // aten::item calls aten::_local_scalar_dense: the program called the outer one.
      const std::string_view name = events.RangeName(range);
      if (site.op.empty() || (name.starts_with("aten::") && site.op.starts_with("aten::") && site.range.empty()))
        site.op = name;
    } else if (source <= kTorch && site.range.empty() && !IsProfilerStep(events.RangeName(range))) {
      site.range = events.RangeName(range);
    }
  }
  return site;
}

Clause Where(const SyncSite& site) {
  return Say(site.op.empty() ? Word::kSyncInCall : Word::kSyncInOperator,
             {{"call", ShortName(site.call)}, {"operator", ShortName(site.op)}, {"range", ShortName(site.range)}});
}

}  // namespace lockstep::analysis
