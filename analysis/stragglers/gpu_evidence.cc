// Compares the clock and the throttling of a rank's GPU with those of the others.

#include <algorithm>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/rules/stragglers.h"
#include "analysis/stragglers/straggler_cause.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

double ThrottledShare(const GpuRow& gpu) {
  return gpu.samples > 0 ? static_cast<double>(gpu.throttled) / static_cast<double>(gpu.samples) : 0;
}

}  // namespace

std::optional<GpuEvidence> SlowClockOf(const Analysis& analysis, std::int32_t rank) {
  std::optional<GpuEvidence> worst;
  for (const GpuRow& own : analysis.gpus) {
    if (own.rank != rank) continue;
    std::vector<std::int64_t> clocks;
    std::vector<double> throttled;
    for (const GpuRow& other : analysis.gpus) {
      if (other.rank == rank || other.name != own.name) continue;
      if (other.sm_clock_mhz) clocks.push_back(*other.sm_clock_mhz);
      throttled.push_back(ThrottledShare(other));
    }
    if (throttled.empty()) continue;
    GpuEvidence evidence{own, std::nullopt};
    if (!clocks.empty()) evidence.others_sm_clock_mhz = LowerMedian(std::move(clocks));
    std::sort(throttled.begin(), throttled.end());
    const double share = ThrottledShare(own), others = throttled[(throttled.size() - 1) / 2];
    const bool known = own.sm_clock_mhz && evidence.others_sm_clock_mhz;
    const bool lower = known && static_cast<double>(*own.sm_clock_mhz) <=
                                    rules::kSlowGpuClock * static_cast<double>(*evidence.others_sm_clock_mhz);
    // If its clock is as high as the others', the throttle reasons cost nothing.
    const bool as_high = known && *own.sm_clock_mhz >= *evidence.others_sm_clock_mhz;
    if (!lower && (as_high || share < rules::kMuch || !StandsOut(share, others))) continue;
    if (!worst || own.sm_clock_mhz.value_or(0) < worst->gpu.sm_clock_mhz.value_or(0)) worst = std::move(evidence);
  }
  return worst;
}

Clause ClauseOf(const GpuEvidence& evidence) {
  const GpuRow& gpu = evidence.gpu;
  const auto known = [](const std::optional<std::int64_t>& value) {
    return If(value.has_value(), Index{value.value_or(0)});
  };
  return Say(gpu.sm_clock_mhz ? Word::kStragglerGpuClock : Word::kStragglerGpuThrottled,
             {{"clock_mhz", known(gpu.sm_clock_mhz)},
              {"others_clock_mhz", known(evidence.others_sm_clock_mhz)},
              {"throttled", If(gpu.throttled > 0, Index{gpu.throttled})},
              {"samples", Index{gpu.samples}},
              {"throttle_reasons", ThrottleReasons(gpu.throttle_reasons)},
              {"temperature_c", known(gpu.temperature_c)},
              {"power_w", If(gpu.power_mw.has_value(), Index{(gpu.power_mw.value_or(0) + 500) / 1000})}});
}

}  // namespace lockstep::analysis
