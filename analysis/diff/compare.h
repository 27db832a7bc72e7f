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
#include "analysis/words/clause.h"

namespace lockstep::diff {

enum class Verdict : std::uint8_t { kSame, kBetter, kWorse, kCannotTell };
std::string_view Name(Verdict verdict);  // "cannot tell"

// A measure that is worse by this much is a regression, if it was asked for. It decides no verdict.
struct Limit {
  std::string measure;
  double share = 0;                // Of the base's mean; used unless absolute_ns is given.
  std::optional<double> absolute;  // In the measure's unit.
  bool asked = false;              // From --fail-on.
  std::string text;                // "+3 %", as shown.
};

// "step_ns:+3%,exposed_wait_ns:+2ms,overlap_fraction:-5%". kUsage for unknown measures and for what is no limit.
Result<std::vector<Limit>> ParseLimits(std::string_view text);
inline constexpr std::string_view kDefaultLimits = "step_ns:+3%";

struct MeasureResult {
  const Measure* measure = nullptr;
  Limit limit;
  Spread base, now;
  Difference difference;               // In the measure's unit; 99 %.
  std::optional<Difference> relative;  // The same over the base's mean; empty where that is 0.
  Verdict verdict = Verdict::kCannotTell;
  bool beyond_limit = false;               // Worse, and by the limit or more.
  std::optional<analysis::Clause> reason;  // Set for "cannot tell".
  bool Regressed() const { return limit.asked && beyond_limit; }
};

enum class CauseKind : std::uint8_t {
  kRank,
  kAllRanks,
  kBlocked,
  kStraggler,
  kBuckets,
  kCollective,
  kPhase,
  kKernelsPerStep,
  kKernel,
  kOperator,
  kGpuClock,
  kRankPhase,
};
std::string_view Name(CauseKind kind);  // In JSON: "all_ranks".

// Something that changed and explains a difference, certainly or possibly.
struct Cause {
  CauseKind kind{};
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
  bool regression = false;  // A measure is worse by its requested limit.
  bool incomplete() const { return !base.incomplete.empty() || !now.incomplete.empty(); }
};

// kUnsupported with the reason for runs that cannot be compared, kUsage for one run given twice. `other_gpus`: those of
// different GPUs are compared.
Result<Comparison> Compare(RunSample base, RunSample now, const std::vector<Limit>& limits, bool other_gpus = false);
// The error for one run given twice.
Error SameRun(const std::string& base, const std::string& now);

// causes.cc
std::vector<Cause> FindCauses(const RunSample& base, const RunSample& now, const NameChanges& names);

}  // namespace lockstep::diff
