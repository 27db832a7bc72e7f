#pragma once
// Finds the steps of a run: the ranks' own marks, combined by their numbers, or, where no step was marked, the
// repeating signature of the collectives.

#include <cstdint>
#include <vector>

#include "core/interval.h"
#include "merge/match/collectives.h"
#include "merge/readers/run_files.h"

namespace lockstep::merge {

using schema::StepSource;

// One step on one rank, rank clock, as marked on the host.
struct RankStep {
  std::int64_t index;
  Interval window;
  bool complete, warmup;
  std::int64_t cpu_ns;              // Of the marking thread, -1 unknown.
  std::int64_t others_cpu_ns = -1;  // Of its process's other threads, likewise.
};

// One of a rank's steps, by index; null if it does not exist.
const RankStep* FindStep(const std::vector<RankStep>& steps, std::int64_t index);

// What the times of steps' windows are. kFoundOnGpu: the GPU's, of collectives that it carries out.
enum class StepTimes : std::uint8_t { kMarked, kFoundOnHost, kFoundOnGpu };

struct JobSteps {
  std::vector<std::vector<RankStep>> ranks;  // As the ranks were given; by index; windows do not overlap.
  std::vector<std::int64_t> common;          // Indices complete on every rank that has steps.
  StepSource::Value source = StepSource::kMark;
  StepTimes times = StepTimes::kMarked;
  std::uint64_t mismatched = 0;
  std::vector<RunLoss> losses;
};

// `matched` must hold the instances of the same ranks (used for signatures only).
JobSteps FindSteps(const std::vector<MatchRank>& ranks, const MatchedCollectives& matched);

// The period of a sequence of symbols that repeats itself, 0 if it does not do so clearly: at least three repeats,
// three quarters of the sequence, 98 % of the symbols in it agree. The repetition is [first, end): what comes before
// and after may be anything.
struct Period {
  std::size_t length = 0, first = 0, end = 0;
};
Period FindPeriod(const std::vector<std::uint64_t>& symbols);

// How many repetitions of a period make one that is alike in time as well, where those of the period itself take turns:
// a forward and a backward pass with the same collectives. By two measures of each repetition; 1: they do not.
std::size_t TurnsInTime(const std::vector<std::int64_t>& lengths_ns, const std::vector<std::int64_t>& moving_ns);

// Steps of source kSignature for each rank; empty if there is no clear period on
// a communicator of all ranks, or if a tenth of the time from the first operation to the last is not in them, or half
// of it, the longest twentieth of them left out, or if they make no sense: one without length, or the longest hundredth
// kStepsApart times as long as the shortest tenth. Boundary: the end of the last collective before the longest pause
// within a period.
struct FoundSteps {
  std::vector<std::vector<RankStep>> ranks;
  StepTimes times = StepTimes::kFoundOnHost;
};
FoundSteps StepsFromSignature(const std::vector<MatchRank>& ranks, const MatchedCollectives& matched);

}  // namespace lockstep::merge
