#pragma once
// Why a rank is late, what shows it, and what to do about it.

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/stragglers/kernel_evidence.h"
#include "analysis/stragglers/straggler_price.h"

namespace lockstep::analysis {

struct StragglerCause {
  CauseId id = CauseId::kUnknown;
  std::optional<std::int64_t> more_compute_ns, more_cpu_ns, more_delay_ns, more_input_ns;  // Than the median rank.
  std::optional<GpuEvidence> gpu;                                                          // Of kClock, by its sensors.
  std::optional<KernelEvidence> kernels;  // Of kKernel, and of kClock by its kernels.
  std::int64_t period = 0;                // Of kPeriodic, in steps.
};

// Of the rank at this position, whose lateness costs `price` by unit; from `from` on if it drifts, and where it is late
// in some units only, over those in which it costs `limit_ns`.
StragglerCause Explain(const Context& context, const Analysis& analysis, std::size_t position,
                       const RankActivities& read, const std::vector<std::int64_t>& price, const Assessment& assessment,
                       double limit_ns);

// The rank's GPU runs at a clock that is lower than the others', or is throttled where the others are not;
// nothing else is worth telling. gpu_evidence.cc
std::optional<GpuEvidence> SlowClockOf(const Analysis& analysis, std::int32_t rank);
std::string SlowClockText(const GpuEvidence& evidence);

// `name` and `node`: "rank 3", "node0"; or of several.
std::string ActionFor(const StragglerCause& cause, const std::string& name, const std::string& node);
std::string EvidenceFor(const Analysis& analysis, std::size_t position, const StragglerCause& cause,
                        const Straggler& straggler);
// What it does: "computes 5.0 ms longer".
std::string BriefFor(const StragglerCause& cause);
// The evidence in a few words, for one of several.
std::string BriefEvidenceFor(const Analysis& analysis, std::size_t position, const StragglerCause& cause,
                             const Straggler& straggler);
// The rank's costliest units, for --explain.
Evidence RowsFor(const Context& context, const std::vector<std::int64_t>& price, const LatenessTable& late,
                 std::size_t position);

}  // namespace lockstep::analysis
