#pragma once
// Finds why a rank is late, the evidence for it, and what to do about it.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/stragglers/kernel_evidence.h"
#include "analysis/stragglers/straggler_price.h"

namespace lockstep::analysis {

struct StragglerCause {
  CauseId id = CauseId::kUnknown;
  bool per_step = true;  // What follows is of a step; else of all of a run without steps.
  // Compared with the median rank.
  std::optional<std::int64_t> more_compute_ns, more_blocked_ns, more_cpu_ns, more_delay_ns, more_input_ns;
  std::optional<std::int64_t> more_others_cpu_ns;  // CPU time of the process's other threads, likewise.
  std::optional<GpuEvidence> gpu;                  // For kClock, from its sensors.
  std::optional<KernelEvidence> kernels;           // For kKernel, and for kClock by its kernels.
  std::int64_t period = 0;                         // For kPeriodic, in steps.
  std::optional<StackPlace> stack;                 // Where in its program.
  std::optional<BlockedAt> blocked;                // Likewise, of what it is blocked in.
  std::vector<std::size_t> units;                  // In which it is late.
  std::int64_t price_ns = 0;  // What it costs in one of them, lower median; in all of a run without steps.
};

// Explains the rank at this position, whose lateness costs `price` by unit: the units after `from` if it drifts, and,
// if it is late in some units only, those in which it costs at least `limit_ns`.
StragglerCause Explain(const Context& context, const Analysis& analysis, std::size_t position,
                       const RankActivities& read, const std::vector<std::int64_t>& price, const Assessment& assessment,
                       double limit_ns);

// Where in its program the rank at this position is late: from samples of its stack, and from the calls that it was
// blocked in for longer than the others of `read`. `late_share`: the part of its time for which others wait for it.
// late_place.cc
void FindPlaces(const Context& context, std::size_t position, const RankActivities& read, double late_share,
                StragglerCause& cause, Straggler& straggler);

// The evidence that the rank's GPU runs at a lower clock than the others', or is throttled while the others are not;
// nothing otherwise. gpu_evidence.cc
std::optional<GpuEvidence> SlowClockOf(const Analysis& analysis, std::int32_t rank);
Clause ClauseOf(const GpuEvidence& evidence);

// `hosts`: of these ranks, "" not known.
Clause ActionFor(const StragglerCause& cause, const std::vector<std::int32_t>& ranks,
                 const std::set<std::string>& hosts);
std::vector<Clause> EvidenceFor(const Analysis& analysis, std::size_t position, const StragglerCause& cause,
                                const Straggler& straggler);
// The only part of the run in which it is late: "in steps 3-9"; nothing if that is not one stretch.
Clauses StretchOf(const Straggler& straggler);
// What the rank does: "computes 5.0 ms longer".
Clause BriefFor(const StragglerCause& cause);
// The evidence in a few words, for a finding about several ranks.
std::vector<Clause> BriefEvidenceFor(const Analysis& analysis, std::size_t position, const StragglerCause& cause,
                                     const Straggler& straggler, const std::string& host);
// The rank's costliest units, for --explain. `by_work`: `late` is of work; in a run without steps what each rank works
// in all, most first. late_place.cc
Evidence RowsFor(const Context& context, const std::vector<std::int64_t>& price, const LatenessTable& late,
                 std::size_t position, bool by_work);

}  // namespace lockstep::analysis
