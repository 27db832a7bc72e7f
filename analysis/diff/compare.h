#pragma once
// Compares two runs: each measure is better, worse, the same or undecided, with the causes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/diff/measures.h"
#include "analysis/diff/names.h"
#include "analysis/diff/sample.h"

namespace lockstep::diff {

enum class Verdict : std::uint8_t { kSame, kBetter, kWorse, kCannotTell };
std::string_view Name(Verdict verdict);  // "cannot tell"

// A change must exceed this to count.
struct Limit {
  std::string measure;
  double share = 0;                // Of the base's mean; used unless absolute_ns is given.
  std::optional<double> absolute;  // In the measure's unit.
  bool asked = false;  // From --fail-on: worse counts as a regression, and the interval is 95 % (else 99 %).
  std::string text;    // "+3 %", as shown.
};

// "step_ns:+3%,exposed_wait_ns:+2ms,overlap_fraction:-5%". kUsage for unknown measures and for what is no limit.
Result<std::vector<Limit>> ParseLimits(std::string_view text);
inline constexpr std::string_view kDefaultLimits = "step_ns:+3%";

// With at least so many steps on both sides the intervals decide as they are. With fewer, the steps may all come from
// one phase of the run, which no interval of so few shows: then only a change counts whose whole 99 % interval is
// beyond the limit and beyond this share of the measure, and no measure is called the same. Below the second number it
// is unknown how much steps vary by themselves.
inline constexpr std::int64_t kEnoughSteps = 20, kFewestSteps = 3;
inline constexpr double kFewStepsShare = 0.1;
// Measures without a limit from the user count as changed from this share of themselves, and of the step, on.
inline constexpr double kOtherShare = 0.05, kOtherStepShare = 0.01;

struct MeasureResult {
  const Measure* measure = nullptr;
  Limit limit;
  Spread base, now;
  Difference difference;               // In the measure's unit.
  std::optional<Difference> relative;  // The same over the base's mean; empty where that is 0.
  Verdict verdict = Verdict::kCannotTell;
  std::string reason;  // Set for "cannot tell".
};

// Something that changed and explains a difference, certainly or possibly.
struct Cause {
  std::string kind;        // rank, all_ranks, collective, buckets, kernel, operator, kernels_per_step, phase,
                           // gpu_clock, straggler, blocked.
  std::int32_t rank = -1;  // The rank that it names.
  std::string what;        // Of the collective, kernel, operator, phase or place.
  std::string sentence;
  std::optional<double> change_ns;                       // Per step; + is slower.
  std::optional<std::pair<double, double>> interval_ns;  // 99 %.
};

struct Comparison {
  RunSample base, now;
  std::vector<MeasureResult> measures;  // In the order of Measures(); those that neither run has left out.
  std::vector<Cause> causes;            // Largest first.
  NameChanges names;
  std::vector<std::string> remarks;
  Verdict verdict = Verdict::kCannotTell;  // Of the step.
  std::string sentence;
  bool regression = false;  // A measure with a requested limit is worse.
  bool incomplete() const { return !base.incomplete.empty() || !now.incomplete.empty(); }
};

// kUnsupported with the reason for runs that cannot be compared.
Result<Comparison> Compare(RunSample base, RunSample now, const std::vector<Limit>& limits);

// causes.cc
std::vector<Cause> FindCauses(const RunSample& base, const RunSample& now, const NameChanges& names);

}  // namespace lockstep::diff
